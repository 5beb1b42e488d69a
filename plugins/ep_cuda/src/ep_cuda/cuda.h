// The prelude for compilers of CUDA C++, NVRTC first; see common.cl.
//
// It gives the words of OpenCL C that kernels use a meaning in CUDA C++ 17, without any header. The
// compiler is told that functions are device functions by default (-default-device) and that a
// product and a sum are rounded one after the other (--fmad=false).
//
// A launch has as many work-items as its range says, in up to three dimensions. Groups may reach
// beyond the range, and a launch may be done in slices, as grids end at 65535 groups in two of their
// dimensions. So every kernel has a last parameter and a first statement that its source doesn't
// show: who makes the program's text puts EP_RANGE_PARAMETER before the end of the parameters, and
// EP_RANGE_GUARD behind the brace that opens the body.

#define HAS_DOUBLE

#define UNROLL _Pragma("unroll")
#define GROUP_SIZE(x, y, z) __launch_bounds__((x) * (y) * (z))

#define __kernel extern "C" __global__
#define __global
#define __local __shared__
#define restrict __restrict__

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long long ulong;

// Of 64 bits, also where the host's compiler says 32; and signed, also where it says otherwise.
#define long long long
#define char signed char

// size: work-items. first: the group with which this slice begins.
struct ep_range {
    ulong size[3];
    uint first[3];
};

#define EP_RANGE_PARAMETER , const ep_range range_of_launch
#define EP_RANGE_GUARD \
    if (get_global_id(0) >= get_global_size(0) || get_global_id(1) >= get_global_size(1) \
        || get_global_id(2) >= get_global_size(2)) \
        return;

#define OF_DIMENSION_0(vector) vector.x
#define OF_DIMENSION_1(vector) vector.y
#define OF_DIMENSION_2(vector) vector.z
#define get_local_id(n) OF_DIMENSION_##n(threadIdx)
#define get_group_id(n) ((ulong)range_of_launch.first[n] + OF_DIMENSION_##n(blockIdx))
#define get_global_id(n) (get_group_id(n) * OF_DIMENSION_##n(blockDim) + get_local_id(n))
#define get_global_size(n) (range_of_launch.size[n])

#define CLK_LOCAL_MEM_FENCE
#define barrier(fence) __syncthreads()
#define atomic_max atomicMax

// Arguments that are vectors. The compiler has types of these names, with other members.
struct ep_int4 {
    int x, y, z, w;
};
struct ep_long4 {
    long s0, s1, s2, s3;
};
struct ep_long8 {
    long s0, s1, s2, s3, s4, s5, s6, s7;
};
#define int4 ep_int4
#define long4 ep_long4
#define long8 ep_long8

#define CHAR_MIN (-128)
#define CHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295U
#define LONG_MIN (-9223372036854775807LL - 1)
#define LONG_MAX 9223372036854775807LL
#define ULONG_MAX 18446744073709551615ULL
#define INFINITY __int_as_float(0x7F800000)
#define NAN __int_as_float(0x7FC00000)

inline float as_float(uint bits) { return __uint_as_float(bits); }
inline uint as_uint(float value) { return __float_as_uint(value); }

// Operands of two types are compared in the type of their sum.
template <class A, class B>
inline decltype(A() + B()) smaller_of(A a, B b)
{
    typedef decltype(A() + B()) Common;
    return (Common)b < (Common)a ? (Common)b : (Common)a;
}

template <class A, class B>
inline decltype(A() + B()) larger_of(A a, B b)
{
    typedef decltype(A() + B()) Common;
    return (Common)a < (Common)b ? (Common)b : (Common)a;
}

#define min smaller_of
#define max larger_of
#define clamp(value, low, high) smaller_of(larger_of(value, low), high)

// Towards zero; a NaN gives 0.
inline uchar convert_uchar_sat(float value)
{
    return value != value ? 0 : (uchar)clamp(value, 0.0f, 255.0f);
}

inline int convert_int_sat(float value)
{
    if (value != value) return 0;
    if (value >= 2147483648.0f) return INT_MAX;
    return value <= -2147483648.0f ? INT_MIN : (int)value;
}

struct f16_stored {
    ushort bits;
};

#ifdef __CUDA_ARCH__
inline float widened_f16(ushort bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

inline ushort narrowed_f16(float value)
{
    ushort bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#else
// For a processor: the same by way of integers.
inline float widened_f16(ushort bits)
{
    const uint sign = (uint)(bits & 0x8000) << 16;
    const uint rest = bits & 0x7FFF;
    if (rest >= 0x7C00) return as_float(sign | 0x7F800000 | (rest & 0x3FF) << 13);
    // A half's bits as those of a float are 2^112 too small, subnormal ones too.
    return as_float(sign | as_uint(as_float(rest << 13) * as_float(0x77800000)));
}

inline ushort narrowed_f16(float value)
{
    const uint sign = (as_uint(value) >> 16) & 0x8000;
    const uint rest = as_uint(value) & 0x7FFFFFFF;
    if (rest > 0x7F800000) return (ushort)(sign | 0x7E00);
    if (rest >= 0x477FF000) return (ushort)(sign | 0x7C00);
    // Below the smallest normal half, adding 0.5 leaves as many bits as a half has, rounded.
    if (rest < 0x38800000) return (ushort)(sign | (as_uint(as_float(rest) + 0.5f) - 0x3F000000));
    return (ushort)(sign | (rest - 0x38000000 + 0xFFF + ((rest >> 13) & 1)) >> 13);
}
#endif

inline float rounded_f16(float value) { return widened_f16(narrowed_f16(value)); }
#define LOAD_f16(p, i) widened_f16((p)[i].bits)
#define STORE_f16(p, i, v) ((p)[i].bits = narrowed_f16(v))
