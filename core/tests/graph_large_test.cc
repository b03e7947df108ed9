// Real block sizes and lists of many thousands: load with any number of threads, hubs, sliding windows, memory.
#include <random>
#include <string>

#include "tests/graph_model.h"

namespace livegnn::testing {
namespace {

struct Edges {
  std::vector<std::int64_t> src, dst, time;
};

// Vertex 0 has half of all out-edges and vertex 1 half of all in-edges; times mostly rise.
Edges skewed_edges(int vertices, int count, std::uint32_t seed) {
  std::mt19937 random(seed);
  Edges edges;
  for (int i = 0; i < count; ++i) {
    edges.src.push_back(random() % 2 == 0 ? 0 : static_cast<int>(random() % static_cast<unsigned>(vertices)));
    edges.dst.push_back(random() % 2 == 0 ? 1 : static_cast<int>(random() % static_cast<unsigned>(vertices)));
    edges.time.push_back(random() % 10 == 0 ? i / 2 : i);
  }
  return edges;
}

std::unique_ptr<GraphStore> load(const Edges& edges, int vertices, bool timed, int threads) {
  GraphOptions options;
  options.has_time = timed;
  auto store = std::make_unique<GraphStore>(options);
  store->load({vertices, {}, {}, {edges.src, edges.dst, {}, {}, timed ? edges.time : std::vector<std::int64_t>()}},
              threads);
  return store;
}

Update removal(std::int64_t u, std::int64_t v) {
  Update update{};
  update.kind = UpdateKind::RemoveEdge;
  update.u = u;
  update.v = v;
  return update;
}

std::vector<std::pair<EdgeId, VertexId>> list_of(const GraphStore& store, VertexId v, bool out) {
  std::vector<std::pair<EdgeId, VertexId>> all;
  const auto visitor = [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) all.emplace_back(span.ids[i], span.neighbours[i]);
  };
  if (out) {
    store.visit_out(v, visitor);
  } else {
    store.visit_in(v, visitor);
  }
  return all;
}

// Most places that a store of so many live edges may take, as docs/graph.md states it.
void check_memory(const GraphStore& store) {
  const GraphMemory memory = store.memory();
  const std::size_t slack = (std::size_t{1} << 18) * 2 * (sizeof(VertexId) + sizeof(EdgeId) + sizeof(EdgeTime));
  CHECK(memory.edges_live + memory.edges_reserved <= 8 * memory.edges_live + slack);
}

TEST(threads_do_not_change_what_is_loaded) {
  for (const bool timed : {false, true}) {
    const Edges edges = skewed_edges(50, 20000, 1);
    const auto one = load(edges, 50, timed, 1), three = load(edges, 50, timed, 3);
    one->check_invariants();
    three->check_invariants();
    CHECK(one->digest() == three->digest());
    for (VertexId v = 0; v < 50; ++v) {
      for (const bool out : {false, true}) CHECK(list_of(*one, v, out) == list_of(*three, v, out));
    }
  }
}

TEST(loading_equals_adding_one_by_one) {
  const Edges edges = skewed_edges(40, 6000, 2);
  const auto loaded = load(edges, 40, true, 2);
  const auto grown = load({}, 40, true, 1);
  UpdateBuffer batch;
  for (std::size_t i = 0; i < edges.src.size(); ++i) {
    Update update = removal(edges.src[i], edges.dst[i]);
    update.kind = UpdateKind::AddEdge;
    update.time = edges.time[i];
    batch.add(update);
  }
  grown->apply(batch);
  grown->check_invariants();
  CHECK(loaded->digest() == grown->digest());
  for (VertexId v = 0; v < 40; ++v) CHECK(list_of(*loaded, v, true) == list_of(*grown, v, true));
}

TEST(a_hub_is_emptied_in_random_order) {
  for (const bool timed : {false, true}) {
    Edges edges = skewed_edges(300, 30000, 3);
    const auto store = load(edges, 300, timed, 2);
    std::vector<std::size_t> order(edges.src.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(4));
    BatchDelta delta;
    for (std::size_t i = 0; i < order.size(); ++i) {
      UpdateBuffer batch;
      batch.add(removal(edges.src[order[i]], edges.dst[order[i]]));
      const EdgeId newest =
          store->newest_edge(static_cast<VertexId>(edges.src[order[i]]), static_cast<VertexId>(edges.dst[order[i]])).id;
      store->apply_into(batch, &delta);
      CHECK(delta.removed.size() == 1 && delta.removed[0].id == newest);
      if (i % 3000 == 0) store->check_invariants(), check_memory(*store);
    }
    CHECK(store->edge_count() == 0);
    store->check_invariants();
  }
}

// An index costs a sort of the whole list: it is built where lists have been searched often, and then kept up.
TEST(a_hub_that_is_not_searched_has_no_index) {
  const Edges edges = skewed_edges(3, 40000, 6);
  const auto store = load(edges, 3, true, 1);
  const std::size_t bare = store->memory().index;
  UpdateBuffer more;
  for (int i = 0; i < 4000; ++i) {
    Update update = removal(0, 1);
    update.kind = UpdateKind::AddEdge;
    update.time = 40000 + i;
    more.add(update);
  }
  store->apply(more);
  CHECK(store->memory().index < 2 * bare);
  for (int i = 0; i < 40; ++i) {
    UpdateBuffer batch;
    batch.add(removal(0, 1));
    store->apply(batch);
  }
  CHECK(store->memory().index > 10000 * sizeof(EdgeId));
  store->check_invariants();
  const BatchDelta delta = store->apply(more);  // a run behind an index
  store->check_invariants();
  store->undo(delta);
  store->check_invariants();
}

TEST(a_sliding_window_keeps_memory_bounded) {
  const auto store = load({}, 60, true, 1);
  std::mt19937 random(5);
  std::size_t reserved_early = 0;
  for (int day = 0; day < 300; ++day) {
    UpdateBuffer batch;
    for (int i = 0; i < 1500; ++i) {
      Update update = removal(static_cast<int>(random() % 4), static_cast<int>(random() % 60));
      update.kind = UpdateKind::AddEdge;
      update.time = day * 10 + static_cast<int>(random() % 10);
      batch.add(update);
    }
    Update before{};
    before.kind = UpdateKind::RemoveEdgesBefore;
    before.time = (day - 10) * 10;
    batch.add(before);
    store->apply(batch);
    if (day % 50 == 49) store->check_invariants(), check_memory(*store);
    if (day == 60) reserved_early = store->memory().edges_reserved + store->memory().index;
  }
  CHECK(store->edge_count() == 11 * 1500);
  CHECK(store->memory().edges_reserved + store->memory().index < 3 * reserved_early);
  const std::uint64_t digest = store->digest();
  store->compact();
  store->check_invariants();
  CHECK(store->digest() == digest);
}

TEST(churn_compacts_by_itself) {
  GraphOptions options;
  GraphStore store(options);
  const int vertices = 100000;
  store.load({.slot_count = vertices}, 1);
  BatchDelta delta;
  UpdateBuffer grow, shrink;
  for (int i = 0; i < 800000; ++i) {
    Update update = removal(i % vertices, (i * 7) % vertices);
    shrink.add(update);
    update.kind = UpdateKind::AddEdge;
    grow.add(update);
  }
  store.apply_into(grow, &delta);
  store.apply_into(shrink, &delta);
  CHECK(store.edge_count() == 0);
  check_memory(store);
  store.undo(delta);
  store.check_invariants();
  check_memory(store);
}

TEST(load_refuses_and_stays_empty) {
  GraphOptions options;
  options.feature_width = 1;
  options.has_weight = true;
  options.simple = true;
  GraphStore store(options);
  const std::vector<std::int64_t> src = {0, 1, 0}, dst = {1, 2, 1}, outside = {1, 3, 1}, other = {1, 2, 2};
  const Row x = {1, 2, 3}, weight = {1, 2, 3}, bad = {1, NAN, 3};
  CHECK_THROWS(store.load({3, bad, {}, {src, other, {}, weight}}, 2), ErrorKind::ValueInvalid);
  CHECK_THROWS(store.load({3, x, {}, {src, other, {}, bad}}, 2), ErrorKind::ValueInvalid);
  CHECK_THROWS(store.load({3, x, {}, {src, outside, {}, weight}}, 2), ErrorKind::VertexUnknown);
  CHECK_THROWS(store.load({3, x, {}, {src, other}}, 2), ErrorKind::ColumnMissing);
  CHECK_THROWS(store.load({3, x, {}, {src, other, {}, weight, src}}, 2), ErrorKind::ColumnMissing);
  CHECK_THROWS(store.load({2, x, {}, {src, other, {}, weight}}, 2), ErrorKind::WidthMismatch);
  try {
    store.load({3, x, {}, {src, dst, {}, weight}}, 2);
    CHECK(!"a duplicate edge was loaded into a simple graph");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::EdgeDuplicate);
    CHECK(std::string(error.what()).find("0 -> 1") != std::string::npos);
  }
  CHECK(store.slot_count() == 0 && store.edge_count() == 0);
  store.load({3, x, {}, {src, other, {}, weight}}, 2);
  store.check_invariants();
  CHECK_THROWS(store.load({3, x, {}, {src, other, {}, weight}}, 2), ErrorKind::StateMismatch);
}

TEST(options_are_checked) {
  GraphOptions options;
  options.block_edges_max = 1;
  CHECK_THROWS(GraphStore{options}, ErrorKind::ValueInvalid);
  options.block_edges_max = 128;
  options.feature_width = -1;
  CHECK_THROWS(GraphStore{options}, ErrorKind::ValueInvalid);
}

}  // namespace
}  // namespace livegnn::testing

LIVEGNN_TEST_MAIN
