// What the kernels share that keep a tile of a product in registers: gemm_panels and multiply_planes.
//
// A tile is TM rows of TN vectors of WIDTH elements. Sums are kept in NUMBER; RESULT is what the tail
// gets. Where PART is given, both operands are floats that hold whole numbers of at most 255: PART
// products of them add up to less than 2^24 without rounding, and such parts are added up as
// integers. Processors multiply floats faster than integers.

#define VECTOR JOIN(NUMBER, WIDTH)
#define LOAD_VECTOR(p) JOIN(vload, WIDTH)(0, p)
#define PANEL (TN * WIDTH)

#ifdef IS_FLOATING
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

#define FOR_TILE \
    UNROLL \
    for (int i = 0; i < TM; i++) \
        UNROLL \
        for (int j = 0; j < TN; j++)

#define BEGIN_SUMS \
    VECTOR sum[TM][TN]; \
    FOR_TILE sum[i][j] = (VECTOR)(0); \
    BEGIN_TOTALS

#ifdef PART
#define WHOLE JOIN(RESULT, WIDTH)
#define BEGIN_TOTALS \
    WHOLE whole[TM][TN]; \
    FOR_TILE whole[i][j] = (WHOLE)(0);
#define ADD_PART \
    FOR_TILE { \
        whole[i][j] += JOIN(convert_, WHOLE)(sum[i][j]); \
        sum[i][j] = (VECTOR)(0); \
    }
#define TOTALS whole
#define STEP_OF(depth) PART
#else
#define BEGIN_TOTALS
#define ADD_PART
#define TOTALS sum
#define STEP_OF(depth) depth
#endif
