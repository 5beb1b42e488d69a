// What works along the last axes: LayerNormalization, Softmax, reductions.
#include "../core/operation.h"

#include <algorithm>

namespace ep {
namespace {

constexpr int64_t kChunkElements = 8192;

int64_t rows_per_chunk(int64_t width) {
  return std::max<int64_t>(kChunkElements / std::max<int64_t>(width, 1), 1);
}

/// Inputs: x, scale, bias or nothing. Attributes: axis, epsilon, centred.
class LayerNormalization final : public Operation {
public:
  explicit LayerNormalization(const Making &making)
      : axis_(making.attributes.integer("axis", -1)),
        epsilon_(making.attributes.number("epsilon", 1e-5f)),
        centred_(making.attributes.integer("centred", 1) != 0) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(x.type == DType::kFloat && planning.input(1).type == DType::kFloat, "not float32");
    const int axis = front_axis(axis_, x.shape.rank());
    const int64_t width = x.shape.count(axis, x.shape.rank());
    const int64_t rows = x.shape.count(0, axis);
    need(width > 0, "nothing to normalise");
    need(planning.input(1).shape.count() == width, "the scale doesn't fit");
    need(!planning.has(2) || (planning.input(2).type == DType::kFloat &&
                              planning.input(2).shape.count() == width),
         "the bias doesn't fit");
    Planned planned;
    planned.outputs = {x};
    const Chunks chunks(rows, rows_per_chunk(width));
    planned.task = task([=, this](const Running &running) {
      running.crew.each(chunks.count, [&](int64_t chunk, int) {
        const int64_t begin = chunks.begin(chunk);
        running.kernels.normalise(running.input(0) + begin * width, running.input(1),
                                  running.inputs.size() > 2 ? running.input(2) : nullptr,
                                  running.output() + begin * width, chunks.end(chunk) - begin,
                                  width, epsilon_, centred_);
      });
    });
    return planned;
  }

private:
  int64_t axis_;
  float epsilon_;
  bool centred_;
};

/// Attributes: axis, logarithm.
class Softmax final : public Operation {
public:
  explicit Softmax(const Making &making)
      : axis_(making.attributes.integer("axis", -1)),
        logarithm_(making.attributes.integer("logarithm", 0) != 0) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(x.type == DType::kFloat && x.shape.rank() > 0, "not float32");
    const int axis = front_axis(axis_, x.shape.rank());
    const int64_t width = x.shape[axis];
    const int64_t inner = x.shape.count(axis + 1, x.shape.rank());
    const Chunks chunks(x.shape.count(0, axis), rows_per_chunk(width));
    Planned planned;
    planned.outputs = {x};
    if (inner > 1) {
      plan_across(planned, planning.threads, x.shape.count(0, axis), width, inner);
      return planned;
    }
    planned.task = task([=, this](const Running &running) {
      running.crew.each(width == 0 ? 0 : chunks.count, [&](int64_t chunk, int) {
        const int64_t begin = chunks.begin(chunk);
        running.kernels.softmax(running.input(0) + begin * width,
                                running.output() + begin * width, chunks.end(chunk) - begin, width,
                                logarithm_);
      });
    });
    return planned;
  }

private:
  /// Over an axis that isn't the innermost: some columns at a time are turned into rows and back.
  void plan_across(Planned &planned, int threads, int64_t outer, int64_t width,
                   int64_t inner) const {
    constexpr int64_t kColumns = 64;
    const int64_t blocks = (inner + kColumns - 1) / kColumns;
    planned.workspace = size_t(threads * kColumns * width) * sizeof(float);
    planned.task = task([=, this](const Running &running) {
      running.crew.each(width == 0 ? 0 : outer * blocks, [&](int64_t number, int worker) {
        const int64_t first = number % blocks * kColumns;
        const int64_t count = std::min(kColumns, inner - first);
        const int64_t offset = number / blocks * width * inner + first;
        auto *rows = reinterpret_cast<float *>(running.workspace) + worker * kColumns * width;
        const Kernels &kernels = running.kernels;
        kernels.transpose(running.input(0) + offset, inner, rows, width, 0, width, count);
        kernels.softmax(rows, rows, count, width, logarithm_);
        kernels.transpose(rows, width, running.output() + offset, inner, 0, count, width);
      });
    });
  }

  int64_t axis_;
  bool logarithm_;
};

/// Over axes that lie side by side. Inputs: x, known axes or nothing. Attributes: kind, keep, axes,
/// and empty_keeps for no axes to mean none.
class Reduce final : public Operation {
public:
  explicit Reduce(const Making &making)
      : kind_(static_cast<int>(making.attributes.integer("kind"))),
        keep_(making.attributes.integer("keep", 1) != 0),
        empty_keeps_(making.attributes.integer("empty_keeps", 0) != 0) {
    if (making.attributes.has("axes"))
      axes_ = making.attributes.integers("axes");
  }

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    const int rank = x.shape.rank();
    need(x.type == DType::kFloat && rank > 0, "not float32");
    std::vector<int64_t> axes = planning.has(1) ? planning.integers(1) : axes_;
    need(!axes.empty() || !empty_keeps_, "nothing is reduced");
    std::vector<bool> gone(size_t(rank), axes.empty());
    for (const int64_t axis : axes)
      gone[size_t(front_axis(axis, rank))] = true;
    Shape result;
    int first = rank;
    int last = -1;
    for (int axis = 0; axis < rank; ++axis) {
      if (!gone[size_t(axis)]) {
        result.append(x.shape[axis]);
        continue;
      }
      first = std::min(first, axis);
      last = axis;
      if (keep_)
        result.append(1);
    }
    for (int axis = first; axis <= last; ++axis)
      need(gone[size_t(axis)], "the axes don't lie side by side");
    need(x.shape.count(first, last + 1) > 0, "nothing to reduce");
    Planned planned;
    planned.outputs = {{DType::kFloat, result}};
    planned.task = make_task(x.shape.count(0, first), x.shape.count(first, last + 1),
                             x.shape.count(last + 1, rank));
    return planned;
  }

private:
  std::unique_ptr<Task> make_task(int64_t outer, int64_t length, int64_t inner) const {
    const int kind = kind_;
    if (inner == 1) {
      const Chunks chunks(outer, rows_per_chunk(length));
      return task([=](const Running &running) {
        running.crew.each(chunks.count, [&](int64_t chunk, int) {
          const int64_t begin = chunks.begin(chunk);
          running.kernels.reduce_rows(running.input(0) + begin * length,
                                      running.output() + begin, chunks.end(chunk) - begin, length,
                                      kind);
        });
      });
    }
    return task([=](const Running &running) {
      running.crew.each(outer, [&](int64_t number, int) {
        running.kernels.reduce_columns(running.input(0) + number * length * inner,
                                       running.output() + number * inner, length, inner, 0, inner,
                                       kind);
      });
    });
  }

  int kind_;
  bool keep_, empty_keeps_;
  std::vector<int64_t> axes_;
};

template <class Kind> std::unique_ptr<Operation> make(const Making &making) {
  return std::make_unique<Kind>(making);
}

const Registration kLayerNormalization("layer_normalization", make<LayerNormalization>);
const Registration kSoftmax("softmax", make<Softmax>);
const Registration kReduce("reduce", make<Reduce>);

} // namespace
} // namespace ep
