// Chains of elementwise operations with numpy's broadcasting.
#include <algorithm>

#include "chain.h"
#include "walk.h"

namespace ep {
namespace {

constexpr int64_t kChunkElements = 16384;

class Elementwise final : public Operation {
public:
  explicit Elementwise(const Making &making) : chain_(making.attributes) {}

  Planned plan(const Planning &planning) const override {
    Shape result;
    std::vector<const Shape *> shapes;
    for (size_t i = 0; i < planning.inputs.size(); ++i) {
      const Spec &spec = planning.input(i);
      need(spec.type == DType::kFloat, "an operand isn't float32");
      result = broadcast_shape(result, spec.shape);
      shapes.push_back(&spec.shape);
    }
    Planned planned;
    planned.outputs = {{DType::kFloat, result}};
    planned.task = make_task(Walk(result, shapes));
    return planned;
  }

private:
  std::unique_ptr<Task> make_task(Walk walk) const {
    const int64_t columns = walk.lengths.back();
    const int64_t rows = walk.rows();
    if (rows == 1) {
      const Chunks chunks(columns, kChunkElements);
      return task([this, walk, chunks](const Running &running) {
        running.crew.each(chunks.count, [&](int64_t chunk, int) {
          const int64_t begin = chunks.begin(chunk);
          run(running, walk, 0, 0, 1, begin, chunks.end(chunk) - begin);
        });
      });
    }
    // Rows of the last axis but one are walked by the kernel, the others here.
    const int64_t inner = walk.lengths[walk.lengths.size() - 2];
    const Chunks chunks(rows, std::max<int64_t>(kChunkElements / std::max<int64_t>(columns, 1), 1));
    return task([this, walk, chunks, inner, columns](const Running &running) {
      running.crew.each(chunks.count, [&](int64_t chunk, int) {
        int64_t row = chunks.begin(chunk);
        while (row < chunks.end(chunk)) {
          const int64_t within = row % inner;
          const int64_t count = std::min(inner - within, chunks.end(chunk) - row);
          run(running, walk, row / inner, within, count, 0, columns);
          row += count;
        }
      });
    });
  }

  /// `count` rows of block `outer`, from row `within` and column `column` on.
  void run(const Running &running, const Walk &walk, int64_t outer, int64_t within, int64_t count,
           int64_t column, int64_t columns) const {
    const size_t axes = walk.lengths.size();
    Matrix operands[kMostOperands];
    for (size_t i = 0; i < walk.steps.size(); ++i) {
      const std::vector<int64_t> &steps = walk.steps[i];
      int64_t offset = column * steps[axes - 1];
      int64_t rest = outer;
      for (size_t axis = axes - 1; axis-- > 1;) {
        offset += rest % walk.lengths[axis - 1] * steps[axis - 1];
        rest /= walk.lengths[axis - 1];
      }
      const int64_t row_step = axes > 1 ? steps[axes - 2] : 0;
      operands[i] = {running.input(i) + offset + within * row_step, row_step, steps[axes - 1]};
    }
    const int64_t width = walk.lengths.back();
    const int64_t inner = axes > 1 ? walk.lengths[axes - 2] : 1;
    float *out = running.output() + (outer * inner + within) * width + column;
    running.kernels.elementwise(chain_.chain(), operands, out, width, count, columns);
  }

  OwnedChain chain_;
};

const Registration kElementwise("elementwise",
                                [](const Making &making) -> std::unique_ptr<Operation> {
                                  return std::make_unique<Elementwise>(making);
                                });

} // namespace
} // namespace ep
