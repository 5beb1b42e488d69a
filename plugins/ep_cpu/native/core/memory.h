// Aligned memory, and a plan that lays values of known lifetimes into one piece of it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace ep {

constexpr size_t kAlignment = 64;

constexpr size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct FreeAligned {
  void operator()(std::byte *memory) const;
};

using Block = std::unique_ptr<std::byte[], FreeAligned>;

/// Uninitialised memory at a multiple of kAlignment; throws std::bad_alloc.
Block allocate(size_t bytes);

/// A value that needs `bytes` from step `first` to step `last`, both included.
struct Lifetime {
  size_t bytes;
  int first, last;
};

struct MemoryPlan {
  std::vector<size_t> offsets; // one per lifetime
  size_t bytes = 0;
};

/// Large values first, each into the lowest gap that is free all its life.
MemoryPlan plan_memory(const std::vector<Lifetime> &lifetimes);

} // namespace ep
