// Modules and launches. The image of a module is a shared object for the host, see host_kernel.h.

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>

#include "state.h"

namespace host_cuda {

struct Module {
    void *library;
    // Memory shared by a block is one piece in each library: one launch at a time.
    std::mutex running;
};

struct Function {
    std::shared_ptr<Module> module;
    std::string name;
    const HostKernel *kernel;
};

static std::mutex modules_mutex;
static std::map<CUmodule, std::shared_ptr<Module>> modules;
static std::map<CUfunction, std::shared_ptr<Function>> functions;

static std::shared_ptr<Module> module_of(CUmodule handle)
{
    std::lock_guard<std::mutex> guard(modules_mutex);
    const auto found = modules.find(handle);
    return found == modules.end() ? nullptr : found->second;
}

static std::shared_ptr<Function> function_of(CUfunction handle)
{
    std::lock_guard<std::mutex> guard(modules_mutex);
    const auto found = functions.find(handle);
    return found == functions.end() ? nullptr : found->second;
}

// Null where the bytes aren't a shared object that can be loaded.
static void *open_image(const void *image)
{
    const auto *head = static_cast<const Elf64_Ehdr *>(image);
    if (std::memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_machine != EM_X86_64)
        return nullptr;
    const size_t nbytes = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
    const int file = memfd_create("kernels", 0);
    if (file < 0) return nullptr;
    void *library = nullptr;
    if (write(file, image, nbytes) == (ssize_t)nbytes) {
        char path[64];
        std::snprintf(path, sizeof path, "/proc/self/fd/%d", file);
        // The loader takes equal paths for equal libraries, so the number has to stay in use.
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) std::fprintf(stderr, "host_cuda: %s\n", dlerror());
    }
    if (library == nullptr) close(file);
    return library;
}

// Code for one architecture runs on devices of the same major and no lower minor number.
static bool fits_device(void *library)
{
    const auto *name = static_cast<const char *>(dlsym(library, "host_architecture"));
    if (name == nullptr) return false;
    const int built_for = std::atoi(name + std::strlen("sm_"));
    return built_for / 10 == capability() / 10 && built_for <= capability();
}

static CUresult load(CUmodule *handle, const void *image)
{
    REQUIRE_CONTEXT
    void *library = open_image(image);
    if (library == nullptr) return CUDA_ERROR_INVALID_IMAGE;
    if (!fits_device(library)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    auto module = std::make_shared<Module>();
    module->library = library;
    *handle = reinterpret_cast<CUmodule>(module.get());
    std::lock_guard<std::mutex> guard(modules_mutex);
    modules[*handle] = module;
    return CUDA_SUCCESS;
}

static int order_of_threads()
{
    const std::string name = setting("HOST_CUDA_ORDER", "forward");
    return name == "forward" ? 0 : name == "backward" ? 1 : 2;
}

static void run(const Function &function, void *taken, const HostLaunch &launch)
{
    std::vector<unsigned long long> words(function.kernel->count);
    words.resize(function.kernel->words(taken, words.data()));
    int stuck = 0;
    {
        std::lock_guard<std::mutex> guard(function.module->running);
        stuck = function.kernel->run(taken, &launch);
    }
    function.kernel->discard(taken);
    if (stuck) fault(CUDA_ERROR_LAUNCH_TIMEOUT, function.name + " waits at a barrier for ever");
    check_guards_of(words, function.name);
}

// The block of arguments and its size among the extra options of a launch.
static void find_block(void **extra, const void **block, size_t *nbytes)
{
    for (void **at = extra; at != nullptr && *at != CU_LAUNCH_PARAM_END; at += 2) {
        if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) *block = at[1];
        if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) *nbytes = *static_cast<size_t *>(at[1]);
    }
}

static bool is_possible(const HostLaunch &launch)
{
    for (int n = 0; n < 3; n++)
        if (launch.grid[n] == 0 || launch.block[n] == 0) return false;
    if (launch.grid[0] > 2147483647u || launch.grid[1] > 65535 || launch.grid[2] > 65535)
        return false;
    return launch.block[2] <= 64
        && (uint64_t)launch.block[0] * launch.block[1] * launch.block[2] <= 1024;
}

}  // namespace host_cuda

using namespace host_cuda;

extern "C" {

CUresult cuModuleLoadData(CUmodule *module, const void *image) { return load(module, image); }

CUresult cuModuleLoadDataEx(
    CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values)
{
    for (unsigned n = 0; n < count; n++)
        if (options[n] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES
            || options[n] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            values[n] = nullptr;
    return load(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) { return load(module, image); }

CUresult cuModuleUnload(CUmodule handle)
{
    REQUIRE_CONTEXT
    // The library stays: launches that were submitted may still need it.
    std::lock_guard<std::mutex> guard(modules_mutex);
    return modules.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetFunction(CUfunction *handle, CUmodule module_handle, const char *name)
{
    REQUIRE_CONTEXT
    const auto module = module_of(module_handle);
    if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    void *found = dlsym(module->library, (std::string("host_kernel_") + name).c_str());
    if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
    auto function = std::make_shared<Function>();
    function->module = module;
    function->name = name;
    function->kernel = static_cast<const HostKernel *>(found);
    *handle = reinterpret_cast<CUfunction>(function.get());
    std::lock_guard<std::mutex> guard(modules_mutex);
    functions[*handle] = function;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction)
{
    *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }

// Pycuda says this before launches that say it again.
CUresult cuFuncSetBlockShape(CUfunction, int, int, int) { return CUDA_SUCCESS; }

CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }

CUresult cuLaunchKernel(
    CUfunction handle,
    unsigned grid_x,
    unsigned grid_y,
    unsigned grid_z,
    unsigned block_x,
    unsigned block_y,
    unsigned block_z,
    unsigned shared_bytes,
    CUstream stream_handle,
    void **pointers,
    void **extra)
{
    REQUIRE_CONTEXT
    const auto function = function_of(handle);
    const auto stream = stream_of(stream_handle);
    if (function == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    static std::atomic<unsigned long long> launches{0};
    static const unsigned long long seed = std::stoull(setting("HOST_CUDA_SEED", "1"));
    HostLaunch launch = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, seed + launches++,
        order_of_threads()};
    if (!is_possible(launch) || shared_bytes > 49152) return CUDA_ERROR_INVALID_VALUE;
    const void *block = nullptr;
    size_t nbytes = 0;
    find_block(extra, &block, &nbytes);
    // The real one doesn't look at the size.
    if (block != nullptr && nbytes != function->kernel->block_bytes) return CUDA_ERROR_INVALID_VALUE;
    if (block == nullptr && pointers == nullptr && function->kernel->count)
        return CUDA_ERROR_INVALID_VALUE;
    void *taken = function->kernel->take(pointers, block);
    submit(stream, [=] { run(*function, taken, launch); });
    return fault_so_far();
}
}
