// How libraries find functions of the driver that they don't link to, and what has no other place.

#include <dlfcn.h>

#include "state.h"

#undef cuGetProcAddress

// Functions have several versions; the newest has the largest number behind its name.
static CUresult find(const char *name, void **found, CUdriverProcAddressQueryResult *result)
{
    static const char *const endings[] = {"_v4", "_v3", "_v2", ""};
    Dl_info self;
    dladdr(reinterpret_cast<void *>(&host_cuda::fault), &self);
    static void *const library = dlopen(self.dli_fname, RTLD_NOW);
    *found = nullptr;
    for (const char *ending : endings) {
        *found = dlsym(library, (std::string(name) + ending).c_str());
        if (*found != nullptr) break;
    }
    const bool is_known = *found != nullptr;
    if (result != nullptr)
        *result = is_known ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return is_known ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

extern "C" {

CUresult cuGetProcAddress(const char *name, void **found, int, cuuint64_t)
{
    return find(name, found, nullptr);
}

CUresult cuGetProcAddress_v2(
    const char *name, void **found, int, cuuint64_t, CUdriverProcAddressQueryResult *result)
{
    return find(name, found, result);
}

// Of cudaProfiler.h, which is a package of its own.
CUresult cuProfilerStart() { return CUDA_SUCCESS; }

CUresult cuProfilerStop() { return CUDA_SUCCESS; }

CUresult cuProfilerInitialize(const char *, const char *, int) { return CUDA_SUCCESS; }
}
