// Lists of neighbours against a map, and placed vertices against a plain reading of the two scores.
#include "livegnn/partitions.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "check.h"
#include "livegnn/error.h"

using namespace livegnn;

namespace {

struct Edges {
  std::vector<std::int64_t> src, dst;
};

Edges random_edges(std::mt19937& random, std::int32_t vertices, int count) {
  Edges edges;
  for (int i = 0; i < count; ++i) {
    edges.src.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(vertices)));
    edges.dst.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(vertices)));
  }
  return edges;
}

TEST(lists_hold_each_neighbour_once) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const auto vertices = static_cast<std::int32_t>(1 + random() % 12);
    const Edges edges = random_edges(random, vertices, static_cast<int>(random() % 60));
    std::vector<std::map<std::int32_t, std::int32_t>> expected(static_cast<std::size_t>(vertices));
    for (std::size_t i = 0; i < edges.src.size(); ++i) {
      if (edges.src[i] == edges.dst[i]) continue;
      const auto u = static_cast<std::int32_t>(edges.src[i]), v = static_cast<std::int32_t>(edges.dst[i]);
      ++expected[static_cast<std::size_t>(u)][v];
      ++expected[static_cast<std::size_t>(v)][u];
    }
    const UndirectedLists lists = undirected_lists(edges.src, edges.dst, vertices);
    CHECK(lists.starts.front() == 0);
    CHECK(lists.starts.back() == static_cast<std::int64_t>(lists.neighbours.size()));
    for (std::size_t v = 0; v < expected.size(); ++v) {
      std::map<std::int32_t, std::int32_t> got;
      for (auto i = static_cast<std::size_t>(lists.starts[v]); i < static_cast<std::size_t>(lists.starts[v + 1]); ++i) {
        CHECK(got.emplace(lists.neighbours[i], lists.counts[i]).second);
      }
      CHECK(got == expected[v]);
    }
  }
}

TEST(ends_outside_are_refused) {
  const std::vector<std::int64_t> inside{0}, outside{2}, negative{-1};
  CHECK_THROWS(undirected_lists(inside, outside, 2), ErrorKind::VertexUnknown);
  CHECK_THROWS(undirected_lists(negative, inside, 2), ErrorKind::VertexUnknown);
}

// Where the next vertex goes, by the definition.
std::size_t chosen(const StreamOptions& options, const std::vector<std::int64_t>& near,
                   const std::vector<std::int64_t>& loads, std::int64_t weight) {
  const std::int64_t so_far = std::accumulate(loads.begin(), loads.end(), weight);
  const double share = static_cast<double>(std::max(options.expected, so_far)) / static_cast<double>(loads.size());
  const double capacity = std::ceil((1.0 + options.slack) * share);
  std::size_t best = loads.size();
  double best_score = -INFINITY;
  for (std::size_t p = 0; p < loads.size(); ++p) {
    if (static_cast<double>(loads[p] + weight) > capacity) continue;
    const double load = static_cast<double>(loads[p]), count = static_cast<double>(near[p]);
    const double score =
        options.rule == StreamRule::Ldg
            ? count * (capacity - load)
            : count - 1.5 * options.edges_per_load * static_cast<double>(weight) * std::sqrt(load / share);
    if (score > best_score || (best < loads.size() && score == best_score && loads[p] < loads[best])) {
      best = p;
      best_score = score;
    }
  }
  if (best < loads.size()) return best;
  return static_cast<std::size_t>(std::min_element(loads.begin(), loads.end()) - loads.begin());
}

TEST(vertices_are_placed_by_the_score) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    const auto vertices = static_cast<std::int32_t>(1 + random() % 20);
    const Edges edges = random_edges(random, vertices, static_cast<int>(random() % 80));
    const UndirectedLists lists = undirected_lists(edges.src, edges.dst, vertices);
    StreamOptions options{.rule = round % 2 ? StreamRule::Ldg : StreamRule::Fennel,
                          .slack = static_cast<double>(random() % 3) / 4.0,
                          .edges_per_load = 2.0,
                          .expected = round % 3 ? vertices : 0};
    std::vector<std::int64_t> weights;
    for (std::int32_t v = 0; round % 5 == 0 && v < vertices; ++v) weights.push_back(1 + random() % 9);
    std::vector<std::int32_t> order(static_cast<std::size_t>(vertices));
    std::iota(order.begin(), order.end(), 0);
    std::vector<std::uint16_t> parts(order.size(), kNoPart), expected = parts;
    const std::size_t count = 1 + random() % 5;
    std::vector<std::int64_t> loads(count, 0), followed = loads;
    for (int pass = 0; pass < 2; ++pass) {  // the second takes every vertex from where it is
      std::shuffle(order.begin(), order.end(), random);
      place_vertices(options, {lists.starts, lists.neighbours, lists.counts, order, weights}, parts, loads);
      for (const std::int32_t v : order) {
        const auto row = static_cast<std::size_t>(v);
        const std::int64_t weight = weights.empty() ? 1 : weights[row];
        if (expected[row] != kNoPart) followed[expected[row]] -= weight;
        std::vector<std::int64_t> near(count, 0);
        for (auto i = static_cast<std::size_t>(lists.starts[row]); i < static_cast<std::size_t>(lists.starts[row + 1]);
             ++i) {
          const std::uint16_t part = expected[static_cast<std::size_t>(lists.neighbours[i])];
          if (part != kNoPart) near[part] += lists.counts[i];
        }
        const std::size_t part = chosen(options, near, followed, weight);
        expected[row] = static_cast<std::uint16_t>(part);
        followed[part] += weight;
      }
      CHECK(parts == expected);
      CHECK(loads == followed);
    }
  }
}

}  // namespace

LIVEGNN_TEST_MAIN
