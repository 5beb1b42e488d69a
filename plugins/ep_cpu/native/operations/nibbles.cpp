// MatMul with constant weights of 4 bits, in blocks along k that have a scale and a zero point each.
//
// Inputs: A, codes uint8 [n, blocks, block / 2] with the lower half first, bias or nothing, scales and
// zero points float32 [n, blocks], all but A and the bias constant. Attributes: "k"; "low" and "high"
// bound the result. The weights stay as they are; a panel of floats at a time is made of them.
#include "behind.h"

namespace ep {
namespace {

class NibbleMatMul final : public Operation {
public:
  explicit NibbleMatMul(const Making &making)
      : behind_(making.attributes), k_(making.attributes.integer("k")) {
    const Constant *codes = making.constants[1];
    const Constant *scales = making.constants[3];
    const Constant *zeros = making.constants[4];
    if (codes == nullptr || scales == nullptr || zeros == nullptr || behind_.has_chain())
      throw Mistake("weights of 4 bits must be constant");
    const Shape &shape = codes->spec.shape;
    n_ = shape[0];
    blocks_ = shape[1];
    block_ = shape[2] * 2;
    if (blocks_ * block_ < k_ || (blocks_ - 1) * block_ >= k_ ||
        scales->spec.shape.count() != n_ * blocks_ || zeros->spec.shape.count() != n_ * blocks_)
      throw Mistake("scales of 4-bit weights don't fit");
    panel_ = making.kernels.panel;
    padded_ = (n_ + making.kernels.lanes - 1) / making.kernels.lanes * making.kernels.lanes;
    pack(making, reinterpret_cast<const uint8_t *>(codes->data), scales->floats(),
         zeros->floats());
  }

  Planned plan(const Planning &planning) const override {
    const Spec &a = planning.input(0);
    need(a.type == DType::kFloat && a.shape.rank() >= 1, "not float32");
    need(a.shape[a.shape.rank() - 1] == k_, "inner lengths differ");
    Shape result;
    for (int axis = 0; axis + 1 < a.shape.rank(); ++axis)
      result.append(a.shape[axis]);
    result.append(n_);
    const int64_t m = a.shape.count(0, a.shape.rank() - 1);
    behind_.plan(planning, result);
    Planned planned;
    planned.outputs = {{DType::kFloat, result}};
    planned.workspace = size_t(planning.threads * k_ * panel_) * sizeof(float);
    planned.task = task([this, m](const Running &running) {
      running.crew.each((n_ + panel_ - 1) / panel_, [&](int64_t number, int worker) {
        const int64_t column = number * panel_;
        const int64_t columns = std::min(panel_, padded_ - column);
        float *weights = reinterpret_cast<float *>(running.workspace) + worker * k_ * panel_;
        running.kernels.integers->unpack_nibbles(
            codes_.data() + column * pairs(), scales_.data() + column * blocks_,
            zeros_.data() + column * blocks_, k_, block_, columns, weights);
        std::vector<Matrix> none;
        Gemm gemm = {};
        behind_.attach(gemm, none, running);
        gemm.k = k_;
        gemm.n = std::min(panel_, n_ - column);
        gemm.a = running.input(0);
        gemm.a_step = k_;
        gemm.packed = weights;
        gemm.c = running.output() + column;
        gemm.c_step = n_;
        if (gemm.bias != nullptr)
          gemm.bias += column;
        running.kernels.gemm(gemm, 0, m, 0, 1);
      });
    });
    return planned;
  }

  size_t constant_bytes() const override {
    return codes_.size() + (scales_.size() + zeros_.size()) * sizeof(float);
  }

private:
  /// Bytes of a column.
  int64_t pairs() const { return (k_ + 1) / 2; }

  void pack(const Making &making, const uint8_t *codes, const float *scales, const float *zeros) {
    codes_.resize(size_t(padded_ * pairs()));
    scales_.resize(size_t(padded_ * blocks_));
    zeros_.resize(size_t(padded_ * blocks_));
    making.crew.each((n_ + panel_ - 1) / panel_, [&](int64_t number, int) {
      const int64_t begin = number * panel_;
      const int64_t columns = std::min(panel_, padded_ - begin);
      for (int64_t j = 0; j < std::min(columns, n_ - begin); ++j) {
        const int64_t row = begin + j;
        for (int64_t pair = 0; pair < pairs(); ++pair)
          codes_[size_t(begin * pairs() + pair * columns + j)] =
              codes[row * blocks_ * block_ / 2 + pair];
        for (int64_t block = 0; block < blocks_; ++block) {
          const size_t to = size_t(begin * blocks_ + block * columns + j);
          scales_[to] = scales[row * blocks_ + block];
          zeros_[to] = zeros[row * blocks_ + block];
        }
      }
    });
  }

  Behind behind_;
  int64_t k_, n_, blocks_, block_;
  int64_t panel_, padded_; // columns of a panel, and of all panels
  std::vector<uint8_t> codes_;
  std::vector<float> scales_, zeros_;
};

const Registration kNibbleMatMul("nibble_matmul",
                                 [](const Making &making) -> std::unique_ptr<Operation> {
                                   return std::make_unique<NibbleMatMul>(making);
                                 });

} // namespace
} // namespace ep
