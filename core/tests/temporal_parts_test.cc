// The parts of temporal sampling against what they are defined as: draws of ranks, by lanes and one by one, and
// searches that go on together.
#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "check.h"
#include "temporal/draw.h"
#include "temporal/lanes.h"
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

// What the kernels write is what the ranks by definition name, and no place more.
struct Lanes {
  static constexpr std::int64_t kPlaces = 40'000, kEdges = 20'000, kUnset = -99;
  Lanes() {
    for (std::int64_t place = 0; place < kPlaces; ++place) {
      neighbours.push_back(static_cast<std::int32_t>(place + 1));
      types.push_back(static_cast<std::int32_t>(place + 2));
      ids.push_back(place + 3);
      times.push_back(place + 4);
      weights.push_back(static_cast<float>(place + 5));
    }
    for (auto* column : {&to_src, &to_types, &to_ids, &to_times, &to_rows}) column->assign(kEdges, kUnset);
    to_weights.assign(kEdges, kUnset);
    wanted.assign(kEdges, kUnset);
    wanted_rows.assign(kEdges, kUnset);
  }
  LaneColumns columns(bool all) {
    return {neighbours.data(),
            all ? types.data() : nullptr,
            ids.data(),
            all ? times.data() : nullptr,
            all ? weights.data() : nullptr,
            to_src.data(),
            to_types.data(),
            to_ids.data(),
            to_times.data(),
            to_weights.data(),
            to_rows.data()};
  }
  void want(std::int64_t place, std::int64_t row) {
    wanted[static_cast<std::size_t>(edge)] = place;
    wanted_rows[static_cast<std::size_t>(edge++)] = row;
  }
  bool as_wanted(bool all) const {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::int64_t place = wanted[i];
      const auto is = [&](std::int64_t got, std::int64_t more) {
        return got == (place == kUnset ? kUnset : place + more);
      };
      if (!is(to_src[i], 1) || !is(to_ids[i], 3) || to_rows[i] != wanted_rows[i]) return false;
      if (all && (!is(to_types[i], 2) || !is(to_times[i], 4) || !is(static_cast<std::int64_t>(to_weights[i]), 5))) {
        return false;
      }
    }
    return true;
  }
  std::vector<std::int32_t> neighbours, types;
  std::vector<std::int64_t> ids, times, to_src, to_types, to_ids, to_times, to_rows, wanted, wanted_rows;
  std::vector<float> weights, to_weights;
  std::int64_t edge = 3;  // the next one's place in the answer
};

Ranks by_definition(const Draw& draw, std::uint32_t n, std::uint32_t k, bool replace) {
  if (!replace) return distinct_by_definition(draw, n, k);
  Draw stream = draw;
  Ranks ranks(k);
  for (std::uint32_t& rank : ranks) rank = stream.rank(n);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<bool> columns_to_try() {
  return lane_kernels() != nullptr ? std::vector<bool>{false, true} : std::vector<bool>{};
}

TEST(lanes_draw_the_same_ranks) {
  for (const bool all : columns_to_try()) {
    for (std::uint32_t k = 1; k <= LaneKernels::kDrawnMax; ++k) {
      for (const bool replace : {false, true}) {
        Lanes lanes;
        std::vector<RunTarget> targets;
        for (const std::uint32_t n : {1u, 2u, 3u, 5u, 2 * k, 2 * k + 1, 33u, 64u, 100u, 1000u, 30'000u}) {
          if (!replace && n < 2 * k) continue;
          for (std::uint64_t row = 0; row < 30; ++row) {
            const Draw draw(n, row);
            const auto place = static_cast<std::int64_t>(row * 300);
            targets.push_back(
                {place, lanes.edge, static_cast<std::int64_t>(row), draw.state(), n, static_cast<std::int32_t>(k)});
            for (const std::uint32_t rank : by_definition(draw, n, k, replace))
              lanes.want(place + rank, targets.back().row);
            ++lanes.edge;  // left free
          }
        }
        lane_kernels()->drawn(targets, lanes.columns(all), replace);
        CHECK(lanes.as_wanted(all));
      }
    }
  }
}

TEST(lanes_draw_the_same_ranks_of_chains) {
  std::mt19937_64 random(4);
  for (const bool all : columns_to_try()) {
    for (int round = 0; round < 400; ++round) {
      Lanes lanes;
      std::vector<std::int64_t> first, before, place;
      std::int64_t count = 0;
      const std::size_t blocks = 1 + random() % (round % 3 == 0 ? 3 : 40);
      for (std::size_t block = 0; block < blocks; ++block) {
        before.push_back(count);
        place.push_back(static_cast<std::int64_t>(random() % 30'000));
        count += round % 2 == 0 ? 64 : 1 + static_cast<std::int64_t>(random() % (block % 4 == 0 ? 300 : 9));
      }
      const BlockTable table{static_cast<std::int64_t>(blocks), first.data(), before.data(), place.data()};
      const std::int64_t begin = static_cast<std::int64_t>(random() % 2) * (count / 3);
      const auto n = static_cast<std::uint32_t>(count - begin), k = 1 + static_cast<std::uint32_t>(random() % 16);
      const bool replace = n < 2 * k;
      std::vector<ChainTarget> targets;
      for (std::uint64_t row = 0; row < 4; ++row) {
        const Draw draw(random(), row);
        const auto at = static_cast<std::int64_t>(row);
        targets.push_back({{begin, lanes.edge, at, draw.state(), n, static_cast<std::int32_t>(k)}, table});
        for (const std::uint32_t rank : by_definition(draw, n, k, replace)) {
          const std::int64_t wanted = begin + rank;
          const auto block = std::upper_bound(before.begin(), before.end(), wanted) - before.begin() - 1;
          lanes.want(place[static_cast<std::size_t>(block)] + wanted - before[static_cast<std::size_t>(block)], at);
        }
      }
      lane_kernels()->drawn_in_chains(targets, lanes.columns(all), replace);
      CHECK(lanes.as_wanted(all));
    }
  }
}

TEST(lanes_copy_runs) {
  for (const bool all : columns_to_try()) {
    Lanes lanes;
    std::vector<RunTarget> targets;
    for (std::int32_t take = 0; take < 70; ++take) {
      targets.push_back({take * 500, lanes.edge, take + 7, 0, 0, take});
      for (std::int32_t k = 0; k < take; ++k) lanes.want(take * 500 + k, take + 7);
      ++lanes.edge;
    }
    lane_kernels()->runs(targets, lanes.columns(all));
    CHECK(lanes.as_wanted(all));
  }
}

void searches_find_what_each_finds_alone(Searches searches) {  // used again and again, as by a sampler
  std::mt19937_64 random(3);
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

TEST(searches_together_find_what_each_finds_alone) {
  searches_find_what_each_finds_alone(Searches(nullptr));
  searches_find_what_each_finds_alone(Searches(lane_kernels()));
}

}  // namespace

LIVEGNN_TEST_MAIN
