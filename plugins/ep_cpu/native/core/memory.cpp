#include "memory.h"

#include <algorithm>
#include <new>
#include <numeric>

namespace ep {

void FreeAligned::operator()(std::byte *memory) const {
  ::operator delete[](memory, std::align_val_t(kAlignment));
}

Block allocate(size_t bytes) {
  return Block(static_cast<std::byte *>(
      ::operator new[](std::max<size_t>(bytes, 1), std::align_val_t(kAlignment))));
}

MemoryPlan plan_memory(const std::vector<Lifetime> &lifetimes) {
  const size_t count = lifetimes.size();
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    return lifetimes[a].bytes > lifetimes[b].bytes;
  });
  MemoryPlan plan;
  plan.offsets.assign(count, 0);
  std::vector<size_t> placed; // ascending by offset
  for (const size_t index : order) {
    const Lifetime &item = lifetimes[index];
    const size_t size = aligned(item.bytes);
    size_t offset = 0;
    for (const size_t other : placed) {
      const Lifetime &taken = lifetimes[other];
      if (taken.last < item.first || taken.first > item.last)
        continue;
      if (plan.offsets[other] >= offset + size)
        break;
      offset = std::max(offset, plan.offsets[other] + aligned(taken.bytes));
    }
    plan.offsets[index] = offset;
    plan.bytes = std::max(plan.bytes, offset + size);
    const auto at = std::ranges::upper_bound(
        placed, offset, {}, [&](size_t other) { return plan.offsets[other]; });
    placed.insert(at, index);
  }
  return plan;
}

} // namespace ep
