// A convolution of 3 x 3 in tiles: their values at some points, a product per point, and back.
//
// What lies between the three parts stays in the cache: a chunk does some tiles from the input to
// the result, a panel of columns after the other. The weights of a panel lie one point after
// another, as they are read.
#include "winograd.h"

#include "behind.h"
#include "window.h"

namespace ep {
namespace {

constexpr int64_t kSpreadFloats = 96 << 10; // values at the points that stay in the cache
constexpr int64_t kGap = 16;                // keeps points from falling on the same sets of a cache
constexpr int64_t kFewTiles = 16;           // worth handing to a thread

class WinogradConvolution final : public Operation {
public:
  WinogradConvolution(const Making &making, int64_t side)
      : attributes_(making.attributes), behind_(making.attributes), side_(side),
        points_((side + 2) * (side + 2)) {
    const Constant *weights = making.constants[1];
    if (weights == nullptr || weights->spec.shape.rank() != 4)
      throw Mistake("weights of a convolution must be constant");
    out_channels_ = weights->spec.shape[0];
    channels_ = weights->spec.shape[1];
    pack(making, *weights);
  }

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(x.type == DType::kFloat && x.shape.rank() == 4, "not float32");
    const Window w = attributes_.over(x.shape);
    need(w.channels == channels_, "another number of channels");
    Planned planned;
    planned.outputs = {WindowAttributes::result(x.shape, w, out_channels_)};
    std::vector<Matrix> operands = behind_.plan(planning, planned.outputs[0].shape);
    Winograd work = {};
    work.side = side_;
    work.height = w.height;
    work.width = w.width;
    work.channels = channels_;
    work.out_height = w.out_height;
    work.out_width = w.out_width;
    work.out_channels = out_channels_;
    work.top = w.top;
    work.left = w.left;
    work.tiles_y = (w.out_height + side_ - 1) / side_;
    work.tiles_x = (w.out_width + side_ - 1) / side_;
    const int64_t tiles = x.shape[0] * work.tiles_y * work.tiles_x;
    const int64_t block = block_of(tiles, planning);
    work.spread_step = block * channels_ + kGap;
    work.gather_step = block * planning.kernels.panel + kGap;
    const int64_t scratch = points_ * (work.spread_step + work.gather_step);
    planned.workspace = size_t(planning.threads * scratch) * sizeof(float);
    planned.task = task([=, this](const Running &running) {
      std::vector<Matrix> own = operands;
      Gemm after = {};
      behind_.attach(after, own, running);
      running.crew.each((tiles + block - 1) / block, [&](int64_t chunk, int worker) {
        float *values = reinterpret_cast<float *>(running.workspace) + worker * scratch;
        const int64_t begin = chunk * block;
        const int64_t end = std::min(begin + block, tiles);
        compute(running, work, after, begin, end, values);
        if (after.chain != nullptr)
          finish(running, work, after, begin, end);
      });
    });
    return planned;
  }

  size_t constant_bytes() const override { return packed_->bytes; }

private:
  /// Tiles of a chunk: whole tiles of rows for the products, and few enough for the cache.
  int64_t block_of(int64_t tiles, const Planning &planning) const {
    const int64_t rows = planning.kernels.tile_rows;
    const int64_t most = std::max(kSpreadFloats / (points_ * channels_) / rows, int64_t(1)) * rows;
    int64_t chunks = (tiles + most - 1) / most;
    if (planning.threads > 1)
      chunks = std::max(chunks, std::min<int64_t>(4 * planning.threads, tiles / kFewTiles));
    chunks = std::max(chunks, int64_t(1));
    return std::max(((tiles + chunks - 1) / chunks + rows - 1) / rows, int64_t(1)) * rows;
  }

  void compute(const Running &running, const Winograd &work, const Gemm &after, int64_t begin,
               int64_t end, float *values) const {
    const Kernels &kernels = running.kernels;
    float *products = values + points_ * work.spread_step;
    kernels.winograd_spread(work, running.input(0), begin, end, values);
    for (int64_t column = 0; column < out_channels_; column += kernels.panel) {
      const int64_t width = std::min<int64_t>(kernels.panel, out_channels_ - column);
      Gemm gemm = {};
      gemm.k = channels_;
      gemm.n = width;
      gemm.a_step = channels_;
      gemm.c_step = width;
      gemm.low = -std::numeric_limits<float>::infinity();
      gemm.high = std::numeric_limits<float>::infinity();
      const int64_t size = kernels.packed_size(channels_, width);
      for (int64_t point = 0; point < points_; ++point) {
        gemm.a = values + point * work.spread_step;
        gemm.packed = packed_->floats() + column * channels_ * points_ + point * size;
        gemm.c = products + point * work.gather_step;
        kernels.gemm(gemm, 0, end - begin, 0, 1);
      }
      kernels.winograd_gather(work, products, after.bias, after.low, after.high, running.output(),
                              begin, end, column, width);
    }
  }

  /// The chain that follows, over the places of some tiles, while they are in the cache.
  void finish(const Running &running, const Winograd &work, const Gemm &after, int64_t begin,
              int64_t end) const {
    while (begin < end) {
      const int64_t row = begin / work.tiles_x;
      const int64_t stop = std::min(end, (row + 1) * work.tiles_x);
      const int64_t x = begin % work.tiles_x * side_;
      const int64_t count = std::min((stop - row * work.tiles_x) * side_, work.out_width) - x;
      const int64_t first = row % work.tiles_y * side_;
      for (int64_t y = first; y < std::min(first + side_, work.out_height); ++y) {
        const int64_t place = (row / work.tiles_y * work.out_height + y) * work.out_width + x;
        behind_.finish(after, running, place, count, out_channels_);
      }
      begin = stop;
    }
  }

  /// Per panel of columns and per point a matrix [in channels, columns], packed.
  void pack(const Making &making, const Constant &weights) {
    const Kernels &kernels = making.kernels;
    const std::string layout = std::string("winograd ") + kernels.name + " " +
                               std::to_string(side_) + " " + std::to_string(channels_) + " " +
                               std::to_string(out_channels_);
    const int64_t floats = kernels.packed_size(channels_, out_channels_) * points_;
    const int64_t panels = (out_channels_ + kernels.panel - 1) / kernels.panel;
    packed_ = shared_weights(
        {weights.data, weights.spec.bytes(), layout}, size_t(floats) * sizeof(float),
        [&](std::byte *to) {
          making.crew.each(panels, [&](int64_t panel, int) {
            const int64_t column = panel * kernels.panel;
            const int64_t width = std::min<int64_t>(kernels.panel, out_channels_ - column);
            float *packed = reinterpret_cast<float *>(to) + column * channels_ * points_;
            pack_panel(kernels, weights.floats() + column * channels_ * 9, width, packed);
          });
        });
  }

  void pack_panel(const Kernels &kernels, const float *filters, int64_t width,
                  float *packed) const {
    const int64_t filters_count = width * channels_;
    std::vector<float> turned(size_t(points_ * filters_count));
    std::vector<double> values(static_cast<size_t>(points_));
    for (int64_t filter = 0; filter < filters_count; ++filter) {
      kernels.winograd_weights(filters + filter * 9, side_, values.data());
      for (int64_t point = 0; point < points_; ++point)
        turned[size_t(point * filters_count + filter)] = float(values[size_t(point)]);
    }
    const int64_t size = kernels.packed_size(channels_, width);
    for (int64_t point = 0; point < points_; ++point)
      kernels.pack_panels(turned.data() + point * filters_count, 1, channels_, channels_, width,
                          packed + point * size, 0, 1);
  }

  WindowAttributes attributes_;
  Behind behind_;
  int64_t side_, points_;
  int64_t out_channels_, channels_;
  std::shared_ptr<const Weights> packed_;
};

} // namespace

std::unique_ptr<Operation> make_winograd(const Making &making, int64_t side) {
  return std::make_unique<WinogradConvolution>(making, side);
}

} // namespace ep
