// Windows around a threshold against their definition: every in-edge between the two ends is listed, an entry each.
#include <algorithm>
#include <random>
#include <vector>

#include "inference/operators/score_windows.h"
#include "tests/check.h"

using namespace livegnn;

namespace {

bool less(const ScoredSource& a, const ScoredSource& b) { return a.t < b.t || (a.t == b.t && a.u < b.u); }

void check_window(const ScoreWindow& window, const std::vector<ScoredSource>& edges) {
  std::vector<ScoredSource> expected, listed(window.listed, window.listed + window.count);
  for (const ScoredSource& edge : edges) {
    if (window.low < edge.t && edge.t < window.high) expected.push_back(edge);
  }
  std::sort(expected.begin(), expected.end(), less);
  std::sort(listed.begin(), listed.end(), less);
  CHECK(expected.size() == listed.size());
  for (std::size_t i = 0; i < listed.size(); ++i) CHECK(expected[i].t == listed[i].t && expected[i].u == listed[i].u);
}

ScoreWindow found(const std::vector<ScoredSource>& edges, float threshold) {
  WindowFinder finder;
  finder.begin(1.0f);  // what an earlier target left does not count
  finder.offer(0.5f, 99);
  finder.begin(threshold);
  for (const ScoredSource& edge : edges) finder.offer(edge.t, edge.u);
  ScoreWindow window;
  finder.finish(window);
  return window;
}

float score(std::mt19937& rng, bool ties) {
  const float t = std::normal_distribution<float>()(rng);
  return ties ? static_cast<float>(static_cast<int>(t * 4.0f)) : t;
}

}  // namespace

TEST(a_window_lists_what_is_nearest_on_either_side) {
  std::vector<ScoredSource> edges;
  for (int i = 0; i < 1000; ++i) edges.push_back({static_cast<float>((i * 617) % 1000), i});
  const ScoreWindow window = found(edges, 500.0f);
  CHECK(window.low == 500.0f - WindowFinder::kPerSide);  // 500 itself is below the threshold
  CHECK(window.high == 501.0f + WindowFinder::kPerSide);
  CHECK(window.count == 2 * WindowFinder::kPerSide);
  CHECK(window.spans(500.0f) && window.spans(window.low) && !window.spans(window.high));
  check_window(window, edges);
}

TEST(few_edges_are_listed_whole_and_ties_do_not_fit_by_halves) {
  const std::vector<ScoredSource> few = {{1.0f, 4}, {-3.0f, 4}, {1.0f, 4}};
  const ScoreWindow all = found(few, 0.0f);
  CHECK(all.count == 3 && all.spans(-1e6f) && all.spans(1e6f));
  check_window(all, few);
  const std::vector<ScoredSource> equal(100, {2.0f, 7});
  const ScoreWindow none = found(equal, 0.0f);
  CHECK(none.count == 0 && none.high == 2.0f && none.spans(0.0f) && !none.spans(2.0f));
}

TEST(a_window_follows_what_comes_and_goes) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 rng(seed);
    const bool ties = seed % 3 == 0;
    std::vector<ScoredSource> edges;
    for (int i = 0; i < static_cast<int>(rng() % 300); ++i) edges.push_back({score(rng, ties), i});
    const float threshold = score(rng, ties);
    ScoreWindow window = found(edges, threshold);
    check_window(window, edges);
    for (int step = 0; step < 300; ++step) {
      const auto place = edges.empty() ? 0 : rng() % edges.size();
      const float t = rng() % 2 == 0 ? score(rng, ties) : threshold + 0.01f * score(rng, ties);
      if (edges.empty() || rng() % 3 == 0) {
        edges.push_back({t, static_cast<VertexId>(rng() % 5)});
        window.insert(t, edges.back().u, threshold);
      } else if (rng() % 2 == 0) {
        window.replace(edges[place].t, t, edges[place].u, threshold);
        edges[place].t = t;
      } else {
        window.remove(edges[place].t, edges[place].u);
        edges.erase(edges.begin() + static_cast<std::ptrdiff_t>(place));
      }
      CHECK(window.known() && window.spans(threshold));
      check_window(window, edges);
    }
  }
}

TEST(a_window_that_is_not_known_spans_nothing_and_lists_nothing) {
  ScoreWindow window = found({{1.0f, 1}}, 0.0f);
  window.forget();
  CHECK(!window.known() && !window.spans(0.0f));
  window.insert(0.5f, 2, 0.0f);
  window.remove(1.0f, 1);
  CHECK(window.count == 0);
}

TEST(an_edge_that_should_be_listed_and_is_not_stops_the_work) {
  ScoreWindow window = found({{1.0f, 1}}, 0.0f);
  CHECK_THROWS(window.remove(1.0f, 2), ErrorKind::InvariantBroken);
}

TEST(a_table_keeps_windows_of_the_vertices_that_have_them) {
  ScoreWindowTable table;
  table.drop(3);
  CHECK(table.find(3) == nullptr);  // before there is anything
  table.prepare(10, 2, 1 << 20);
  CHECK(table.find(3) == nullptr);
  ScoreWindow* made = table.make(3);
  CHECK(made == table.find(3) && made == table.make(3) && !made[1].known());
  const std::size_t bytes = table.bytes();
  table.make(4);
  CHECK(table.bytes() == bytes + 2 * sizeof(ScoreWindow));
  table.prepare(1000, 2, 1 << 20);
  CHECK(table.find(3) == made);
  table.drop(3);
  CHECK(table.find(3) == nullptr && table.find(4) != nullptr);
  WindowFinder finder;
  finder.begin(0.0f);
  finder.finish(table.make(5)[1]);
  table.drop_unknown(4);
  table.drop_unknown(5);
  CHECK(table.find(4) == nullptr && table.find(5) != nullptr);
  table.clear();
  CHECK(table.find(5) == nullptr);
}

TEST(a_table_makes_no_more_windows_than_fit) {
  ScoreWindowTable table;
  table.prepare(10, 2, 5 * sizeof(ScoreWindow));
  CHECK(table.make(0) != nullptr && table.make(1) != nullptr && table.make(2) == nullptr && table.make(1) != nullptr);
  table.drop(0);
  CHECK(table.make(2) != nullptr && table.make(0) == nullptr);
}

LIVEGNN_TEST_MAIN
