// Convolutions of 3 x 3 by Winograd's method.
#pragma once

#include "../core/operation.h"

namespace ep {

/// A "conv" of 3 x 3, stride and dilation 1 and one group; `side` is that of a tile, 4 or 2.
std::unique_ptr<Operation> make_winograd(const Making &making, int64_t side);

} // namespace ep
