// A chain of elementwise operations as attributes give it, owned.
#pragma once

#include "../core/operation.h"

namespace ep {

class OwnedChain {
public:
  /// Reads "code" (five numbers per instruction), "values", "operands" and "registers".
  explicit OwnedChain(const Attributes &attributes);
  OwnedChain(const OwnedChain &) = delete;
  OwnedChain &operator=(const OwnedChain &) = delete;

  /// Null where the attributes have none.
  static std::shared_ptr<const OwnedChain> read(const Attributes &attributes);

  const Chain &chain() const { return chain_; }
  int inputs() const { return chain_.inputs; }

private:
  std::vector<Instruction> code_;
  std::vector<float> values_;
  Chain chain_;
};

/// How an operand of shape `shape` goes along with a matrix of `rows` by the last axis of `whole`.
/// Refuses what would need more than two steps. `data` stays null.
Matrix matrix_over(const Shape &shape, const Shape &whole);

} // namespace ep
