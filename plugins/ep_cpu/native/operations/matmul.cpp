// MatMul and Gemm in float32, with what follows on them: a bias, bounds, a chain of operations.
//
// Inputs: A, B, bias or nothing, then the chain's operands from its second on. Attributes: "a_order",
// "b_order" and "order" transpose A, B and the result without moving anything; "low" and "high" bound
// the result. B is packed when the program is made if it is constant, else in every run. "pairs": a
// product with a constant B, without orders of A and the result, goes in bfloat16.
#include "behind.h"
#include "pairs.h"
#include "strided.h"
#include "tiling.h"

namespace ep {
namespace {

class MatMul final : public Operation {
public:
  explicit MatMul(const Making &making)
      : behind_(making.attributes), in_pairs_(making.attributes.integer("pairs", 0) != 0) {
    const auto order = [&](const char *name) {
      return making.attributes.has(name) ? making.attributes.integers(name)
                                         : std::vector<int64_t>{};
    };
    a_order_ = order("a_order");
    b_order_ = order("b_order");
    order_ = order("order");
    const Constant *b = making.constants[1];
    if (b != nullptr && b->spec.shape.rank() == 2 && b->spec.type == DType::kFloat)
      pack(making, *b);
  }

  Planned plan(const Planning &planning) const override {
    const Spec &first = planning.input(0);
    const Spec &second = planning.input(1);
    need(first.type == DType::kFloat && second.type == DType::kFloat, "not float32");
    need(first.shape.rank() >= 2 && second.shape.rank() >= 2, "a vector");
    const Strided a = Strided(first.shape).permuted(a_order_);
    const Strided b = Strided(second.shape).permuted(b_order_);
    const int64_t m = a.shape[a.rank() - 2];
    const int64_t k = a.shape[a.rank() - 1];
    const int64_t n = b.shape[b.rank() - 1];
    need(b.shape[b.rank() - 2] == k, "inner lengths differ");
    need(k <= 1 || a.steps[a.rank() - 1] == 1, "A isn't contiguous along its rows");
    if (packed_ != nullptr && a_order_.empty() && order_.empty())
      return plan_stack(planning, a, k, n);
    need(!in_pairs_, "a product in bfloat16 of other operands");
    return plan_batch(planning, a, b, m, k, n);
  }

  size_t constant_bytes() const override { return packed_ == nullptr ? 0 : packed_->bytes; }

private:
  void pack(const Making &making, const Constant &b) {
    const Kernels &kernels = making.kernels;
    const Strided view = Strided(b.spec.shape).permuted(b_order_);
    const int64_t k = view.shape[0];
    const int64_t n = view.shape[1];
    if (in_pairs_) {
      pack_pairs(making, b, view);
      return;
    }
    const std::string layout = std::string("gemm ") + kernels.name + " " + std::to_string(k) + " " +
                               std::to_string(n) + (view.steps[1] == 1 ? "" : " transposed");
    const int64_t panels = (n + kernels.panel - 1) / kernels.panel;
    packed_ = shared_weights(
        {b.data, b.spec.bytes(), layout}, size_t(kernels.packed_size(k, n)) * sizeof(float),
        [&](std::byte *to) {
          making.crew.each(panels, [&](int64_t panel, int) {
            kernels.pack_panels(b.floats(), view.steps[0], view.steps[1], k, n,
                                reinterpret_cast<float *>(to), panel, panel + 1);
          });
        });
  }

  /// Columns become rows of pairs, which are packed as the columns of another matrix.
  void pack_pairs(const Making &making, const Constant &b, const Strided &view) {
    const Kernels &kernels = making.kernels;
    const int64_t k = view.shape[0];
    const int64_t n = view.shape[1];
    const int64_t depth = pairs_of(k);
    const std::string layout = std::string("pairs ") + kernels.name + " " + std::to_string(k) +
                               " " + std::to_string(n) +
                               (view.steps[1] == 1 ? "" : " transposed");
    const int64_t panels = (n + kernels.panel - 1) / kernels.panel;
    packed_ = shared_weights(
        {b.data, b.spec.bytes(), layout}, size_t(kernels.packed_size(depth, n)) * sizeof(float),
        [&](std::byte *to) {
          std::vector<float> columns(size_t(k * n));
          std::vector<float> narrowed(size_t(depth * n));
          making.crew.each(n, [&](int64_t column, int) {
            for (int64_t i = 0; i < k; ++i)
              columns[size_t(column * k + i)] =
                  b.floats()[i * view.steps[0] + column * view.steps[1]];
          });
          narrow_rows(kernels, making.crew, columns.data(), narrowed.data(), n, k);
          making.crew.each(panels, [&](int64_t panel, int) {
            kernels.pack_panels(narrowed.data(), 1, depth, depth, n, reinterpret_cast<float *>(to),
                                panel, panel + 1);
          });
        });
  }

  /// All rows of A times one packed matrix.
  Planned plan_stack(const Planning &planning, const Strided &a, int64_t k, int64_t n) const {
    Shape result;
    for (int axis = 0; axis + 1 < a.rank(); ++axis)
      result.append(a.shape[axis]);
    result.append(n);
    const int64_t m = a.shape.count(0, a.rank() - 1);
    const int64_t depth = in_pairs_ ? pairs_of(k) : k;
    const Tiling tiling(m, n, depth, planning.kernels, planning.threads);
    Planned planned;
    planned.outputs = {{DType::kFloat, result}};
    planned.workspace = in_pairs_ ? size_t(m * depth) * sizeof(float) : 0;
    planned.task = task([this, tiling, m, k, n, depth, operands = behind_.plan(planning, result)](
                            const Running &running) {
      std::vector<Matrix> own = operands;
      Gemm gemm = {};
      gemm.k = depth;
      gemm.n = n;
      gemm.a = running.input(0);
      gemm.a_step = depth;
      gemm.packed = packed_->floats();
      gemm.c = running.output();
      gemm.c_step = n;
      behind_.attach(gemm, own, running);
      if (in_pairs_) {
        auto *narrowed = reinterpret_cast<float *>(running.workspace);
        narrow_rows(running.kernels, running.crew, gemm.a, narrowed, m, k);
        gemm.a = narrowed;
      }
      running.crew.each(tiling.count(), [&](int64_t chunk, int) {
        tiling.run(running.kernels, gemm, chunk, in_pairs_);
      });
    });
    return planned;
  }

  /// Products of matrices that go by pairs.
  Planned plan_batch(const Planning &planning, const Strided &a, const Strided &b, int64_t m,
                     int64_t k, int64_t n) const {
    const Shape batch = broadcast_shape(a.batch(), b.batch());
    Shape product = batch;
    product.append(m);
    product.append(n);
    const Shape stored = Strided(product).permuted(order_).shape;
    // The result as it lies in memory, with its axes in the order of the product's.
    const Strided c = Strided(stored).permuted(undone(order_));
    need(n <= 1 || c.steps[c.rank() - 1] == 1, "the result isn't contiguous along its rows");
    need(!behind_.has_chain() || (order_.empty() && batch.count() == 1), "a chain behind a batch");
    const int64_t own_packs = packed_ == nullptr ? b.batch().count() : 0;
    const int64_t pack_size = planning.kernels.packed_size(k, n);
    const Tiling tiling(m, n, k, planning.kernels, planning.threads);
    Planned planned;
    planned.outputs = {{DType::kFloat, stored}};
    planned.workspace = size_t(own_packs * pack_size) * sizeof(float);
    planned.task = task([=, this, operands = behind_.plan(planning, product)](
                            const Running &running) {
      const Kernels &kernels = running.kernels;
      auto *packs = reinterpret_cast<float *>(running.workspace);
      running.crew.each(own_packs * tiling.panels, [&](int64_t chunk, int) {
        const int64_t number = chunk / tiling.panels;
        const int64_t panel = chunk % tiling.panels;
        kernels.pack_panels(running.input(1) + b.offset_of(number, b.batch()),
                            b.steps[b.rank() - 2], b.steps[b.rank() - 1], k, n,
                            packs + number * pack_size, panel, panel + 1);
      });
      std::vector<Matrix> own = operands;
      Gemm whole = {};
      whole.k = k;
      whole.n = n;
      behind_.attach(whole, own, running);
      whole.a_step = a.steps[a.rank() - 2];
      whole.c_step = c.steps[c.rank() - 2];
      const Strided packs_of_b(b.shape);
      running.crew.each(batch.count() * tiling.count(), [&](int64_t chunk, int) {
        const int64_t number = chunk / tiling.count();
        Gemm gemm = whole;
        gemm.a = running.input(0) + a.offset_of(number, batch);
        gemm.c = running.output() + c.offset_of(number, batch);
        const int64_t pack = packs_of_b.offset_of(number, batch) / std::max<int64_t>(k * n, 1);
        gemm.packed = packed_ == nullptr ? packs + pack * pack_size : packed_->floats();
        tiling.run(kernels, gemm, chunk % tiling.count());
      });
    });
    return planned;
  }

  Behind behind_;
  bool in_pairs_;
  std::vector<int64_t> a_order_, b_order_, order_;
  std::shared_ptr<const Weights> packed_;
};

const Registration kMatMul("matmul", [](const Making &making) -> std::unique_ptr<Operation> {
  return std::make_unique<MatMul>(making);
});

} // namespace
} // namespace ep
