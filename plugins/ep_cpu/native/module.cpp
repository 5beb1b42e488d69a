// The Python module: programs are put together from Python and run in one call without its lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>
#include <bit>

#include "core/levels.h"
#include "core/program.h"

namespace nb = nanobind;

namespace ep {
namespace {

/// Numpy's number of an element type; -1 where numpy has none.
int numpy_type(DType type) {
  switch (type) {
  case DType::kFloat: return NPY_FLOAT32;
  case DType::kUint8: return NPY_UINT8;
  case DType::kInt8: return NPY_INT8;
  case DType::kUint16: return NPY_UINT16;
  case DType::kInt16: return NPY_INT16;
  case DType::kInt32: return NPY_INT32;
  case DType::kInt64: return NPY_INT64;
  case DType::kBool: return NPY_BOOL;
  case DType::kFloat16: return NPY_FLOAT16;
  case DType::kDouble: return NPY_FLOAT64;
  case DType::kUint32: return NPY_UINT32;
  case DType::kUint64: return NPY_UINT64;
  }
  return -1;
}

/// A frame in memory of numpy's, which tracemalloc knows of.
struct OwnedFrame {
  explicit OwnedFrame(const Plan &plan) {
    npy_intp bytes = npy_intp(Program::arena_bytes(plan) + kAlignment);
    PyObject *made = PyArray_SimpleNew(1, &bytes, NPY_UINT8);
    if (made == nullptr)
      throw nb::python_error();
    memory = nb::steal(made);
    const auto start = reinterpret_cast<uintptr_t>(PyArray_DATA((PyArrayObject *)made));
    frame = Program::make_frame(plan, reinterpret_cast<std::byte *>(aligned(start)));
  }

  nb::object memory;
  Frame frame;
};

Shape shape_of(PyArrayObject *array) {
  static_assert(sizeof(npy_intp) == sizeof(int64_t));
  return Shape(std::span(reinterpret_cast<const int64_t *>(PyArray_DIMS(array)),
                         size_t(PyArray_NDIM(array))));
}

/// True for an array whose bytes are what the program reads. C's long and long long are the same.
bool has_type(PyArrayObject *array, DType type) {
  const int wanted = numpy_type(type);
  const int real = PyArray_TYPE(array);
  return real == wanted || (PyTypeNum_ISINTEGER(real) && PyArray_EquivTypenums(real, wanted));
}

std::byte *bytes_of(PyArrayObject *array) {
  return static_cast<std::byte *>(static_cast<void *>(PyArray_DATA(array)));
}

/// A new reference to an array that is packed and aligned: the array itself or a copy.
nb::object packed_array(PyObject *object, DType type) {
  if (!PyArray_Check(object))
    throw Refusal("an input is no array");
  auto *array = reinterpret_cast<PyArrayObject *>(object);
  need(has_type(array, type), "an input has another type");
  if (PyArray_ISCARRAY_RO(array))
    return nb::borrow(object);
  PyObject *copy = PyArray_NewCopy(array, NPY_CORDER);
  if (copy == nullptr)
    throw nb::python_error();
  auto *made = reinterpret_cast<PyArrayObject *>(copy);
  nb::object owner = nb::steal(copy);
  need(PyArray_ISCARRAY_RO(made), "an input is in a foreign byte order");
  return owner;
}

Attributes read_attributes(const nb::dict &given) {
  Attributes attributes;
  for (const auto &[key, value] : given) {
    std::vector<nb::object> items;
    if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value))
      for (const nb::handle item : value)
        items.push_back(nb::borrow(item));
    else
      items.push_back(nb::borrow(value));
    const bool whole = std::ranges::none_of(
        items, [](const nb::object &item) { return PyFloat_Check(item.ptr()); });
    if (whole) {
      std::vector<int64_t> numbers;
      for (const nb::object &item : items)
        numbers.push_back(nb::cast<int64_t>(item));
      attributes.set(nb::cast<std::string>(key), std::move(numbers));
    } else {
      std::vector<double> numbers;
      for (const nb::object &item : items)
        numbers.push_back(nb::cast<double>(item));
      attributes.set(nb::cast<std::string>(key), std::move(numbers));
    }
  }
  return attributes;
}

const Kernels &find_kernels(const std::string &level) {
  const Kernels *kernels = kernels_of(level);
  if (kernels == nullptr)
    throw nb::value_error(("no kernels for " + level).c_str());
  return *kernels;
}

std::vector<DType> types_of(const std::vector<int> &numbers) {
  std::vector<DType> types;
  for (const int number : numbers) {
    if (size_of(static_cast<DType>(number)) == 0)
      throw nb::value_error("an element type that isn't handled");
    types.push_back(static_cast<DType>(number));
  }
  return types;
}

/// A program with the arrays that it reads. Python's lock guards all that isn't in `Program::run`.
class BoundProgram {
public:
  BoundProgram(const std::string &level, int threads, const std::vector<int> &inputs)
      : program_(find_kernels(level), threads, types_of(inputs)) {}

  int add_constant(nb::object array, int type) {
    const DType dtype = types_of({type})[0];
    nb::object packed = packed_array(array.ptr(), dtype);
    auto *numpy = reinterpret_cast<PyArrayObject *>(packed.ptr());
    const int number = program_.add_constant({dtype, shape_of(numpy)}, bytes_of(numpy));
    held_.push_back(std::move(packed));
    return number;
  }

  int add_operation(const std::string &name, const std::vector<int> &inputs, int outputs,
                    const nb::dict &attributes) {
    return program_.add_operation(name, inputs, outputs, read_attributes(attributes));
  }

  void finish(std::vector<int> outputs) { program_.finish(std::move(outputs)); }

  bool run(nb::sequence inputs, nb::list outputs) { return execute(inputs, outputs, nullptr); }

  nb::object run_timed(nb::sequence inputs, nb::list outputs) {
    std::vector<StepTime> times(program_.step_count(), StepTime{0, 0});
    if (!execute(inputs, outputs, times.data()))
      return nb::none();
    nb::list result;
    for (const StepTime &time : times)
      result.append(nb::make_tuple(time.begin, time.end));
    return result;
  }

  /// Bytes of packed weights.
  size_t constant_bytes() const { return program_.constant_bytes(); }

  /// Bytes of one run's arena for inputs of these shapes; None where the program refuses them.
  nb::object arena_bytes(const std::vector<std::vector<int64_t>> &given) {
    try {
      std::vector<Shape> shapes;
      for (const std::vector<int64_t> &lengths : given)
        shapes.emplace_back(std::span(lengths));
      return nb::int_(Program::arena_bytes(*program_.plan(shapes)));
    } catch (const Refusal &) {
      return nb::none();
    }
  }

  /// Why inputs of these shapes are refused; empty if they aren't.
  std::string refusal(const std::vector<std::vector<int64_t>> &given) {
    try {
      std::vector<Shape> shapes;
      for (const std::vector<int64_t> &lengths : given)
        shapes.emplace_back(std::span(lengths));
      program_.plan(shapes);
      return "";
    } catch (const Refusal &refusal) {
      return refusal.what();
    }
  }

private:
  struct Frames {
    std::shared_ptr<const Plan> plan;
    std::vector<std::unique_ptr<OwnedFrame>> free;
  };

  bool execute(nb::sequence &inputs, nb::list &outputs, StepTime *times) {
    try {
      execute_or_refuse(inputs, outputs, times);
      return true;
    } catch (const Refusal &) {
      return false;
    }
  }

  void execute_or_refuse(nb::sequence &inputs, nb::list &outputs, StepTime *times) {
    const size_t count = program_.input_count();
    need(nb::len(inputs) == count && outputs.size() == program_.output_count(), "a wrong number");
    std::vector<nb::object> owners;
    std::vector<Shape> shapes;
    std::vector<const std::byte *> reads;
    owners.reserve(count + outputs.size());
    shapes.reserve(count);
    reads.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      const nb::object item = inputs[i];
      owners.push_back(packed_array(item.ptr(), program_.input_type(i)));
      auto *array = reinterpret_cast<PyArrayObject *>(owners.back().ptr());
      shapes.push_back(shape_of(array));
      reads.push_back(bytes_of(array));
    }
    const std::shared_ptr<const Plan> plan = find_frames(shapes).plan;
    std::vector<std::byte *> writes;
    writes.reserve(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      owners.push_back(output_array(nb::object(outputs[i]), Program::output_spec(*plan, i)));
      writes.push_back(bytes_of(reinterpret_cast<PyArrayObject *>(owners.back().ptr())));
    }
    std::unique_ptr<OwnedFrame> frame = take_frame(plan);
    {
      const nb::gil_scoped_release unlocked;
      program_.run(*plan, frame->frame, reads, writes, times);
    }
    give_back(plan, std::move(frame));
    for (size_t i = 0; i < outputs.size(); ++i)
      outputs[i] = owners[count + i];
  }

  Frames &find_frames(std::span<const Shape> shapes) {
    if (!frames_.empty() && std::ranges::equal(last_shapes_, shapes))
      return frames_.back();
    std::shared_ptr<const Plan> plan = program_.plan(shapes);
    auto found = std::ranges::find(frames_, plan, &Frames::plan);
    if (found == frames_.end()) {
      // The arenas of few sets of shapes are kept: those of others are made anew.
      constexpr size_t kMostArenas = 4;
      if (frames_.size() == kMostArenas)
        frames_.erase(frames_.begin());
      frames_.push_back({std::move(plan), {}});
    } else {
      std::rotate(found, found + 1, frames_.end());
    }
    last_shapes_.assign(shapes.begin(), shapes.end());
    return frames_.back();
  }

  /// Looks for the plan's frames once more: making arrays may have run other code of Python's.
  std::unique_ptr<OwnedFrame> take_frame(const std::shared_ptr<const Plan> &plan) {
    const auto found = std::ranges::find(frames_, plan, &Frames::plan);
    if (found == frames_.end() || found->free.empty())
      return std::make_unique<OwnedFrame>(*plan);
    std::unique_ptr<OwnedFrame> frame = std::move(found->free.back());
    found->free.pop_back();
    return frame;
  }

  void give_back(const std::shared_ptr<const Plan> &plan, std::unique_ptr<OwnedFrame> frame) {
    const auto found = std::ranges::find(frames_, plan, &Frames::plan);
    if (found != frames_.end())
      found->free.push_back(std::move(frame));
  }

  /// The caller's memory, or new memory.
  nb::object output_array(nb::object given, const Spec &spec) {
    if (given.is_none()) {
      npy_intp lengths[kMostRank];
      std::ranges::copy(spec.shape.lengths(), lengths);
      PyObject *made = PyArray_SimpleNew(spec.shape.rank(), lengths, numpy_type(spec.type));
      if (made == nullptr)
        throw nb::python_error();
      return nb::steal(made);
    }
    need(PyArray_Check(given.ptr()), "an output is no array");
    auto *array = reinterpret_cast<PyArrayObject *>(given.ptr());
    need(has_type(array, spec.type) && PyArray_ISCARRAY(array) && shape_of(array) == spec.shape,
         "memory for an output doesn't fit");
    return given;
  }

  // Frames hold nothing of plans, and plans are held by the program, which goes last.
  Program program_;
  std::vector<nb::object> held_;
  std::vector<Frames> frames_;
  std::vector<Shape> last_shapes_;
};

int import_numpy() {
  import_array1(-1);
  return 0;
}

} // namespace

NB_MODULE(_native, module) {
  if (import_numpy() < 0)
    throw nb::python_error();
  nb::set_leak_warnings(false); // sessions that live to the end are nobody's mistake
  module.def("levels", &usable_levels);
  module.def("operation_names", &operation_names);
  module.def("living_weights", &living_weights);
  nb::class_<BoundProgram>(module, "Program")
      .def(nb::init<const std::string &, int, const std::vector<int> &>(), nb::arg("level"),
           nb::arg("threads"), nb::arg("inputs"))
      .def("add_constant", &BoundProgram::add_constant)
      .def("add_operation", &BoundProgram::add_operation)
      .def("finish", &BoundProgram::finish)
      .def("run", &BoundProgram::run)
      .def("run_timed", &BoundProgram::run_timed)
      .def("arena_bytes", &BoundProgram::arena_bytes)
      .def("refusal", &BoundProgram::refusal)
      .def_prop_ro("constant_bytes", &BoundProgram::constant_bytes);
}

} // namespace ep
