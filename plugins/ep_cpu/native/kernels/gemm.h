// The size of a tile that stays in registers, for the processor's number of them.
#pragma once

#include "simd.h"

namespace ep::EP_LEVEL {
namespace {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int kTileRows = 8; // 24 sums of 32 registers
constexpr int kPanelVectors = 3;
#else
constexpr int kTileRows = 6; // 12 sums of 16 registers
constexpr int kPanelVectors = 2;
#endif
constexpr int64_t kPanel = kPanelVectors * kLanes;

} // namespace
} // namespace ep::EP_LEVEL
