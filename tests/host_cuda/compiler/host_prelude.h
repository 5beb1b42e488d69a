// CUDA C++ for the host's compiler: what comes before the text of a program.
//
// No header is included, which keeps compiling short. Blocks run one after the other. Threads of a
// block that has a barrier are fibers of one thread of the host: each runs until it waits. The order
// of blocks and threads can be chosen, so that a missing barrier shows in some order.

#include "host_kernel.h"

#define __global__ __attribute__((__used__, __noinline__))
#define __device__
#define __host__
#define __forceinline__ inline
#define __constant__
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __syncthreads() host_cuda_wait()

// One piece of memory for all blocks, which is filled anew before each of them.
#define __shared__ static __attribute__((section("host_shared")))

typedef decltype(sizeof 0) size_t;

struct uint3 {
    unsigned x, y, z;
};

static uint3 threadIdx, blockIdx, blockDim, gridDim;

extern "C" void host_cuda_wait();

// Bits.

inline float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
inline int __float_as_int(float value) { return __builtin_bit_cast(int, value); }
inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
inline unsigned __float_as_uint(float value) { return __builtin_bit_cast(unsigned, value); }

// Atomics: threads of a block never run at the same time, but blocks of two streams may.

template <class T>
inline T atomicMax(T *at, T value)
{
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (old < value
           && !__atomic_compare_exchange_n(
               at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

template <class T>
inline T atomicAdd(T *at, T value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

// Functions of floats: the host's library has other last bits than the device's.

#define HOST_FUNCTION_1(name) \
    inline float name(float x) { return __builtin_##name##f(x); } \
    inline double name(double x) { return __builtin_##name(x); }
#define HOST_FUNCTION_2(name) \
    inline float name(float x, float y) { return __builtin_##name##f(x, y); } \
    inline double name(double x, double y) { return __builtin_##name(x, y); }

HOST_FUNCTION_1(acos)
HOST_FUNCTION_1(acosh)
HOST_FUNCTION_1(asin)
HOST_FUNCTION_1(asinh)
HOST_FUNCTION_1(atan)
HOST_FUNCTION_1(atanh)
HOST_FUNCTION_1(ceil)
HOST_FUNCTION_1(cos)
HOST_FUNCTION_1(cosh)
HOST_FUNCTION_1(erf)
HOST_FUNCTION_1(exp)
HOST_FUNCTION_1(expm1)
HOST_FUNCTION_1(fabs)
HOST_FUNCTION_1(floor)
HOST_FUNCTION_1(log)
HOST_FUNCTION_1(log1p)
HOST_FUNCTION_1(log2)
HOST_FUNCTION_1(rint)
HOST_FUNCTION_1(round)
HOST_FUNCTION_1(sin)
HOST_FUNCTION_1(sinh)
HOST_FUNCTION_1(sqrt)
HOST_FUNCTION_1(tan)
HOST_FUNCTION_1(tanh)
HOST_FUNCTION_1(trunc)
HOST_FUNCTION_2(atan2)
HOST_FUNCTION_2(copysign)
HOST_FUNCTION_2(fmax)
HOST_FUNCTION_2(fmin)
HOST_FUNCTION_2(fmod)
HOST_FUNCTION_2(pow)

inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline bool isnan(double value) { return __builtin_isnan(value); }
inline bool isinf(double value) { return __builtin_isinf(value); }
