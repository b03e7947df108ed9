#include "temporal/draw.h"

namespace livegnn {

namespace {
constexpr std::uint32_t kInsertMax = 32;  // up to here insertion beats std::sort

// Until `wanted` differ, ascending. Few are put in one by one; of many, those that are missing are drawn together.
void first_distinct(Draw& draw, std::uint32_t n, std::uint32_t wanted, std::uint32_t* ranks) {
  if (wanted <= kInsertMax) {
    for (std::uint32_t have = 0; have < wanted;) {
      const std::uint32_t rank = draw.rank(n);
      std::uint32_t at = have;
      while (at > 0 && ranks[at - 1] > rank) --at;
      if (at > 0 && ranks[at - 1] == rank) continue;
      for (std::uint32_t i = have; i > at; --i) ranks[i] = ranks[i - 1];
      ranks[at] = rank;
      ++have;
    }
    return;
  }
  for (std::uint32_t have = 0; have < wanted;) {
    for (std::uint32_t i = have; i < wanted; ++i) ranks[i] = draw.rank(n);
    std::sort(ranks, ranks + wanted);
    have = static_cast<std::uint32_t>(std::unique(ranks, ranks + wanted) - ranks);
  }
}
}  // namespace

void draw_distinct(Draw draw, std::uint32_t n, std::uint32_t k, std::uint32_t* ranks,
                   std::vector<std::uint32_t>& left) {
  if (k <= n / 2) return first_distinct(draw, n, k, ranks);
  left.resize(n - k);
  first_distinct(draw, n, n - k, left.data());
  std::uint32_t rank = 0;
  for (std::size_t gap = 0; gap <= left.size(); ++gap) {
    const std::uint32_t end = gap < left.size() ? left[gap] : n;
    for (; rank < end; ++rank) *ranks++ = rank;
    ++rank;
  }
}

void draw_with_replacement(Draw draw, std::uint32_t n, std::uint32_t k, std::uint32_t* ranks) {
  for (std::uint32_t i = 0; i < k; ++i) ranks[i] = draw.rank(n);
  std::sort(ranks, ranks + k);
}

}  // namespace livegnn
