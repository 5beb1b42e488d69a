// Views, and the small integer arithmetic that models compute shapes with.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "../core/operation.h"

namespace ep {
namespace {

Planned view(const Spec &x, const Shape &shape) {
  need(shape.count() == x.shape.count(), "a view of another size");
  Planned planned;
  planned.outputs = {{x.type, shape}};
  return planned;
}

/// Inputs: x, shape. Attributes: allow_zero.
class Reshape final : public Operation {
public:
  explicit Reshape(const Making &making)
      : allow_zero_(making.attributes.integer("allow_zero", 0) != 0) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    const std::vector<int64_t> wanted = planning.integers(1);
    Shape shape;
    int open = -1;
    for (size_t i = 0; i < wanted.size(); ++i) {
      int64_t length = wanted[i];
      if (length == 0 && !allow_zero_) {
        need(int(i) < x.shape.rank(), "a 0 without a length to copy");
        length = x.shape[int(i)];
      }
      if (length == -1) {
        need(open < 0, "two open lengths");
        open = int(i);
        length = 1;
      }
      need(length >= 0, "a negative length");
      shape.append(length);
    }
    if (open >= 0) {
      const int64_t rest = shape.count();
      need(rest > 0 && x.shape.count() % rest == 0, "the elements don't fit");
      shape[open] = x.shape.count() / rest;
    }
    return view(x, shape);
  }

private:
  bool allow_zero_;
};

class Flatten final : public Operation {
public:
  explicit Flatten(const Making &making) : axis_(making.attributes.integer("axis", 1)) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    const int rank = x.shape.rank();
    const int axis = axis_ == rank ? rank : front_axis(axis_, rank);
    return view(x, Shape{x.shape.count(0, axis), x.shape.count(axis, rank)});
  }

private:
  int64_t axis_;
};

/// Inputs: x, axes or nothing. Attributes: axes, where they aren't an input.
class Squeeze final : public Operation {
public:
  explicit Squeeze(const Making &making) {
    if (making.attributes.has("axes"))
      axes_ = making.attributes.integers("axes");
  }

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    const std::vector<int64_t> axes = planning.has(1) ? planning.integers(1) : axes_;
    std::vector<bool> gone(size_t(x.shape.rank()), false);
    for (const int64_t axis : axes) {
      const int front = front_axis(axis, x.shape.rank());
      need(x.shape[front] == 1, "an axis isn't of length 1");
      gone[size_t(front)] = true;
    }
    Shape shape;
    for (int axis = 0; axis < x.shape.rank(); ++axis)
      if (!(gone[size_t(axis)] || (axes.empty() && x.shape[axis] == 1)))
        shape.append(x.shape[axis]);
    return view(x, shape);
  }

private:
  std::vector<int64_t> axes_;
};

class Unsqueeze final : public Operation {
public:
  explicit Unsqueeze(const Making &making) {
    if (making.attributes.has("axes"))
      axes_ = making.attributes.integers("axes");
  }

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    const std::vector<int64_t> axes = planning.has(1) ? planning.integers(1) : axes_;
    const int rank = x.shape.rank() + int(axes.size());
    std::vector<bool> made(size_t(rank), false);
    for (const int64_t axis : axes) {
      const size_t front = size_t(front_axis(axis, rank));
      need(!made[front], "an axis is named twice");
      made[front] = true;
    }
    Shape shape;
    int from = 0;
    for (int axis = 0; axis < rank; ++axis)
      shape.append(made[size_t(axis)] ? 1 : x.shape[from++]);
    return view(x, shape);
  }

private:
  std::vector<int64_t> axes_;
};

class Identity final : public Operation {
public:
  explicit Identity(const Making &) {}

  Planned plan(const Planning &planning) const override {
    return view(planning.input(0), planning.input(0).shape);
  }
};

/// Attributes: start and end, as in Shape since version 15.
class ShapeOf final : public Operation {
public:
  explicit ShapeOf(const Making &making)
      : start_(making.attributes.integer("start", 0)),
        end_(making.attributes.integer("end", INT64_MAX)) {}

  bool reads_shapes_only() const override { return true; }

  Planned plan(const Planning &planning) const override {
    const Shape shape = planning.input(0).shape;
    const int64_t rank = shape.rank();
    const auto bounded = [&](int64_t value) {
      return std::clamp<int64_t>(value < 0 ? value + rank : value, 0, rank);
    };
    const int64_t begin = bounded(start_);
    const int64_t end = std::max(bounded(end_), begin);
    Planned planned;
    planned.outputs = {{DType::kInt64, Shape{end - begin}}};
    planned.task = task([shape, begin, end](const Running &running) {
      for (int64_t i = begin; i < end; ++i)
        running.output<int64_t>()[i - begin] = shape[int(i)];
    });
    return planned;
  }

private:
  int64_t start_, end_;
};

/// The number of elements of the input.
class Size final : public Operation {
public:
  explicit Size(const Making &) {}

  bool reads_shapes_only() const override { return true; }

  Planned plan(const Planning &planning) const override {
    Planned planned;
    planned.outputs = {{DType::kInt64, Shape{}}};
    planned.task = task([count = planning.input(0).shape.count()](const Running &running) {
      *running.output<int64_t>() = count;
    });
    return planned;
  }
};

/// Inputs: known start, end and step, all of int64 or all of float32.
class Range final : public Operation {
public:
  explicit Range(const Making &) {}

  Planned plan(const Planning &planning) const override {
    const DType type = planning.input(0).type;
    for (size_t i = 0; i < 3; ++i)
      need(planning.input(i).type == type && planning.input(i).shape.count() == 1 &&
               planning.known[i] != nullptr,
           "not three known numbers");
    if (type == DType::kInt64)
      return make<int64_t>(planning, type);
    need(type == DType::kFloat, "not int64 or float32");
    return make<float>(planning, type);
  }

private:
  static constexpr double kExact = 4503599627370496.0; // 2^52

  template <class Number> static Planned make(const Planning &planning, DType type) {
    const auto given = [&](size_t index) {
      return *reinterpret_cast<const Number *>(planning.known[index]);
    };
    const Number start = given(0);
    const Number step = given(2);
    const double span = static_cast<double>(given(1)) - static_cast<double>(start);
    const double steps = std::ceil(span / static_cast<double>(step));
    need(step != 0 && steps < 1e12, "a range without an end"); // no for NaN too
    need(std::abs(static_cast<double>(start)) < kExact && std::abs(span) < kExact, "large numbers");
    const int64_t count = steps > 0 ? int64_t(steps) : 0;
    Planned planned;
    planned.outputs = {{type, Shape{count}}};
    planned.task = task([=](const Running &running) {
      for (int64_t i = 0; i < count; ++i)
        running.output<Number>()[i] = start + static_cast<Number>(i) * step;
    });
    return planned;
  }
};

/// Inputs: a known shape, and a constant of one element to fill it with.
class Fill final : public Operation {
public:
  explicit Fill(const Making &) {}

  Planned plan(const Planning &planning) const override {
    const Spec &value = planning.input(1);
    need(value.shape.count() == 1, "more than one value");
    Shape shape;
    for (const int64_t length : planning.integers(0)) {
      need(length >= 0, "a negative length");
      shape.append(length);
    }
    Planned planned;
    planned.outputs = {{value.type, shape}};
    planned.task = task([count = shape.count(), size = size_of(value.type)](const Running &running) {
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(running.outputs[0] + i * int64_t(size), running.inputs[1], size);
    });
    return planned;
  }
};

template <class Kind> std::unique_ptr<Operation> make(const Making &making) {
  return std::make_unique<Kind>(making);
}

const Registration kReshape("reshape", make<Reshape>);
const Registration kFlatten("flatten", make<Flatten>);
const Registration kSqueeze("squeeze", make<Squeeze>);
const Registration kUnsqueeze("unsqueeze", make<Unsqueeze>);
const Registration kIdentity("identity", make<Identity>);
const Registration kShape("shape", make<ShapeOf>);
const Registration kSize("size", make<Size>);
const Registration kRange("range", make<Range>);
const Registration kFill("fill", make<Fill>);

} // namespace
} // namespace ep
