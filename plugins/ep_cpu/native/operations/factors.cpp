#include "factors.h"

#include <cmath>
#include <limits>

#include "integers.h"
#include "tiling.h"

namespace ep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kWord = 4; // elements that a step of the kernel takes

class FloatFactor final : public Factor {
public:
  FloatFactor(const Making &making, const float *data, int64_t k, int64_t n) : k_(k), n_(n) {
    const Kernels &kernels = making.kernels;
    const std::string layout = std::string("gemm ") + kernels.name + " " + std::to_string(k) + " " +
                               std::to_string(n) + " transposed";
    packed_ = shared_weights(
        {reinterpret_cast<const std::byte *>(data), size_t(k * n) * sizeof(float), layout},
        size_t(kernels.packed_size(k, n)) * sizeof(float), [&](std::byte *to) {
          kernels.pack_panels(data, 1, k, k, n, reinterpret_cast<float *>(to), 0, panels(kernels));
        });
  }

  size_t scratch_bytes(int64_t) const override { return 0; }
  size_t bytes() const override { return packed_->bytes; }

  bool multiply(const Kernels &kernels, const Operands &operands, int64_t begin,
                int64_t end) const override {
    kernels.gemm(gemm(operands), begin, end, 0, panels(kernels));
    return true;
  }

  bool multiply_all(const Running &running, const Operands &operands,
                    int64_t rows) const override {
    const Tiling tiling(rows, n_, k_, running.kernels, running.crew.threads());
    const Gemm product = gemm(operands);
    running.crew.each(tiling.count(), [&](int64_t chunk, int) {
      tiling.run(running.kernels, product, chunk);
    });
    return true;
  }

private:
  int64_t panels(const Kernels &kernels) const { return (n_ + kernels.panel - 1) / kernels.panel; }

  Gemm gemm(const Operands &operands) const {
    Gemm product = {};
    product.k = k_;
    product.n = n_;
    product.a = operands.a;
    product.a_step = k_;
    product.packed = packed_->floats();
    product.c = operands.c;
    product.c_step = operands.c_step;
    product.bias = operands.bias;
    product.low = -kInfinity;
    product.high = kInfinity;
    return product;
  }

  int64_t k_, n_;
  std::shared_ptr<const Weights> packed_;
};

class QuantisedFactor final : public Factor {
public:
  QuantisedFactor(const Making &making, const QuantisedWeights &weights)
      : packed_(pack(making, weights.codes)) {
    const bool is_signed = packed_.is_signed();
    for (int64_t i = 0; i < packed_.columns(); ++i) {
      const int64_t at = weights.parameters == 1 ? 0 : i;
      const auto code = static_cast<uint8_t>(weights.zeros[at]);
      scales_.push_back(weights.scales[at]);
      zeros_.push_back(is_signed ? static_cast<int8_t>(code) : code - 128);
      has_zeros_ = has_zeros_ || zeros_.back() != 0;
    }
  }

  size_t scratch_bytes(int64_t rows) const override {
    return column_bytes() * 2 + aligned(size_t(rows * packed_.k()));
  }
  size_t bytes() const override { return packed_.bytes(); }

  bool multiply(const Kernels &kernels, const Operands &operands, int64_t begin,
                int64_t end) const override {
    IntegerGemm product;
    if (!prepare(kernels, operands, end, product))
      return false;
    const IntegerKernels &integers = *kernels.integers;
    integers.gemm(product, begin, end, 0, (product.n + integers.panel - 1) / integers.panel);
    return true;
  }

  bool multiply_all(const Running &running, const Operands &operands,
                    int64_t rows) const override {
    IntegerGemm product;
    if (!prepare(running.kernels, operands, rows, product))
      return false;
    const IntegerKernels &integers = *running.kernels.integers;
    const Tiling tiling(rows, product.n, (product.k + kWord - 1) / kWord, integers.tile_rows,
                        integers.panel, running.crew.threads());
    running.crew.each(tiling.count(), [&](int64_t chunk, int) {
      tiling.call(chunk, [&](int64_t panel_begin, int64_t panel_end) {
        integers.gemm(product, tiling.first_row(chunk), tiling.last_row(chunk), panel_begin,
                      panel_end);
      });
    });
    return true;
  }

private:
  static PackedBytes pack(const Making &making, const Constant &codes) {
    const int64_t k = codes.spec.shape[0];
    const int64_t n = codes.spec.shape[1];
    const PackedBytes::Source source = {reinterpret_cast<const uint8_t *>(codes.data), n, 1, 1, k,
                                        n, codes.spec.type == DType::kInt8};
    return {making, source, codes, "matrix"};
  }

  size_t column_bytes() const { return aligned(size_t(packed_.columns()) * sizeof(float)); }

  /// Quantises A, whose zero point and scale go into what follows on the sums.
  bool prepare(const Kernels &kernels, const Operands &operands, int64_t rows,
               IntegerGemm &product) const {
    const int64_t count = rows * packed_.k();
    float low = 0;
    float high = 0;
    if (count > 0)
      kernels.integers->bounds(operands.a, count, &low, &high);
    if (!std::isfinite(low) || !std::isfinite(high) || !std::isfinite(high - low))
      return false;
    low = std::min(low, 0.0f);
    high = std::max(high, 0.0f);
    const float scale = low == high ? 1.0f : (high - low) / 255.0f;
    const double wanted = low == high ? 0.0 : std::nearbyint(double(-low / scale));
    const auto zero = static_cast<int32_t>(std::clamp(wanted, 0.0, 255.0));
    auto *starts = reinterpret_cast<int32_t *>(operands.scratch);
    auto *scales = reinterpret_cast<float *>(operands.scratch + column_bytes());
    auto *codes = reinterpret_cast<uint8_t *>(operands.scratch + 2 * column_bytes());
    kernels.integers->quantise(operands.a, codes, count, scale, float(zero), 0, 255);
    const auto depth = static_cast<int32_t>(packed_.k());
    for (size_t i = 0; i < scales_.size(); ++i) {
      starts[i] = zero * (depth * zeros_[i] - packed_.sums()[i]);
      scales[i] = scale * scales_[i];
    }
    product = {};
    product.k = packed_.k();
    product.n = packed_.columns();
    product.a = codes;
    product.a_step = packed_.k();
    product.packed = packed_.panels();
    product.starts = starts;
    product.zeros = has_zeros_ ? zeros_.data() : nullptr;
    product.result = IntegerGemm::kFloat;
    product.c = operands.c;
    product.c_step = operands.c_step;
    product.scales = scales;
    product.offsets = operands.bias;
    product.low = -kInfinity;
    product.high = kInfinity;
    return true;
  }

  PackedBytes packed_;
  std::vector<float> scales_;
  std::vector<int32_t> zeros_; // as the packed weights have them
  bool has_zeros_ = false;
};

} // namespace

std::unique_ptr<const Factor> float_factor(const Making &making, const float *data, int64_t k,
                                           int64_t n) {
  return std::make_unique<const FloatFactor>(making, data, k, n);
}

std::unique_ptr<const Factor> quantised_factor(const Making &making,
                                               const QuantisedWeights &weights) {
  return std::make_unique<const QuantisedFactor>(making, weights);
}

} // namespace ep
