// The prelude for compilers of OpenCL C, from version 1.2 on; see common.cl.

#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define HAS_DOUBLE
#endif
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#pragma OPENCL FP_CONTRACT OFF

#define UNROLL __attribute__((opencl_unroll_hint))
#define GROUP_SIZE(x, y, z) __attribute__((reqd_work_group_size(x, y, z)))

typedef half f16_stored;

#define LOAD_f16(p, i) vload_half((i), (p))
#define STORE_f16(p, i, v) vstore_half_rte((v), (i), (p))

inline float rounded_f16(float value)
{
#ifdef cl_khr_fp16
    return (float)convert_half_rte(value);
#else
    // Without half arithmetic there are no variables of that type, only memory.
    ushort narrow[1];
    vstore_half_rte(value, 0, (__private half *)narrow);
    return vload_half(0, (__private half *)narrow);
#endif
}
