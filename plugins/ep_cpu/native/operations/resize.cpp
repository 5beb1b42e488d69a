// Resize of pictures with channels innermost, to the nearest point or linearly.
#include <cmath>
#include <cstring>

#include "../core/operation.h"

namespace ep {
namespace {

/// How positions are found, in the order of the attribute "coordinates".
enum class Coordinates { kHalfPixel, kAsymmetric, kAlignCorners, kHalfPixelOfPyTorch };
/// How they are rounded, in the order of the attribute "rounding".
enum class Rounding { kPreferFloor, kPreferCeil, kFloor, kCeil, kLegacy };

/// One axis: for each place of the result two places of the source, and the weight of the second.
struct Axis {
  std::vector<int64_t> first, second;
  std::vector<float> weight;
};

double position(Coordinates how, int64_t index, int64_t source, double scale) {
  const double place = static_cast<double>(index);
  const double length = scale * static_cast<double>(source);
  switch (how) {
  case Coordinates::kHalfPixel: return (place + 0.5) / scale - 0.5;
  case Coordinates::kAsymmetric: return place / scale;
  case Coordinates::kAlignCorners:
    return length == 1 ? 0 : place * static_cast<double>(source - 1) / (length - 1);
  case Coordinates::kHalfPixelOfPyTorch: return length <= 1 ? 0 : (place + 0.5) / scale - 0.5;
  }
  return 0;
}

double rounded(Rounding how, double place, double scale) {
  switch (how) {
  case Rounding::kPreferFloor: return std::ceil(place - 0.5);
  case Rounding::kPreferCeil: return std::floor(place + 0.5);
  case Rounding::kFloor: return std::floor(place);
  case Rounding::kCeil: return std::ceil(place);
  case Rounding::kLegacy: return scale < 1 ? std::ceil(place) : std::floor(place);
  }
  return 0;
}

/// Inputs: x, known scales or nothing, known sizes or nothing, each for all four axes in ONNX's order.
/// Attributes: linear, coordinates, rounding.
class Resize final : public Operation {
public:
  explicit Resize(const Making &making)
      : is_linear_(making.attributes.integer("linear") != 0),
        coordinates_(static_cast<Coordinates>(making.attributes.integer("coordinates"))),
        rounding_(static_cast<Rounding>(making.attributes.integer("rounding"))) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(x.type == DType::kFloat && x.shape.rank() == 4 && x.shape.count() > 0, "not pictures");
    int64_t lengths[2];
    double scales[2];
    measure(planning, x.shape, lengths, scales);
    const Shape result{x.shape[0], lengths[0], lengths[1], x.shape[3]};
    Planned planned;
    planned.outputs = {{DType::kFloat, result}};
    const Axis rows = make_axis(x.shape[1], lengths[0], scales[0]);
    const Axis columns = make_axis(x.shape[2], lengths[1], scales[1]);
    const int64_t line = x.shape[2] * x.shape[3];
    planned.workspace = size_t(planning.threads * line) * sizeof(float);
    planned.task = task([=, this, shape = x.shape](const Running &running) {
      running.crew.each(shape[0] * lengths[0], [&](int64_t number, int worker) {
        const int64_t row = number % lengths[0];
        const float *picture = running.input(0) + number / lengths[0] * shape[1] * line;
        const float *first = picture + rows.first[size_t(row)] * line;
        const float *second = picture + rows.second[size_t(row)] * line;
        float *out = running.output() + number * lengths[1] * shape[3];
        if (!is_linear_) {
          pick(first, columns, shape[3], out);
          return;
        }
        auto *mixed = reinterpret_cast<float *>(running.workspace) + worker * line;
        mix(first, second, rows.weight[size_t(row)], line, mixed);
        for (size_t i = 0; i < columns.first.size(); ++i)
          mix(mixed + columns.first[i] * shape[3], mixed + columns.second[i] * shape[3],
              columns.weight[i], shape[3], out + int64_t(i) * shape[3]);
      });
    });
    return planned;
  }

private:
  static void measure(const Planning &planning, const Shape &x, int64_t *lengths, double *scales) {
    const int64_t source[] = {x[1], x[2]};
    if (planning.has(2) && planning.input(2).shape.count() > 0) {
      const std::vector<int64_t> sizes = planning.integers(2);
      need(sizes.size() == 4 && sizes[0] == x[0] && sizes[1] == x[3], "other axes are resized");
      for (int axis = 0; axis < 2; ++axis) {
        lengths[axis] = sizes[size_t(axis) + 2];
        scales[axis] = static_cast<double>(lengths[axis]) / static_cast<double>(source[axis]);
      }
    } else {
      const Spec &given = planning.input(1);
      need(given.type == DType::kFloat && given.shape.count() == 4, "odd scales");
      need(planning.known[1] != nullptr, "scales aren't known beforehand");
      const auto *values = reinterpret_cast<const float *>(planning.known[1]);
      need(values[0] == 1 && values[1] == 1, "other axes are resized");
      for (int axis = 0; axis < 2; ++axis) {
        scales[axis] = static_cast<double>(values[axis + 2]);
        need(scales[axis] > 0 && scales[axis] < 1e6, "odd scales");
        lengths[axis] = int64_t(std::floor(static_cast<double>(source[axis]) * scales[axis]));
      }
    }
    need(lengths[0] > 0 && lengths[1] > 0, "an empty result");
  }

  Axis make_axis(int64_t source, int64_t target, double scale) const {
    Axis axis;
    const auto inside = [&](double place) {
      return int64_t(std::fmin(std::fmax(place, 0), static_cast<double>(source - 1)));
    };
    const bool is_plain = source == target && scale == 1;
    for (int64_t i = 0; i < target; ++i) {
      const double place =
          is_plain ? static_cast<double>(i) : position(coordinates_, i, source, scale);
      const double base = is_linear_ ? std::floor(place) : rounded(rounding_, place, scale);
      axis.first.push_back(inside(base));
      axis.second.push_back(inside(base + 1));
      axis.weight.push_back(static_cast<float>(place - std::floor(place)));
    }
    return axis;
  }

  static void pick(const float *row, const Axis &columns, int64_t channels, float *out) {
    for (size_t i = 0; i < columns.first.size(); ++i)
      std::memcpy(out + int64_t(i) * channels, row + columns.first[i] * channels,
                  size_t(channels) * sizeof(float));
  }

  static void mix(const float *a, const float *b, float weight, int64_t count, float *out) {
    const float rest = 1.0f - weight;
    if (weight == 0.0f) {
      std::memcpy(out, a, size_t(count) * sizeof(float));
      return;
    }
    for (int64_t i = 0; i < count; ++i)
      out[i] = a[i] * rest + b[i] * weight;
  }

  bool is_linear_;
  Coordinates coordinates_;
  Rounding rounding_;
};

const Registration kResize("resize", [](const Making &making) -> std::unique_ptr<Operation> {
  return std::make_unique<Resize>(making);
});

} // namespace
} // namespace ep
