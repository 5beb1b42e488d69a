#include "pool.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ep {
namespace {

constexpr int kMostJobs = 16; // runs at the same time; more of them work alone
constexpr int kMostThreads = 256;
/// How often a thread looks for work before it goes to sleep: some tens of microseconds, which is
/// longer than what lies between two operations of a run.
constexpr int kLooks = 2000;

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// One call of `Pool::run`. A helper counts itself in before it reads anything, and the caller closes
/// the job and waits for the helpers to leave before it uses the place again.
struct alignas(128) Job {
  std::atomic<bool> taken{false};
  std::atomic<bool> open{false};
  std::atomic<int> inside{0};
  std::atomic<int> seats{0}; // helpers that may still join; each one gets a number
  alignas(64) std::atomic<int64_t> next{0};
  int64_t chunks = 0;
  Pool::Function function = nullptr;
  const void *context = nullptr;

  void work(int worker) {
    for (;;) {
      const int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= chunks)
        return;
      function(context, chunk, worker);
    }
  }

  /// True if there was something to do.
  bool help() {
    if (!open.load(std::memory_order_relaxed))
      return false;
    inside.fetch_add(1);
    bool helped = false;
    // Looked at again after counting in: the caller closes first and looks at the count afterwards.
    if (open.load() && next.load(std::memory_order_relaxed) < chunks) {
      const int seat = seats.fetch_sub(1, std::memory_order_relaxed);
      if (seat > 0) {
        work(seat);
        helped = true;
      }
    }
    inside.fetch_sub(1);
    return helped;
  }
};

} // namespace

struct Pool::State {
  std::array<Job, kMostJobs> jobs;
  std::atomic<uint64_t> published{0};
  std::atomic<int> sleeping{0};
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<int> started{0};
  std::mutex starting;

  void serve() {
    uint64_t seen = published.load();
    for (;;) {
      bool found = false;
      for (int look = 0; look < kLooks && !found; ++look) {
        if (published.load(std::memory_order_acquire) != seen) {
          found = true;
          break;
        }
        relax();
      }
      if (!found) {
        std::unique_lock lock(mutex);
        sleeping.fetch_add(1);
        wake.wait(lock, [&] { return published.load() != seen; });
        sleeping.fetch_sub(1);
      }
      seen = published.load();
      bool helped = true;
      while (helped) {
        helped = false;
        for (Job &job : jobs)
          helped = job.help() || helped;
      }
    }
  }

  /// Starts threads until there are `wanted`; fewer where the system gives no more.
  void start(int wanted) {
    wanted = std::min(wanted, kMostThreads);
    if (started.load(std::memory_order_acquire) >= wanted)
      return;
    const std::lock_guard lock(starting);
    while (started.load() < wanted) {
      try {
        std::thread([this] { serve(); }).detach();
      } catch (const std::system_error &) {
        return;
      }
      started.fetch_add(1);
    }
  }

  Job *take() {
    for (Job &job : jobs) {
      bool free = false;
      if (!job.taken.load(std::memory_order_relaxed) &&
          job.taken.compare_exchange_strong(free, true))
        return &job;
    }
    return nullptr;
  }
};

namespace {

std::atomic<Pool *> shared_pool{nullptr};
std::mutex making;

/// The child of a fork has none of the threads, and locks in any state; what the parent had is left
/// alone. Whoever forks while another thread makes the pool gets a lock that nobody releases, so it is
/// taken around the fork.
void before_fork() { making.lock(); }
void after_fork_in_parent() { making.unlock(); }
void after_fork_in_child() {
  shared_pool.store(nullptr);
  making.unlock();
}

} // namespace

Pool::Pool() : state_(new State) {}

Pool &Pool::shared() {
  Pool *pool = shared_pool.load(std::memory_order_acquire);
  if (pool != nullptr)
    return *pool;
  static const int watching =
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(watching);
  const std::lock_guard lock(making);
  pool = shared_pool.load(std::memory_order_relaxed);
  if (pool == nullptr) {
    pool = new Pool;
    shared_pool.store(pool, std::memory_order_release);
  }
  return *pool;
}

void Pool::run(int64_t chunks, int threads, Function function, const void *context) {
  State &state = *state_;
  const int helpers = static_cast<int>(std::min<int64_t>(threads, chunks)) - 1;
  Job *job = helpers > 0 ? state.take() : nullptr;
  if (job == nullptr) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      function(context, chunk, 0);
    return;
  }
  state.start(helpers);
  job->chunks = chunks;
  job->function = function;
  job->context = context;
  job->next.store(0, std::memory_order_relaxed);
  job->seats.store(helpers, std::memory_order_relaxed);
  job->open.store(true);
  state.published.fetch_add(1);
  if (state.sleeping.load() > 0) {
    // The lock makes sure that a thread on its way to sleep sees the new number or the wake-up.
    { const std::lock_guard lock(state.mutex); }
    if (helpers == 1)
      state.wake.notify_one();
    else
      state.wake.notify_all();
  }
  job->work(0);
  job->open.store(false);
  for (int look = 0; job->inside.load() != 0; ++look) {
    if (look < kLooks)
      relax();
    else
      std::this_thread::yield(); // a helper is held up inside its last chunk
  }
  job->taken.store(false, std::memory_order_release);
}

} // namespace ep
