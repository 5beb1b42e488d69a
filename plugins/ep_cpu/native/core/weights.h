// Packed weights, shared by all programs of the process that pack the same content the same way.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "memory.h"

namespace ep {

struct Weights {
  Block memory;
  size_t bytes = 0;

  const float *floats() const { return reinterpret_cast<const float *>(memory.get()); }
};

/// The content of weights and how they are to be packed.
struct WeightsKey {
  const std::byte *data;
  size_t bytes;
  std::string layout; // says everything that the packed form depends on besides the content
};

/// Returns what somebody holds already, or packs. `pack` writes all of the `size` bytes.
///
/// A key is found by a hash of the content, and then packed once more to compare: two contents of one
/// hash never share. Not for two threads at once (Python's lock sees to that).
std::shared_ptr<const Weights> shared_weights(const WeightsKey &key, size_t size,
                                              const std::function<void(std::byte *)> &pack);

/// How many packed weights are alive, for tests.
size_t living_weights();

} // namespace ep
