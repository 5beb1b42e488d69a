// What is computed on other types than float32, for masks and indices: casts, comparisons, logic,
// integer arithmetic, and choosing between two tensors.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "walk.h"

namespace ep {
namespace {

constexpr int64_t kChunkElements = 16384;

/// Calls `row(out offset, row, count)` for every row of a walk, on all threads.
template <class Row> void over_rows(const Walk &walk, const Crew &crew, const Row &row) {
  const int64_t count = walk.lengths.back();
  const Chunks chunks(walk.rows(), std::max<int64_t>(kChunkElements / std::max<int64_t>(count, 1), 1));
  crew.each(chunks.count, [&](int64_t chunk, int) {
    for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i)
      row(i * count, i, count);
  });
}

template <class In, class Out, class Function>
std::unique_ptr<Task> map_pairs(Walk walk, Function function) {
  return task([walk = std::move(walk), function](const Running &running) {
    const int64_t a_step = walk.steps[0].back();
    const int64_t b_step = walk.steps[1].back();
    over_rows(walk, running.crew, [&](int64_t at, int64_t row, int64_t count) {
      const In *a = running.input<In>(0) + walk.offset(0, row);
      const In *b = running.input<In>(1) + walk.offset(1, row);
      Out *out = running.output<Out>() + at;
      for (int64_t i = 0; i < count; ++i)
        out[i] = function(a[i * a_step], b[i * b_step]);
    });
  });
}

/// Calls `use` with a value of the C++ type for `type`; refuses others.
template <class Use> auto with_type(DType type, const Use &use) {
  switch (type) {
  case DType::kFloat: return use(float{});
  case DType::kDouble: return use(double{});
  case DType::kInt64: return use(int64_t{});
  case DType::kInt32: return use(int32_t{});
  case DType::kInt8: return use(int8_t{});
  case DType::kUint8:
  case DType::kBool: return use(uint8_t{});
  default: throw Refusal("a type that isn't computed with");
  }
}

struct Pair {
  Shape shape;
  Walk walk;
};

Pair plan_pair(const Planning &planning) {
  const Shape &a = planning.input(0).shape;
  const Shape &b = planning.input(1).shape;
  need(planning.input(0).type == planning.input(1).type, "operands differ in type");
  const Shape shape = broadcast_shape(a, b);
  const Shape *const shapes[] = {&a, &b};
  return {shape, Walk(shape, shapes)};
}

/// Attribute: code, 0 equal, 1 less, 2 less or equal, 3 greater, 4 greater or equal.
class Comparison final : public Operation {
public:
  explicit Comparison(const Making &making) : code_(making.attributes.integer("code")) {}

  Planned plan(const Planning &planning) const override {
    const Pair pair = plan_pair(planning);
    Planned planned;
    planned.outputs = {{DType::kBool, pair.shape}};
    planned.task = with_type(planning.input(0).type, [&](auto sample) {
      using Value = decltype(sample);
      switch (code_) {
      case 0: return map_pairs<Value, uint8_t>(pair.walk, [](Value a, Value b) { return a == b; });
      case 1: return map_pairs<Value, uint8_t>(pair.walk, [](Value a, Value b) { return a < b; });
      case 2: return map_pairs<Value, uint8_t>(pair.walk, [](Value a, Value b) { return a <= b; });
      case 3: return map_pairs<Value, uint8_t>(pair.walk, [](Value a, Value b) { return a > b; });
      default: return map_pairs<Value, uint8_t>(pair.walk, [](Value a, Value b) { return a >= b; });
      }
    });
    return planned;
  }

private:
  int64_t code_;
};

/// Of booleans. Attribute: code, 0 and, 1 or, 2 exclusive or.
class Logic final : public Operation {
public:
  explicit Logic(const Making &making) : code_(making.attributes.integer("code")) {}

  Planned plan(const Planning &planning) const override {
    const Pair pair = plan_pair(planning);
    need(planning.input(0).type == DType::kBool, "not booleans");
    Planned planned;
    planned.outputs = {{DType::kBool, pair.shape}};
    using Byte = uint8_t;
    if (code_ == 0)
      planned.task = map_pairs<Byte, Byte>(pair.walk, [](Byte a, Byte b) { return Byte(a & b); });
    else if (code_ == 1)
      planned.task = map_pairs<Byte, Byte>(pair.walk, [](Byte a, Byte b) { return Byte(a | b); });
    else
      planned.task = map_pairs<Byte, Byte>(pair.walk, [](Byte a, Byte b) { return Byte(a ^ b); });
    return planned;
  }

private:
  int64_t code_;
};

/// Of int64 and int32, wrapping around. Attribute: code, 0 add, 1 subtract, 2 multiply, 3 largest,
/// 4 smallest, 5 divide towards zero.
class IntegerArithmetic final : public Operation {
public:
  explicit IntegerArithmetic(const Making &making) : code_(making.attributes.integer("code")) {}

  Planned plan(const Planning &planning) const override {
    const Pair pair = plan_pair(planning);
    const DType type = planning.input(0).type;
    Planned planned;
    planned.outputs = {{type, pair.shape}};
    if (type == DType::kInt64)
      planned.task = make<int64_t, uint64_t>(pair.walk);
    else if (type == DType::kInt32)
      planned.task = make<int32_t, uint32_t>(pair.walk);
    need(planned.task != nullptr, "not int64 or int32");
    return planned;
  }

private:
  template <class Value, class Wrapping> std::unique_ptr<Task> make(const Walk &walk) const {
    const auto wrapped = [&](auto function) {
      return map_pairs<Value, Value>(walk, [function](Value a, Value b) {
        return static_cast<Value>(function(static_cast<Wrapping>(a), static_cast<Wrapping>(b)));
      });
    };
    switch (code_) {
    case 0: return wrapped([](Wrapping a, Wrapping b) { return a + b; });
    case 1: return wrapped([](Wrapping a, Wrapping b) { return a - b; });
    case 2: return wrapped([](Wrapping a, Wrapping b) { return a * b; });
    case 3: return map_pairs<Value, Value>(walk, [](Value a, Value b) { return std::max(a, b); });
    case 4: return map_pairs<Value, Value>(walk, [](Value a, Value b) { return std::min(a, b); });
    default: return divide<Value>(walk);
    }
  }

  template <class Value> static std::unique_ptr<Task> divide(const Walk &walk) {
    return task([walk](const Running &running) {
      const int64_t a_step = walk.steps[0].back();
      const int64_t b_step = walk.steps[1].back();
      for (int64_t row = 0; row < walk.rows(); ++row) {
        const Value *a = running.input<Value>(0) + walk.offset(0, row);
        const Value *b = running.input<Value>(1) + walk.offset(1, row);
        Value *out = running.output<Value>() + row * walk.lengths.back();
        for (int64_t i = 0; i < walk.lengths.back(); ++i) {
          const Value over = a[i * a_step];
          const Value under = b[i * b_step];
          need(under != 0 && !(under == -1 && over == std::numeric_limits<Value>::min()),
               "a division without a result");
          out[i] = over / under;
        }
      }
    });
  }

  int64_t code_;
};

/// Inputs: condition, x, y.
class Where final : public Operation {
public:
  explicit Where(const Making &) {}

  Planned plan(const Planning &planning) const override {
    const Spec &condition = planning.input(0);
    const Spec &x = planning.input(1);
    const Spec &y = planning.input(2);
    need(condition.type == DType::kBool && x.type == y.type, "odd types");
    const Shape shape = broadcast_shape(broadcast_shape(condition.shape, x.shape), y.shape);
    const Shape *const shapes[] = {&condition.shape, &x.shape, &y.shape};
    Planned planned;
    planned.outputs = {{x.type, shape}};
    const Walk walk(shape, shapes);
    switch (size_of(x.type)) {
    case 1: planned.task = choose<uint8_t>(walk); break;
    case 2: planned.task = choose<uint16_t>(walk); break;
    case 4: planned.task = choose<uint32_t>(walk); break;
    default: planned.task = choose<uint64_t>(walk); break;
    }
    return planned;
  }

private:
  template <class Value> static std::unique_ptr<Task> choose(const Walk &walk) {
    return task([walk](const Running &running) {
      const int64_t steps[] = {walk.steps[0].back(), walk.steps[1].back(), walk.steps[2].back()};
      over_rows(walk, running.crew, [&](int64_t at, int64_t row, int64_t count) {
        const auto *condition = running.input<uint8_t>(0) + walk.offset(0, row);
        const Value *x = running.input<Value>(1) + walk.offset(1, row);
        const Value *y = running.input<Value>(2) + walk.offset(2, row);
        Value *out = running.output<Value>() + at;
        for (int64_t i = 0; i < count; ++i)
          out[i] = condition[i * steps[0]] != 0 ? x[i * steps[1]] : y[i * steps[2]];
      });
    });
  }
};

/// Booleans from one tensor. Attribute: code, 0 not, 1 is NaN.
class Test final : public Operation {
public:
  explicit Test(const Making &making) : code_(making.attributes.integer("code")) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    need(x.type == (code_ == 0 ? DType::kBool : DType::kFloat), "another type");
    Planned planned;
    planned.outputs = {{DType::kBool, x.shape}};
    const Chunks chunks(x.shape.count(), kChunkElements);
    planned.task = task([chunks, code = code_](const Running &running) {
      running.crew.each(chunks.count, [&](int64_t chunk, int) {
        auto *out = running.output<uint8_t>();
        for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i)
          out[i] = code == 0 ? running.input<uint8_t>(0)[i] == 0 : std::isnan(running.input(0)[i]);
      });
    });
    return planned;
  }

private:
  int64_t code_;
};

/// Attribute: to, a number of ONNX's types. Numbers that an integer can't hold are refused.
class Cast final : public Operation {
public:
  explicit Cast(const Making &making)
      : to_(static_cast<DType>(making.attributes.integer("to"))) {}

  Planned plan(const Planning &planning) const override {
    const Spec &x = planning.input(0);
    Planned planned;
    planned.outputs = {{to_, x.shape}};
    if (x.type == to_)
      return planned;
    planned.task = with_type(x.type, [&](auto from) {
      return with_type(to_, [&](auto to) {
        return convert<decltype(from), decltype(to)>(x.shape.count(), to_ == DType::kBool);
      });
    });
    return planned;
  }

private:
  template <class From, class To> static bool holds(From value) {
    if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
      constexpr double kTop = static_cast<double>(std::numeric_limits<To>::max() / 2 + 1) * 2;
      constexpr double kBottom = static_cast<double>(std::numeric_limits<To>::min());
      return value < kTop && value >= kBottom; // no for NaN too
    }
    return true;
  }

  template <class From, class To>
  static std::unique_ptr<Task> convert(int64_t count, bool to_boolean) {
    const Chunks chunks(count, kChunkElements);
    return task([chunks, to_boolean](const Running &running) {
      std::atomic<bool> fits{true};
      running.crew.each(chunks.count, [&](int64_t chunk, int) {
        const From *from = running.input<From>(0);
        To *to = running.output<To>();
        for (int64_t i = chunks.begin(chunk); i < chunks.end(chunk); ++i) {
          if (to_boolean) {
            to[i] = static_cast<To>(from[i] != From{});
          } else if (holds<From, To>(from[i])) {
            to[i] = static_cast<To>(from[i]);
          } else {
            fits = false;
            return;
          }
        }
      });
      need(fits, "a number that the type can't hold");
    });
  }

  DType to_;
};

template <class Kind> std::unique_ptr<Operation> make(const Making &making) {
  return std::make_unique<Kind>(making);
}

const Registration kComparison("comparison", make<Comparison>);
const Registration kLogic("logic", make<Logic>);
const Registration kIntegerArithmetic("integer_arithmetic", make<IntegerArithmetic>);
const Registration kWhere("where", make<Where>);
const Registration kTest("test", make<Test>);
const Registration kCast("cast", make<Cast>);

} // namespace
} // namespace ep
