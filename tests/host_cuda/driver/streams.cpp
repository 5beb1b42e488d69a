// Streams and events. Each stream is a queue with a thread; an event is a point in a stream.
//
// A context has a default stream, with the rules of old: its work waits for all work of the other
// streams, and theirs for its work, but for streams that were made with CU_STREAM_NON_BLOCKING.

#include <chrono>
#include <map>
#include <set>

#include "state.h"

namespace host_cuda {

using Clock = std::chrono::steady_clock;

static std::mutex streams_mutex;
static std::map<CUstream, std::shared_ptr<Stream>> streams;
static std::map<Context *, std::shared_ptr<Stream>> defaults;

static std::chrono::microseconds delay()
{
    static const int found = std::stoi(setting("HOST_CUDA_DELAY", "0"));
    return std::chrono::microseconds(found);
}

Stream::Stream(Context *context, bool waits_for_default)
    : context(context), waits_for_default(waits_for_default), thread([this] { serve(); })
{
}

Stream::~Stream()
{
    {
        std::lock_guard<std::mutex> guard(mutex);
        is_closing = true;
    }
    changed.notify_all();
    if (thread.get_id() == std::this_thread::get_id())
        thread.detach();
    else
        thread.join();
}

void Stream::serve()
{
    for (;;) {
        Task task;
        {
            std::unique_lock<std::mutex> guard(mutex);
            changed.wait(guard, [this] { return is_closing || !tasks.empty(); });
            if (tasks.empty()) return;
            task = std::move(tasks.front());
            tasks.pop_front();
        }
        for (const Ticket &ticket : task.after) ticket.stream->wait(ticket.number);
        if (delay().count()) std::this_thread::sleep_for(delay());
        // After a fault nothing runs any more.
        if (fault_so_far() == CUDA_SUCCESS) task.work();
        task = Task();
        {
            std::lock_guard<std::mutex> guard(mutex);
            done++;
        }
        changed.notify_all();
    }
}

Ticket Stream::submit(std::vector<Ticket> after, std::function<void()> work)
{
    std::lock_guard<std::mutex> guard(mutex);
    tasks.push_back({std::move(after), std::move(work)});
    submitted++;
    changed.notify_all();
    return {shared_from_this(), submitted};
}

bool Stream::is_done(uint64_t number)
{
    std::lock_guard<std::mutex> guard(mutex);
    return done >= number;
}

void Stream::wait(uint64_t number)
{
    std::unique_lock<std::mutex> guard(mutex);
    changed.wait(guard, [&] { return done >= number; });
}

Ticket Stream::last()
{
    std::lock_guard<std::mutex> guard(mutex);
    return {shared_from_this(), submitted};
}

static bool is_default_handle(CUstream handle)
{
    return handle == nullptr || handle == CU_STREAM_LEGACY;
}

std::shared_ptr<Stream> stream_of(CUstream handle)
{
    std::lock_guard<std::mutex> guard(streams_mutex);
    if (is_default_handle(handle)) {
        auto &found = defaults[current_context()];
        if (found == nullptr) found = std::make_shared<Stream>(current_context(), false);
        return found;
    }
    const auto found = streams.find(handle);
    return found == streams.end() ? nullptr : found->second;
}

// What work on a stream has to wait for beside the work before it.
static std::vector<Ticket> others_before(const std::shared_ptr<Stream> &stream)
{
    std::vector<Ticket> found;
    std::lock_guard<std::mutex> guard(streams_mutex);
    const auto of_context = defaults.find(stream->context);
    if (of_context == defaults.end()) return found;
    if (of_context->second != stream) {
        if (stream->waits_for_default) found.push_back(of_context->second->last());
        return found;
    }
    for (const auto &item : streams)
        if (item.second->context == stream->context && item.second->waits_for_default)
            found.push_back(item.second->last());
    return found;
}

Ticket submit(const std::shared_ptr<Stream> &stream, std::function<void()> work)
{
    return stream->submit(others_before(stream), std::move(work));
}

static std::vector<std::shared_ptr<Stream>> streams_of(Context *context)
{
    std::vector<std::shared_ptr<Stream>> found;
    std::lock_guard<std::mutex> guard(streams_mutex);
    for (const auto &item : streams)
        if (item.second->context == context) found.push_back(item.second);
    const auto of_context = defaults.find(context);
    if (of_context != defaults.end()) found.push_back(of_context->second);
    return found;
}

void wait_for_all(Context *context)
{
    for (const auto &stream : streams_of(context)) stream->wait(stream->last().number);
}

void close_streams(Context *context)
{
    wait_for_all(context);
    // Streams end their threads outside the lock.
    const auto closing = streams_of(context);
    std::lock_guard<std::mutex> guard(streams_mutex);
    defaults.erase(context);
    for (auto at = streams.begin(); at != streams.end();)
        at = at->second->context == context ? streams.erase(at) : std::next(at);
}

// Where an event was last recorded, and when that point was reached.
struct Event {
    std::mutex mutex;
    std::vector<Ticket> where;
    std::shared_ptr<Clock::time_point> when;
    bool is_timed = true;
};

static std::mutex events_mutex;
static std::map<CUevent, std::shared_ptr<Event>> events;

static std::shared_ptr<Event> event_of(CUevent handle)
{
    std::lock_guard<std::mutex> guard(events_mutex);
    const auto found = events.find(handle);
    return found == events.end() ? nullptr : found->second;
}

static std::vector<Ticket> recorded(const std::shared_ptr<Event> &event)
{
    std::lock_guard<std::mutex> guard(event->mutex);
    return event->where;
}

static bool is_over(const std::shared_ptr<Event> &event)
{
    for (const Ticket &ticket : recorded(event))
        if (!ticket.stream->is_done(ticket.number)) return false;
    return true;
}

}  // namespace host_cuda

using namespace host_cuda;

extern "C" {

CUresult cuStreamCreate(CUstream *handle, unsigned flags)
{
    REQUIRE_CONTEXT
    const bool waits = (flags & CU_STREAM_NON_BLOCKING) == 0;
    auto stream = std::make_shared<Stream>(current_context(), waits);
    *handle = reinterpret_cast<CUstream>(stream.get());
    std::lock_guard<std::mutex> guard(streams_mutex);
    streams[*handle] = stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int)
{
    return cuStreamCreate(handle, flags);
}

CUresult cuStreamDestroy(CUstream handle)
{
    std::shared_ptr<Stream> closing;
    {
        std::lock_guard<std::mutex> guard(streams_mutex);
        const auto found = streams.find(handle);
        if (found == streams.end()) return CUDA_ERROR_INVALID_HANDLE;
        closing = found->second;
        streams.erase(found);
    }
    // The real one lets the work go on without the handle; here it is done before this returns.
    closing->wait(closing->last().number);
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle)
{
    REQUIRE_CONTEXT
    const auto stream = stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const Ticket ticket = submit(stream, [] {});
    stream->wait(ticket.number);
    return fault_so_far();
}

CUresult cuStreamQuery(CUstream handle)
{
    REQUIRE_CONTEXT
    const auto stream = stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return stream->is_done(stream->last().number) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned)
{
    REQUIRE_CONTEXT
    const auto stream = stream_of(handle);
    const auto event = event_of(event_handle);
    if (stream == nullptr || event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    std::vector<Ticket> after = others_before(stream);
    for (const Ticket &ticket : recorded(event))
        if (ticket.stream != stream) after.push_back(ticket);
    stream->submit(std::move(after), [] {});
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn call, void *data)
{
    REQUIRE_CONTEXT
    const auto stream = stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    submit(stream, [=] { call(data); });
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    REQUIRE_CONTEXT
    const auto stream = stream_of(handle);
    if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *context = reinterpret_cast<CUcontext>(stream->context);
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream, CUstreamCaptureStatus *status)
{
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *handle, unsigned flags)
{
    REQUIRE_CONTEXT
    auto event = std::make_shared<Event>();
    event->is_timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    *handle = reinterpret_cast<CUevent>(event.get());
    std::lock_guard<std::mutex> guard(events_mutex);
    events[*handle] = event;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent handle)
{
    std::lock_guard<std::mutex> guard(events_mutex);
    return events.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle)
{
    REQUIRE_CONTEXT
    const auto event = event_of(handle);
    const auto stream = stream_of(stream_handle);
    if (event == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    auto when = std::make_shared<Clock::time_point>();
    const Ticket ticket = submit(stream, [when] { *when = Clock::now(); });
    std::lock_guard<std::mutex> guard(event->mutex);
    event->where = {ticket};
    event->when = when;
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent handle)
{
    if (fault_so_far() != CUDA_SUCCESS) return fault_so_far();
    const auto event = event_of(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return is_over(event) ? fault_so_far() : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle)
{
    const auto event = event_of(handle);
    if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    for (const Ticket &ticket : recorded(event)) ticket.stream->wait(ticket.number);
    return fault_so_far();
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to)
{
    const auto first = event_of(from);
    const auto second = event_of(to);
    if (first == nullptr || second == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    if (!first->is_timed || !second->is_timed || first->when == nullptr || second->when == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!is_over(first) || !is_over(second)) return CUDA_ERROR_NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(*second->when - *first->when).count();
    return CUDA_SUCCESS;
}
}
