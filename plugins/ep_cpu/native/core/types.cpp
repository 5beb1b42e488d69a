#include "types.h"

#include <algorithm>

namespace ep {

size_t size_of(DType type) {
  switch (type) {
  case DType::kUint8:
  case DType::kInt8:
  case DType::kBool:
    return 1;
  case DType::kUint16:
  case DType::kInt16:
  case DType::kFloat16:
    return 2;
  case DType::kFloat:
  case DType::kInt32:
  case DType::kUint32:
    return 4;
  case DType::kInt64:
  case DType::kUint64:
  case DType::kDouble:
    return 8;
  }
  return 0;
}

void Shape::append(int64_t length) {
  need(rank_ < kMostRank, "too many dimensions");
  lengths_[rank_++] = length;
}

bool Shape::operator==(const Shape &other) const {
  return std::ranges::equal(lengths(), other.lengths());
}

void Shape::assign(std::span<const int64_t> lengths) {
  need(lengths.size() <= kMostRank, "too many dimensions");
  rank_ = static_cast<int>(lengths.size());
  std::ranges::copy(lengths, lengths_.begin());
}

} // namespace ep
