// Between float32 and 8-bit integers, and what is computed on 8-bit integers without products.
#include <algorithm>
#include <cmath>
#include <limits>

#include "integers.h"
#include "window.h"

namespace ep {
namespace {

constexpr int64_t kChunkElements = 16384;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Range {
  float least, most;
};

Range range_of(DType type) {
  return type == DType::kInt8 ? Range{-128, 127} : Range{0, 255};
}

int32_t integer_at(const std::byte *data, DType type, int64_t index) {
  switch (type) {
  case DType::kInt8: return reinterpret_cast<const int8_t *>(data)[index];
  case DType::kUint8: return reinterpret_cast<const uint8_t *>(data)[index];
  default: return reinterpret_cast<const int32_t *>(data)[index];
  }
}

/// Scales and zero points of a tensor: one, or one per index of an axis.
struct Parameters {
  int64_t count;  // of scales
  int64_t inner;  // elements that lie behind one index of the axis
  int64_t pieces; // of elements that share a scale

  Parameters(const Planning &planning, int64_t axis, DType zero_type) {
    const Shape &x = planning.input(0).shape;
    const Spec &scale = planning.input(1);
    need(scale.type == DType::kFloat && scale.shape.rank() <= 1, "scales that aren't float32");
    count = scale.shape.count();
    if (planning.has(2)) {
      const Spec &zero = planning.input(2);
      need(zero.type == zero_type && zero.shape == scale.shape, "zero points that don't fit");
    }
    if (count == 1) {
      inner = x.count();
      pieces = 1;
      return;
    }
    const int at = front_axis(axis, x.rank());
    need(x[at] == count, "a wrong number of scales");
    inner = x.count(at + 1, x.rank());
    pieces = x.count(0, at + 1);
  }

  /// Calls `body(first element, elements, index of the scale)` for all elements.
  template <class Body> void each(const Crew &crew, const Body &body) const {
    if (pieces == 1) {
      const Chunks chunks(inner, kChunkElements);
      crew.each(chunks.count, [&](int64_t chunk, int) {
        body(chunks.begin(chunk), chunks.end(chunk) - chunks.begin(chunk), int64_t{0});
      });
      return;
    }
    const Chunks chunks(pieces, kChunkElements / std::max<int64_t>(inner, 1));
    crew.each(chunks.count, [&](int64_t chunk, int) {
      for (int64_t piece = chunks.begin(chunk); piece < chunks.end(chunk); ++piece)
        body(piece * inner, inner, piece % count);
    });
  }
};

/// Inputs: x, scale, zero point or nothing. Attributes: axis, "to" (uint8 or int8).
class Quantise final : public Operation {
public:
  explicit Quantise(const Making &making)
      : axis_(making.attributes.integer("axis", 1)),
        to_(static_cast<DType>(making.attributes.integer("to"))) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(x.type == DType::kFloat && is_byte(to_), "not from float32 to 8 bits");
    Planned planned;
    planned.outputs = {{to_, x.shape}};
    planned.task = task([this, parameters = Parameters(planning, axis_, to_)](
                            const Running &running) {
      const Range range = range_of(to_);
      parameters.each(running.crew, [&](int64_t begin, int64_t count, int64_t index) {
        const std::byte *zero = running.inputs.size() > 2 ? running.inputs[2] : nullptr;
        running.kernels.integers->quantise(
            running.input(0) + begin, running.output<uint8_t>() + begin, count,
            running.input(1)[index],
            zero == nullptr ? 0.0f : float(integer_at(zero, to_, index)), range.least, range.most);
      });
    });
    return planned;
  }

private:
  int64_t axis_;
  DType to_;
};

/// Inputs: x (uint8, int8 or int32), scale, zero point or nothing. Attribute: axis.
class Dequantise final : public Operation {
public:
  explicit Dequantise(const Making &making) : axis_(making.attributes.integer("axis", 1)) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(is_byte(x.type) || x.type == DType::kInt32, "not from 8 or 32 bits");
    Planned planned;
    planned.outputs = {{DType::kFloat, x.shape}};
    planned.task = task([type = x.type, parameters = Parameters(planning, axis_, x.type)](
                            const Running &running) {
      const std::byte *zeros = running.inputs.size() > 2 ? running.inputs[2] : nullptr;
      parameters.each(running.crew, [&](int64_t begin, int64_t count, int64_t index) {
        const float scale = running.input(1)[index];
        const int32_t zero = zeros == nullptr ? 0 : integer_at(zeros, type, index);
        float *out = running.output() + begin;
        if (is_byte(type)) {
          running.kernels.integers->dequantise(running.input<uint8_t>(0) + begin,
                                               type == DType::kInt8, out, count, scale,
                                               float(zero));
          return;
        }
        const auto *from = running.input<int32_t>(0) + begin;
        for (int64_t i = 0; i < count; ++i)
          out[i] = float(double(from[i]) - double(zero)) * scale;
      });
    });
    return planned;
  }

private:
  int64_t axis_;
};

/// Outputs: uint8 values, their scale and their zero point, which cover all of x and 0.
class DynamicQuantise final : public Operation {
public:
  explicit DynamicQuantise(const Making &) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(x.type == DType::kFloat, "not float32");
    Planned planned;
    planned.outputs = {{DType::kUint8, x.shape}, {DType::kFloat, {}}, {DType::kUint8, {}}};
    const Chunks chunks(x.shape.count(), kChunkElements);
    planned.workspace = size_t(chunks.count) * 2 * sizeof(float);
    planned.task = task([chunks](const Running &running) {
      const IntegerKernels &integers = *running.kernels.integers;
      auto *bounds = reinterpret_cast<float *>(running.workspace);
      running.crew.each(chunks.count, [&](int64_t chunk, int) {
        integers.bounds(running.input(0) + chunks.begin(chunk),
                        chunks.end(chunk) - chunks.begin(chunk), bounds + 2 * chunk,
                        bounds + 2 * chunk + 1);
      });
      float low = 0;
      float high = 0;
      for (int64_t chunk = 0; chunk < chunks.count; ++chunk) {
        need(std::isfinite(bounds[2 * chunk]) && std::isfinite(bounds[2 * chunk + 1]),
             "values that aren't finite");
        low = std::min(low, bounds[2 * chunk]);
        high = std::max(high, bounds[2 * chunk + 1]);
      }
      const float scale = low == high ? 1.0f : (high - low) / 255.0f;
      need(std::isfinite(scale), "values too far apart");
      const double zero = low == high ? 0.0 : std::nearbyint(double(-low / scale));
      const float bounded = float(std::clamp(zero, 0.0, 255.0));
      *running.output(1) = scale;
      *running.output<uint8_t>(2) = static_cast<uint8_t>(bounded);
      running.crew.each(chunks.count, [&](int64_t chunk, int) {
        const int64_t begin = chunks.begin(chunk);
        integers.quantise(running.input(0) + begin, running.output<uint8_t>() + begin,
                          chunks.end(chunk) - begin, scale, bounded, 0, 255);
      });
    });
    return planned;
  }
};

/// The sum of two quantised tensors of one shape. Inputs: a, its scale, its zero point, b, its scale,
/// its zero point, the sum's scale, its zero point. Attributes: "to"; "low" and "high" bound the sum.
class AddBytes final : public Operation {
public:
  explicit AddBytes(const Making &making)
      : to_(static_cast<DType>(making.attributes.integer("to"))),
        low_(making.attributes.number("low", -kInfinity)),
        high_(making.attributes.number("high", kInfinity)) {}

  Planned plan(const Planning &planning) const override {
    const Spec &a = planning.input(0);
    const Spec &b = planning.input(3);
    need(is_byte(a.type) && is_byte(b.type) && is_byte(to_) && a.shape == b.shape,
         "not two 8-bit tensors of one shape");
    for (const size_t scale : {1, 4, 6})
      need(planning.input(scale).type == DType::kFloat && planning.input(scale).shape.count() == 1,
           "a scale that isn't one float32");
    const DType types[] = {a.type, b.type, to_};
    for (size_t i = 0; i < 3; ++i) {
      const size_t at = i == 2 ? 7 : 3 * i + 2;
      need(!planning.has(at) || (planning.input(at).type == types[i] &&
                                 planning.input(at).shape.count() == 1),
           "a zero point that doesn't fit");
    }
    Planned planned;
    planned.outputs = {{to_, a.shape}};
    const Chunks chunks(a.shape.count(), kChunkElements);
    planned.task = task([this, chunks, first = a.type, second = b.type](const Running &running) {
      const auto zero = [&](size_t at, DType type) {
        const bool is_there = at < running.inputs.size() && running.inputs[at] != nullptr;
        return is_there ? integer_at(running.inputs[at], type, 0) : 0;
      };
      const float scale = running.input(6)[0];
      const float a_factor = running.input(1)[0] / scale;
      const float b_factor = running.input(4)[0] / scale;
      const int32_t own_zero = zero(7, to_);
      const Range range = range_of(to_);
      const float offset =
          -(float(zero(2, first)) * a_factor + float(zero(5, second)) * b_factor);
      running.crew.each(chunks.count, [&](int64_t chunk, int) {
        const int64_t begin = chunks.begin(chunk);
        running.kernels.integers->add_bytes(
            running.input<uint8_t>(0) + begin, running.input<uint8_t>(3) + begin,
            running.output<uint8_t>() + begin, chunks.end(chunk) - begin, first == DType::kInt8,
            second == DType::kInt8, a_factor, b_factor, offset,
            std::max(low_ / scale, range.least - float(own_zero)),
            std::min(high_ / scale, range.most - float(own_zero)), own_zero);
      });
    });
    return planned;
  }

private:
  DType to_;
  float low_, high_;
};

/// The largest of each window, with channels innermost. Attributes: those of a window.
class PoolBytes final : public Operation {
public:
  explicit PoolBytes(const Making &making) : attributes_(making.attributes) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(is_byte(x.type), "not 8-bit integers");
    const Window w = attributes_.over(x.shape);
    Planned planned;
    planned.outputs = {WindowAttributes::result(x.shape, w, w.channels, x.type)};
    planned.task = x.type == DType::kInt8 ? largest<int8_t>(w, x.shape[0])
                                          : largest<uint8_t>(w, x.shape[0]);
    return planned;
  }

private:
  template <class Value> static std::unique_ptr<Task> largest(const Window &w, int64_t batch) {
    return task([w, batch](const Running &running) {
      running.crew.each(batch * w.out_height, [&](int64_t number, int) {
        const Value *picture =
            running.input<Value>(0) + number / w.out_height * w.height * w.width * w.channels;
        Value *row = running.output<Value>() + number * w.out_width * w.channels;
        for (int64_t x = 0; x < w.out_width; ++x)
          find_largest(w, picture, number % w.out_height, x, row + x * w.channels);
      });
    });
  }

  template <class Value>
  static void find_largest(const Window &w, const Value *picture, int64_t out_y, int64_t out_x,
                           Value *__restrict to) {
    std::fill_n(to, w.channels, std::numeric_limits<Value>::min());
    for (int64_t i = 0; i < w.kernel_height; ++i)
      for (int64_t j = 0; j < w.kernel_width; ++j) {
        const int64_t y = out_y * w.stride_y - w.top + i * w.dilation_y;
        const int64_t x = out_x * w.stride_x - w.left + j * w.dilation_x;
        if (y < 0 || y >= w.height || x < 0 || x >= w.width)
          continue;
        const Value *from = picture + (y * w.width + x) * w.channels;
        for (int64_t channel = 0; channel < w.channels; ++channel)
          to[channel] = std::max(to[channel], from[channel]);
      }
  }

  WindowAttributes attributes_;
};

template <class Kind> std::unique_ptr<Operation> make(const Making &making) {
  return std::make_unique<Kind>(making);
}

const Registration kQuantise("quantise", make<Quantise>);
const Registration kDequantise("dequantise", make<Dequantise>);
const Registration kDynamicQuantise("dynamic_quantise", make<DynamicQuantise>);
const Registration kAddBytes("add_bytes", make<AddBytes>);
const Registration kPoolBytes("pool_bytes", make<PoolBytes>);

} // namespace
} // namespace ep
