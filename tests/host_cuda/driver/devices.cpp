// Devices and contexts. There are as many devices as HOST_CUDA_DEVICES says, all alike, with the
// compute capability HOST_CUDA_CAPABILITY (90 is 9.0).

#include <cstdio>
#include <cstring>
#include <map>
#include <set>

#include "state.h"

namespace host_cuda {

static std::mutex contexts_mutex;
static std::map<int, Context *> primaries;
// Never deleted: a handle that somebody keeps has to be known for one of a destroyed context.
static std::set<Context *> contexts;
static thread_local std::vector<Context *> stack;

int device_count() { return std::stoi(setting("HOST_CUDA_DEVICES", "1")); }

int capability() { return std::stoi(setting("HOST_CUDA_CAPABILITY", "90")); }

Context *current_context()
{
    Context *found = stack.empty() ? nullptr : stack.back();
    return found != nullptr && !found->is_destroyed ? found : nullptr;
}

static void destroy(Context *context)
{
    close_streams(context);
    free_memory(context);
    context->is_destroyed = true;
}

static bool is_device(CUdevice device) { return device >= 0 && device < device_count(); }

// The context of a handle, null where it isn't one.
static Context *context_of(CUcontext handle)
{
    std::lock_guard<std::mutex> guard(contexts_mutex);
    auto *context = reinterpret_cast<Context *>(handle);
    return contexts.count(context) ? context : nullptr;
}

static CUcontext handle_of(Context *context) { return reinterpret_cast<CUcontext>(context); }

static int attribute(CUdevice_attribute which)
{
    switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return capability() / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return capability() % 10;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: return 1024;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: return 64;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: return 65535;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return 49152;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return 101376;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: return 102400;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: return 65536;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: return 1536;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return 4;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return 1000000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: return 1000000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: return 128;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return 4 << 20;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: return 65536;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH: return 2147483647;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: return 512;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: return 2;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: return 1;
    default: return 0;
    }
}

}  // namespace host_cuda

using namespace host_cuda;

#define REQUIRE_DEVICE(device) \
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;

extern "C" {

CUresult cuInit(unsigned) { return device_count() > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = device_count();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int number)
{
    REQUIRE_DEVICE(number)
    *device = number;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    REQUIRE_DEVICE(device)
    std::snprintf(name, length, "host stand-in");
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    REQUIRE_DEVICE(device)
    std::memset(uuid, 0, sizeof *uuid);
    uuid->bytes[15] = static_cast<char>(device + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    REQUIRE_DEVICE(device)
    std::snprintf(text, length, "0000:%02x:00.0", device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(size_t *nbytes, CUdevice device)
{
    REQUIRE_DEVICE(device)
    *nbytes = memory_size();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device)
{
    REQUIRE_DEVICE(device)
    *value = attribute(which);
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice, CUdevice)
{
    *can = 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice device)
{
    REQUIRE_DEVICE(device)
    std::lock_guard<std::mutex> guard(contexts_mutex);
    Context *&context = primaries[device];
    if (context == nullptr || context->is_destroyed) {
        context = new Context{device};
        context->is_primary = true;
        contexts.insert(context);
    }
    context->users++;
    *handle = handle_of(context);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    REQUIRE_DEVICE(device)
    Context *context = nullptr;
    {
        std::lock_guard<std::mutex> guard(contexts_mutex);
        context = primaries[device];
        if (context == nullptr || context->users == 0) return CUDA_ERROR_INVALID_CONTEXT;
        if (--context->users > 0) return CUDA_SUCCESS;
    }
    destroy(context);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    REQUIRE_DEVICE(device)
    std::lock_guard<std::mutex> guard(contexts_mutex);
    Context *context = primaries[device];
    *flags = 0;
    *active = context != nullptr && !context->is_destroyed;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *handle, CUctxCreateParams *, unsigned, CUdevice device)
{
    REQUIRE_DEVICE(device)
    auto *context = new Context{device};
    context->users = 1;
    {
        std::lock_guard<std::mutex> guard(contexts_mutex);
        contexts.insert(context);
    }
    stack.push_back(context);
    *handle = handle_of(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext handle)
{
    Context *context = context_of(handle);
    if (context == nullptr || context->is_destroyed || context->is_primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    destroy(context);
    if (!stack.empty() && stack.back() == context) stack.pop_back();
    return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext handle) { return cuCtxDestroy(handle); }

CUresult cuCtxPushCurrent(CUcontext handle)
{
    Context *context = context_of(handle);
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->is_destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    stack.push_back(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *handle)
{
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (handle != nullptr) *handle = handle_of(stack.back());
    stack.pop_back();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext handle)
{
    if (!stack.empty()) stack.pop_back();
    return handle == nullptr ? CUDA_SUCCESS : cuCtxPushCurrent(handle);
}

CUresult cuCtxGetCurrent(CUcontext *handle)
{
    *handle = stack.empty() ? nullptr : handle_of(stack.back());
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    REQUIRE_CONTEXT
    *device = current_context()->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext, unsigned *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    REQUIRE_CONTEXT
    wait_for_all(current_context());
    return fault_so_far();
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = 0;
    return CUDA_SUCCESS;
}
}
