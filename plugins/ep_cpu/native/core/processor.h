// What an x86-64 processor offers and the system saves, asked without the compiler's run-time library:
// __builtin_cpu_supports finds nothing in some builds of Clang.
#pragma once

namespace ep {

struct ProcessorFeatures {
  bool avx2 = false;   // with FMA
  bool avx512 = false; // F, BW, DQ and VL
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
};

ProcessorFeatures processor_features();

} // namespace ep
