// Random numbers that are counted, not kept: number i of a row is a hash of (seed, call, part, row, i). `part` tells
// hops, snapshots and steps of walks apart.
//
// k of n without replacement: numbers are drawn until min(k, n - k) ranks differ; these are the sample or, where k is
// more than half of n, what it leaves out. So the first distinct ranks of a stream, a uniform subset by symmetry, and
// nothing but (n, k) and the row's stream matters. A rank is floor(number n / 2^64): no two ranks differ in probability
// by more than 2^-64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "util/hash.h"

namespace livegnn {

inline constexpr std::uint64_t kWalkPart = 1ull << 48;  // of step 0; hops and snapshots lie below

inline std::uint64_t draw_part(std::uint64_t seed, std::uint64_t call, std::uint64_t part) {
  return mix(mix(seed ^ mix(call)) + part);
}

class Draw {
 public:
  Draw(std::uint64_t part_key, std::uint64_t row) : state_(mix(part_key ^ row)) {}
  std::uint64_t state() const { return state_; }  // number i of the row is mix(state + i * 0x9e3779b97f4a7c15)
  std::uint32_t rank(std::uint32_t n) {
    const std::uint64_t number = mix(state_);
    state_ += 0x9e3779b97f4a7c15ull;
    return static_cast<std::uint32_t>((static_cast<unsigned __int128>(number) * n) >> 64);
  }

 private:
  std::uint64_t state_;
};

// k ascending ranks below n, 0 < k < n; `left` is scratch.
void draw_distinct(Draw draw, std::uint32_t n, std::uint32_t k, std::uint32_t* ranks, std::vector<std::uint32_t>& left);
void draw_with_replacement(Draw draw, std::uint32_t n, std::uint32_t k, std::uint32_t* ranks);  // ascending, n > 0

}  // namespace livegnn
