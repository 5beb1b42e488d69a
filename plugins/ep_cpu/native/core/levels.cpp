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
namespace avx512vnni {
extern const IntegerKernels kIntegerKernels;
}
#endif

namespace {

#if defined(EP_HAS_X86_LEVELS)
/// The kernels of avx512 with products of 8-bit integers in one instruction.
const Kernels *with_vnni() {
  static const Kernels made = [] {
    Kernels kernels = avx512::kKernels;
    kernels.name = "avx512vnni";
    kernels.integers = &avx512vnni::kIntegerKernels;
    return kernels;
  }();
  return &made;
}
#endif

std::vector<const Kernels *> find_usable() {
  std::vector<const Kernels *> found;
#if defined(EP_HAS_X86_LEVELS)
  const ProcessorFeatures has = processor_features();
  if (has.avx512_vnni)
    found.push_back(with_vnni());
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
