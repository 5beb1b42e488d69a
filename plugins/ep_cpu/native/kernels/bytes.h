// 8-bit integers in vectors of 32-bit lanes, and the kernels between them and floats.
#pragma once

#include "kernels.h"
#include "simd.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace ep::EP_LEVEL {
namespace {

typedef int8_t ByteVec __attribute__((vector_size(kLanes)));
typedef uint8_t WideByteVec __attribute__((vector_size(kLanes)));
typedef int8_t LooseBytes __attribute__((vector_size(kLanes), aligned(1), may_alias));
typedef uint8_t LooseWideBytes __attribute__((vector_size(kLanes), aligned(1), may_alias));

using LooseInts = VectorTypes<kLanes>::LooseInt;

EP_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

EP_INLINE IntVec nearest(Vec value) {
#if defined(__AVX512F__)
  return reinterpret_cast<IntVec>(_mm512_cvtps_epi32(reinterpret_cast<__m512>(value)));
#elif defined(__AVX2__)
  return reinterpret_cast<IntVec>(_mm256_cvtps_epi32(reinterpret_cast<__m256>(value)));
#elif defined(__SSE2__)
  return reinterpret_cast<IntVec>(_mm_cvtps_epi32(reinterpret_cast<__m128>(value)));
#else
  return to_int(round_even(value));
#endif
}

/// The low bytes of all lanes.
EP_INLINE void store_bytes(uint8_t *to, IntVec value) {
  const ByteVec bytes = __builtin_convertvector(value, ByteVec);
  __builtin_memcpy(to, &bytes, sizeof(bytes));
}

EP_INLINE void store_bytes(uint8_t *to, IntVec value, int count) {
  if (count == kLanes) {
    store_bytes(to, value);
    return;
  }
  for (int i = 0; i < count; ++i)
    to[i] = static_cast<uint8_t>(value[i]);
}

EP_INLINE IntVec load_bytes(const uint8_t *from, bool is_signed) {
#if defined(__AVX512F__)
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
  return reinterpret_cast<IntVec>(is_signed ? _mm512_cvtepi8_epi32(bytes)
                                            : _mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(from));
  return reinterpret_cast<IntVec>(is_signed ? _mm256_cvtepi8_epi32(bytes)
                                            : _mm256_cvtepu8_epi32(bytes));
#else
  if (is_signed)
    return __builtin_convertvector(
        static_cast<ByteVec>(*reinterpret_cast<const LooseBytes *>(from)), IntVec);
  return __builtin_convertvector(
      static_cast<WideByteVec>(*reinterpret_cast<const LooseWideBytes *>(from)), IntVec);
#endif
}

EP_INLINE IntVec load_bytes(const uint8_t *from, bool is_signed, int count) {
  if (count == kLanes)
    return load_bytes(from, is_signed);
  uint8_t bytes[kLanes] = {};
  for (int i = 0; i < count; ++i)
    bytes[i] = from[i];
  return load_bytes(bytes, is_signed);
}

EP_INLINE WrappingVec load_integers(const int32_t *from, int count) {
  WrappingVec value = {};
  if (count == kLanes)
    __builtin_memcpy(&value, from, sizeof(value));
  else
    for (int i = 0; i < count; ++i)
      value[i] = static_cast<uint32_t>(from[i]);
  return value;
}

EP_INLINE Vec load_floats(const float *from, int count) {
  return count == kLanes ? load(from) : load_part(from, count);
}

} // namespace

void quantise(const float *x, uint8_t *out, int64_t count, float scale, float zero, float low,
              float high);
void dequantise(const uint8_t *x, bool is_signed, float *out, int64_t count, float scale,
                float zero);
void unpack_nibbles(const uint8_t *codes, const float *scales, const float *zeros, int64_t k,
                    int64_t block, int64_t columns, float *out);
void bounds(const float *x, int64_t count, float *smallest, float *largest);
void add_bytes(const uint8_t *a, const uint8_t *b, uint8_t *out, int64_t count, bool a_signed,
               bool b_signed, float a_factor, float b_factor, float offset, float low, float high,
               int32_t zero);

} // namespace ep::EP_LEVEL
