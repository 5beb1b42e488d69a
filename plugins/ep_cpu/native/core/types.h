// Element types, shapes and errors; no computing here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>

namespace ep {

/// Numbers as in ONNX's TensorProto.DataType.
enum class DType : int {
  kFloat = 1, kUint8 = 2, kInt8 = 3, kUint16 = 4, kInt16 = 5, kInt32 = 6, kInt64 = 7,
  kBool = 9, kFloat16 = 10, kDouble = 11, kUint32 = 12, kUint64 = 13,
};

/// Bytes of an element; 0 for a type that isn't handled.
size_t size_of(DType type);

constexpr int kMostRank = 8;

class Shape {
public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> lengths) { assign({lengths.begin(), lengths.size()}); }
  explicit Shape(std::span<const int64_t> lengths) { assign(lengths); }

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return lengths_[axis]; }
  int64_t &operator[](int axis) { return lengths_[axis]; }
  std::span<const int64_t> lengths() const { return {lengths_.data(), size_t(rank_)}; }

  /// Elements of the axes [begin, end).
  int64_t count(int begin, int end) const {
    int64_t product = 1;
    for (int axis = begin; axis < end; ++axis)
      product *= lengths_[axis];
    return product;
  }
  int64_t count() const { return count(0, rank_); }

  void append(int64_t length);

  bool operator==(const Shape &other) const;

private:
  void assign(std::span<const int64_t> lengths);

  int rank_ = 0;
  std::array<int64_t, kMostRank> lengths_{};
};

struct Spec {
  DType type = DType::kFloat;
  Shape shape;

  size_t bytes() const { return size_t(shape.count()) * size_of(type); }
};

/// These inputs aren't for the native code, which has changed nothing so far. The caller computes
/// with the other kernels, which also know what to tell a person about bad input.
class Refusal : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A program was put together wrongly: a mistake of ours, never the model's.
class Mistake : public std::logic_error {
  using std::logic_error::logic_error;
};

inline void need(bool condition, const char *what) {
  if (!condition)
    throw Refusal(what);
}

} // namespace ep
