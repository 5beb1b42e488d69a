// Windows that move over pictures whose channels are innermost, and how products read them.
#pragma once

#include <algorithm>
#include <cstring>

#include "../core/operation.h"

namespace ep {

/// Attributes: "kernel", "strides", "dilations" (two each) and "pads" (top, left, bottom, right).
struct WindowAttributes {
  std::vector<int64_t> kernel, strides, dilations, pads;

  explicit WindowAttributes(const Attributes &attributes)
      : kernel(attributes.integers("kernel")), strides(attributes.integers("strides")),
        dilations(attributes.integers("dilations")), pads(attributes.integers("pads")) {}

  Window over(const Shape &x) const {
    need(x.rank() == 3 || x.rank() == 4, "not a batch of pictures or sequences");
    Window w = {};
    w.height = x.rank() == 4 ? x[1] : 1;
    w.width = x[x.rank() - 2];
    w.channels = x[x.rank() - 1];
    w.kernel_height = kernel[0];
    w.kernel_width = kernel[1];
    w.stride_y = strides[0];
    w.stride_x = strides[1];
    w.dilation_y = dilations[0];
    w.dilation_x = dilations[1];
    w.top = pads[0];
    w.left = pads[1];
    const int64_t room_y = w.height + pads[0] + pads[2] - (kernel[0] - 1) * dilations[0] - 1;
    const int64_t room_x = w.width + pads[1] + pads[3] - (kernel[1] - 1) * dilations[1] - 1;
    need(room_y >= 0 && room_x >= 0, "the window is larger than the picture");
    w.out_height = room_y / strides[0] + 1;
    w.out_width = room_x / strides[1] + 1;
    return w;
  }

  static Spec result(const Shape &x, const Window &w, int64_t channels,
                     DType type = DType::kFloat) {
    if (x.rank() == 3)
      return {type, {x[0], w.out_width, channels}};
    return {type, {x[0], w.out_height, w.out_width, channels}};
  }
};

/// How rows of the product lie in the input, or in a copy of it with zeros around.
template <class Element> struct Frame {
  Window w;
  bool is_framed;
  int64_t height, width; // of what is read
  int64_t taps;          // pieces of a row

  Frame(const Window &window, std::span<const int64_t> pads, bool framed)
      : w(window), is_framed(framed), height(w.height), width(w.width),
        taps(w.kernel_height * w.kernel_width) {
    if (is_framed) {
      height += pads[0] + pads[2];
      width += pads[1] + pads[3];
      taps = w.kernel_height;
    }
  }

  int64_t elements(int64_t batch) const {
    return is_framed ? batch * height * width * w.channels : 0;
  }

  /// Copies the input into the frame; around it lies `zero`.
  void fill(const Crew &crew, const Element *from, Element *to, int64_t batch,
            Element zero) const {
    crew.each(batch * height, [&](int64_t number, int) {
      const int64_t y = number % height - w.top;
      Element *line = to + number * width * w.channels;
      std::fill_n(line, width * w.channels, zero);
      if (y >= 0 && y < w.height)
        std::memcpy(line + w.left * w.channels,
                    from + (number / height * w.height + y) * w.width * w.channels,
                    size_t(w.width * w.channels) * sizeof(Element));
    });
  }

  /// Where the pieces of a row of the product begin; those outside are at `zeros`.
  void point(const Element *source, int64_t row, const Element **to, const Element *zeros) const {
    const int64_t places = w.out_height * w.out_width;
    const Element *picture = source + row / places * height * width * w.channels;
    const int64_t place = row % places;
    const int64_t y = place / w.out_width * w.stride_y;
    const int64_t x = place % w.out_width * w.stride_x;
    if (is_framed) {
      for (int64_t i = 0; i < taps; ++i)
        to[i] = picture + ((y + i * w.dilation_y) * width + x) * w.channels;
      return;
    }
    for (int64_t i = 0; i < w.kernel_height; ++i)
      for (int64_t j = 0; j < w.kernel_width; ++j) {
        const int64_t in_y = y - w.top + i * w.dilation_y;
        const int64_t in_x = x - w.left + j * w.dilation_x;
        const bool is_inside = in_y >= 0 && in_y < height && in_x >= 0 && in_x < width;
        *to++ = is_inside ? picture + (in_y * width + in_x) * w.channels : zeros;
      }
  }
};

} // namespace ep
