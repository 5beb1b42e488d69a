// Which sets of instructions this build has, and which of them the processor can run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "../kernels/kernels.h"

namespace ep {

/// Names of the sets that can run here, the fastest first; the last is always "portable".
std::vector<std::string> usable_levels();

/// The kernels of a set; null where it isn't built or can't run here.
const Kernels *kernels_of(std::string_view level);

} // namespace ep
