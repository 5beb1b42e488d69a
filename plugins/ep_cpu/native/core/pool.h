// The threads that share the work of a run: one pool for the whole process.
//
// Work is cut into chunks beforehand, the same ones for any number of threads; whoever is free claims
// the next one. So a thread that a busy neighbour holds up delays one chunk and not a barrier.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace ep {

class Pool {
public:
  using Function = void (*)(const void *context, int64_t chunk, int worker);

  /// The pool of this process; after a fork the child gets a new one.
  static Pool &shared();

  /// Calls `function` for every chunk in [0, chunks), on `threads` threads at most, the caller's
  /// included, and returns when all are done. `worker` is below `threads`, and no two calls that run
  /// at the same time for one `run` have the same. Functions must not throw.
  void run(int64_t chunks, int threads, Function function, const void *context);

private:
  Pool();
  ~Pool() = delete; // its threads may outlive everything else

  struct State;
  State *state_;
};

/// How the operations of one run share out their work.
class Crew {
public:
  explicit Crew(int threads) : threads_(threads) {}

  int threads() const { return threads_; }

  /// Calls `body(chunk, worker)` for every chunk.
  template <class Body> void each(int64_t chunks, const Body &body) const {
    if (threads_ == 1 || chunks <= 1) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        body(chunk, 0);
      return;
    }
    Pool::shared().run(
        chunks, threads_,
        [](const void *context, int64_t chunk, int worker) {
          (*static_cast<const Body *>(context))(chunk, worker);
        },
        &body);
  }

private:
  int threads_;
};

} // namespace ep
