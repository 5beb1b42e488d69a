// Errors: their names and texts, and the fault that ends all work.

#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "state.h"

namespace host_cuda {

static std::mutex fault_mutex;
static CUresult the_fault = CUDA_SUCCESS;

std::string setting(const char *name, const char *otherwise)
{
    const char *value = std::getenv(name);
    return value != nullptr && *value != 0 ? value : otherwise;
}

CUresult fault(CUresult error, const std::string &what)
{
    std::lock_guard<std::mutex> guard(fault_mutex);
    std::fprintf(stderr, "host_cuda: %s\n", what.c_str());
    if (the_fault == CUDA_SUCCESS) the_fault = error;
    return error;
}

CUresult fault_so_far()
{
    std::lock_guard<std::mutex> guard(fault_mutex);
    return the_fault;
}

static const std::map<CUresult, std::pair<const char *, const char *>> TEXTS = {
    {CUDA_SUCCESS, {"CUDA_SUCCESS", "no error"}},
    {CUDA_ERROR_INVALID_VALUE, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {CUDA_ERROR_OUT_OF_MEMORY, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {CUDA_ERROR_NO_DEVICE, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {CUDA_ERROR_INVALID_DEVICE, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {CUDA_ERROR_INVALID_IMAGE, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {CUDA_ERROR_INVALID_CONTEXT, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED,
     {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"}},
    {CUDA_ERROR_NO_BINARY_FOR_GPU,
     {"CUDA_ERROR_NO_BINARY_FOR_GPU",
      "no kernel image is available for execution on the device"}},
    {CUDA_ERROR_INVALID_HANDLE, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {CUDA_ERROR_NOT_FOUND, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {CUDA_ERROR_NOT_READY, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {CUDA_ERROR_ILLEGAL_ADDRESS,
     {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {CUDA_ERROR_LAUNCH_FAILED, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {CUDA_ERROR_LAUNCH_TIMEOUT,
     {"CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"}},
    {CUDA_ERROR_NOT_SUPPORTED, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
};

}  // namespace host_cuda

using host_cuda::TEXTS;

extern "C" {

CUresult cuGetErrorName(CUresult error, const char **name)
{
    const auto found = TEXTS.find(error);
    *name = found == TEXTS.end() ? nullptr : found->second.first;
    return found == TEXTS.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    const auto found = TEXTS.find(error);
    *text = found == TEXTS.end() ? nullptr : found->second.second;
    return found == TEXTS.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
}
