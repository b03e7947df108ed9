// The parts of temporal sampling against what they are defined as: draws of ranks, and searches that go on together.
#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "check.h"
#include "temporal/draw.h"
#include "temporal/past.h"

namespace {

using namespace livegnn;
using Ranks = std::vector<std::uint32_t>;

// draw.h: the first ranks of the stream that differ are the sample, or what it leaves out.
Ranks distinct_by_definition(Draw draw, std::uint32_t n, std::uint32_t k) {
  const bool leaves_out = k > n / 2;
  std::set<std::uint32_t> drawn;
  while (drawn.size() < (leaves_out ? n - k : k)) drawn.insert(draw.rank(n));
  if (!leaves_out) return {drawn.begin(), drawn.end()};
  Ranks rest;
  for (std::uint32_t rank = 0; rank < n; ++rank) {
    if (!drawn.contains(rank)) rest.push_back(rank);
  }
  return rest;
}

TEST(distinct_ranks_are_the_first_of_the_stream) {
  Ranks left;
  for (const std::uint32_t n : {2u, 3u, 10u, 21u, 63u, 64u, 65u, 100u, 128u, 200u, 1000u, 4095u, 4096u, 4097u, 9000u}) {
    for (const std::uint32_t k :
         {1u, 2u, 9u, 10u, 15u, 16u, 17u, 25u, 40u, 64u, n / 2, n / 2 + 1, n - n / 7 - 1, n - 1}) {
      if (k == 0 || k >= n) continue;
      for (std::uint64_t row = 0; row < 40; ++row) {
        const Draw draw(n * 1000 + k, row);
        Ranks ranks(k);
        draw_distinct(draw, n, k, ranks.data(), left);
        CHECK(ranks == distinct_by_definition(draw, n, k));
      }
    }
  }
}

TEST(ranks_with_replacement_are_the_stream_in_order) {
  for (const std::uint32_t n : {1u, 2u, 7u, 50u, 5000u}) {
    for (const std::uint32_t k : {1u, 2u, 10u, 16u, 17u, 60u}) {
      for (std::uint64_t row = 0; row < 40; ++row) {
        Draw draw(n, row);
        Ranks ranks(k), expected(k);
        draw_with_replacement(draw, n, k, ranks.data());
        for (std::uint32_t& rank : expected) rank = draw.rank(n);
        std::sort(expected.begin(), expected.end());
        CHECK(ranks == expected);
      }
    }
  }
}

TEST(searches_together_find_what_each_finds_alone) {
  std::mt19937_64 random(3);
  Searches searches;  // used again and again, as by a sampler
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<EdgeTime>> lists(random() % 40);
    std::vector<EdgeTime> wanted;
    searches.clear();
    for (std::size_t i = 0; i < lists.size(); ++i) {
      const std::size_t longest = i % 5 == 0 ? 3000 : 40;
      lists[i].resize(1 + random() % longest);
      for (EdgeTime& time : lists[i]) time = static_cast<EdgeTime>(random() % 60) - 5;  // ties, and some all alike
      std::sort(lists[i].begin(), lists[i].end());
      wanted.push_back(static_cast<EdgeTime>(random() % 70) - 10);
      searches.add(lists[i].data(), static_cast<std::int32_t>(lists[i].size()), wanted[i],
                   static_cast<std::int32_t>(i));
    }
    std::vector<int> answers(lists.size());
    searches.run([&](std::int32_t name, const EdgeTime* end) {
      const auto i = static_cast<std::size_t>(name);
      ++answers[i];
      CHECK(end - lists[i].data() == std::upper_bound(lists[i].begin(), lists[i].end(), wanted[i]) - lists[i].begin());
    });
    CHECK(std::all_of(answers.begin(), answers.end(), [](int times) { return times == 1; }));
  }
}

}  // namespace

LIVEGNN_TEST_MAIN
