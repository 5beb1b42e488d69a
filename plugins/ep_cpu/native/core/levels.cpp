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
namespace avx512bf16 {
void gemm(const Gemm &g, int64_t row_begin, int64_t row_end, int64_t panel_begin,
          int64_t panel_end);
}
#endif

namespace {

#if defined(EP_HAS_X86_LEVELS)
/// The kernels of avx512 with products of 8-bit integers, and of bfloat16 if there are some, in one
/// instruction.
const Kernels *with_vnni(bool has_bf16) {
  static const Kernels made = [&] {
    Kernels kernels = avx512::kKernels;
    kernels.name = "avx512vnni";
    kernels.integers = &avx512vnni::kIntegerKernels;
    if (has_bf16)
      kernels.gemm_pairs = avx512bf16::gemm;
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
    found.push_back(with_vnni(has.avx512_bf16));
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
