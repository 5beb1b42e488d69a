// Helpers of the kernels that are generated from the tables in kernels/formulas*.py.

// Division by zero gives 0, and the lowest number divided by -1 wraps around: neither may trap.
#define SIGNED_FUNCTIONS(T, U) \
    inline T##_computed divided_##T(T##_computed a, T##_computed b) \
    { \
        if (b == -1) return (T##_computed)(0 - (U##_computed)a); \
        return a / (b == 0 ? 1 : b) * (b != 0); \
    } \
    inline T##_computed remainder_##T(T##_computed a, T##_computed b) \
    { \
        return (b == 0 || b == -1) ? 0 : a % b; \
    } \
    inline T##_computed modulo_##T(T##_computed a, T##_computed b) \
    { \
        T##_computed r = remainder_##T(a, b); \
        return (r != 0 && (r < 0) != (b < 0)) ? r + b : r; \
    } \
    inline T##_computed power_##T(T##_computed a, long b) \
    { \
        if (b < 0) return a == 1 ? 1 : (a == -1 ? ((b & 1) ? -1 : 1) : 0); \
        U##_computed result = 1; \
        U##_computed square = (U##_computed)a; \
        for (; b; b >>= 1) { \
            if (b & 1) result *= square; \
            square *= square; \
        } \
        return (T##_computed)result; \
    }

#define UNSIGNED_FUNCTIONS(T) \
    inline T##_computed divided_##T(T##_computed a, T##_computed b) \
    { \
        return a / (b == 0 ? 1 : b) * (b != 0); \
    } \
    inline T##_computed remainder_##T(T##_computed a, T##_computed b) \
    { \
        return b == 0 ? 0 : a % b; \
    } \
    inline T##_computed modulo_##T(T##_computed a, T##_computed b) \
    { \
        return remainder_##T(a, b); \
    } \
    inline T##_computed power_##T(T##_computed a, long b) \
    { \
        if (b < 0) return a == 1; \
        T##_computed result = 1; \
        for (; b; b >>= 1) { \
            if (b & 1) result *= a; \
            a *= a; \
        } \
        return result; \
    }

SIGNED_FUNCTIONS(i8, u8)
SIGNED_FUNCTIONS(i16, u16)
SIGNED_FUNCTIONS(i32, u32)
SIGNED_FUNCTIONS(i64, u64)
UNSIGNED_FUNCTIONS(u8)
UNSIGNED_FUNCTIONS(u16)
UNSIGNED_FUNCTIONS(u32)
UNSIGNED_FUNCTIONS(u64)

// Whichever sign x has, the exponential stays below 1, so that nothing overflows.
inline float sigmoid_float(float x)
{
    float e = exp(-fabs(x));
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}

inline float softplus_float(float x) { return fmax(x, 0.0f) + log1p(exp(-fabs(x))); }

#ifdef HAS_DOUBLE
inline double sigmoid_double(double x)
{
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

inline double softplus_double(double x) { return fmax(x, 0.0) + log1p(exp(-fabs(x))); }
#endif
