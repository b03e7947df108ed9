// Which ranks were drawn is kept as bits where n allows: a rank that came before costs no branch, and reading the bits
// in order is the sort. Few ranks of many are put in order by comparing all pairs.
#include "temporal/draw.h"

#include <array>
#include <bit>

namespace livegnn {

namespace {
constexpr std::uint32_t kFew = 16;         // ranks that are compared pair by pair
constexpr std::uint32_t kBitsMax = 4'096;  // n that bits are kept for

// Puts each rank where the count of smaller ones says; of equal ones the others are holes, filled from the left.
void sort_few(std::uint32_t* ranks, std::uint32_t count) {
  constexpr std::uint32_t kHole = UINT32_MAX;  // no rank: n is below 2^31
  std::array<std::int32_t, kFew> drawn;
  std::array<std::int32_t, kFew> places{};
  drawn.fill(INT32_MAX);
  for (std::uint32_t i = 0; i < count; ++i) drawn[i] = static_cast<std::int32_t>(ranks[i]);
  for (std::uint32_t j = 0; j < count; ++j) {
    for (std::uint32_t i = 0; i < kFew; ++i) places[i] += drawn[j] < drawn[i] ? 1 : 0;
  }
  for (std::uint32_t i = 0; i < count; ++i) ranks[i] = kHole;
  for (std::uint32_t i = 0; i < count; ++i) ranks[places[i]] = static_cast<std::uint32_t>(drawn[i]);
  for (std::uint32_t i = 1; i < count; ++i) ranks[i] = ranks[i] == kHole ? ranks[i - 1] : ranks[i];
}

void sort_ranks(std::uint32_t* ranks, std::uint32_t count) {
  count <= kFew ? sort_few(ranks, count) : std::sort(ranks, ranks + count);
}

std::uint32_t* read_bits(std::uint64_t bits, std::uint32_t first, std::uint32_t* ranks) {
  for (; bits != 0; bits &= bits - 1) *ranks++ = first + static_cast<std::uint32_t>(std::countr_zero(bits));
  return ranks;
}

void draw_in_word(Draw& draw, std::uint32_t n, std::uint32_t k, std::uint32_t* ranks) {
  const bool leaves_out = k > n / 2;
  std::uint64_t bits = 0;
  for (std::uint32_t missing = leaves_out ? n - k : k; missing > 0;) {
    const std::uint64_t bit = std::uint64_t{1} << draw.rank(n);
    missing -= (bits & bit) == 0 ? 1 : 0;
    bits |= bit;
  }
  read_bits(leaves_out ? bits ^ (~std::uint64_t{0} >> (64 - n)) : bits, 0, ranks);
}

void draw_in_words(Draw& draw, std::uint32_t n, std::uint32_t k, std::uint32_t* ranks) {
  const bool leaves_out = k > n / 2;
  const std::uint32_t words = (n + 63) / 64, wanted = leaves_out ? n - k : k;
  std::array<std::uint64_t, kBitsMax / 64> bits;
  std::fill_n(bits.begin(), words, 0);
  for (std::uint32_t have = 0; have < wanted;) {  // wanted <= k: there is room for them
    const std::uint32_t rank = draw.rank(n);
    std::uint64_t& word = bits[rank / 64];
    const std::uint64_t bit = std::uint64_t{1} << rank % 64;
    ranks[have] = rank;
    have += (word & bit) == 0 ? 1 : 0;
    word |= bit;
  }
  if (!leaves_out && k <= kFew) return sort_few(ranks, k);
  for (std::uint32_t word = 0; word < words; ++word) {
    const std::uint32_t first = word * 64, here = std::min(n - first, 64u);
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - here);
    ranks = read_bits(leaves_out ? bits[word] ^ all : bits[word], first, ranks);
  }
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
  if (n <= 64) return draw_in_word(draw, n, k, ranks);
  if (n <= kBitsMax) return draw_in_words(draw, n, k, ranks);
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
