// A thin layer over GCC's and Clang's vector extensions; every kernel is written once on top of it.
//
// A file of kernels is compiled once per set of instructions, with EP_LEVEL naming the set. All that
// such a file defines lies in the namespace of its level or in an unnamed one, and it includes no
// header of the C++ library that defines functions: the linker may keep any one copy of an inline
// function, and a copy with wide instructions must not run on a processor without them.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#ifndef EP_LEVEL
#error "EP_LEVEL names the set of instructions that this file is compiled for"
#endif

// Before a loop over registers: unless it is unrolled whole, compilers keep the registers in memory.
#ifdef __clang__
#define EP_UNROLL _Pragma("clang loop unroll(full)")
#else
#define EP_UNROLL _Pragma("GCC unroll 16")
#endif

#define EP_INLINE inline __attribute__((always_inline))

namespace ep::EP_LEVEL {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

/// `Lanes` numbers; comparisons of two give a mask of all ones or zeros per lane.
template <int Lanes> struct VectorTypes {
  typedef float Float __attribute__((vector_size(Lanes * 4)));
  typedef int32_t Int __attribute__((vector_size(Lanes * 4)));
  typedef uint32_t Wrapping __attribute__((vector_size(Lanes * 4)));
  typedef float LooseFloat __attribute__((vector_size(Lanes * 4), aligned(4), may_alias));
  typedef int32_t LooseInt __attribute__((vector_size(Lanes * 4), aligned(4), may_alias));
};

using Vec = VectorTypes<kLanes>::Float;
using IntVec = VectorTypes<kLanes>::Int;
using WrappingVec = VectorTypes<kLanes>::Wrapping;

EP_INLINE Vec load(const float *from) {
  return *reinterpret_cast<const VectorTypes<kLanes>::LooseFloat *>(from);
}

EP_INLINE void store(float *to, Vec value) {
  *reinterpret_cast<VectorTypes<kLanes>::LooseFloat *>(to) = value;
}

// Subtracting 0 changes no number, so compilers leave it out; adding 0 would change -0.
EP_INLINE Vec broadcast(float value) { return value - Vec{}; }

EP_INLINE IntVec bits(Vec value) { return reinterpret_cast<IntVec>(value); }

/// a - b, wrapping around.
EP_INLINE IntVec difference(IntVec a, IntVec b) {
  return reinterpret_cast<IntVec>(reinterpret_cast<WrappingVec>(a) -
                                  reinterpret_cast<WrappingVec>(b));
}

EP_INLINE Vec from_bits(IntVec value) { return reinterpret_cast<Vec>(value); }

/// The first `count` floats, 0 in the other lanes.
EP_INLINE Vec load_part(const float *from, int count) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from));
#else
  Vec value = {};
  for (int i = 0; i < kLanes; ++i)
    if (i < count)
      value[i] = from[i];
  return value;
#endif
}

EP_INLINE void store_part(float *to, Vec value, int count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), reinterpret_cast<__m512>(value));
#else
  for (int i = 0; i < kLanes; ++i)
    if (i < count)
      to[i] = value[i];
#endif
}

/// Lane by lane: `yes` where the mask has ones, else `no`.
EP_INLINE Vec choose(IntVec mask, Vec yes, Vec no) { return mask ? yes : no; }

/// The larger one; NaN in either gives NaN.
EP_INLINE Vec larger(Vec a, Vec b) { return choose((a > b) | (a != a), a, b); }

/// The smaller one; NaN in either gives NaN.
EP_INLINE Vec smaller(Vec a, Vec b) { return choose((a < b) | (a != a), a, b); }

/// `value`, but no less than `low`; NaN stays.
EP_INLINE Vec no_less(Vec value, Vec low) {
#if defined(__AVX512F__) // these give their second operand where one is NaN
  return reinterpret_cast<Vec>(
      _mm512_max_ps(reinterpret_cast<__m512>(low), reinterpret_cast<__m512>(value)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(
      _mm256_max_ps(reinterpret_cast<__m256>(low), reinterpret_cast<__m256>(value)));
#else
  return choose(value < low, low, value);
#endif
}

/// `value`, but no more than `high`; NaN stays.
EP_INLINE Vec no_more(Vec value, Vec high) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(
      _mm512_min_ps(reinterpret_cast<__m512>(high), reinterpret_cast<__m512>(value)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(
      _mm256_min_ps(reinterpret_cast<__m256>(high), reinterpret_cast<__m256>(value)));
#else
  return choose(value > high, high, value);
#endif
}

/// `value` between two bounds; NaN stays.
EP_INLINE Vec clamp(Vec value, Vec low, Vec high) { return no_more(no_less(value, low), high); }

EP_INLINE Vec absolute(Vec value) { return from_bits(bits(value) & 0x7fffffff); }

/// `magnitude` with the sign of `sign`.
EP_INLINE Vec with_sign(Vec magnitude, Vec sign) {
  return from_bits((bits(magnitude) & 0x7fffffff) | (bits(sign) & INT32_MIN));
}

EP_INLINE Vec square_root(Vec value) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_sqrt_ps(reinterpret_cast<__m512>(value)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_sqrt_ps(reinterpret_cast<__m256>(value)));
#else
  for (int i = 0; i < kLanes; ++i)
    value[i] = __builtin_sqrtf(value[i]);
  return value;
#endif
}

/// To the nearest integer, halves to the even one.
EP_INLINE Vec round_even(Vec value) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(_mm512_roundscale_ps(reinterpret_cast<__m512>(value), 8));
#elif defined(__AVX2__)
  return reinterpret_cast<Vec>(_mm256_round_ps(reinterpret_cast<__m256>(value), 8));
#else
  // From 2^23 on every number is an integer; below, adding 2^23 leaves no bits for a fraction.
  const Vec size = absolute(value);
  const Vec rounded = with_sign((size + 8388608.0f) - 8388608.0f, value);
  return choose(size < 8388608.0f, rounded, value);
#endif
}

EP_INLINE IntVec to_int(Vec value) { return __builtin_convertvector(value, IntVec); }

EP_INLINE Vec to_float(IntVec value) { return __builtin_convertvector(value, Vec); }

/// value * 2^power for whole powers in [-150, 128], where results may be denormal or infinite.
EP_INLINE Vec scale_by_power(Vec value, Vec power) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vec>(
      _mm512_scalef_ps(reinterpret_cast<__m512>(value), reinterpret_cast<__m512>(power)));
#else
  // In two factors: the power goes beyond what one exponent can hold.
  const IntVec whole = to_int(power);
  const IntVec half = whole >> 1;
  return value * from_bits((half + 127) << 23) * from_bits((whole - half + 127) << 23);
#endif
}

/// Sums in a tree, so that the error grows with the logarithm of the lanes.
EP_INLINE float sum_of(Vec value) {
  float part[kLanes];
  store(part, value);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int i = 0; i < width; ++i)
      part[i] += part[i + width];
  return part[0];
}

/// The largest lane; NaN if one is NaN.
EP_INLINE float largest_of(Vec value) {
  float best = value[0];
  for (int i = 1; i < kLanes; ++i)
    best = (value[i] > best || value[i] != value[i]) ? value[i] : best;
  return best;
}

} // namespace
} // namespace ep::EP_LEVEL
