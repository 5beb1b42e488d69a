#include "program.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace ep {
namespace {

constexpr size_t kMostPlans = 32; // the oldest one goes
/// What is computed while planning must be small: shapes, axes, ends of slices.
constexpr int64_t kMostKnown = 1024;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

} // namespace

class Plan {
public:
  Plan(const Program &program, std::span<const Shape> shapes);

  enum class Home : uint8_t { kNowhere, kInput, kOutput, kArena, kFixed };

  struct Value {
    Spec spec;
    Home home = Home::kNowhere;
    size_t place = 0; // index of an input or output, or offset in the arena
    const std::byte *fixed = nullptr; // constants and what is known
    int root = 0;                     // the value whose memory this is
  };

  struct Step {
    std::unique_ptr<Task> task;
    std::vector<int> inputs;
    int first_output;
    int outputs;
    size_t workspace; // offset in the arena
    int number;       // in the program
  };

  const Program &program;
  std::vector<Value> values;
  std::vector<Step> steps;
  std::vector<Block> known; // what was computed while planning
  struct Copy {
    int value;
    size_t output;
  };
  std::vector<Copy> copies; // outputs that are views of something else
  size_t arena_bytes = 0;

private:
  void plan_step(int number);
  void compute_now(const Program::Step &step, Planned &planned);
  void place(const std::vector<size_t> &workspaces);
};

Plan::Plan(const Program &owner, std::span<const Shape> shapes) : program(owner) {
  values.resize(program.constants_.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[i].root = static_cast<int>(i);
  for (size_t i = 0; i < shapes.size(); ++i) {
    values[i].spec = {program.input_types_[i], shapes[i]};
    values[i].home = Home::kInput;
    values[i].place = i;
  }
  for (size_t i = 0; i < values.size(); ++i)
    if (const Constant *constant = program.constants_[i].get()) {
      values[i].spec = constant->spec;
      values[i].home = Home::kFixed;
      values[i].fixed = constant->data;
    }
  std::vector<size_t> workspaces;
  for (size_t number = 0; number < program.steps_.size(); ++number)
    plan_step(static_cast<int>(number));
  for (Step &step : steps) {
    workspaces.push_back(step.workspace);
    step.workspace = 0;
  }
  place(workspaces);
}

void Plan::plan_step(int number) {
  const Program::Step &step = program.steps_[number];
  std::vector<const Spec *> specs;
  std::vector<const std::byte *> given;
  bool all_known = true;
  for (const int input : step.inputs) {
    specs.push_back(input < 0 ? nullptr : &values[input].spec);
    given.push_back(input < 0 ? nullptr : values[input].fixed);
    all_known = all_known && (input < 0 || values[input].fixed != nullptr);
  }
  const Planning planning{program.kernels_, program.threads_, specs, given};
  Planned planned = step.operation->plan(planning);
  if (planned.outputs.size() != size_t(step.outputs))
    throw Mistake("an operation has another number of outputs than the program says");
  for (int i = 0; i < step.outputs; ++i) {
    need(planned.outputs[i].shape.count() < (int64_t{1} << 40), "a value is too large");
    values[step.first_output + i].spec = planned.outputs[i];
  }
  if (planned.task == nullptr) {
    Value &view = values[step.first_output];
    const Value &viewed = values[step.inputs[0]];
    view.root = viewed.root;
    view.fixed = viewed.fixed;
    if (viewed.fixed != nullptr)
      view.home = Home::kFixed;
    return;
  }
  const bool is_small = std::ranges::all_of(
      planned.outputs, [](const Spec &spec) { return spec.shape.count() <= kMostKnown; });
  if (step.operation->reads_shapes_only() || (all_known && is_small)) {
    compute_now(step, planned);
    return;
  }
  steps.push_back({std::move(planned.task), step.inputs, step.first_output, step.outputs,
                   planned.workspace, number});
}

void Plan::compute_now(const Program::Step &step, Planned &planned) {
  std::vector<const std::byte *> inputs;
  std::vector<std::byte *> outputs;
  for (const int input : step.inputs)
    inputs.push_back(input < 0 ? nullptr : values[input].fixed);
  for (int i = 0; i < step.outputs; ++i) {
    Value &value = values[step.first_output + i];
    known.push_back(allocate(value.spec.bytes()));
    value.home = Home::kFixed;
    value.fixed = known.back().get();
    outputs.push_back(known.back().get());
  }
  const Block workspace = allocate(planned.workspace);
  const Crew alone(1);
  planned.task->run({program.kernels_, alone, inputs, outputs, workspace.get()});
}

void Plan::place(const std::vector<size_t> &workspaces) {
  // An output whose memory nobody else's is gets written straight into what the caller gives.
  for (size_t i = 0; i < program.outputs_.size(); ++i) {
    const int value = program.outputs_[i];
    Value &root = values[values[value].root];
    if (root.home == Home::kNowhere) {
      root.home = Home::kOutput;
      root.place = i;
    } else {
      copies.push_back({value, i});
    }
  }
  std::vector<int> first(values.size(), -1);
  std::vector<int> last(values.size(), -1);
  for (size_t number = 0; number < steps.size(); ++number) {
    const Step &step = steps[number];
    const int at = static_cast<int>(number);
    for (int i = 0; i < step.outputs; ++i) {
      first[step.first_output + i] = at;
      last[step.first_output + i] = at;
    }
    for (const int input : step.inputs)
      if (input >= 0)
        last[values[input].root] = at;
  }
  for (const Copy &copy : copies)
    last[values[copy.value].root] = static_cast<int>(steps.size());
  std::vector<Lifetime> lifetimes;
  std::vector<int> owners;
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].home == Home::kNowhere && first[i] >= 0) {
      lifetimes.push_back({values[i].spec.bytes(), first[i], last[i]});
      owners.push_back(static_cast<int>(i));
    }
  for (size_t number = 0; number < steps.size(); ++number)
    lifetimes.push_back({workspaces[number], static_cast<int>(number), static_cast<int>(number)});
  const MemoryPlan memory = plan_memory(lifetimes);
  for (size_t i = 0; i < owners.size(); ++i) {
    values[owners[i]].home = Home::kArena;
    values[owners[i]].place = memory.offsets[i];
  }
  for (size_t number = 0; number < steps.size(); ++number)
    steps[number].workspace = memory.offsets[owners.size() + number];
  arena_bytes = memory.bytes;
}

Program::Program(const Kernels &kernels, int threads, std::vector<DType> inputs)
    : kernels_(kernels), threads_(std::max(threads, 1)), input_types_(std::move(inputs)) {
  constants_.resize(input_types_.size());
}

Program::~Program() = default;

int Program::add_constant(Spec spec, const std::byte *data) {
  if (!steps_.empty())
    throw Mistake("constants come before operations");
  constants_.push_back(std::make_unique<Constant>(Constant{spec, data}));
  return static_cast<int>(constants_.size()) - 1;
}

int Program::add_operation(std::string_view name, std::span<const int> inputs, int outputs,
                           const Attributes &attributes) {
  std::vector<const Constant *> constants;
  for (const int input : inputs) {
    if (input >= static_cast<int>(constants_.size()))
      throw Mistake("an operation reads a value that isn't there yet");
    constants.push_back(input < 0 ? nullptr : constants_[input].get());
  }
  const Crew crew(threads_);
  const int first = static_cast<int>(constants_.size());
  steps_.push_back({make_operation(name, {kernels_, attributes, constants, crew}),
                    {inputs.begin(), inputs.end()},
                    first,
                    outputs});
  constants_.resize(constants_.size() + size_t(outputs));
  return first;
}

void Program::finish(std::vector<int> outputs) {
  for (const int output : outputs)
    if (output < 0 || output >= static_cast<int>(constants_.size()))
      throw Mistake("an output that isn't there");
  outputs_ = std::move(outputs);
}

std::shared_ptr<const Plan> Program::plan(std::span<const Shape> shapes) {
  const std::lock_guard lock(mutex_);
  for (size_t i = plans_.size(); i-- > 0;)
    if (std::ranges::equal(plans_[i].shapes, shapes)) {
      need(plans_[i].plan != nullptr, plans_[i].refusal.c_str());
      return plans_[i].plan;
    }
  if (plans_.size() == kMostPlans)
    plans_.erase(plans_.begin());
  KeptPlan entry{{shapes.begin(), shapes.end()}, nullptr, ""};
  try {
    entry.plan = std::make_shared<const Plan>(*this, shapes);
  } catch (const Refusal &refusal) {
    entry.refusal = refusal.what();
    plans_.push_back(std::move(entry));
    throw;
  }
  plans_.push_back(std::move(entry));
  return plans_.back().plan;
}

const Spec &Program::output_spec(const Plan &plan, size_t index) {
  return plan.values[plan.program.outputs_[index]].spec;
}

size_t Program::arena_bytes(const Plan &plan) { return plan.arena_bytes; }

Frame Program::make_frame(const Plan &plan, std::byte *arena) {
  Frame frame;
  frame.arena = arena;
  frame.values.assign(plan.values.size(), nullptr);
  size_t most = 0;
  for (const Plan::Step &step : plan.steps)
    most = std::max(most, step.inputs.size());
  frame.reads.assign(most, nullptr);
  for (size_t i = 0; i < plan.values.size(); ++i) {
    const Plan::Value &value = plan.values[i];
    if (value.home == Plan::Home::kArena)
      frame.values[i] = arena + value.place;
    else if (value.home == Plan::Home::kFixed)
      frame.values[i] = const_cast<std::byte *>(value.fixed); // only read
  }
  return frame;
}

size_t Program::constant_bytes() const {
  size_t total = 0;
  for (const Step &step : steps_)
    total += step.operation->constant_bytes();
  return total;
}

void Program::run(const Plan &plan, Frame &frame, std::span<const std::byte *const> inputs,
                  std::span<std::byte *const> outputs, StepTime *times) const {
  std::vector<std::byte *> &values = frame.values;
  for (size_t i = 0; i < inputs.size(); ++i)
    values[i] = const_cast<std::byte *>(inputs[i]); // only read
  for (size_t i = 0; i < plan.values.size(); ++i)
    if (plan.values[i].home == Plan::Home::kOutput)
      values[i] = outputs[plan.values[i].place];
  for (size_t i = 0; i < plan.values.size(); ++i)
    if (const int root = plan.values[i].root; root != static_cast<int>(i))
      values[i] = values[root];
  const Crew crew(threads_);
  for (const Plan::Step &step : plan.steps) {
    for (size_t i = 0; i < step.inputs.size(); ++i)
      frame.reads[i] = step.inputs[i] < 0 ? nullptr : values[step.inputs[i]];
    const int64_t begin = times == nullptr ? 0 : now();
    step.task->run({kernels_, crew, std::span(frame.reads).first(step.inputs.size()),
                    std::span(values).subspan(size_t(step.first_output), size_t(step.outputs)),
                    frame.arena + step.workspace});
    if (times != nullptr)
      times[step.number] = {begin, now()};
  }
  for (const Plan::Copy &copy : plan.copies)
    std::memcpy(outputs[copy.output], values[copy.value], plan.values[copy.value].spec.bytes());
}

} // namespace ep
