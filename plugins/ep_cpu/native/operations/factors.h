// Constant second operands of the products in a recurrent layer, in float32 or in 8-bit integers.
#pragma once

#include "../core/operation.h"

namespace ep {

/// B of products [rows, k] * [k, n] + bias; packed.
class Factor {
public:
  /// `scratch` has the size that `scratch_bytes` tells; rows of C are `c_step` floats apart.
  struct Operands {
    const float *a;
    const float *bias; // n floats or null
    float *c;
    int64_t c_step;
    std::byte *scratch;
  };

  virtual ~Factor() = default;
  virtual size_t scratch_bytes(int64_t rows) const = 0;
  virtual size_t bytes() const = 0;
  /// Rows [begin, end) on this thread. False for values that can't be computed with.
  virtual bool multiply(const Kernels &kernels, const Operands &operands, int64_t begin,
                        int64_t end) const = 0;
  /// The first `rows` rows on all threads; false likewise.
  virtual bool multiply_all(const Running &running, const Operands &operands,
                            int64_t rows) const = 0;
};

/// From a matrix of floats that lies transposed, [n, k].
std::unique_ptr<const Factor> float_factor(const Making &making, const float *data, int64_t k,
                                           int64_t n);

/// 8-bit weights of one direction, with one scale and zero point or one per column. The first operand
/// is quantised to uint8 as a whole right before each product.
struct QuantisedWeights {
  Constant codes; // [k, n]
  const float *scales;
  const std::byte *zeros;
  int64_t parameters; // 1 or n
};

std::unique_ptr<const Factor> quantised_factor(const Making &making,
                                               const QuantisedWeights &weights);

} // namespace ep
