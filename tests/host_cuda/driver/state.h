// What the parts of the stand-in driver know of each other.
//
// A device's memory is the host's memory, and its kernels are functions of a shared object. Nothing
// here knows pycuda or our provider: it is the driver's interface, as far as the tests need it.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../compiler/host_kernel.h"

namespace host_cuda {

// An environment variable, or what holds without it.
std::string setting(const char *name, const char *otherwise);

// Say what went wrong on stderr, and have every later call return `error`, as a device does that
// has run into a fault. Returns `error`.
CUresult fault(CUresult error, const std::string &what);
// The fault so far, CUDA_SUCCESS without one.
CUresult fault_so_far();

struct Context {
    int device;
    int users = 0;
    bool is_primary = false;
    bool is_destroyed = false;
};

// Of the calling thread; null where there is none.
Context *current_context();

class Stream;

// A point in a stream: everything submitted before it.
struct Ticket {
    std::shared_ptr<Stream> stream;
    uint64_t number;
};

// An in-order queue with a thread of its own. Work starts some time after it is submitted, so that a
// host or another stream that doesn't wait finds what was there before.
class Stream : public std::enable_shared_from_this<Stream> {
public:
    Stream(Context *context, bool waits_for_default);
    ~Stream();

    // `work` runs once all of `after` and all work before it is done.
    Ticket submit(std::vector<Ticket> after, std::function<void()> work);
    bool is_done(uint64_t number);
    void wait(uint64_t number);
    Ticket last();

    Context *const context;
    const bool waits_for_default;

private:
    struct Task {
        std::vector<Ticket> after;
        std::function<void()> work;
    };
    void serve();

    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Task> tasks;
    uint64_t submitted = 0;
    uint64_t done = 0;
    bool is_closing = false;
    std::thread thread;
};

// The stream of a handle, which may be that of the default stream of the current context.
// Null: a handle that isn't one of a living stream.
std::shared_ptr<Stream> stream_of(CUstream handle);
// Put work behind everything that a stream has to wait for; see the rules of the default stream.
Ticket submit(const std::shared_ptr<Stream> &stream, std::function<void()> work);
// Wait for all work of a context.
void wait_for_all(Context *context);
void close_streams(Context *context);

// Whether memory of a device lies at all these bytes.
bool is_device_range(CUdeviceptr at, size_t nbytes);
// Whether these bytes are page-locked.
bool is_pinned_range(const void *at, size_t nbytes);
// Look at the guards around the memory that a kernel was given; a fault names the kernel.
void check_guards_of(const std::vector<unsigned long long> &arguments, const std::string &kernel);
void free_memory(Context *context);
size_t bytes_in_use(int device);
size_t memory_size();
int device_count();
int capability();

}  // namespace host_cuda

#define REQUIRE_CONTEXT \
    if (host_cuda::fault_so_far() != CUDA_SUCCESS) return host_cuda::fault_so_far(); \
    if (host_cuda::current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
