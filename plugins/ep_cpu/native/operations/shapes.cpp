// Views, and the small integer arithmetic that models compute shapes with.
#include <algorithm>
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

/// Arithmetic of small int64 tensors. Attributes: code, 0 add, 1 subtract, 2 multiply, 3 divide.
class IntegerArithmetic final : public Operation {
public:
  explicit IntegerArithmetic(const Making &making) : code_(making.attributes.integer("code")) {}

  Planned plan(const Planning &planning) const override {
    const Spec &a = planning.input(0);
    const Spec &b = planning.input(1);
    need(a.type == DType::kInt64 && b.type == DType::kInt64, "not int64");
    const int64_t many = a.shape.count();
    const int64_t others = b.shape.count();
    const Shape shape = broadcast_shape(a.shape, b.shape);
    const int64_t count = shape.count();
    need((many == count || many == 1) && (others == count || others == 1), "a broadcast");
    Planned planned;
    planned.outputs = {{DType::kInt64, shape}};
    planned.task = task([=, code = code_](const Running &running) {
      for (int64_t i = 0; i < count; ++i) {
        const uint64_t x = running.input<uint64_t>(0)[many == 1 ? 0 : i];
        const uint64_t y = running.input<uint64_t>(1)[others == 1 ? 0 : i];
        running.output<uint64_t>()[i] = compute(code, x, y);
      }
    });
    return planned;
  }

private:
  static uint64_t compute(int64_t code, uint64_t x, uint64_t y) {
    switch (code) {
    case 0: return x + y;
    case 1: return x - y;
    case 2: return x * y;
    default:
      need(y != 0 && !(y == UINT64_MAX && int64_t(x) == INT64_MIN), "a division without a result");
      return uint64_t(int64_t(x) / int64_t(y));
    }
  }

  int64_t code_;
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
const Registration kIntegerArithmetic("integer_arithmetic", make<IntegerArithmetic>);

} // namespace
} // namespace ep
