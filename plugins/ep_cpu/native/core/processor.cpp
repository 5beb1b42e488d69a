// Numbers of leaves and bits: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
// CPUID, and volume 1, sections 14.3 and 15.2 for what the system must save.
#include "processor.h"

#if defined(EP_HAS_X86_LEVELS)
#include <cpuid.h>
#include <cstdint>

namespace ep {
namespace {

constexpr bool bit(uint32_t word, int number) { return (word >> number & 1) != 0; }

/// Which registers the system saves when it changes threads.
uint32_t saved_registers() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

} // namespace

ProcessorFeatures processor_features() {
  constexpr uint32_t kSavesAvx = 0b110;          // XMM, upper halves of YMM
  constexpr uint32_t kSavesAvx512 = 0b1110'0110; // masks, upper halves of ZMM, ZMM 16 to 31 too
  ProcessorFeatures found;
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27))
    return found;
  const bool has_fma = bit(c, 12);
  const uint32_t saved = saved_registers();
  if ((saved & kSavesAvx) != kSavesAvx || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
    return found;
  const uint32_t leaves = a;
  found.avx2 = has_fma && bit(b, 5);
  found.avx512 = found.avx2 && (saved & kSavesAvx512) == kSavesAvx512 && bit(b, 16) && bit(b, 17) &&
                 bit(b, 30) && bit(b, 31);
  found.avx512_vnni = found.avx512 && bit(c, 11);
  if (leaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
    found.avx512_bf16 = found.avx512 && bit(a, 5);
  return found;
}

} // namespace ep
#endif
