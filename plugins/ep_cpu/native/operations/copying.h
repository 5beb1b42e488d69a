// Copies of strided views into packed memory, on all threads of a crew.
#pragma once

#include "strided.h"

namespace ep {

/// Copies elements of `size` bytes, whose view's steps count elements. Steps may be 0 or negative.
class StridedCopy {
public:
  StridedCopy(const Shape &shape, std::span<const int64_t> steps, size_t size);

  void run(const Kernels &kernels, const Crew &crew, const std::byte *from, std::byte *to) const;

private:
  void copy_rows(const std::byte *from, std::byte *to, int64_t begin, int64_t end) const;
  void transpose(const Kernels &kernels, const Crew &crew, const float *from, float *to) const;
  void transpose_bytes(const Crew &crew, const uint8_t *from, uint8_t *to) const;

  std::vector<int64_t> lengths_; // without axes of length 1, neighbours joined
  std::vector<int64_t> steps_;
  size_t size_;
  int64_t rows_ = 1; // all but the innermost axis
  int plane_ = -1;   // the axis that is innermost in the source, where a plane is transposed
};

} // namespace ep
