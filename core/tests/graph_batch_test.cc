// What a batch refuses and says, its net effect, and its way back, one plain example each.
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>
#include <string>

#include "tests/graph_model.h"

static long allocations = 0;
static long allocations_left = -1;  // before one fails; negative: none does

// Never inlined: seen through, the pair of malloc and free looks mismatched to the compiler.
__attribute__((noinline)) void* operator new(std::size_t bytes) {
  ++allocations;
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace livegnn::testing {
namespace {

Update edge_update(UpdateKind kind, std::int64_t u, std::int64_t v) {
  Update update{};
  update.kind = kind;
  update.u = u;
  update.v = v;
  return update;
}

Update weighted(UpdateKind kind, std::int64_t u, std::int64_t v, float weight) {
  Update update = edge_update(kind, u, v);
  update.has_weight = true;
  update.weight = weight;
  return update;
}

Update with_row(UpdateBuffer& batch, UpdateKind kind, std::int64_t u, const Row& row) {
  Update update = edge_update(kind, u, -1);
  update.row = batch.add_row(row);
  update.row_width = static_cast<std::int32_t>(row.size());
  return update;
}

// Vertices 0 .. 3 with features (v, v); edges 0 -> 1 (id 0), 0 -> 1 (id 1), 1 -> 1 (id 2), 2 -> 0 (id 3), weights 1
// .. 4.
std::unique_ptr<GraphStore> small_graph(bool undirected = false) {
  GraphOptions options;
  options.feature_width = 2;
  options.has_weight = true;
  options.undirected = undirected;
  auto store = std::make_unique<GraphStore>(options);
  const Row x = {0, 0, 1, 1, 2, 2, 3, 3}, weight = {1, 2, 3, 4};
  const std::vector<std::int64_t> src = {0, 0, 1, 2}, dst = {1, 1, 1, 0};
  store->load({4, x, {}, {src, dst, {}, weight}}, 1);
  return store;
}

std::string message_of(GraphStore& store, const UpdateBuffer& batch) {
  try {
    store.apply(batch);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(messages_name_the_update) {
  auto store = small_graph();
  UpdateBuffer batch;
  batch.add(weighted(UpdateKind::AddEdge, 0, 3, 1));
  batch.add(edge_update(UpdateKind::RemoveEdge, 3, 2));
  CHECK(message_of(*store, batch) ==
        "[apply] update 1 (remove_edge 3 -> 2): expected an edge, got none; add it first, or pass missing=\"ignore\"");
  batch.clear();
  batch.add(with_row(batch, UpdateKind::SetFeatures, 9, {1, 1}));
  CHECK(message_of(*store, batch) ==
        "[apply] update 0 (set_features 9): expected vertex ids in 0 .. 3, got 9; add the vertex first");
}

TEST(errors_have_the_facts_of_their_update) {
  auto store = small_graph();
  UpdateBuffer batch;
  batch.add(weighted(UpdateKind::AddEdge, 0, 3, 1));
  batch.add(edge_update(UpdateKind::RemoveEdge, 3, 2));
  ErrorFacts facts;
  try {
    store->apply(batch);
  } catch (const Error& error) {
    facts = error.facts();
    CHECK(error.what() == std::string(Error(error.kind(), facts).what()));
  }
  CHECK(facts.where == "apply" && facts.expected == "an edge" && facts.got == "none");
  CHECK(facts.update == 1 && !facts.vertex);
  CHECK((facts.edge == std::pair<std::int64_t, std::int64_t>(3, 2)));
}

TEST(every_refusal_has_its_kind) {
  auto store = small_graph();
  const std::uint64_t before = store->digest();
  const auto refused = [&](const Update& update, ErrorKind kind) {
    UpdateBuffer batch;
    batch.add(weighted(UpdateKind::AddEdge, 3, 3, 1));
    batch.add(with_row(batch, UpdateKind::AddVertex, 4, {5, 5}));
    batch.add(edge_update(UpdateKind::RemoveVertex, 0, -1));
    batch.add(update);
    CHECK_THROWS(store->apply(batch), kind);
    CHECK(store->digest() == before && store->version() == 0 && store->next_edge_id() == 4 && store->slot_count() == 4);
    store->check_invariants();
  };
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  refused(weighted(UpdateKind::AddEdge, 0, 1, 1), ErrorKind::VertexUnknown);  // removed by the batch
  refused(weighted(UpdateKind::AddEdge, 1, 5, 1), ErrorKind::VertexUnknown);
  refused(weighted(UpdateKind::AddEdge, -2, 1, 1), ErrorKind::VertexUnknown);
  refused(weighted(UpdateKind::AddEdge, 1, std::int64_t{1} << 32, 1), ErrorKind::VertexUnknown);
  refused(weighted(UpdateKind::AddEdge, 1, 1, nan), ErrorKind::ValueInvalid);
  refused(weighted(UpdateKind::SetWeight, 1, 1, -inf), ErrorKind::ValueInvalid);
  refused(edge_update(UpdateKind::AddEdge, 1, 1), ErrorKind::ColumnMissing);
  refused(edge_update(UpdateKind::SetEdgeAttr, 1, 1), ErrorKind::ColumnMissing);
  refused(edge_update(UpdateKind::RemoveEdgesBefore, -1, -1), ErrorKind::ColumnMissing);
  refused(edge_update(UpdateKind::RemoveEdge, 1, 3), ErrorKind::EdgeMissing);
  refused(weighted(UpdateKind::SetWeight, 1, 3, 1), ErrorKind::EdgeMissing);
  refused(edge_update(UpdateKind::AddVertex, 1, -1), ErrorKind::VertexExists);
  refused(edge_update(UpdateKind::AddVertex, 7, -1), ErrorKind::VertexIdGap);
  refused(edge_update(UpdateKind::AddVertex, -1, -1), ErrorKind::VertexIdGap);
  refused(edge_update(UpdateKind::AddVertex, 5, -1), ErrorKind::WidthMismatch);
  Update timed = weighted(UpdateKind::AddEdge, 1, 2, 1);
  timed.time = 3;
  refused(timed, ErrorKind::ColumnMissing);
  Update typed = edge_update(UpdateKind::RemoveEdge, 1, 1);
  typed.type = 0;
  refused(typed, ErrorKind::ColumnMissing);
}

TEST(rows_are_checked) {
  auto store = small_graph();
  for (const Row& row : {Row{1, NAN}, Row{INFINITY, 1}}) {
    UpdateBuffer batch;
    batch.add(with_row(batch, UpdateKind::SetFeatures, 1, row));
    CHECK_THROWS(store->apply(batch), ErrorKind::ValueInvalid);
  }
  UpdateBuffer batch;
  batch.add(with_row(batch, UpdateKind::SetFeatures, 1, {1, 2, 3}));
  CHECK_THROWS(store->apply(batch), ErrorKind::WidthMismatch);
}

TEST(an_empty_batch_counts) {
  auto store = small_graph();
  const BatchDelta delta = store->apply(UpdateBuffer());
  CHECK(store->version() == 1 && delta.added.empty() && delta.removed.empty());
  store->undo(delta);
  CHECK(store->version() == 0);
}

TEST(the_newest_edge_goes_first) {
  auto store = small_graph();
  UpdateBuffer batch;
  batch.add(edge_update(UpdateKind::RemoveEdge, 0, 1));
  const BatchDelta delta = store->apply(batch);
  CHECK(delta.removed.size() == 1 && delta.removed[0].id == 1 && delta.removed[0].weight == 2);
  CHECK(store->newest_edge(0, 1).id == 0 && store->newest_edge(0, 1).weight == 1);
  CHECK(store->newest_edge(3, 1).id == kNoEdge);
}

TEST(what_came_and_went_does_not_show) {
  auto store = small_graph();
  UpdateBuffer batch;
  batch.add(weighted(UpdateKind::AddEdge, 3, 2, 7));
  batch.add(edge_update(UpdateKind::RemoveEdge, 3, 2));
  batch.add(weighted(UpdateKind::SetWeight, 2, 0, 9));
  batch.add(weighted(UpdateKind::SetWeight, 2, 0, 4));  // back to where it was
  batch.add(weighted(UpdateKind::SetWeight, 1, 1, 8));
  batch.add(weighted(UpdateKind::SetWeight, 1, 1, -8));  // once, from 3 to -8
  batch.add(with_row(batch, UpdateKind::SetFeatures, 2, {5, 5}));
  batch.add(with_row(batch, UpdateKind::SetFeatures, 2, {2, 2}));
  const BatchDelta delta = store->apply(batch);
  CHECK(delta.added.empty() && delta.removed.empty() && delta.features_changed.empty());
  CHECK(delta.reweighted.size() == 1);
  CHECK(delta.reweighted[0].before.weight == 3 && delta.reweighted[0].weight_after == -8);
  CHECK(store->next_edge_id() == 5);  // cancelled additions use up ids
}

TEST(a_vertex_may_leave_and_come_back_in_one_batch) {
  auto store = small_graph();
  UpdateBuffer batch;
  batch.add(edge_update(UpdateKind::RemoveVertex, 1, -1));
  batch.add(with_row(batch, UpdateKind::AddVertex, 1, {1, 9}));
  const BatchDelta delta = store->apply(batch);
  CHECK(delta.removed.size() == 3 && delta.vertices_added.empty() && delta.vertices_removed.empty());
  CHECK(delta.features_changed == std::vector<VertexId>{1});
  CHECK(delta.features_before[0] == 1 && delta.features_before[1] == 1);
  store->undo(delta);
  CHECK(store->digest() == small_graph()->digest());
}

TEST(undirected_edges_show_both_ways) {
  auto store = small_graph(true);
  CHECK(store->edge_count() == 4 && store->in_degree(0) == 3 && store->out_degree(0) == 3);
  UpdateBuffer batch;
  batch.add(weighted(UpdateKind::AddEdge, 3, 3, 1));
  batch.add(weighted(UpdateKind::AddEdge, 3, 2, 1));
  batch.add(edge_update(UpdateKind::RemoveEdge, 1, 0));
  const BatchDelta delta = store->apply(batch);
  CHECK(delta.added.size() == 3 && delta.removed.size() == 2);
  store->check_invariants();
  store->undo(delta);
  store->check_invariants();
  CHECK(store->digest() == small_graph(true)->digest());
}

TEST(undo_takes_batches_back_in_turn) {
  auto store = small_graph();
  std::vector<BatchDelta> deltas;
  std::vector<std::uint64_t> digests = {store->digest()};
  for (int i = 0; i < 5; ++i) {
    UpdateBuffer batch;
    batch.add(weighted(UpdateKind::AddEdge, i % 4, 3, static_cast<float>(i)));
    deltas.push_back(store->apply(batch));
    digests.push_back(store->digest());
  }
  CHECK_THROWS(store->undo(deltas[2]), ErrorKind::StateMismatch);
  CHECK_THROWS(store->undo(BatchDelta()), ErrorKind::StateMismatch);
  for (int i = 4; i >= 0; --i) {
    store->undo(deltas[i]);
    CHECK(store->digest() == digests[i] && store->next_edge_id() == 4 + i && store->version() == i);
  }
}

TEST(digest_sees_content_only) {
  auto one = small_graph(), other = small_graph();
  UpdateBuffer batch;
  batch.add(edge_update(UpdateKind::RemoveEdge, 2, 0));
  batch.add(weighted(UpdateKind::AddEdge, 2, 0, 4));  // the same edge under another id
  batch.add(with_row(batch, UpdateKind::AddVertex, 4, {1, 1}));
  batch.add(edge_update(UpdateKind::RemoveVertex, 4, -1));  // a dead slot
  one->apply(batch);
  CHECK(one->digest() == other->digest());
  batch.clear();
  batch.add(weighted(UpdateKind::AddEdge, 1, 1, 3));  // multiplicity counts
  one->apply(batch);
  CHECK(one->digest() != other->digest());
}

TEST(small_batches_allocate_nothing) {
  auto store = small_graph();
  UpdateBuffer add, change, remove;
  add.add(weighted(UpdateKind::AddEdge, 3, 2, 7));
  change.add(with_row(change, UpdateKind::SetFeatures, 2, {5, 5}));
  change.add(weighted(UpdateKind::SetWeight, 3, 2, 9));
  remove.add(edge_update(UpdateKind::RemoveEdge, 3, 2));
  BatchDelta delta;
  long before = 0;
  for (int i = 0; i < 20; ++i) {
    if (i == 10) before = allocations;
    for (const UpdateBuffer* batch : {&add, &change, &remove}) store->apply_into(*batch, &delta);
    store->undo(delta);
    store->apply_into(remove, &delta);
  }
  CHECK(allocations == before);
}

TEST(a_buffer_may_extend_itself) {
  UpdateBuffer batch;
  batch.add(with_row(batch, UpdateKind::SetFeatures, 1, {7, 8}));
  batch.extend(batch);
  CHECK(batch.size() == 2 && batch.row(batch.updates()[1])[1] == 8);
}

// A batch of runs with late edges, into lists, hubs and hubs with an index, in which each allocation fails in turn.
TEST(a_run_that_finds_no_memory_leaves_nothing) {
  for (const bool undirected : {false, true}) {
    GraphOptions options;
    options.has_time = true;
    options.undirected = undirected;
    options.block_edges_max = 4;
    GraphStore store(options);
    store.load({.slot_count = 40}, 1);
    const auto runs = [](std::int64_t first_time) {
      UpdateBuffer batch;
      for (int i = 0; i < 600; ++i) {
        Update update = edge_update(UpdateKind::AddEdge, i * 7 % 39, i % 3 == 0 ? 39 : i % 40);
        update.time = i % 5 == 0 ? i : first_time + i;
        batch.add(update);
        if (i == 300) batch.add(edge_update(UpdateKind::RemoveEdge, i * 7 % 39, 39));
      }
      return batch;
    };
    store.apply(runs(1000));
    UpdateBuffer looks;  // so that the hub gets its index
    for (int i = 0; i < 40; ++i) {
      looks.add(edge_update(UpdateKind::RemoveEdge, i % 39, 39));
      looks.updates().back().missing_ignore = true;
    }
    store.apply(looks);
    const UpdateBuffer batch = runs(2000);
    const std::uint64_t before = store.digest();
    const EdgeId next = store.next_edge_id();
    long refused = 0;
    for (long left = 0;; ++left) {
      bool applied = false;
      allocations_left = left;
      try {
        BatchDelta delta = store.apply(batch);
        applied = true;
        const bool all = allocations_left >= 0;
        allocations_left = -1;
        store.check_invariants();
        store.undo(delta);
        if (all) break;
      } catch (const std::bad_alloc&) {
      }
      allocations_left = -1;
      refused += !applied;
      store.check_invariants();
      CHECK(store.digest() == before && store.next_edge_id() == next);
      if (left % 16 == 15) store.compact();  // the next one allocates what it keeps again
    }
    CHECK(refused > 20);
  }
}

}  // namespace
}  // namespace livegnn::testing

LIVEGNN_TEST_MAIN
