// Transcendental functions on vectors. Errors are in units of the last place (ULP) of the result,
// measured against float64; the tests hold them.
#pragma once

#include "simd.h"

namespace ep::EP_LEVEL {
namespace {

/// Evaluates a polynomial whose coefficients come with the highest power first.
template <int Count> EP_INLINE Vec polynomial(Vec x, const float (&coefficients)[Count]) {
  Vec sum = broadcast(coefficients[0]);
  EP_UNROLL
  for (int i = 1; i < Count; ++i)
    sum = sum * x + coefficients[i];
  return sum;
}

/// e^x, 2 ULP; denormal results included.
/// The argument is split into n log 2 + r with |r| <= log(2) / 2 (Cody and Waite, 1980).
EP_INLINE Vec exponential(Vec x) {
  constexpr float kTaylor[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                               1.0f / 6,    0.5f,       1.0f,       1.0f};
  x = clamp(x, broadcast(-104.0f), broadcast(89.0f));
  const Vec turns = round_even(x * 1.44269504088896341f);
  Vec rest = x - turns * 0.693359375f; // log 2 in two parts: the product with the first is exact
  rest = rest - turns * -2.12194440e-4f;
  return scale_by_power(polynomial(rest, kTaylor), turns);
}

/// log(1 + y) of 0 <= y <= 1 as 2 artanh(y / (2 + y)), 2 ULP.
EP_INLINE Vec log_of_one_plus(Vec y) {
  constexpr float kSeries[] = {2.0f / 17, 2.0f / 15, 2.0f / 13, 2.0f / 11, 2.0f / 9,
                               2.0f / 7,  2.0f / 5,  2.0f / 3,  2.0f};
  const Vec s = y / (y + 2.0f);
  return s * polynomial(s * s, kSeries);
}

/// Natural logarithm, 2 ULP; -inf of 0, NaN below.
EP_INLINE Vec logarithm(Vec x) {
  constexpr float kSeries[] = {2.0f / 13, 2.0f / 11, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3};
  // Denormal numbers are raised by 2^24 first.
  const IntVec tiny = x < 1.17549435e-38f;
  const Vec scaled = choose(tiny, x * 16777216.0f, x);
  // The exponent is chosen such that the mantissa lies within [sqrt(1/2), sqrt(2)].
  const IntVec shifted = difference(bits(scaled), IntVec{} + 0x3f3504f3);
  const IntVec exponent = shifted >> 23;
  const Vec mantissa = from_bits(difference(bits(scaled), exponent << 23));
  const Vec f = mantissa - 1.0f;
  const Vec s = f / (f + 2.0f);
  const Vec square = s * s;
  const Vec power = to_float(exponent) - choose(tiny, broadcast(24.0f), Vec{});
  // log(m) = f - s (f - R), with R = the series beyond its first term.
  const Vec tail = s * (f - square * polynomial(square, kSeries));
  Vec result = power * 0.693359375f + (f - (tail - power * -2.12194440e-4f));
  result = choose(x == 0.0f, broadcast(-__builtin_inff()), result);
  result = choose(x == __builtin_inff(), x, result);
  return choose((x < 0.0f) | (x != x), broadcast(__builtin_nanf("")), result);
}

/// Hyperbolic tangent, 5 ULP. A rational function in x^2, fitted for the least relative error on
/// |x| <= 9.2, beyond which the result rounds to 1.
EP_INLINE Vec hyperbolic_tangent(Vec x) {
  constexpr float kAbove[] = {-1.1821940995582203e-11f, 3.006696402962916e-08f,
                              2.7791174943558872e-05f,  0.0038575923535972834f,
                              0.136713445186615f,       1.0f};
  constexpr float kBelow[] = {1.2722794053843245e-06f, 0.00039197131991386414f,
                              0.02720654010772705f, 0.4700467586517334f, 1.0f};
  const Vec bounded = clamp(x, broadcast(-9.2f), broadcast(9.2f));
  const Vec square = bounded * bounded;
  const Vec result = bounded * polynomial(square, kAbove) / polynomial(square, kBelow);
  return clamp(result, broadcast(-1.0f), broadcast(1.0f));
}

/// Error function, 6 ULP. A rational function in x^2, fitted likewise on |x| <= 4.
EP_INLINE Vec error_function(Vec x) {
  constexpr float kAbove[] = {1.986586084967712e-06f, 0.00028448228840716183f,
                              0.00388139090500772f,   0.053095635026693344f,
                              0.19350524246692657f,   1.1283791065216064f};
  constexpr float kBelow[] = {3.741371983778663e-05f, 0.00118502217810601f, 0.015203388407826424f,
                              0.11533277481794357f,   0.5048221349716187f,  1.0f};
  const Vec bounded = clamp(x, broadcast(-4.0f), broadcast(4.0f));
  const Vec square = bounded * bounded;
  const Vec result = bounded * polynomial(square, kAbove) / polynomial(square, kBelow);
  return clamp(result, broadcast(-1.0f), broadcast(1.0f));
}

/// 1 / (1 + e^-x), 4 ULP.
EP_INLINE Vec sigmoid(Vec x) { return 1.0f / (1.0f + exponential(-x)); }

/// x (1 + erf(x / sqrt 2)) / 2.
EP_INLINE Vec gelu(Vec x) {
  return x * 0.5f * (1.0f + error_function(x * 0.70710678118654752f));
}

/// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
EP_INLINE Vec gelu_by_tangent(Vec x) {
  const Vec inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return x * 0.5f * (1.0f + hyperbolic_tangent(inner));
}

/// log(1 + e^x), 3 ULP, without overflow.
EP_INLINE Vec softplus(Vec x) {
  return no_less(x, Vec{}) + log_of_one_plus(exponential(-absolute(x)));
}

} // namespace
} // namespace ep::EP_LEVEL
