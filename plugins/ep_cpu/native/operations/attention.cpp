// Softmax(scale Q K^T + mask) V, some rows of one head at a time: scores never leave the cache.
//
// Inputs: Q, K, V, mask or nothing. Attributes: "q_order", "k_order" and "v_order" turn them into
// [..., rows, depth], [..., depth, keys] and [..., keys, value depth], and "order" the result into
// what is stored; "scale".
#include "strided.h"

namespace ep {
namespace {

constexpr int64_t kRowBlock = 48; // full tiles of 6 and of 8

struct Mask {
  Strided view;
  int64_t row_step, key_step;
};

class AttentionOperation final : public Operation {
public:
  explicit AttentionOperation(const Making &making)
      : scale_(making.attributes.number("scale", 1.0f)) {
    const auto order = [&](const char *name) {
      return making.attributes.has(name) ? making.attributes.integers(name)
                                         : std::vector<int64_t>{};
    };
    q_order_ = order("q_order");
    k_order_ = order("k_order");
    v_order_ = order("v_order");
    order_ = order("order");
  }

  Planned plan(const Planning &planning) const override {
    for (size_t i = 0; i < 3; ++i)
      need(planning.input(i).type == DType::kFloat && planning.input(i).shape.rank() >= 2,
           "not float32");
    const Strided q = Strided(planning.input(0).shape).permuted(q_order_);
    const Strided k = Strided(planning.input(1).shape).permuted(k_order_);
    const Strided v = Strided(planning.input(2).shape).permuted(v_order_);
    const int64_t rows = q.shape[q.rank() - 2];
    const int64_t depth = q.shape[q.rank() - 1];
    const int64_t keys = k.shape[k.rank() - 1];
    const int64_t values = v.shape[v.rank() - 1];
    need(k.shape[k.rank() - 2] == depth && v.shape[v.rank() - 2] == keys, "lengths differ");
    need(keys > 0, "no keys");
    const Shape batch = q.batch();
    need(k.batch() == batch && v.batch() == batch, "heads differ");
    Shape product = batch;
    product.append(rows);
    product.append(values);
    const Shape stored = Strided(product).permuted(order_).shape;
    const Strided c = Strided(stored).permuted(undone(order_));
    need((depth <= 1 || q.steps[q.rank() - 1] == 1) && (values <= 1 || c.steps[c.rank() - 1] == 1),
         "rows aren't contiguous");
    Planned planned;
    planned.outputs = {{DType::kFloat, stored}};
    const Kernels &kernels = planning.kernels;
    const int64_t heads = batch.count();
    const int64_t key_pack = kernels.packed_size(depth, keys);
    const int64_t value_pack = kernels.packed_size(keys, values);
    const int64_t key_panels = (keys + kernels.panel - 1) / kernels.panel;
    const int64_t value_panels = (values + kernels.panel - 1) / kernels.panel;
    const int64_t blocks = (rows + kRowBlock - 1) / kRowBlock;
    const int64_t scratch = (kRowBlock * (keys + 1) + 15) / 16 * 16;
    planned.workspace =
        size_t(heads * (key_pack + value_pack) + planning.threads * scratch) * sizeof(float);
    const std::shared_ptr<const Mask> mask = plan_mask(planning, batch, rows, keys);
    planned.task = task([=, this](const Running &running) {
      auto *packs = reinterpret_cast<float *>(running.workspace);
      float *value_packs = packs + heads * key_pack;
      float *scratches = value_packs + heads * value_pack;
      running.crew.each(heads * 2, [&](int64_t number, int) {
        const int64_t head = number / 2;
        if (number % 2 == 0)
          running.kernels.pack_panels(running.input(1) + k.offset_of(head, batch),
                                      k.steps[k.rank() - 2], k.steps[k.rank() - 1], depth, keys,
                                      packs + head * key_pack, 0, key_panels);
        else
          running.kernels.pack_panels(running.input(2) + v.offset_of(head, batch),
                                      v.steps[v.rank() - 2], v.steps[v.rank() - 1], keys, values,
                                      value_packs + head * value_pack, 0, value_panels);
      });
      running.crew.each(heads * blocks, [&](int64_t number, int worker) {
        const int64_t head = number / blocks;
        const int64_t row = number % blocks * kRowBlock;
        Attention work = {};
        work.keys = keys;
        work.depth = depth;
        work.value_depth = values;
        work.query = running.input(0) + q.offset_of(head, batch);
        work.query_step = q.steps[q.rank() - 2];
        work.packed_keys = packs + head * key_pack;
        work.packed_values = value_packs + head * value_pack;
        work.result = running.output() + c.offset_of(head, batch);
        work.result_step = c.steps[c.rank() - 2];
        if (mask != nullptr) {
          work.mask = running.input(3) + mask->view.offset_of(head, batch);
          work.mask_row_step = mask->row_step;
          work.mask_key_step = mask->key_step;
        }
        work.scale = scale_;
        work.scores = scratches + worker * scratch;
        running.kernels.attention(work, row, std::min(row + kRowBlock, rows));
      });
    });
    return planned;
  }

private:
  static std::shared_ptr<const Mask> plan_mask(const Planning &planning, const Shape &batch,
                                               int64_t rows, int64_t keys) {
    if (!planning.has(3))
      return nullptr;
    const Spec &spec = planning.input(3);
    need(spec.type == DType::kFloat, "the mask isn't float32");
    Shape scores = batch;
    scores.append(rows);
    scores.append(keys);
    need(broadcast_shape(spec.shape, scores) == scores, "the mask doesn't fit");
    Shape full; // with as many axes as the scores
    for (int axis = spec.shape.rank(); axis < scores.rank(); ++axis)
      full.append(1);
    for (const int64_t length : spec.shape.lengths())
      full.append(length);
    const Strided view(full);
    const int rank = full.rank();
    return std::make_shared<const Mask>(Mask{view, full[rank - 2] == 1 ? 0 : view.steps[rank - 2],
                                             full[rank - 1] == 1 ? 0 : 1});
  }

  float scale_;
  std::vector<int64_t> q_order_, k_order_, v_order_, order_;
};

const Registration kAttention("attention", [](const Making &making) -> std::unique_ptr<Operation> {
  return std::make_unique<AttentionOperation>(making);
});

} // namespace
} // namespace ep
