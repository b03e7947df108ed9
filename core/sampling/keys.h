// Ranks of edges: what a sample is ordered by. Integers and plain double arithmetic only, so that every machine and
// compiler gives the same bits.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "livegnn/sampling.h"
#include "livegnn/types.h"
#include "util/hash.h"

namespace livegnn {

// Natural logarithm of x in (0, 1], within 2 ulp, by x = m 2^e with m in [sqrt(1/2), sqrt(2)) and the series of
// ln((1 + s) / (1 - s)), s = (m - 1) / (m + 1), |s| < 0.172.
inline double log_of_unit(double x) {
  constexpr double kLn2 = 0.693147180559945309417232121458;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0), square = s * s;
  double sum = 0.0;
  for (int k = 23; k >= 3; k -= 2) sum = (sum + 1.0 / k) * square;
  return exponent * kLn2 + 2.0 * s * (1.0 + sum);
}

// The order of one one-hop query: ascending (rank, tie).
class EdgeOrder {
 public:
  EdgeOrder(SampleBy by, std::uint64_t seed, std::int32_t hop)
      : by_(by), salt_(mix(seed ^ mix(static_cast<std::uint64_t>(hop)))), flip_(by == SampleBy::TopK ? ~0ull : 0) {}

  std::uint64_t rank(EdgeId id, float weight, EdgeTime time) const {
    if (by_ == SampleBy::TopK) return ~(static_cast<std::uint64_t>(time) ^ (1ull << 63));  // later first
    const std::uint64_t h = mix(salt_ ^ static_cast<std::uint64_t>(id));
    if (by_ == SampleBy::Random) return h;
    const double u = static_cast<double>((h >> 11) + 1) * 0x1p-53;
    return std::bit_cast<std::uint64_t>(-log_of_unit(u) / static_cast<double>(weight) + 0.0);  // + 0.0: -0 is +0
  }
  bool before(std::uint64_t rank_a, EdgeId id_a, std::uint64_t rank_b, EdgeId id_b) const {
    if (rank_a != rank_b) return rank_a < rank_b;
    return (static_cast<std::uint64_t>(id_a) ^ flip_) < (static_cast<std::uint64_t>(id_b) ^ flip_);
  }

 private:
  SampleBy by_;
  std::uint64_t salt_;
  std::uint64_t flip_;
};

}  // namespace livegnn
