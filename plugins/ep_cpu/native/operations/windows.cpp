// Convolution and pooling with channels innermost: [batch, height, width, channels], or without the
// height, which is then 1.
//
// A convolution is a product: rows are places of the output, k runs over the window and the channels
// of the input. Nothing is unfolded; the product's kernel reads a row piece by piece through
// pointers. Few channels make short pieces, so there the input is copied into a frame of zeros, where
// a whole row of the window is one piece.
#include "behind.h"
#include "pairs.h"
#include "tiling.h"
#include "window.h"
#include "winograd.h"

namespace ep {
namespace {

constexpr int64_t kFewChannels = 16;

/// Inputs: x, constant weights [out, in, height, width], bias or nothing, operands of a chain.
/// Attributes: group, with more than one there is no chain; "pairs", one group goes in bfloat16.
class Convolution final : public Operation {
public:
  explicit Convolution(const Making &making)
      : attributes_(making.attributes), behind_(making.attributes),
        in_pairs_(making.attributes.integer("pairs", 0) != 0) {
    const Constant *weights = making.constants[1];
    groups_ = making.attributes.integer("group", 1);
    if (weights == nullptr || weights->spec.shape.rank() < 3 ||
        weights->spec.shape[0] % groups_ != 0 || (groups_ > 1 && behind_.has_chain()))
      throw Mistake("weights of a convolution must be constant");
    out_channels_ = weights->spec.shape[0] / groups_;
    real_channels_ = weights->spec.shape[1];
    channels_ = in_pairs_ ? pairs_of(real_channels_) : real_channels_;
    if (in_pairs_ && groups_ > 1)
      throw Mistake("groups in bfloat16");
    zeros_.assign(size_t(channels_), 0.0f);
    pack(making, *weights);
  }

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(x.type == DType::kFloat, "not float32");
    Window w = attributes_.over(x.shape);
    need(w.channels == real_channels_ * groups_, "another number of channels");
    w.channels = channels_ * groups_;
    const int64_t places = w.out_height * w.out_width;
    const bool is_pointwise = w.kernel_height * w.kernel_width == 1 && places == w.height * w.width &&
                              w.stride_y == 1 && w.stride_x == 1 && groups_ == 1;
    Planned planned;
    planned.outputs = {WindowAttributes::result(x.shape, w, out_channels_ * groups_)};
    std::vector<Matrix> operands = behind_.plan(planning, planned.outputs[0].shape);
    const Tiling tiling(x.shape[0] * places, out_channels_, depth(w), planning.kernels, planning.threads);
    const int64_t pixels = x.shape.count(0, x.shape.rank() - 1);
    const size_t narrow_bytes =
        in_pairs_ ? aligned(size_t(pixels * channels_) * sizeof(float)) : 0;
    if (is_pointwise) {
      planned.workspace = narrow_bytes;
      planned.task = pointwise(tiling, std::move(operands), pixels);
      return planned;
    }
    const bool is_framed =
        channels_ < kFewChannels && w.kernel_width > 1 && w.dilation_x == 1 && groups_ == 1;
    const Frame<float> frame(w, attributes_.pads, is_framed);
    const int64_t table = tiling.row_block * frame.taps;
    planned.workspace = narrow_bytes + aligned(size_t(planning.threads * table) * sizeof(float *)) +
                        size_t(frame.elements(x.shape[0])) * sizeof(float);
    planned.task = task([=, this, batch = x.shape[0]](const Running &running) {
      auto **tables = reinterpret_cast<const float **>(running.workspace + narrow_bytes);
      auto *copy = reinterpret_cast<float *>(
          running.workspace + narrow_bytes +
          aligned(size_t(running.crew.threads() * table) * sizeof(float *)));
      const float *source = operand(running, pixels);
      if (frame.is_framed) {
        frame.fill(running.crew, source, copy, batch, 0.0f);
        source = copy;
      }
      std::vector<Matrix> own = operands;
      Gemm whole = start(w);
      whole.taps = frame.taps;
      whole.depth = depth(w) / frame.taps;
      behind_.attach(whole, own, running);
      whole.c = running.output();
      running.crew.each(tiling.count() * groups_, [&](int64_t number, int worker) {
        const int64_t chunk = number % tiling.count();
        Gemm gemm = of_group(whole, number / tiling.count());
        const float *picture = source + number / tiling.count() * channels_;
        const float **rows = tables + worker * table;
        gemm.rows = rows;
        gemm.first_row = tiling.first_row(chunk);
        for (int64_t row = gemm.first_row; row < tiling.last_row(chunk); ++row, rows += frame.taps)
          frame.point(picture, row, rows, zeros_.data());
        tiling.run(running.kernels, gemm, chunk, in_pairs_);
      });
    });
    return planned;
  }

  size_t constant_bytes() const override { return packed_->bytes; }

private:
  /// The input, or what is made of it at the beginning of the workspace.
  const float *operand(const Running &running, int64_t pixels) const {
    if (!in_pairs_)
      return running.input(0);
    auto *narrowed = reinterpret_cast<float *>(running.workspace);
    narrow_rows(running.kernels, running.crew, running.input(0), narrowed, pixels, real_channels_);
    return narrowed;
  }

  int64_t depth(const Window &w) const { return w.kernel_height * w.kernel_width * channels_; }

  Gemm start(const Window &w) const {
    Gemm gemm = {};
    gemm.k = depth(w);
    gemm.n = out_channels_;
    gemm.packed = packed_->floats();
    gemm.c_step = out_channels_ * groups_;
    return gemm;
  }

  /// The part of a product that one group of channels does.
  Gemm of_group(const Gemm &whole, int64_t group) const {
    Gemm gemm = whole;
    gemm.packed += group * group_size_;
    gemm.c += group * out_channels_;
    if (gemm.bias != nullptr)
      gemm.bias += group * out_channels_;
    return gemm;
  }

  std::unique_ptr<Task> pointwise(const Tiling &tiling, std::vector<Matrix> operands,
                                  int64_t pixels) const {
    return task([this, tiling, pixels, operands = std::move(operands)](const Running &running) {
      std::vector<Matrix> own = operands;
      Gemm gemm = {};
      gemm.k = channels_;
      gemm.n = out_channels_;
      gemm.packed = packed_->floats();
      gemm.c_step = out_channels_;
      behind_.attach(gemm, own, running);
      gemm.a = operand(running, pixels);
      gemm.a_step = channels_;
      gemm.c = running.output();
      running.crew.each(tiling.count(), [&](int64_t chunk, int) {
        tiling.run(running.kernels, gemm, chunk, in_pairs_);
      });
    });
  }

  /// Weights as a matrix [window, in channels; out channels], packed.
  void pack(const Making &making, const Constant &weights) {
    const Kernels &kernels = making.kernels;
    const int64_t taps = weights.spec.shape.count(2, weights.spec.shape.rank());
    const int64_t k = taps * channels_;
    const int64_t n = out_channels_;
    group_size_ = kernels.packed_size(k, n);
    const std::string layout = std::string(in_pairs_ ? "conv pairs " : "conv ") + kernels.name +
                               " " + std::to_string(taps) + " " +
                               std::to_string(real_channels_) + " " + std::to_string(n);
    const int64_t panels = (n + kernels.panel - 1) / kernels.panel;
    packed_ = shared_weights(
        {weights.data, weights.spec.bytes(), layout},
        size_t(groups_ * group_size_) * sizeof(float), [&](std::byte *to) {
          std::vector<float> turned(size_t(groups_ * k * n));
          const float *from = weights.floats();
          making.crew.each(groups_ * n, [&](int64_t out, int) {
            std::vector<float> row(size_t(taps * real_channels_));
            for (int64_t in = 0; in < real_channels_; ++in)
              for (int64_t tap = 0; tap < taps; ++tap)
                row[size_t(tap * real_channels_ + in)] =
                    from[(out * real_channels_ + in) * taps + tap];
            float *turned_row = turned.data() + out * k;
            if (in_pairs_)
              kernels.narrow(row.data(), turned_row, taps, real_channels_);
            else
              std::copy(row.begin(), row.end(), turned_row);
          });
          making.crew.each(groups_ * panels, [&](int64_t number, int) {
            const int64_t group = number / panels;
            const int64_t panel = number % panels;
            kernels.pack_panels(turned.data() + group * k * n, 1, k, k, n,
                                reinterpret_cast<float *>(to) + group * group_size_, panel,
                                panel + 1);
          });
        });
  }

  WindowAttributes attributes_;
  Behind behind_;
  bool in_pairs_;
  int64_t groups_, out_channels_;
  int64_t real_channels_, channels_; // of one group, in numbers and in what a product reads
  int64_t group_size_ = 0;                   // floats of its packed weights
  std::vector<float> zeros_;
  std::shared_ptr<const Weights> packed_;
};

/// One filter per channel. Inputs: x, constant weights [channels, 1, height, width], bias or nothing,
/// operands of a chain.
class Depthwise final : public Operation {
public:
  explicit Depthwise(const Making &making)
      : attributes_(making.attributes), behind_(making.attributes) {
    const Constant *weights = making.constants[1];
    if (weights == nullptr || weights->spec.shape.rank() < 3)
      throw Mistake("weights of a convolution must be constant");
    channels_ = weights->spec.shape[0];
    const int64_t taps = weights->spec.shape.count(1, weights->spec.shape.rank());
    turned_.resize(size_t(taps * channels_));
    for (int64_t channel = 0; channel < channels_; ++channel)
      for (int64_t tap = 0; tap < taps; ++tap)
        turned_[size_t(tap * channels_ + channel)] = weights->floats()[channel * taps + tap];
  }

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(x.type == DType::kFloat, "not float32");
    const Window w = attributes_.over(x.shape);
    need(w.channels == channels_, "another number of channels");
    Planned planned;
    planned.outputs = {WindowAttributes::result(x.shape, w, channels_)};
    std::vector<Matrix> operands = behind_.plan(planning, planned.outputs[0].shape);
    planned.task = task([this, w, batch = x.shape[0], operands](const Running &running) {
      std::vector<Matrix> own = operands;
      Gemm after = {};
      behind_.attach(after, own, running);
      running.crew.each(batch * w.out_height, [&](int64_t number, int) {
        const int64_t picture = number / w.out_height;
        const int64_t row = number % w.out_height;
        running.kernels.depthwise(
            w, running.input(0) + picture * w.height * w.width * channels_, turned_.data(),
            running.input(2), behind_.low(), behind_.high(),
            running.output() + picture * w.out_height * w.out_width * channels_, row, row + 1);
        behind_.finish(after, running, number * w.out_width, w.out_width, channels_);
      });
    });
    return planned;
  }

  size_t constant_bytes() const override { return turned_.size() * sizeof(float); }

private:
  WindowAttributes attributes_;
  Behind behind_;
  int64_t channels_;
  std::vector<float> turned_;
};

/// Attributes: those of a window, "largest", "count_padding".
class Pooling final : public Operation {
public:
  explicit Pooling(const Making &making)
      : attributes_(making.attributes), largest_(making.attributes.integer("largest") != 0),
        count_padding_(making.attributes.integer("count_padding", 0) != 0) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(x.type == DType::kFloat, "not float32");
    const Window w = attributes_.over(x.shape);
    Planned planned;
    planned.outputs = {WindowAttributes::result(x.shape, w, w.channels)};
    planned.task = task([this, w, batch = x.shape[0]](const Running &running) {
      running.crew.each(batch * w.out_height, [&](int64_t number, int) {
        const int64_t picture = number / w.out_height;
        const int64_t row = number % w.out_height;
        running.kernels.pool(w, running.input(0) + picture * w.height * w.width * w.channels,
                             running.output() + picture * w.out_height * w.out_width * w.channels,
                             row, row + 1, largest_, count_padding_);
      });
    });
    return planned;
  }

private:
  WindowAttributes attributes_;
  bool largest_, count_padding_;
};

template <class Kind> std::unique_ptr<Operation> make(const Making &making) {
  return std::make_unique<Kind>(making);
}

std::unique_ptr<Operation> make_convolution(const Making &making) {
  const int64_t side = making.attributes.integer("winograd", 0);
  const bool is_direct = side == 0 || making.attributes.integer("pairs", 0) != 0;
  return is_direct ? std::make_unique<Convolution>(making) : make_winograd(making, side);
}

const Registration kConvolution("conv", make_convolution);
const Registration kDepthwise("depthwise", make<Depthwise>);
const Registration kPooling("pool", make<Pooling>);

} // namespace
} // namespace ep
