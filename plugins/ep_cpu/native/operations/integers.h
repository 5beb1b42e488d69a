// Products of 8-bit integers: packed weights, zero points, scales, and what follows on them.
#pragma once

#include "chain.h"

namespace ep {

/// A constant matrix of 8-bit integers, packed, with the sums of its columns.
class PackedBytes {
public:
  /// Element (tap * depth + i, column) lies at row * row_step + column * column_step, counted from
  /// `data`; `key` says where the data comes from and how it lies.
  struct Source {
    const uint8_t *data;
    int64_t row_step, column_step;
    int64_t taps, depth, columns;
    bool is_signed;
  };

  PackedBytes(const Making &making, const Source &source, const Constant &key,
              const std::string &layout);

  int64_t k() const { return k_; }
  int64_t columns() const { return columns_; }
  bool is_signed() const { return is_signed_; }
  const int8_t *panels() const;
  const int32_t *sums() const;
  size_t bytes() const { return weights_->bytes; }

private:
  int64_t k_, columns_;
  bool is_signed_;
  size_t panel_bytes_;
  std::shared_ptr<const Weights> weights_;
};

/// What a product of 8-bit integers reads besides its operands. Inputs by position:
/// 2 bias (int32 or float32), 3 A's zero point, 4 B's (one, or one per column), 5 A's scale, 6 B's (one,
/// or one per column), 7 the result's scale, 8 the result's zero point; any may be left out as far as
/// the result allows. With the attribute "beside": 9 a quantised operand of the result's shape, 10 its
/// scale, 11 its zero point, 12 the scale and 13 the zero point of the sum. Else from 9 on the chain's
/// operands from its second on.
///
/// Attributes: "to", the type of the result (int32, float32, uint8, int8); "low" and "high" bound the
/// product; with "beside" also "first", the type that the product is rounded to, and "last_low" and
/// "last_high" for the sum; a chain.
class IntegerTail {
public:
  explicit IntegerTail(const Attributes &attributes);

  DType result_type() const { return to_; }

  /// Numbers of a run, made beforehand where they don't depend on it.
  struct Numbers {
    std::vector<int32_t> starts, zeros;
    std::vector<float> scales, offsets;
    std::vector<uint8_t> padding; // what stands for 0 around a picture
    IntegerGemm gemm = {};        // all but what is found through pointers
  };

  class Plan {
  public:
    /// Fills in what follows on the product; A, C and packed weights are the caller's. `own` and
    /// `operands` must live as long as the product.
    IntegerGemm start(const Running &running, std::shared_ptr<const Numbers> &own,
                      std::vector<Matrix> &operands) const;

  private:
    friend class IntegerTail;

    const IntegerTail *tail_;
    std::shared_ptr<const Numbers> known_; // null where they depend on the run
    std::vector<Spec> specs_;
    std::vector<Matrix> operands_;
    const PackedBytes *packed_;
    int64_t padding_;
  };

  /// Refuses what doesn't fit. `padding` is how many elements of padding are wanted.
  Plan plan(const Planning &planning, const Shape &result, const PackedBytes &packed,
            int64_t padding) const;

private:
  Numbers numbers(std::span<const std::byte *const> inputs, std::span<const Spec> specs,
                  const PackedBytes &packed, int64_t padding) const;
  void quantised(Numbers &found, std::span<const std::byte *const> inputs,
                 std::span<const Spec> specs) const;

  std::shared_ptr<const OwnedChain> chain_;
  DType to_, first_;
  bool has_beside_;
  float low_, high_, last_low_, last_high_;
};

inline bool is_byte(DType type) { return type == DType::kUint8 || type == DType::kInt8; }

} // namespace ep
