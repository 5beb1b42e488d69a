// A partition, or a part of one, as a flat list of operations over one arena.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "memory.h"
#include "operation.h"

namespace ep {

/// All that depends on the shapes of the inputs, worked out once for each set of them.
class Plan;

/// Pointers of one run into an arena of its own; a run takes one and gives it back.
struct Frame {
  std::byte *arena;
  std::vector<std::byte *> values;
  std::vector<const std::byte *> reads;
};

struct StepTime {
  int64_t begin, end; // nanoseconds of the steady clock
};

class Program {
public:
  /// Names the inputs, which are values 0 and up; then come constants and what operations make.
  Program(const Kernels &kernels, int threads, std::vector<DType> inputs);
  ~Program();

  /// Adds a constant; its memory must outlive the program. Returns the value's number.
  int add_constant(Spec spec, const std::byte *data);

  /// Adds an operation; values below 0 are inputs that are left out. Returns its first output's
  /// number, the others follow.
  int add_operation(std::string_view name, std::span<const int> inputs, int outputs,
                    const Attributes &attributes);

  /// Says which values leave; nothing may be added afterwards.
  void finish(std::vector<int> outputs);

  size_t input_count() const { return input_types_.size(); }
  size_t output_count() const { return outputs_.size(); }
  size_t step_count() const { return steps_.size(); }
  DType input_type(size_t index) const { return input_types_[index]; }
  int threads() const { return threads_; }

  /// The plan for inputs of these shapes. Throws Refusal where there is none.
  std::shared_ptr<const Plan> plan(std::span<const Shape> shapes);

  /// Runs on memory of the plan's sizes. Throws Refusal with outputs in any state.
  /// `times` has room for every step, or is null.
  void run(const Plan &plan, Frame &frame, std::span<const std::byte *const> inputs,
           std::span<std::byte *const> outputs, StepTime *times) const;

  static const Spec &output_spec(const Plan &plan, size_t index);
  static size_t arena_bytes(const Plan &plan);
  /// `arena` has the plan's size and is aligned.
  static Frame make_frame(const Plan &plan, std::byte *arena);
  /// Bytes of packed weights.
  size_t constant_bytes() const;

private:
  friend class Plan;

  struct Step {
    std::unique_ptr<Operation> operation;
    std::vector<int> inputs;
    int first_output;
    int outputs;
  };

  /// What came of planning for some shapes: a plan, or why there is none.
  struct KeptPlan {
    std::vector<Shape> shapes;
    std::shared_ptr<const Plan> plan;
    std::string refusal;
  };

  const Kernels &kernels_;
  int threads_;
  std::vector<DType> input_types_;
  std::vector<std::unique_ptr<Constant>> constants_; // by value, null for what isn't constant
  std::vector<Step> steps_;
  std::vector<int> outputs_;
  std::mutex mutex_;
  std::vector<KeptPlan> plans_; // the oldest first
};

} // namespace ep
