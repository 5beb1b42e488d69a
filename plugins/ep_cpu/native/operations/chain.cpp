#include "chain.h"

namespace ep {

OwnedChain::OwnedChain(const Attributes &attributes) {
  const std::vector<int64_t> numbers = attributes.integers("code");
  if (attributes.has("values"))
    values_ = attributes.numbers("values");
  chain_.inputs = static_cast<int>(attributes.integer("operands"));
  chain_.constants = static_cast<int>(values_.size());
  chain_.registers = static_cast<int>(attributes.integer("registers"));
  const int most = chain_.registers;
  if (numbers.empty() || numbers.size() % 5 != 0 || most > kMostRegisters ||
      chain_.inputs > kMostOperands || chain_.inputs + chain_.constants > most)
    throw Mistake("a chain doesn't fit");
  for (size_t i = 0; i < numbers.size(); i += 5) {
    for (size_t j = 1; j < 5; ++j)
      if (numbers[i + j] < 0 || numbers[i + j] >= most)
        throw Mistake("a chain names a register that isn't there");
    if (numbers[i] < 0 || numbers[i] >= static_cast<int64_t>(Code::kCodeCount))
      throw Mistake("a chain names an operation that isn't there");
    if (numbers[i + 1] < chain_.inputs + chain_.constants)
      throw Mistake("a chain writes into an input");
    code_.push_back({static_cast<Code>(numbers[i]), static_cast<uint8_t>(numbers[i + 1]),
                     static_cast<uint8_t>(numbers[i + 2]), static_cast<uint8_t>(numbers[i + 3]),
                     static_cast<uint8_t>(numbers[i + 4])});
  }
  chain_.code = code_.data();
  chain_.length = static_cast<int>(code_.size());
  chain_.values = values_.data();
}

std::shared_ptr<const OwnedChain> OwnedChain::read(const Attributes &attributes) {
  if (!attributes.has("code"))
    return nullptr;
  return std::make_shared<const OwnedChain>(attributes);
}

Matrix matrix_over(const Shape &shape, const Shape &whole) {
  need(broadcast_shape(shape, whole) == whole, "an operand is larger than the result");
  if (shape.count() == 1)
    return {nullptr, 0, 0};
  if (shape.count() == whole.count())
    return {nullptr, whole.rank() == 0 ? 0 : whole[whole.rank() - 1], 1};
  const int64_t last = shape[shape.rank() - 1];
  if (shape.count() == last)
    return {nullptr, 0, 1};
  const int64_t rows = whole.count(0, whole.rank() - 1);
  need(last == 1 && shape.count() == rows, "an operand repeats in more than one way");
  return {nullptr, 1, 0};
}

} // namespace ep
