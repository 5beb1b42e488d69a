// How operands of different shapes go along with the result of a broadcast.
#pragma once

#include "strided.h"

namespace ep {

/// The axes of a broadcast, joined where all operands allow it.
struct Walk {
  std::vector<int64_t> lengths;            // the last is the innermost
  std::vector<std::vector<int64_t>> steps; // by operand, then axis

  Walk(const Shape &result, std::span<const Shape *const> shapes) {
    std::vector<Strided> operands;
    for (const Shape *shape : shapes)
      operands.emplace_back(*shape);
    steps.resize(operands.size());
    for (int axis = 0; axis < result.rank(); ++axis) {
      if (result[axis] == 1)
        continue;
      std::vector<int64_t> own;
      for (const Strided &operand : operands) {
        const int mine = axis - (result.rank() - operand.rank());
        own.push_back(mine < 0 || operand.shape[mine] == 1 ? 0 : operand.steps[mine]);
      }
      add(result[axis], own);
    }
    if (lengths.empty())
      add(1, std::vector<int64_t>(operands.size(), 0));
  }

  /// Indices of all axes but the innermost.
  int64_t rows() const {
    int64_t product = 1;
    for (size_t axis = 0; axis + 1 < lengths.size(); ++axis)
      product *= lengths[axis];
    return product;
  }

  /// Where row `row` of an operand begins.
  int64_t offset(size_t operand, int64_t row) const {
    int64_t result = 0;
    for (size_t axis = lengths.size() - 1; axis-- > 0;) {
      result += row % lengths[axis] * steps[operand][axis];
      row /= lengths[axis];
    }
    return result;
  }

private:
  void add(int64_t length, const std::vector<int64_t> &own) {
    bool joins = !lengths.empty();
    for (size_t i = 0; joins && i < own.size(); ++i)
      joins = steps[i].back() == own[i] * length;
    if (joins)
      lengths.back() *= length;
    else
      lengths.push_back(length);
    for (size_t i = 0; i < own.size(); ++i) {
      if (joins)
        steps[i].back() = own[i];
      else
        steps[i].push_back(own[i]);
    }
  }
};

} // namespace ep
