// Memory: of the device, with guards around it, and page-locked memory of the host; copies.
//
// New memory is full of bytes that no kernel may rely on: as floats they are no numbers. Guards are
// looked at after each kernel that was given the memory, and when it is freed. Freed memory is kept
// for a while and looked at before it goes, so that late writes are found. Where the address sanitizer
// is in the process, it hears of guards and freed memory, and finds reads as well.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "state.h"

extern "C" __attribute__((weak)) void __asan_poison_memory_region(const void *, size_t);
extern "C" __attribute__((weak)) void __asan_unpoison_memory_region(const void *, size_t);

namespace host_cuda {

static const size_t GUARD = 512;
static const unsigned char GUARD_BYTE = 0xFB;
static const unsigned char NEW_BYTE = 0xFF;
static const unsigned char FREED_BYTE = 0xFD;
static const size_t MOST_KEPT = 64 << 20;

struct Block {
    unsigned char *whole;
    size_t nbytes;
    Context *context;
    bool is_pinned;

    unsigned char *begin() const { return whole + GUARD; }
};

static std::mutex memory_mutex;
static std::map<uintptr_t, Block> blocks;
static std::map<int, size_t> in_use;
static std::deque<Block> freed;
static size_t freed_bytes = 0;

static void forbid(const void *at, size_t nbytes)
{
    if (__asan_poison_memory_region != nullptr) __asan_poison_memory_region(at, nbytes);
}

static void permit(const void *at, size_t nbytes)
{
    if (__asan_unpoison_memory_region != nullptr) __asan_unpoison_memory_region(at, nbytes);
}

size_t memory_size()
{
    return std::strtoull(setting("HOST_CUDA_MEMORY", "2147483648").c_str(), nullptr, 10);
}

size_t bytes_in_use(int device)
{
    std::lock_guard<std::mutex> guard(memory_mutex);
    return in_use[device];
}

static bool all_are(const unsigned char *at, size_t count, unsigned char value)
{
    for (size_t i = 0; i < count; i++)
        if (at[i] != value) return false;
    return true;
}

static bool guards_hold(const Block &block)
{
    return all_are(block.whole, GUARD, GUARD_BYTE)
        && all_are(block.begin() + block.nbytes, GUARD, GUARD_BYTE);
}

// The block in which an address lies, null where there is none. The mutex is held.
static Block *find_block(uintptr_t at)
{
    auto found = blocks.upper_bound(at);
    if (found == blocks.begin()) return nullptr;
    --found;
    return at <= found->first + found->second.nbytes ? &found->second : nullptr;
}

static bool is_range(uintptr_t at, size_t nbytes, bool pinned)
{
    std::lock_guard<std::mutex> guard(memory_mutex);
    const Block *block = find_block(at);
    return block != nullptr && block->is_pinned == pinned
        && at + nbytes <= (uintptr_t)block->begin() + block->nbytes;
}

bool is_device_range(CUdeviceptr at, size_t nbytes) { return is_range(at, nbytes, false); }

bool is_pinned_range(const void *at, size_t nbytes)
{
    return is_range((uintptr_t)at, nbytes, true);
}

void check_guards_of(const std::vector<unsigned long long> &arguments, const std::string &kernel)
{
    std::lock_guard<std::mutex> guard(memory_mutex);
    for (unsigned long long argument : arguments) {
        const Block *block = find_block(argument);
        if (block != nullptr && !guards_hold(*block))
            fault(CUDA_ERROR_ILLEGAL_ADDRESS, kernel + " wrote beside the memory it was given");
    }
}

static CUresult allocate(void **at, size_t nbytes, bool pinned)
{
    if (nbytes == 0) return CUDA_ERROR_INVALID_VALUE;
    Context *context = current_context();
    std::lock_guard<std::mutex> guard(memory_mutex);
    if (!pinned && in_use[context->device] + nbytes > memory_size()) return CUDA_ERROR_OUT_OF_MEMORY;
    const size_t whole_bytes = (nbytes + 2 * GUARD + 511) / 512 * 512;
    auto *whole = static_cast<unsigned char *>(std::aligned_alloc(512, whole_bytes));
    if (whole == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    std::memset(whole, GUARD_BYTE, whole_bytes);
    std::memset(whole + GUARD, NEW_BYTE, nbytes);
    forbid(whole, whole_bytes);
    permit(whole + GUARD, nbytes);
    const Block block = {whole, nbytes, context, pinned};
    blocks[(uintptr_t)block.begin()] = block;
    if (!pinned) in_use[context->device] += nbytes;
    *at = block.begin();
    return CUDA_SUCCESS;
}

// The mutex is held.
static void keep_freed(Block block)
{
    if (!guards_hold(block))
        fault(CUDA_ERROR_ILLEGAL_ADDRESS, "something was written beside memory that is freed");
    std::memset(block.begin(), FREED_BYTE, block.nbytes);
    forbid(block.begin(), block.nbytes);
    freed.push_back(block);
    freed_bytes += block.nbytes;
    while (freed_bytes > MOST_KEPT) {
        const Block oldest = freed.front();
        freed.pop_front();
        freed_bytes -= oldest.nbytes;
        if (!all_are(oldest.begin(), oldest.nbytes, FREED_BYTE) || !guards_hold(oldest))
            fault(CUDA_ERROR_ILLEGAL_ADDRESS, "memory was written to after it was freed");
        permit(oldest.whole, oldest.nbytes + 2 * GUARD);
        std::free(oldest.whole);
    }
}

static CUresult release(uintptr_t at, bool pinned)
{
    if (at == 0) return CUDA_SUCCESS;
    Context *owner = nullptr;
    {
        std::lock_guard<std::mutex> guard(memory_mutex);
        const auto found = blocks.find(at);
        if (found == blocks.end() || found->second.is_pinned != pinned)
            return CUDA_ERROR_INVALID_VALUE;
        owner = found->second.context;
    }
    wait_for_all(owner);
    std::lock_guard<std::mutex> guard(memory_mutex);
    const auto found = blocks.find(at);
    if (found == blocks.end()) return CUDA_ERROR_INVALID_VALUE;
    if (!pinned) in_use[owner->device] -= found->second.nbytes;
    keep_freed(found->second);
    blocks.erase(found);
    return CUDA_SUCCESS;
}

void free_memory(Context *context)
{
    std::lock_guard<std::mutex> guard(memory_mutex);
    for (auto at = blocks.begin(); at != blocks.end();) {
        if (at->second.context != context) {
            ++at;
            continue;
        }
        if (!at->second.is_pinned) in_use[context->device] -= at->second.nbytes;
        keep_freed(at->second);
        at = blocks.erase(at);
    }
}

static unsigned char *pointer(CUdeviceptr at) { return reinterpret_cast<unsigned char *>(at); }

// Do work in order on a stream; the caller waits for it unless it is allowed to run on.
static CUresult in_order(CUstream handle, bool runs_on, std::function<void()> work)
{
    const auto stream = stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const Ticket ticket = submit(stream, std::move(work));
    if (!runs_on) ticket.stream->wait(ticket.number);
    return fault_so_far();
}

static CUresult to_device(CUdeviceptr to, const void *from, size_t n, CUstream stream, bool runs_on)
{
    REQUIRE_CONTEXT
    if (!is_device_range(to, n)) return CUDA_ERROR_INVALID_VALUE;
    if (runs_on && !is_pinned_range(from, n)) {
        // Memory that isn't page-locked is read before the call returns.
        const auto *bytes = static_cast<const unsigned char *>(from);
        auto own = std::make_shared<std::vector<unsigned char>>(bytes, bytes + n);
        return in_order(stream, true, [=] { std::memcpy(pointer(to), own->data(), n); });
    }
    return in_order(stream, runs_on, [=] { std::memcpy(pointer(to), from, n); });
}

static CUresult to_host(void *to, CUdeviceptr from, size_t n, CUstream stream, bool runs_on)
{
    REQUIRE_CONTEXT
    if (!is_device_range(from, n)) return CUDA_ERROR_INVALID_VALUE;
    const bool really_runs_on = runs_on && is_pinned_range(to, n);
    return in_order(stream, really_runs_on, [=] { std::memcpy(to, pointer(from), n); });
}

static CUresult inside(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream, bool runs_on)
{
    REQUIRE_CONTEXT
    if (!is_device_range(to, n) || !is_device_range(from, n)) return CUDA_ERROR_INVALID_VALUE;
    return in_order(stream, runs_on, [=] { std::memmove(pointer(to), pointer(from), n); });
}

template <class T>
static CUresult set(CUdeviceptr to, T value, size_t count, CUstream stream)
{
    REQUIRE_CONTEXT
    if (!is_device_range(to, count * sizeof(T)) || to % sizeof(T)) return CUDA_ERROR_INVALID_VALUE;
    return in_order(stream, true, [=] {
        T *at = reinterpret_cast<T *>(to);
        for (size_t i = 0; i < count; i++) at[i] = value;
    });
}

}  // namespace host_cuda

using namespace host_cuda;

extern "C" {

CUresult cuMemAlloc(CUdeviceptr *at, size_t nbytes)
{
    REQUIRE_CONTEXT
    return allocate(reinterpret_cast<void **>(at), nbytes, false);
}

CUresult cuMemFree(CUdeviceptr at)
{
    REQUIRE_CONTEXT
    return release(at, false);
}

CUresult cuMemHostAlloc(void **at, size_t nbytes, unsigned)
{
    REQUIRE_CONTEXT
    return allocate(at, nbytes, true);
}

CUresult cuMemAllocHost(void **at, size_t nbytes) { return cuMemHostAlloc(at, nbytes, 0); }

CUresult cuMemFreeHost(void *at)
{
    REQUIRE_CONTEXT
    return release((uintptr_t)at, true);
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr *device, void *host, unsigned)
{
    REQUIRE_CONTEXT
    if (!is_pinned_range(host, 0)) return CUDA_ERROR_INVALID_VALUE;
    *device = (CUdeviceptr)host;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t *unused, size_t *total)
{
    REQUIRE_CONTEXT
    *total = memory_size();
    *unused = *total - bytes_in_use(current_context()->device);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr *begin, size_t *nbytes, CUdeviceptr at)
{
    REQUIRE_CONTEXT
    std::lock_guard<std::mutex> guard(memory_mutex);
    const Block *block = find_block(at);
    if (block == nullptr) return CUDA_ERROR_NOT_FOUND;
    if (begin != nullptr) *begin = (CUdeviceptr)block->begin();
    if (nbytes != nullptr) *nbytes = block->nbytes;
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr at)
{
    std::lock_guard<std::mutex> guard(memory_mutex);
    const Block *block = find_block(at);
    if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *static_cast<void **>(data) = block->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned *>(data) =
            block->is_pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int *>(data) = block->context->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *static_cast<CUdeviceptr *>(data) = at;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t n)
{
    return to_device(to, from, n, nullptr, false);
}

CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t n)
{
    return to_host(to, from, n, nullptr, false);
}

CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t n)
{
    return inside(to, from, n, nullptr, true);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t n, CUstream stream)
{
    return to_device(to, from, n, stream, true);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t n, CUstream stream)
{
    return to_host(to, from, n, stream, true);
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream)
{
    return inside(to, from, n, stream, true);
}

CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count)
{
    return set(to, value, count, nullptr);
}

CUresult cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count)
{
    return set(to, value, count, nullptr);
}

CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t count)
{
    return set(to, value, count, nullptr);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    return set(to, value, count, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream)
{
    return set(to, value, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    return set(to, value, count, stream);
}
}
