// The native core without Python: programs of one operation against plain loops in double precision,
// at every level that runs here, on one thread and on three, and from several threads at once.
//
// It is for machines that are only emulated, and for sanitizers. Prints a line for each check that
// fails; the exit code says whether any did.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/levels.h"
#include "core/program.h"

namespace {

using ep::Attributes;
using ep::DType;
using ep::Shape;
using ep::Spec;
using Floats = std::vector<float>;

int failures = 0;

/// Numbers from -1 to 1 that are the same everywhere.
Floats numbers(int64_t count, uint32_t seed) {
  Floats made(static_cast<size_t>(count));
  for (float &value : made) {
    seed = seed * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(seed >> 8) - (1 << 23)) / (1 << 23);
  }
  return made;
}

struct Value {
  Shape shape;
  Floats data;
  bool is_constant = false;
};

struct Case {
  std::string operation;
  std::vector<Value> inputs;
  Attributes attributes;
  Floats expected;
  double tolerance;
};

const std::byte *bytes(const Floats &data) {
  return reinterpret_cast<const std::byte *>(data.data());
}

/// Runs a case as a program of its own; on several threads at once if `callers` says so.
void check(const Case &test, const ep::Kernels &kernels, int threads, int callers) {
  std::vector<DType> types;
  std::vector<Shape> shapes;
  std::vector<const std::byte *> reads;
  for (const Value &value : test.inputs)
    if (!value.is_constant) {
      types.push_back(DType::kFloat);
      shapes.push_back(value.shape);
      reads.push_back(bytes(value.data));
    }
  ep::Program program(kernels, threads, types);
  std::vector<int> inputs;
  int next = 0;
  for (const Value &value : test.inputs)
    inputs.push_back(value.is_constant
                         ? program.add_constant({DType::kFloat, value.shape}, bytes(value.data))
                         : next++);
  if (test.operation == "matmul" || test.operation == "conv")
    inputs.push_back(-1); // no bias
  program.finish({program.add_operation(test.operation, inputs, 1, test.attributes)});
  const std::shared_ptr<const ep::Plan> plan = program.plan(shapes);

  std::vector<Floats> results(static_cast<size_t>(callers), Floats(test.expected.size()));
  const auto call = [&](Floats &result) {
    const ep::Block arena = ep::allocate(ep::Program::arena_bytes(*plan));
    ep::Frame frame = ep::Program::make_frame(*plan, arena.get());
    std::byte *out = reinterpret_cast<std::byte *>(result.data());
    for (int turn = 0; turn < 5; ++turn)
      program.run(*plan, frame, reads, {&out, 1}, nullptr);
  };
  std::vector<std::thread> running;
  for (Floats &result : results)
    running.emplace_back(call, std::ref(result));
  for (std::thread &thread : running)
    thread.join();

  const auto fail = [&](const char *what, double error) {
    std::printf("%s, %s, %d threads, %d callers: %s %g\n", test.operation.c_str(), kernels.name,
                threads, callers, what, error);
    ++failures;
  };
  if (ep::Program::output_spec(*plan, 0).bytes() != test.expected.size() * sizeof(float))
    return fail("bytes", static_cast<double>(ep::Program::output_spec(*plan, 0).bytes()));
  double error = 0;
  for (size_t i = 0; i < test.expected.size(); ++i)
    error = std::fmax(error, std::fabs(double{results[0][i]} - double{test.expected[i]}));
  if (!(error <= test.tolerance))
    fail("error", error);
  for (const Floats &result : results)
    if (std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)) != 0)
      fail("results of callers differ", 0);
}

Case product(int64_t m, int64_t k, int64_t n, bool is_constant) {
  Value a{{m, k}, numbers(m * k, 1)};
  Value b{{k, n}, numbers(k * n, 2), is_constant};
  Floats expected(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += double{a.data[size_t(i * k + p)]} * double{b.data[size_t(p * n + j)]};
      expected[size_t(i * n + j)] = static_cast<float>(sum);
    }
  return {"matmul", {a, b}, {}, expected, 1e-5 * static_cast<double>(k)};
}

/// A convolution with channels innermost, padded by one on all sides. `side` is that of the tiles of
/// Winograd's method, or 0.
Case convolution(int64_t size, int64_t in, int64_t out, int64_t stride, int64_t side = 0) {
  constexpr int64_t kWindow = 3;
  Value x{{1, size, size, in}, numbers(size * size * in, 3)};
  Value weights{{out, in, kWindow, kWindow}, numbers(out * in * kWindow * kWindow, 4), true};
  const int64_t places = (size - 1) / stride + 1;
  Floats expected;
  for (int64_t y = 0; y < places; ++y)
    for (int64_t z = 0; z < places; ++z)
      for (int64_t o = 0; o < out; ++o) {
        double sum = 0;
        for (int64_t c = 0; c < in; ++c)
          for (int64_t i = 0; i < kWindow; ++i)
            for (int64_t j = 0; j < kWindow; ++j) {
              const int64_t row = y * stride + i - 1, column = z * stride + j - 1;
              if (row < 0 || column < 0 || row >= size || column >= size)
                continue;
              sum += double{x.data[size_t((row * size + column) * in + c)]} *
                     double{weights.data[size_t(((o * in + c) * kWindow + i) * kWindow + j)]};
            }
        expected.push_back(static_cast<float>(sum));
      }
  Attributes attributes;
  attributes.set("kernel", std::vector<int64_t>{kWindow, kWindow});
  attributes.set("strides", std::vector<int64_t>{stride, stride});
  attributes.set("dilations", std::vector<int64_t>{1, 1});
  attributes.set("pads", std::vector<int64_t>{1, 1, 1, 1});
  attributes.set("winograd", std::vector<int64_t>{side});
  return {"conv", {x, weights}, attributes, expected, 1e-4};
}

Case softmax(int64_t rows, int64_t width) {
  Value x{{rows, width}, numbers(rows * width, 5)};
  Floats expected;
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i)
      sum += std::exp(double{x.data[size_t(row * width + i)]});
    for (int64_t i = 0; i < width; ++i)
      expected.push_back(static_cast<float>(std::exp(double{x.data[size_t(row * width + i)]}) / sum));
  }
  return {"softmax", {x}, {}, expected, 1e-6};
}

/// tanh(x) * y + 0.5, y one row.
Case chain(int64_t rows, int64_t width) {
  Value x{{rows, width}, numbers(rows * width, 6)};
  Value y{{width}, numbers(width, 7)};
  Floats expected;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < width; ++i)
      expected.push_back(static_cast<float>(std::tanh(double{x.data[size_t(row * width + i)]}) *
                                                double{y.data[size_t(i)]} +
                                            0.5));
  const auto code = [](ep::Code of) { return static_cast<int64_t>(of); };
  Attributes attributes;
  attributes.set("operands", std::vector<int64_t>{2});
  attributes.set("registers", std::vector<int64_t>{6});
  attributes.set("values", std::vector<double>{0.5}); // register 2
  attributes.set("code", std::vector<int64_t>{code(ep::Code::kTanh), 3, 0, 0, 0,      //
                                              code(ep::Code::kMul), 4, 3, 1, 0,       //
                                              code(ep::Code::kAdd), 5, 4, 2, 0});
  return {"elementwise", {x, y}, attributes, expected, 1e-6};
}

} // namespace

int main() {
  const std::vector<Case> cases = {
      product(37, 65, 70, true),
      product(37, 65, 70, false),
      product(1, 300, 130, true),
      product(130, 17, 5, true),
      convolution(11, 5, 19, 1),
      convolution(12, 24, 33, 1),
      convolution(12, 24, 33, 2),
      convolution(13, 24, 50, 1, 4),
      convolution(13, 17, 33, 1, 2),
      softmax(13, 100),
      chain(9, 1037),
  };
  for (const std::string &level : ep::usable_levels())
    for (const Case &test : cases)
      for (const int threads : {1, 3})
        for (const int callers : {1, 4})
          check(test, *ep::kernels_of(level), threads, callers);
  std::printf("%d of %zu checks failed\n", failures, cases.size() * ep::usable_levels().size() * 4);
  return failures != 0;
}
