// ConvTranspose with channels innermost: a product, whose columns are the taps of the window times
// the channels of the result, and a sum of them per place of the output.
//
// Every place adds up its taps in one order, so results don't depend on threads.
#include "behind.h"
#include "tiling.h"

namespace ep {
namespace {

/// How a window moves over the output, along one axis.
struct Reach {
  int64_t kernel, stride, dilation, before, length; // of the input

  /// The place that input 0 reaches by `tap`; the next inputs reach `stride` further each.
  int64_t place(int64_t tap) const { return tap * dilation - before; }

  /// The input that reaches `to` by `tap`, or -1.
  int64_t source(int64_t to, int64_t tap) const {
    const int64_t from = to - place(tap);
    return from >= 0 && from % stride == 0 && from / stride < length ? from / stride : -1;
  }
};

/// Inputs: x, constant weights [in, out, height, width], bias or nothing, operands of a chain.
/// Attributes: "kernel", "strides", "dilations" (two each), "pads" (top, left, bottom, right, which
/// are below 0 where the output is padded).
class TransposedConvolution final : public Operation {
public:
  explicit TransposedConvolution(const Making &making)
      : behind_(making.attributes), kernel_(making.attributes.integers("kernel")),
        strides_(making.attributes.integers("strides")),
        dilations_(making.attributes.integers("dilations")),
        pads_(making.attributes.integers("pads")) {
    const Constant *weights = making.constants[1];
    if (weights == nullptr || weights->spec.shape.rank() < 3)
      throw Mistake("weights of a convolution must be constant");
    channels_ = weights->spec.shape[0];
    out_channels_ = weights->spec.shape[1];
    pack(making, *weights);
  }

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(x.type == DType::kFloat && (x.shape.rank() == 3 || x.shape.rank() == 4), "not float32");
    const int rank = x.shape.rank();
    need(x.shape[rank - 1] == channels_, "another number of channels");
    const Reach rows = reach(0, rank == 4 ? x.shape[1] : 1);
    const Reach columns = reach(1, x.shape[rank - 2]);
    const int64_t height = places(rows, pads_[2]);
    const int64_t width = places(columns, pads_[3]);
    need(rows.length > 0 && columns.length > 0 && height > 0 && width > 0, "nothing is left");
    const int64_t batch = x.shape[0];
    Planned planned;
    planned.outputs = {rank == 3 ? Spec{DType::kFloat, {batch, width, out_channels_}}
                                 : Spec{DType::kFloat, {batch, height, width, out_channels_}}};
    std::vector<Matrix> operands = behind_.plan(planning, planned.outputs[0].shape);
    const int64_t inputs = batch * rows.length * columns.length;
    const Tiling tiling(inputs, wide(), channels_, planning.kernels, planning.threads);
    planned.workspace = size_t(inputs * wide()) * sizeof(float);
    planned.task = task([=, this](const Running &running) {
      multiply(running, tiling);
      std::vector<Matrix> own = operands;
      Gemm after = {};
      behind_.attach(after, own, running);
      running.crew.each(batch * height, [&](int64_t line, int) {
        add_up(running, after, rows, columns, line, height, width);
        behind_.finish(after, running, line * width, width, out_channels_);
      });
    });
    return planned;
  }

  size_t constant_bytes() const override { return packed_->bytes; }

private:
  int64_t taps() const { return kernel_[0] * kernel_[1]; }
  int64_t wide() const { return taps() * out_channels_; }

  Reach reach(size_t axis, int64_t length) const {
    return {kernel_[axis], strides_[axis], dilations_[axis], pads_[axis], length};
  }

  static int64_t places(const Reach &r, int64_t after) {
    return (r.length - 1) * r.stride + (r.kernel - 1) * r.dilation + 1 - r.before - after;
  }

  void multiply(const Running &running, const Tiling &tiling) const {
    Gemm gemm = {};
    gemm.k = channels_;
    gemm.n = wide();
    gemm.a = running.input(0);
    gemm.a_step = channels_;
    gemm.packed = packed_->floats();
    gemm.c = reinterpret_cast<float *>(running.workspace);
    gemm.c_step = wide();
    gemm.low = -std::numeric_limits<float>::infinity();
    gemm.high = std::numeric_limits<float>::infinity();
    running.crew.each(tiling.count(), [&](int64_t chunk, int) {
      tiling.run(running.kernels, gemm, chunk);
    });
  }

  /// One row of places of the output.
  void add_up(const Running &running, const Gemm &after, const Reach &rows, const Reach &columns,
              int64_t line, int64_t height, int64_t width) const {
    const auto *products = reinterpret_cast<const float *>(running.workspace);
    float *out = running.output() + line * width * out_channels_;
    start(out, after.bias, width);
    for (int64_t i = 0; i < kernel_[0]; ++i) {
      const int64_t y = rows.source(line % height, i);
      if (y < 0)
        continue;
      const float *source =
          products + (line / height * rows.length + y) * columns.length * wide();
      for (int64_t j = 0; j < kernel_[1]; ++j)
        add_tap(columns, source + (i * kernel_[1] + j) * out_channels_, columns.place(j), out,
                width);
    }
    for (int64_t at = 0; at < width * out_channels_; ++at) {
      const float bounded = out[at] < after.low ? after.low : out[at];
      out[at] = bounded > after.high ? after.high : bounded;
    }
  }

  void start(float *out, const float *bias, int64_t width) const {
    for (int64_t x = 0; x < width; ++x, out += out_channels_)
      for (int64_t channel = 0; channel < out_channels_; ++channel)
        out[channel] = bias == nullptr ? 0.0f : bias[channel];
  }

  /// Adds what one tap makes of a row of inputs; the first of them falls on `place`.
  void add_tap(const Reach &columns, const float *from, int64_t place, float *out,
               int64_t width) const {
    for (int64_t x = 0; x < columns.length; ++x, place += columns.stride, from += wide()) {
      if (place < 0)
        continue;
      if (place >= width)
        return;
      float *to = out + place * out_channels_;
      for (int64_t channel = 0; channel < out_channels_; ++channel)
        to[channel] += from[channel];
    }
  }

  /// Weights as a matrix [in channels; taps, out channels], packed.
  void pack(const Making &making, const Constant &weights) {
    const Kernels &kernels = making.kernels;
    const std::string layout = std::string("transposed ") + kernels.name + " " +
                               std::to_string(taps()) + " " + std::to_string(channels_);
    const int64_t size = kernels.packed_size(channels_, wide());
    packed_ = shared_weights(
        {weights.data, weights.spec.bytes(), layout}, size_t(size) * sizeof(float),
        [&](std::byte *to) {
          std::vector<float> turned(size_t(channels_ * wide()));
          for (int64_t row = 0; row < channels_ * out_channels_; ++row)
            for (int64_t tap = 0; tap < taps(); ++tap)
              turned[size_t(row / out_channels_ * wide() + tap * out_channels_ +
                            row % out_channels_)] = weights.floats()[row * taps() + tap];
          const int64_t panels = (wide() + kernels.panel - 1) / kernels.panel;
          kernels.pack_panels(turned.data(), wide(), 1, channels_, wide(),
                              reinterpret_cast<float *>(to), 0, panels);
        });
  }

  Behind behind_;
  std::vector<int64_t> kernel_, strides_, dilations_, pads_;
  int64_t channels_, out_channels_;
  std::shared_ptr<const Weights> packed_;
};

std::unique_ptr<Operation> make(const Making &making) {
  return std::make_unique<TransposedConvolution>(making);
}

const Registration kTransposed("conv_transpose", make);

} // namespace
} // namespace ep
