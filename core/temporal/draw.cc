#include "temporal/draw.h"

namespace livegnn {

namespace {
constexpr std::uint32_t kCountMax = 24;  // up to here counting beats std::sort

// Puts each rank where the count of smaller ones says, ties by number: no branch hangs on what was drawn.
void sort_few(const std::uint32_t* drawn, std::uint32_t count, std::uint32_t* ranks) {
  std::uint32_t places[kCountMax] = {};
  for (std::uint32_t i = 1; i < count; ++i) {
    std::uint32_t place = 0;
    for (std::uint32_t j = 0; j < i; ++j) {
      const std::uint32_t after = drawn[j] <= drawn[i] ? 1 : 0;
      place += after;
      places[j] += 1 - after;
    }
    places[i] = place;
  }
  for (std::uint32_t i = 0; i < count; ++i) ranks[places[i]] = drawn[i];
}

void sort_ranks(std::uint32_t* ranks, std::uint32_t count) {
  if (count > kCountMax) return std::sort(ranks, ranks + count);
  std::uint32_t drawn[kCountMax];
  std::copy(ranks, ranks + count, drawn);
  sort_few(drawn, count, ranks);
}

// Until `wanted` differ, ascending: those that are missing are drawn together.
void first_distinct(Draw& draw, std::uint32_t n, std::uint32_t wanted, std::uint32_t* ranks) {
  for (std::uint32_t have = 0; have < wanted;) {
    for (std::uint32_t i = have; i < wanted; ++i) ranks[i] = draw.rank(n);
    sort_ranks(ranks, wanted);
    have = 1;
    for (std::uint32_t i = 1; i < wanted; ++i) {
      ranks[have] = ranks[i];
      have += ranks[i] != ranks[have - 1] ? 1 : 0;
    }
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
  sort_ranks(ranks, k);
}

}  // namespace livegnn
