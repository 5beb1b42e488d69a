#include "copying.h"

#include <algorithm>
#include <cstring>

namespace ep {
namespace {

constexpr int64_t kChunkBytes = 32768;

template <class Element>
void gather_row(const std::byte *from, std::byte *to, int64_t count, int64_t step) {
  const auto *source = reinterpret_cast<const Element *>(from);
  auto *target = reinterpret_cast<Element *>(to);
  for (int64_t i = 0; i < count; ++i)
    target[i] = source[i * step];
}

} // namespace

StridedCopy::StridedCopy(const Shape &shape, std::span<const int64_t> steps, size_t size)
    : size_(size) {
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1)
      continue;
    if (!lengths_.empty() && steps_.back() == steps[axis] * shape[axis]) {
      lengths_.back() *= shape[axis];
      steps_.back() = steps[axis];
    } else {
      lengths_.push_back(shape[axis]);
      steps_.push_back(steps[axis]);
    }
  }
  if (lengths_.empty()) {
    lengths_.push_back(1);
    steps_.push_back(1);
  }
  for (size_t axis = 0; axis + 1 < lengths_.size(); ++axis)
    rows_ *= lengths_[axis];
  if ((size == sizeof(float) || size == 1) && steps_.back() > 1)
    for (size_t axis = 0; axis + 1 < lengths_.size(); ++axis)
      if (steps_[axis] == 1)
        plane_ = static_cast<int>(axis);
}

void StridedCopy::run(const Kernels &kernels, const Crew &crew, const std::byte *from,
                      std::byte *to) const {
  if (std::ranges::find(lengths_, 0) != lengths_.end())
    return;
  if (plane_ >= 0 && size_ == 1) {
    transpose_bytes(crew, reinterpret_cast<const uint8_t *>(from),
                    reinterpret_cast<uint8_t *>(to));
    return;
  }
  if (plane_ >= 0) {
    transpose(kernels, crew, reinterpret_cast<const float *>(from), reinterpret_cast<float *>(to));
    return;
  }
  const int64_t row_bytes = lengths_.back() * int64_t(size_);
  if (rows_ == 1 && steps_.back() == 1) {
    const Chunks chunks(row_bytes, kChunkBytes);
    crew.each(chunks.count, [&](int64_t chunk, int) {
      const int64_t begin = chunks.begin(chunk);
      std::memcpy(to + begin, from + begin, size_t(chunks.end(chunk) - begin));
    });
    return;
  }
  const Chunks chunks(rows_, std::max<int64_t>(kChunkBytes / row_bytes, 1));
  crew.each(chunks.count, [&](int64_t chunk, int) {
    copy_rows(from, to, chunks.begin(chunk), chunks.end(chunk));
  });
}

void StridedCopy::copy_rows(const std::byte *from, std::byte *to, int64_t begin,
                            int64_t end) const {
  const int64_t count = lengths_.back();
  const int64_t step = steps_.back();
  for (int64_t row = begin; row < end; ++row) {
    int64_t offset = 0;
    int64_t rest = row;
    for (size_t axis = lengths_.size() - 1; axis-- > 0;) {
      offset += rest % lengths_[axis] * steps_[axis];
      rest /= lengths_[axis];
    }
    const std::byte *source = from + offset * int64_t(size_);
    std::byte *target = to + row * count * int64_t(size_);
    if (step == 1) {
      std::memcpy(target, source, size_t(count) * size_);
      continue;
    }
    switch (size_) {
    case 1: gather_row<uint8_t>(source, target, count, step); break;
    case 2: gather_row<uint16_t>(source, target, count, step); break;
    case 4: gather_row<uint32_t>(source, target, count, step); break;
    default: gather_row<uint64_t>(source, target, count, step); break;
    }
  }
}

void StridedCopy::transpose(const Kernels &kernels, const Crew &crew, const float *from,
                            float *to) const {
  const size_t plane = size_t(plane_);
  const size_t last = lengths_.size() - 1;
  int64_t out_step = 1; // of the plane's axis
  for (size_t axis = last; axis > plane; --axis)
    out_step *= lengths_[axis];
  const int64_t outer = rows_ / lengths_[plane];
  const int64_t columns = lengths_[plane];
  const Chunks chunks(lengths_[last], std::max<int64_t>(kChunkBytes / (4 * columns) / 16 * 16, 16));
  crew.each(outer * chunks.count, [&](int64_t number, int) {
    int64_t source = 0;
    int64_t target = 0;
    int64_t rest = number / chunks.count;
    int64_t step = lengths_[last];
    for (size_t axis = last; axis-- > 0;) {
      if (axis != plane) {
        const int64_t index = rest % lengths_[axis];
        rest /= lengths_[axis];
        source += index * steps_[axis];
        target += index * step;
      }
      step *= lengths_[axis];
    }
    const int64_t chunk = number % chunks.count;
    kernels.transpose(from + source, steps_[last], to + target, out_step, chunks.begin(chunk),
                      chunks.end(chunk), columns);
  });
}

/// Planes in pieces, whose lines stay in the cache while they are written from all rows.
void StridedCopy::transpose_bytes(const Crew &crew, const uint8_t *from, uint8_t *to) const {
  constexpr int64_t kPiece = 256;
  const size_t plane = size_t(plane_);
  const size_t last = lengths_.size() - 1;
  int64_t out_step = 1; // of the plane's axis
  for (size_t axis = last; axis > plane; --axis)
    out_step *= lengths_[axis];
  const int64_t pieces = (lengths_[plane] + kPiece - 1) / kPiece;
  crew.each(rows_ / lengths_[plane] * pieces, [&](int64_t number, int) {
    const int64_t begin = number % pieces * kPiece;
    const int64_t end = std::min(begin + kPiece, lengths_[plane]);
    int64_t rest = number / pieces;
    int64_t step = lengths_[last];
    const uint8_t *source = from;
    uint8_t *target = to;
    for (size_t axis = last; axis-- > 0;) {
      if (axis != plane) {
        source += rest % lengths_[axis] * steps_[axis];
        target += rest % lengths_[axis] * step;
        rest /= lengths_[axis];
      }
      step *= lengths_[axis];
    }
    for (int64_t column = 0; column < lengths_[last]; ++column)
      for (int64_t i = begin; i < end; ++i)
        target[i * out_step + column] = source[column * steps_[last] + i];
  });
}

} // namespace ep
