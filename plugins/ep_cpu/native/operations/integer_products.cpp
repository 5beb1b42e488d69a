// Products of 8-bit integers: matrices, and convolutions with channels innermost.
//
// Inputs: A or x, constant B or weights, then those of integers.h. Sums are exact.
#include "integers.h"
#include "strided.h"
#include "tiling.h"
#include "window.h"

namespace ep {
namespace {

constexpr int64_t kFewChannels = 16;
constexpr int64_t kWord = 4; // elements that a step of the kernel takes

/// As for floats, of which a word takes the place.
Tiling tiling_of(int64_t m, int64_t n, int64_t k, const Planning &planning) {
  const IntegerKernels &integers = *planning.kernels.integers;
  return {m, n, (k + kWord - 1) / kWord, integers.tile_rows, integers.panel, planning.threads};
}

void run_chunk(const Tiling &tiling, const Running &running, const IntegerGemm &gemm,
               int64_t chunk) {
  tiling.call(chunk, [&](int64_t panel_begin, int64_t panel_end) {
    running.kernels.integers->gemm(gemm, tiling.first_row(chunk), tiling.last_row(chunk),
                                   panel_begin, panel_end);
  });
}

const Constant &constant_bytes_of(const Making &making, int least_rank) {
  const Constant *b = making.constants[1];
  if (b == nullptr || !is_byte(b->spec.type) || b->spec.shape.rank() < least_rank)
    throw Mistake("weights of an 8-bit product must be constant");
  return *b;
}

/// Attribute: "transposed", B is [n, k].
class IntegerMatMul final : public Operation {
public:
  explicit IntegerMatMul(const Making &making)
      : tail_(making.attributes), packed_(pack(making)) {}

  Planned plan(const Planning &planning) const override {
    const Shape &a = planning.input(0).shape;
    need(a.rank() >= 1 && a[a.rank() - 1] == packed_.k(), "inner lengths differ");
    Shape result;
    for (int axis = 0; axis + 1 < a.rank(); ++axis)
      result.append(a[axis]);
    result.append(packed_.columns());
    const Tiling tiling =
        tiling_of(a.count(0, a.rank() - 1), packed_.columns(), packed_.k(), planning);
    Planned planned;
    planned.outputs = {{tail_.result_type(), result}};
    planned.task = task([this, tiling, tail = tail_.plan(planning, result, packed_, 0)](
                            const Running &running) {
      std::shared_ptr<const IntegerTail::Numbers> own;
      std::vector<Matrix> operands;
      IntegerGemm gemm = tail.start(running, own, operands);
      gemm.a = running.input<uint8_t>(0);
      gemm.a_step = packed_.k();
      running.crew.each(tiling.count(), [&](int64_t chunk, int) {
        run_chunk(tiling, running, gemm, chunk);
      });
    });
    return planned;
  }

  size_t constant_bytes() const override { return packed_.bytes(); }

private:
  static PackedBytes pack(const Making &making) {
    const Constant &b = constant_bytes_of(making, 2);
    const bool is_turned = making.attributes.integer("transposed", 0) != 0;
    const int64_t rows = b.spec.shape[0];
    const int64_t columns = b.spec.shape[1];
    const PackedBytes::Source source = {
        reinterpret_cast<const uint8_t *>(b.data),
        is_turned ? 1 : columns,
        is_turned ? columns : 1,
        1,
        is_turned ? columns : rows,
        is_turned ? rows : columns,
        b.spec.type == DType::kInt8};
    return {making, source, b, is_turned ? "transposed" : "matrix"};
  }

  IntegerTail tail_;
  PackedBytes packed_;
};

/// Attributes: those of a window.
class IntegerConvolution final : public Operation {
public:
  explicit IntegerConvolution(const Making &making)
      : attributes_(making.attributes), tail_(making.attributes), packed_(pack(making)),
        channels_(making.constants[1]->spec.shape[1]) {}

  Planned plan(const Planning &planning) const override {
    const Shape &x = planning.input(0).shape;
    const Window w = attributes_.over(x);
    need(w.channels == channels_, "another number of channels");
    need(w.kernel_height * w.kernel_width * channels_ == packed_.k(), "another window");
    const int64_t places = w.out_height * w.out_width;
    const bool is_pointwise = w.kernel_height * w.kernel_width == 1 &&
                              places == w.height * w.width && w.stride_y == 1 && w.stride_x == 1;
    Planned planned;
    planned.outputs = {
        WindowAttributes::result(x, w, packed_.columns(), tail_.result_type())};
    const IntegerTail::Plan tail =
        tail_.plan(planning, planned.outputs[0].shape, packed_, channels_);
    const Tiling tiling = tiling_of(x[0] * places, packed_.columns(), packed_.k(), planning);
    if (is_pointwise) {
      planned.task = pointwise(tiling, tail);
      return planned;
    }
    const bool is_framed = is_framed_;
    const Frame<uint8_t> frame(w, attributes_.pads, is_framed);
    const int64_t table = tiling.row_block * frame.taps;
    planned.workspace = aligned(size_t(planning.threads * table) * sizeof(uint8_t *)) +
                        size_t(frame.elements(x[0]));
    planned.task = task([=, this, batch = x[0]](const Running &running) {
      std::shared_ptr<const IntegerTail::Numbers> own;
      std::vector<Matrix> operands;
      IntegerGemm whole = tail.start(running, own, operands);
      auto **tables = reinterpret_cast<const uint8_t **>(running.workspace);
      auto *copy = reinterpret_cast<uint8_t *>(
          running.workspace + aligned(size_t(running.crew.threads() * table) * sizeof(uint8_t *)));
      const auto *source = running.input<uint8_t>(0);
      if (frame.is_framed) {
        frame.fill(running.crew, source, copy, batch, own->padding[0]);
        source = copy;
      }
      whole.taps = frame.taps;
      whole.depth = packed_.k() / frame.taps;
      running.crew.each(tiling.count(), [&](int64_t chunk, int worker) {
        IntegerGemm gemm = whole;
        const uint8_t **rows = tables + worker * table;
        gemm.rows = rows;
        gemm.first_row = tiling.first_row(chunk);
        for (int64_t row = gemm.first_row; row < tiling.last_row(chunk); ++row, rows += frame.taps)
          frame.point(source, row, rows, own->padding.data());
        run_chunk(tiling, running, gemm, chunk);
      });
    });
    return planned;
  }

  size_t constant_bytes() const override { return packed_.bytes(); }

private:
  std::unique_ptr<Task> pointwise(const Tiling &tiling, const IntegerTail::Plan &tail) const {
    return task([this, tiling, tail](const Running &running) {
      std::shared_ptr<const IntegerTail::Numbers> own;
      std::vector<Matrix> operands;
      IntegerGemm gemm = tail.start(running, own, operands);
      gemm.a = running.input<uint8_t>(0);
      gemm.a_step = channels_;
      running.crew.each(tiling.count(), [&](int64_t chunk, int) {
        run_chunk(tiling, running, gemm, chunk);
      });
    });
  }

  /// Few channels make short pieces; there a row of the window is one piece, see Frame.
  PackedBytes pack(const Making &making) {
    const Constant &weights = constant_bytes_of(making, 3);
    const Shape &shape = weights.spec.shape;
    const int64_t taps = shape.count(2, shape.rank());
    const int64_t channels = shape[1];
    const int64_t width = shape[shape.rank() - 1];
    is_framed_ = channels < kFewChannels && width > 1 && attributes_.dilations[1] == 1;
    const int64_t k = taps * channels;
    std::vector<uint8_t> turned(size_t(shape[0] * k));
    const auto *from = reinterpret_cast<const uint8_t *>(weights.data);
    making.crew.each(shape[0], [&](int64_t out, int) {
      for (int64_t in = 0; in < channels; ++in)
        for (int64_t tap = 0; tap < taps; ++tap)
          turned[size_t(out * k + tap * channels + in)] = from[(out * channels + in) * taps + tap];
    });
    const int64_t pieces = is_framed_ ? taps / width : taps;
    const PackedBytes::Source source = {
        turned.data(), 1, k, pieces, k / pieces, shape[0], weights.spec.type == DType::kInt8};
    return {making, source, weights, "window " + std::to_string(channels)};
  }

  WindowAttributes attributes_;
  IntegerTail tail_;
  bool is_framed_ = false;
  PackedBytes packed_;
  int64_t channels_;
};

template <class Kind> std::unique_ptr<Operation> make(const Making &making) {
  return std::make_unique<Kind>(making);
}

const Registration kIntegerMatMul("integer_matmul", make<IntegerMatMul>);
const Registration kIntegerConvolution("integer_conv", make<IntegerConvolution>);

} // namespace
} // namespace ep
