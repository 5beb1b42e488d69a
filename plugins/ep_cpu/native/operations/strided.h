// A tensor seen through steps: what transposing makes of it without moving anything.
#pragma once

#include "../core/operation.h"

namespace ep {

struct Strided {
  Shape shape;
  std::array<int64_t, kMostRank> steps{};

  /// Packed, the last axis innermost.
  explicit Strided(const Shape &packed) : shape(packed) {
    int64_t step = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      steps[axis] = step;
      step *= shape[axis];
    }
  }

  int rank() const { return shape.rank(); }

  /// Axis i of the result is axis `order[i]`; without an order nothing changes.
  Strided permuted(std::span<const int64_t> order) const {
    if (order.empty())
      return *this;
    need(int(order.size()) == rank(), "a permutation has another rank");
    Strided result = *this;
    for (int axis = 0; axis < rank(); ++axis) {
      const int from = front_axis(order[axis], rank());
      result.shape[axis] = shape[from];
      result.steps[axis] = steps[from];
    }
    return result;
  }

  /// Where element `number` of the axes before the last two begins, when those axes are broadcast to
  /// `batch`.
  int64_t offset_of(int64_t number, const Shape &batch) const {
    int64_t offset = 0;
    const int own = rank() - 2;
    for (int axis = batch.rank() - 1; axis >= 0; --axis) {
      const int64_t index = number % batch[axis];
      number /= batch[axis];
      const int mine = axis - (batch.rank() - own);
      if (mine >= 0 && shape[mine] != 1)
        offset += index * steps[mine];
    }
    return offset;
  }

  Shape batch() const { return Shape(shape.lengths().first(size_t(rank() - 2))); }
};

/// The order that undoes `order`.
inline std::vector<int64_t> undone(std::span<const int64_t> order) {
  std::vector<int64_t> result(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    result[size_t(order[i])] = int64_t(i);
  return result;
}

} // namespace ep
