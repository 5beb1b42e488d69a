// What every kernel shares: element types and how they are read, computed with, and written.
//
// An element type has a short code: f32 f16 bf16 f64 i8 i16 i32 i64 u8 u16 u32 u64 b8. For a code T
//   STORED(T)     how it lies in memory
//   COMPUTED(T)   what arithmetic is done in: float for the narrow floats
//   SUM(T)        what long sums are kept in
//   LOAD(T, p, i) and STORE(T, p, i, value) convert between the two, rounding to nearest even.
//
// Kernels are written in these words, in those of a prelude, and in OpenCL C 1.2, of which a prelude
// for another compiler has to define what that one lacks. A prelude comes before this file and says
//   HAS_DOUBLE               defined where there are 64-bit floats
//   UNROLL                   before a loop: unroll it
//   GROUP_SIZE(x, y, z)      behind __kernel: the kernel is launched in groups of this size
//   f16_stored               a half in memory; only read and written by the next two
//   LOAD_f16(p, i), STORE_f16(p, i, v), rounded_f16(v)   as floats, rounding to nearest even
// and sees to it that a * b + c is rounded twice, as the operators Mul and Add would: products ask
// for fma by name.

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define STORED(T) JOIN(T, _stored)
#define COMPUTED(T) JOIN(T, _computed)
#define SUM(T) JOIN(T, _sum)
#define LOAD(T, p, i) JOIN(LOAD_, T)(p, i)
#define STORE(T, p, i, v) JOIN(STORE_, T)(p, i, v)
#define ROUNDED(T, v) JOIN(rounded_, T)(v)
#define LOWEST(T) JOIN(LOWEST_, T)
#define HIGHEST(T) JOIN(HIGHEST_, T)

typedef float f32_stored; typedef float f32_computed; typedef float f32_sum;
typedef float f16_computed; typedef float f16_sum;
typedef ushort bf16_stored; typedef float bf16_computed; typedef float bf16_sum;
typedef char i8_stored; typedef char i8_computed; typedef int i8_sum;
typedef short i16_stored; typedef short i16_computed; typedef int i16_sum;
typedef int i32_stored; typedef int i32_computed; typedef int i32_sum;
typedef long i64_stored; typedef long i64_computed; typedef long i64_sum;
typedef uchar u8_stored; typedef uchar u8_computed; typedef uint u8_sum;
typedef ushort u16_stored; typedef ushort u16_computed; typedef uint u16_sum;
typedef uint u32_stored; typedef uint u32_computed; typedef uint u32_sum;
typedef ulong u64_stored; typedef ulong u64_computed; typedef ulong u64_sum;
typedef uchar b8_stored; typedef uchar b8_computed; typedef uint b8_sum;
#ifdef HAS_DOUBLE
typedef double f64_stored; typedef double f64_computed; typedef double f64_sum;
#endif

inline float widened_bf16(ushort bits) { return as_float((uint)bits << 16); }

inline ushort narrowed_bf16(float value)
{
    uint bits = as_uint(value);
    // A NaN must not become an infinity by rounding its mantissa away.
    if (value != value) return (ushort)((bits >> 16) | 0x40);
    return (ushort)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline float rounded_bf16(float value) { return widened_bf16(narrowed_bf16(value)); }
#define rounded_f32(v) (v)
#define rounded_f64(v) (v)
#define rounded_i8(v) (v)
#define rounded_i16(v) (v)
#define rounded_i32(v) (v)
#define rounded_i64(v) (v)
#define rounded_u8(v) (v)
#define rounded_u16(v) (v)
#define rounded_u32(v) (v)
#define rounded_u64(v) (v)
#define rounded_b8(v) (v)

#define LOAD_f32(p, i) ((p)[i])
#define LOAD_bf16(p, i) widened_bf16((p)[i])
#define LOAD_f64(p, i) ((p)[i])
#define LOAD_i8(p, i) ((p)[i])
#define LOAD_i16(p, i) ((p)[i])
#define LOAD_i32(p, i) ((p)[i])
#define LOAD_i64(p, i) ((p)[i])
#define LOAD_u8(p, i) ((p)[i])
#define LOAD_u16(p, i) ((p)[i])
#define LOAD_u32(p, i) ((p)[i])
#define LOAD_u64(p, i) ((p)[i])
#define LOAD_b8(p, i) ((p)[i])

#define STORE_f32(p, i, v) ((p)[i] = (v))
#define STORE_bf16(p, i, v) ((p)[i] = narrowed_bf16(v))
#define STORE_f64(p, i, v) ((p)[i] = (v))
#define STORE_i8(p, i, v) ((p)[i] = (v))
#define STORE_i16(p, i, v) ((p)[i] = (v))
#define STORE_i32(p, i, v) ((p)[i] = (v))
#define STORE_i64(p, i, v) ((p)[i] = (v))
#define STORE_u8(p, i, v) ((p)[i] = (v))
#define STORE_u16(p, i, v) ((p)[i] = (v))
#define STORE_u32(p, i, v) ((p)[i] = (v))
#define STORE_u64(p, i, v) ((p)[i] = (v))
#define STORE_b8(p, i, v) ((p)[i] = (v))

#define LOWEST_f32 (-INFINITY)
#define LOWEST_f16 (-INFINITY)
#define LOWEST_bf16 (-INFINITY)
#define LOWEST_f64 (-(double)INFINITY)
#define LOWEST_i8 CHAR_MIN
#define LOWEST_i16 SHRT_MIN
#define LOWEST_i32 INT_MIN
#define LOWEST_i64 LONG_MIN
#define LOWEST_u8 0
#define LOWEST_u16 0
#define LOWEST_u32 0
#define LOWEST_u64 0
#define LOWEST_b8 0
#define HIGHEST_f32 INFINITY
#define HIGHEST_f16 INFINITY
#define HIGHEST_bf16 INFINITY
#define HIGHEST_f64 ((double)INFINITY)
#define HIGHEST_i8 CHAR_MAX
#define HIGHEST_i16 SHRT_MAX
#define HIGHEST_i32 INT_MAX
#define HIGHEST_i64 LONG_MAX
#define HIGHEST_u8 UCHAR_MAX
#define HIGHEST_u16 USHRT_MAX
#define HIGHEST_u32 UINT_MAX
#define HIGHEST_u64 ULONG_MAX
#define HIGHEST_b8 1

// The larger and the smaller of two; a NaN wins.
#define LARGER(a, b) (((a) > (b) || (a) != (a)) ? (a) : (b))
#define SMALLER(a, b) (((a) < (b) || (a) != (a)) ? (a) : (b))

// The same, but a NaN in the second operand is no bound.
#define LARGER_OR_NAN(a, bound) ((a) < (bound) ? (bound) : (a))
#define SMALLER_OR_NAN(a, bound) ((a) > (bound) ? (bound) : (a))
