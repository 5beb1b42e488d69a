#include "levels.h"

#include "processor.h"

namespace ep {

namespace portable {
extern const Kernels kKernels;
}
#if defined(EP_HAS_X86_LEVELS)
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
#endif

namespace {

std::vector<const Kernels *> find_usable() {
  std::vector<const Kernels *> found;
#if defined(EP_HAS_X86_LEVELS)
  const ProcessorFeatures has = processor_features();
  if (has.avx512)
    found.push_back(&avx512::kKernels);
  if (has.avx2)
    found.push_back(&avx2::kKernels);
#endif
  found.push_back(&portable::kKernels);
  return found;
}

const std::vector<const Kernels *> &usable() {
  static const std::vector<const Kernels *> found = find_usable();
  return found;
}

} // namespace

std::vector<std::string> usable_levels() {
  std::vector<std::string> names;
  for (const Kernels *kernels : usable())
    names.emplace_back(kernels->name);
  return names;
}

const Kernels *kernels_of(std::string_view level) {
  for (const Kernels *kernels : usable())
    if (kernels->name == level)
      return kernels;
  return nullptr;
}

} // namespace ep
