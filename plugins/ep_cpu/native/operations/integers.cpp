#include "integers.h"

#include <algorithm>
#include <limits>

namespace ep {
namespace {

constexpr size_t kBias = 2, kZeroA = 3, kZeroB = 4, kScaleA = 5, kScaleB = 6, kScale = 7, kZero = 8;
constexpr size_t kBeside = 9, kBesideScale = 10, kBesideZero = 11, kSumScale = 12, kSumZero = 13;
constexpr size_t kOperands = 9;

int32_t byte_at(const std::byte *data, DType type, int64_t index) {
  return type == DType::kInt8 ? reinterpret_cast<const int8_t *>(data)[index]
                              : reinterpret_cast<const uint8_t *>(data)[index];
}

/// Numbers of inputs as they come; `data` is null for one that is left out.
struct Reader {
  std::span<const std::byte *const> data;
  std::span<const Spec> specs;

  bool has(size_t input) const { return input < data.size() && data[input] != nullptr; }
  int64_t count(size_t input) const { return specs[input].shape.count(); }
  int32_t zero(size_t input, int64_t index = 0) const {
    return has(input) ? byte_at(data[input], specs[input].type, count(input) == 1 ? 0 : index) : 0;
  }
  float scale(size_t input, int64_t index = 0) const {
    return reinterpret_cast<const float *>(data[input])[count(input) == 1 ? 0 : index];
  }
};

struct Range {
  float least, most;
};

Range range_of(DType type) {
  return type == DType::kInt8 ? Range{-128, 127} : Range{0, 255};
}

} // namespace

PackedBytes::PackedBytes(const Making &making, const Source &source, const Constant &key,
                         const std::string &layout)
    : k_(source.taps * source.depth), columns_(source.columns), is_signed_(source.is_signed) {
  const IntegerKernels &integers = *making.kernels.integers;
  panel_bytes_ = aligned(size_t(integers.packed_bytes(source.taps, source.depth, columns_)));
  const int64_t panels = (columns_ + integers.panel - 1) / integers.panel;
  const std::string name = "bytes " + std::string(making.kernels.name) + " " + layout + " " +
                           std::to_string(source.taps) + " " + std::to_string(source.depth) + " " +
                           std::to_string(columns_) + (is_signed_ ? " signed" : "");
  weights_ = shared_weights(
      {key.data, key.spec.bytes(), name}, panel_bytes_ + size_t(columns_) * sizeof(int32_t),
      [&](std::byte *to) {
        std::fill_n(to, panel_bytes_, std::byte{});
        making.crew.each(panels, [&](int64_t panel, int) {
          integers.pack_bytes(source.data, source.row_step, source.column_step, source.taps,
                              source.depth, columns_, !is_signed_, reinterpret_cast<int8_t *>(to),
                              reinterpret_cast<int32_t *>(to + panel_bytes_), panel, panel + 1);
        });
      });
}

const int8_t *PackedBytes::panels() const {
  return reinterpret_cast<const int8_t *>(weights_->memory.get());
}

const int32_t *PackedBytes::sums() const {
  return reinterpret_cast<const int32_t *>(weights_->memory.get() + panel_bytes_);
}

IntegerTail::IntegerTail(const Attributes &attributes)
    : chain_(OwnedChain::read(attributes)), to_(static_cast<DType>(attributes.integer("to"))),
      first_(static_cast<DType>(attributes.integer("first", static_cast<int64_t>(to_)))),
      has_beside_(attributes.integer("beside", 0) != 0) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  low_ = attributes.number("low", -kInfinity);
  high_ = attributes.number("high", kInfinity);
  last_low_ = attributes.number("last_low", -kInfinity);
  last_high_ = attributes.number("last_high", kInfinity);
  if (chain_ != nullptr && to_ != DType::kFloat)
    throw Mistake("a chain follows on float results alone");
}

IntegerTail::Plan IntegerTail::plan(const Planning &planning, const Shape &result,
                                    const PackedBytes &packed, int64_t padding) const {
  const int64_t n = packed.columns();
  const auto fits = [&](size_t input, auto is_right, bool per_column) {
    if (!planning.has(input))
      return;
    const Spec &spec = planning.input(input);
    need(is_right(spec.type), "a zero point, scale or bias of another type");
    const int64_t count = spec.shape.count();
    need(count == 1 || (per_column && count == n), "a zero point or scale of another length");
  };
  const auto is_float = [](DType type) { return type == DType::kFloat; };
  const auto is_same = [](DType type) {
    return [type](DType other) { return other == type; };
  };
  need(is_byte(planning.input(0).type), "not 8-bit integers");
  fits(kZeroA, is_same(planning.input(0).type), false);
  fits(kZeroB, is_byte, true);
  if (planning.has(kBias)) {
    const Spec &bias = planning.input(kBias);
    need(bias.shape.count() == n, "a bias of another length");
    need(bias.type == DType::kInt32 || (is_float(bias.type) && to_ != DType::kInt32),
         "a bias of another type");
  }
  if (to_ != DType::kInt32) {
    fits(kScaleA, is_float, false);
    fits(kScaleB, is_float, true);
    need(planning.has(kScaleA) && planning.has(kScaleB), "scales are missing");
  }
  if (is_byte(to_)) {
    need(planning.has(kScale), "the result's scale is missing");
    fits(kScale, is_float, false);
    fits(kZero, is_same(first_), false);
  }
  Plan made;
  made.tail_ = this;
  made.packed_ = &packed;
  made.padding_ = padding;
  if (has_beside_) {
    need(is_byte(planning.input(kBeside).type) && planning.input(kBeside).shape == result,
         "what is added doesn't fit");
    need(planning.has(kBesideScale) && planning.has(kSumScale), "scales are missing");
    fits(kBesideScale, is_float, false);
    fits(kBesideZero, is_same(planning.input(kBeside).type), false);
    fits(kSumScale, is_float, false);
    fits(kSumZero, is_same(to_), false);
  }
  if (chain_ != nullptr) {
    made.operands_.resize(size_t(chain_->inputs()));
    for (size_t i = 1; i < made.operands_.size(); ++i) {
      const Spec &spec = planning.input(kOperands + i - 1);
      need(is_float(spec.type), "an operand isn't float32");
      made.operands_[i] = matrix_over(spec.shape, result);
    }
  }
  bool all_known = true;
  for (size_t i = 0; i < planning.inputs.size(); ++i) {
    made.specs_.push_back(planning.has(i) ? planning.input(i) : Spec{});
    const bool is_data = i < kBias || i == kBeside || (chain_ != nullptr && i >= kOperands);
    all_known = all_known && (is_data || !planning.has(i) || planning.known[i] != nullptr);
  }
  if (all_known)
    made.known_ = std::make_shared<const Numbers>(
        numbers(planning.known, made.specs_, packed, padding));
  return made;
}

IntegerTail::Numbers IntegerTail::numbers(std::span<const std::byte *const> inputs,
                                          std::span<const Spec> specs, const PackedBytes &packed,
                                          int64_t padding) const {
  const Reader read{inputs, specs};
  const size_t n = size_t(packed.columns());
  const bool flips = specs[0].type == DType::kInt8;
  Numbers found;
  const int32_t zero_a = read.zero(kZeroA);
  found.padding.assign(size_t(padding), static_cast<uint8_t>(zero_a));
  // Sums wrap around, as the kernels' do.
  const auto own_zero = static_cast<uint32_t>(zero_a + (flips ? 128 : 0));
  const auto depth = static_cast<uint32_t>(packed.k());
  found.starts.resize(n);
  found.zeros.resize(n);
  bool has_zeros = false;
  for (size_t i = 0; i < n; ++i) {
    const int32_t zero = read.zero(kZeroB, int64_t(i)) - (packed.is_signed() ? 0 : 128);
    found.zeros[i] = zero;
    has_zeros = has_zeros || zero != 0;
    uint32_t start = own_zero * (depth * static_cast<uint32_t>(zero) -
                                 static_cast<uint32_t>(packed.sums()[i]));
    if (read.has(kBias) && specs[kBias].type == DType::kInt32)
      start += reinterpret_cast<const uint32_t *>(inputs[kBias])[i];
    found.starts[i] = static_cast<int32_t>(start);
  }
  if (!has_zeros)
    found.zeros.clear();
  IntegerGemm &gemm = found.gemm;
  gemm.k = packed.k();
  gemm.n = packed.columns();
  gemm.flips = flips;
  gemm.packed = packed.panels();
  gemm.low = low_;
  gemm.high = high_;
  gemm.result = to_ == DType::kInt32 ? IntegerGemm::kInteger
                : to_ == DType::kFloat ? IntegerGemm::kFloat : IntegerGemm::kBytes;
  if (to_ == DType::kInt32)
    return found;
  found.scales.resize(n);
  for (size_t i = 0; i < n; ++i)
    found.scales[i] = read.scale(kScaleA) * read.scale(kScaleB, int64_t(i));
  if (read.has(kBias) && specs[kBias].type == DType::kFloat) {
    const auto *bias = reinterpret_cast<const float *>(inputs[kBias]);
    found.offsets.assign(bias, bias + n);
  }
  if (is_byte(to_))
    quantised(found, inputs, specs);
  return found;
}

void IntegerTail::quantised(Numbers &found, std::span<const std::byte *const> inputs,
                            std::span<const Spec> specs) const {
  const Reader read{inputs, specs};
  IntegerGemm &gemm = found.gemm;
  const float scale = read.scale(kScale);
  for (float &value : found.scales)
    value /= scale;
  for (float &value : found.offsets)
    value /= scale;
  const int32_t zero = read.zero(kZero);
  const Range first = range_of(first_);
  gemm.low = std::max(low_ / scale, first.least - float(zero));
  gemm.high = std::min(high_ / scale, first.most - float(zero));
  gemm.zero = zero;
  if (!has_beside_)
    return;
  const float sum_scale = read.scale(kSumScale);
  const float beside_scale = read.scale(kBesideScale);
  const int32_t sum_zero = read.zero(kSumZero);
  const Range last = range_of(to_);
  gemm.own_factor = scale / sum_scale;
  gemm.beside_factor = beside_scale / sum_scale;
  gemm.beside_offset = -float(read.zero(kBesideZero)) * gemm.beside_factor;
  gemm.last_low = std::max(last_low_ / sum_scale, last.least - float(sum_zero));
  gemm.last_high = std::min(last_high_ / sum_scale, last.most - float(sum_zero));
  gemm.beside_signed = specs[kBeside].type == DType::kInt8;
  gemm.zero = sum_zero;
}

IntegerGemm IntegerTail::Plan::start(const Running &running, std::shared_ptr<const Numbers> &own,
                                     std::vector<Matrix> &operands) const {
  own = known_ != nullptr ? known_
                          : std::make_shared<const Numbers>(
                                tail_->numbers(running.inputs, specs_, *packed_, padding_));
  IntegerGemm gemm = own->gemm;
  gemm.starts = own->starts.data();
  gemm.zeros = own->zeros.empty() ? nullptr : own->zeros.data();
  gemm.scales = own->scales.data();
  gemm.offsets = own->offsets.empty() ? nullptr : own->offsets.data();
  gemm.c = running.outputs[0];
  gemm.c_step = packed_->columns();
  if (tail_->has_beside_)
    gemm.beside = running.input<uint8_t>(kBeside);
  if (tail_->chain_ == nullptr)
    return gemm;
  operands = operands_;
  for (size_t i = 1; i < operands.size(); ++i)
    operands[i].data = running.input(kOperands + i - 1);
  gemm.chain = &tail_->chain_->chain();
  gemm.operands = operands.data();
  gemm.elementwise = running.kernels.elementwise;
  return gemm;
}

} // namespace ep
