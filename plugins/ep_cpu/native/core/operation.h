// What an operation of a program is: a shape function that plans, and a run function.
//
// A new operation is a file in operations/ that registers a factory under a name. Nothing else has to
// know of it: Python asks for operations by name.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "../kernels/kernels.h"
#include "pool.h"
#include "types.h"
#include "weights.h"

namespace ep {

/// Named numbers that say what an operation does exactly.
class Attributes {
public:
  using Value = std::variant<std::vector<int64_t>, std::vector<double>>;

  void set(std::string name, Value value) { values_[std::move(name)] = std::move(value); }
  bool has(std::string_view name) const { return values_.contains(name); }
  int64_t integer(std::string_view name) const;
  int64_t integer(std::string_view name, int64_t otherwise) const;
  float number(std::string_view name, float otherwise) const;
  std::vector<int64_t> integers(std::string_view name) const;
  std::vector<float> numbers(std::string_view name) const;

private:
  const Value &find(std::string_view name) const;

  std::map<std::string, Value, std::less<>> values_;
};

/// A constant of the program as an operation sees it when it is made; null for other values.
struct Constant {
  Spec spec;
  const std::byte *data = nullptr;

  const float *floats() const { return reinterpret_cast<const float *>(data); }
};

/// What an operation is made from.
struct Making {
  const Kernels &kernels;
  const Attributes &attributes;
  std::span<const Constant *const> constants; // one per input, null for what isn't constant
  const Crew &crew;
};

/// Data of a run.
struct Running {
  const Kernels &kernels;
  const Crew &crew;
  std::span<const std::byte *const> inputs; // null for an input that is left out
  std::span<std::byte *const> outputs;
  std::byte *workspace;

  template <class T = float> const T *input(size_t index) const {
    return reinterpret_cast<const T *>(inputs[index]);
  }
  template <class T = float> T *output(size_t index = 0) const {
    return reinterpret_cast<T *>(outputs[index]);
  }
};

/// An operation for inputs of certain shapes. Runs on many threads at once.
class Task {
public:
  virtual ~Task() = default;
  /// Throws Refusal for values that can't be computed with, such as an index out of range.
  virtual void run(const Running &running) const = 0;
};

/// What an operation answers for inputs of certain shapes.
struct Planned {
  std::vector<Spec> outputs;
  std::unique_ptr<Task> task; // null for a view: the output is the first input under another shape
  size_t workspace = 0;
};

/// What an operation may look at while it plans.
struct Planning {
  const Kernels &kernels;
  int threads;
  std::span<const Spec *const> inputs; // null for an input that is left out
  /// Values that are known already, because they depend on shapes and constants alone; else null.
  std::span<const std::byte *const> known;

  const Spec &input(size_t index) const;
  bool has(size_t index) const { return index < inputs.size() && inputs[index] != nullptr; }
  /// An input of int64 or int32 that is known; refuses others.
  std::vector<int64_t> integers(size_t index) const;
};

class Operation {
public:
  virtual ~Operation() = default;
  /// Throws Refusal for shapes and types that it doesn't take.
  virtual Planned plan(const Planning &planning) const = 0;
  /// True if outputs depend on the shapes of the inputs alone, as those of Shape do.
  virtual bool reads_shapes_only() const { return false; }
  /// Bytes of packed weights, for the account of memory.
  virtual size_t constant_bytes() const { return 0; }
};

using MakeOperation = std::unique_ptr<Operation> (*)(const Making &making);

/// Registers a factory under a name, at start.
struct Registration {
  Registration(const char *name, MakeOperation make);
};

std::unique_ptr<Operation> make_operation(std::string_view name, const Making &making);
std::vector<std::string> operation_names();

/// A Task out of a function.
template <class Run> class FunctionTask final : public Task {
public:
  explicit FunctionTask(Run run) : run_(std::move(run)) {}
  void run(const Running &running) const override { run_(running); }

private:
  Run run_;
};

template <class Run> std::unique_ptr<Task> task(Run run) {
  return std::make_unique<FunctionTask<Run>>(std::move(run));
}

/// Cuts `total` items into chunks of at least `least` items each; the same for any crew.
struct Chunks {
  int64_t total, size, count;

  Chunks(int64_t total, int64_t least, int64_t most = 64);
  int64_t begin(int64_t chunk) const { return chunk * size; }
  int64_t end(int64_t chunk) const { return std::min(total, (chunk + 1) * size); }
};

/// Numpy's broadcasting; refuses shapes that don't fit.
Shape broadcast_shape(const Shape &a, const Shape &b);

/// `axis` counted from the front; refuses what is outside.
int front_axis(int64_t axis, int rank);

} // namespace ep
