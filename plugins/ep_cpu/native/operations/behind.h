// What follows on a product, as part of it: a bias, bounds, a chain of elementwise operations.
#pragma once

#include <limits>

#include "chain.h"

namespace ep {

/// Reads "low", "high" and a chain from the attributes. Of the operation's inputs, number 2 is the
/// bias, and from number 3 on come the chain's operands from its second on.
class Behind {
public:
  explicit Behind(const Attributes &attributes)
      : chain_(OwnedChain::read(attributes)),
        low_(attributes.number("low", -std::numeric_limits<float>::infinity())),
        high_(attributes.number("high", std::numeric_limits<float>::infinity())) {}

  bool has_chain() const { return chain_ != nullptr; }

  /// Refuses operands that don't go along with a result of this shape.
  std::vector<Matrix> plan(const Planning &planning, const Shape &result) const {
    if (planning.has(2)) {
      const Shape &bias = planning.input(2).shape;
      const int64_t width = result[result.rank() - 1];
      need(planning.input(2).type == DType::kFloat && bias.count() == width && bias.rank() >= 1 &&
               bias[bias.rank() - 1] == width,
           "the bias doesn't fit");
    }
    std::vector<Matrix> operands;
    if (chain_ == nullptr)
      return operands;
    operands.resize(size_t(chain_->inputs()));
    for (size_t i = 1; i < operands.size(); ++i) {
      const Spec &spec = planning.input(i + 2);
      need(spec.type == DType::kFloat, "an operand isn't float32");
      operands[i] = matrix_over(spec.shape, result);
    }
    return operands;
  }

  void attach(Gemm &gemm, std::vector<Matrix> &operands, const Running &running) const {
    gemm.low = low_;
    gemm.high = high_;
    gemm.bias = running.input(2);
    if (chain_ == nullptr)
      return;
    for (size_t i = 1; i < operands.size(); ++i)
      operands[i].data = running.input(i + 2);
    gemm.chain = &chain_->chain();
    gemm.operands = operands.data();
  }

  /// The chain over `count` whole rows of the result from `first` on, as `attach` described it.
  void finish(const Gemm &attached, const Running &running, int64_t first, int64_t count,
              int64_t columns) const {
    if (attached.chain == nullptr)
      return;
    Matrix operands[kMostOperands];
    float *begin = running.output() + first * columns;
    operands[0] = {begin, columns, 1};
    for (int i = 1; i < attached.chain->inputs; ++i) {
      operands[i] = attached.operands[i];
      operands[i].data += first * operands[i].row_step;
    }
    running.kernels.elementwise(*attached.chain, operands, begin, columns, count, columns);
  }

  float low() const { return low_; }
  float high() const { return high_; }

private:
  std::shared_ptr<const OwnedChain> chain_;
  float low_, high_;
};

} // namespace ep
