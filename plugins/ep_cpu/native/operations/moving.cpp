// Operations that move elements and compute nothing: Transpose, Concat, Slice, Split, Gather, Expand.
#include <algorithm>
#include <cstring>

#include "copying.h"

namespace ep {
namespace {

/// A view of the input, copied: what Transpose, Slice and Expand come to.
std::unique_ptr<Task> copy_task(const Shape &shape, std::span<const int64_t> steps, size_t size,
                                int64_t offset) {
  return task([copy = StridedCopy(shape, steps, size), size, offset](const Running &running) {
    copy.run(running.kernels, running.crew, running.inputs[0] + offset * int64_t(size),
             running.outputs[0]);
  });
}

class Transpose final : public Operation {
public:
  explicit Transpose(const Making &making) : order_(making.attributes.integers("order")) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    const Strided view = Strided(x.shape).permuted(order_);
    Planned planned;
    planned.outputs = {{x.type, view.shape}};
    planned.task = copy_task(view.shape, view.steps, size_of(x.type), 0);
    return planned;
  }

private:
  std::vector<int64_t> order_;
};

/// Inputs: x, starts, ends, axes or nothing, steps or nothing.
class Slice final : public Operation {
public:
  explicit Slice(const Making &) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    const std::vector<int64_t> starts = planning.integers(1);
    const std::vector<int64_t> ends = planning.integers(2);
    need(starts.size() == ends.size(), "starts and ends differ in number");
    Strided view(x.shape);
    int64_t offset = 0;
    std::vector<int64_t> axes;
    if (planning.has(3))
      axes = planning.integers(3);
    else
      for (size_t i = 0; i < starts.size(); ++i)
        axes.push_back(int64_t(i));
    std::vector<int64_t> strides(starts.size(), 1);
    if (planning.has(4))
      strides = planning.integers(4);
    need(axes.size() == starts.size() && strides.size() == starts.size(), "axes differ in number");
    for (size_t i = 0; i < starts.size(); ++i) {
      const int axis = front_axis(axes[i], x.shape.rank());
      const int64_t length = x.shape[axis];
      const int64_t step = strides[i];
      need(step != 0 && step > -(int64_t{1} << 40) && step < (int64_t{1} << 40), "a step of 0");
      const auto bounded = [&](int64_t value, int64_t low, int64_t high) {
        if (value < 0)
          value = value < -length ? -1 - length : value + length;
        return std::clamp(value, low, high);
      };
      const int64_t begin = step > 0 ? bounded(starts[i], 0, length)
                                     : bounded(starts[i], 0, length - 1);
      const int64_t end = step > 0 ? bounded(ends[i], 0, length) : bounded(ends[i], -1, length - 1);
      const int64_t span = step > 0 ? end - begin : begin - end;
      const int64_t size = step > 0 ? step : -step;
      view.shape[axis] = length == 0 ? 0 : std::max<int64_t>((span + size - 1) / size, 0);
      offset += length == 0 ? 0 : begin * view.steps[axis];
      view.steps[axis] *= step;
    }
    Planned planned;
    planned.outputs = {{x.type, view.shape}};
    planned.task = copy_task(view.shape, view.steps, size_of(x.type), offset);
    return planned;
  }
};

/// Inputs: x, shape.
class Expand final : public Operation {
public:
  explicit Expand(const Making &) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    const std::vector<int64_t> wanted = planning.integers(1);
    const Shape shape = broadcast_shape(x.shape, Shape(std::span(wanted)));
    const Strided own(x.shape);
    std::vector<int64_t> steps;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const int mine = axis - (shape.rank() - x.shape.rank());
      steps.push_back(mine < 0 || x.shape[mine] == 1 ? 0 : own.steps[mine]);
    }
    Planned planned;
    planned.outputs = {{x.type, shape}};
    planned.task = copy_task(shape, steps, size_of(x.type), 0);
    return planned;
  }
};

class Concat final : public Operation {
public:
  explicit Concat(const Making &making) : axis_(making.attributes.integer("axis")) {}

  Planned plan(const Planning &planning) const override {
    const Spec &first = planning.input(0);
    const int rank = first.shape.rank();
    const int axis = front_axis(axis_, rank);
    Shape result = first.shape;
    result[axis] = 0;
    std::vector<int64_t> widths; // bytes of one input for each index of the outer axes
    for (size_t i = 0; i < planning.inputs.size(); ++i) {
      const Spec &spec = planning.input(i);
      need(spec.type == first.type && spec.shape.rank() == rank, "inputs differ in type");
      for (int other = 0; other < rank; ++other)
        need(other == axis || spec.shape[other] == first.shape[other], "inputs differ in shape");
      result[axis] += spec.shape[axis];
      widths.push_back(spec.shape.count(axis, rank) * int64_t(size_of(spec.type)));
    }
    Planned planned;
    planned.outputs = {{first.type, result}};
    const int64_t outer = result.count(0, axis);
    const int64_t total = result.count(axis, rank) * int64_t(size_of(first.type));
    planned.task = task([widths, outer, total](const Running &running) {
      running.crew.each(int64_t(widths.size()), [&](int64_t number, int) {
        int64_t at = 0;
        for (int64_t i = 0; i < number; ++i)
          at += widths[size_t(i)];
        const int64_t width = widths[size_t(number)];
        for (int64_t i = 0; i < outer; ++i)
          std::memcpy(running.outputs[0] + i * total + at,
                      running.inputs[size_t(number)] + i * width, size_t(width));
      });
    });
    return planned;
  }

private:
  int64_t axis_;
};

/// Attributes: axis, lengths.
class Split final : public Operation {
public:
  explicit Split(const Making &making)
      : axis_(making.attributes.integer("axis", 0)),
        lengths_(making.attributes.integers("lengths")) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    const int rank = x.shape.rank();
    const int axis = front_axis(axis_, rank);
    const int64_t inner = x.shape.count(axis + 1, rank) * int64_t(size_of(x.type));
    Planned planned;
    std::vector<int64_t> widths;
    int64_t sum = 0;
    for (const int64_t length : lengths_) {
      need(length >= 0, "a negative length");
      Shape part = x.shape;
      part[axis] = length;
      planned.outputs.push_back({x.type, part});
      widths.push_back(length * inner);
      sum += length;
    }
    need(sum == x.shape[axis], "the parts don't make the whole");
    const int64_t outer = x.shape.count(0, axis);
    planned.task = task([widths, outer, total = sum * inner](const Running &running) {
      running.crew.each(int64_t(widths.size()), [&](int64_t number, int) {
        int64_t at = 0;
        for (int64_t i = 0; i < number; ++i)
          at += widths[size_t(i)];
        const int64_t width = widths[size_t(number)];
        for (int64_t i = 0; i < outer; ++i)
          std::memcpy(running.outputs[size_t(number)] + i * width,
                      running.inputs[0] + i * total + at, size_t(width));
      });
    });
    return planned;
  }

private:
  int64_t axis_;
  std::vector<int64_t> lengths_;
};

/// Inputs: x, indices.
class Gather final : public Operation {
public:
  explicit Gather(const Making &making) : axis_(making.attributes.integer("axis", 0)) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    const Spec &indices = planning.input(1);
    need(indices.type == DType::kInt64 || indices.type == DType::kInt32, "odd indices");
    const int axis = front_axis(axis_, x.shape.rank());
    Shape result;
    for (int i = 0; i < axis; ++i)
      result.append(x.shape[i]);
    for (const int64_t length : indices.shape.lengths())
      result.append(length);
    for (int i = axis + 1; i < x.shape.rank(); ++i)
      result.append(x.shape[i]);
    const int64_t width = x.shape.count(axis + 1, x.shape.rank()) * int64_t(size_of(x.type));
    const int64_t length = x.shape[axis];
    const int64_t outer = x.shape.count(0, axis);
    const int64_t count = indices.shape.count();
    const bool is_wide = indices.type == DType::kInt64;
    Planned planned;
    planned.outputs = {{x.type, result}};
    planned.task = task([=](const Running &running) {
      const auto index_of = [&](int64_t i) {
        const int64_t index = is_wide ? running.input<int64_t>(1)[i] : running.input<int32_t>(1)[i];
        return index < 0 ? index + length : index;
      };
      for (int64_t i = 0; i < count; ++i)
        need(index_of(i) >= 0 && index_of(i) < length, "an index is out of range");
      const Chunks chunks(outer * count, std::max<int64_t>(32768 / std::max<int64_t>(width, 1), 1));
      running.crew.each(chunks.count, [&](int64_t chunk, int) {
        for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i)
          std::memcpy(running.outputs[0] + i * width,
                      running.inputs[0] + (i / count * length + index_of(i % count)) * width,
                      size_t(width));
      });
    });
    return planned;
  }

private:
  int64_t axis_;
};

/// Inputs: x, known lengths to add before and behind, a value of one element or nothing, known axes or
/// nothing.
class Pad final : public Operation {
public:
  explicit Pad(const Making &) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    const int rank = x.shape.rank();
    const std::vector<int64_t> pads = planning.integers(1);
    std::vector<int64_t> axes;
    if (planning.has(3))
      axes = planning.integers(3);
    else
      for (int axis = 0; axis < rank; ++axis)
        axes.push_back(axis);
    need(pads.size() == 2 * axes.size(), "pads don't fit");
    need(!planning.has(2) || (planning.input(2).type == x.type &&
                              planning.input(2).shape.count() == 1),
         "an odd value");
    Shape result = x.shape;
    std::vector<int64_t> before(size_t(rank), 0);
    for (size_t i = 0; i < axes.size(); ++i) {
      const int axis = front_axis(axes[i], rank);
      const int64_t behind = pads[i + axes.size()];
      need(pads[i] >= 0 && behind >= 0 && before[size_t(axis)] == 0, "pads that cut");
      before[size_t(axis)] = pads[i];
      result[axis] += pads[i] + behind;
    }
    const Strided out(result);
    int64_t offset = 0;
    for (int axis = 0; axis < rank; ++axis)
      offset += before[size_t(axis)] * out.steps[size_t(axis)];
    Planned planned;
    planned.outputs = {{x.type, result}};
    planned.task = task([=, size = int64_t(size_of(x.type)), shape = x.shape](const Running &running) {
      fill(running, result.count(), size);
      if (shape.count() == 0)
        return;
      const int last = shape.rank() - 1;
      const int64_t width = last < 0 ? 1 : shape[last];
      for (int64_t row = 0; row < shape.count() / width; ++row) {
        int64_t to = offset;
        int64_t rest = row;
        for (int axis = last - 1; axis >= 0; --axis) {
          to += rest % shape[axis] * out.steps[size_t(axis)];
          rest /= shape[axis];
        }
        std::memcpy(running.outputs[0] + to * size, running.inputs[0] + row * width * size,
                    size_t(width * size));
      }
    });
    return planned;
  }

private:
  static void fill(const Running &running, int64_t count, int64_t size) {
    if (running.inputs.size() < 3 || running.inputs[2] == nullptr) {
      std::memset(running.outputs[0], 0, size_t(count * size));
      return;
    }
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(running.outputs[0] + i * size, running.inputs[2], size_t(size));
  }
};

template <class Kind> std::unique_ptr<Operation> make(const Making &making) {
  return std::make_unique<Kind>(making);
}

const Registration kTranspose("transpose", make<Transpose>);
const Registration kSlice("slice", make<Slice>);
const Registration kExpand("expand", make<Expand>);
const Registration kConcat("concat", make<Concat>);
const Registration kSplit("split", make<Split>);
const Registration kGather("gather", make<Gather>);
const Registration kPad("pad", make<Pad>);

} // namespace
} // namespace ep
