// Long runs of added edges are written by a thread per direction; they must leave the store as single updates would.
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "livegnn/graph.h"
#include "tests/check.h"

namespace livegnn::testing {
namespace {

constexpr VertexId kVertices = 50;

GraphOptions all_columns(bool undirected, bool simple) {
  GraphOptions options;
  options.has_weight = options.has_time = options.has_type = true;
  options.attr_width = 2;
  options.undirected = undirected;
  options.simple = simple;
  options.block_edges_max = 8;  // so that a run makes hubs
  return options;
}

std::unique_ptr<GraphStore> empty_graph(const GraphOptions& options, int threads) {
  auto store = std::make_unique<GraphStore>(options);
  store->load({.slot_count = kVertices}, 1);
  store->set_apply_threads(threads);
  return store;
}

Update random_edge(std::mt19937& rng, UpdateBuffer& batch) {
  Update update{};
  update.kind = UpdateKind::AddEdge;
  update.u = static_cast<std::int64_t>(rng() % kVertices);
  update.v = static_cast<std::int64_t>(rng() % 3 == 0 ? rng() % 2 : rng() % kVertices);
  update.has_weight = true;
  update.weight = static_cast<float>(rng() % 8);
  update.time = rng() % 8 == 0 ? static_cast<std::int64_t>(rng() % 1000) : static_cast<std::int64_t>(batch.size());
  update.type = static_cast<std::int32_t>(rng() % 3);
  const float row[] = {update.weight, 1.0f};
  update.row = batch.add_row(row);
  update.row_width = 2;
  return update;
}

Update removal(const EdgeRecord& edge) {
  Update update{};
  update.kind = UpdateKind::RemoveEdge;
  update.u = edge.src;
  update.v = edge.dst;
  update.edge_id = edge.id;
  return update;
}

// Runs of additions with other updates between them: some long enough, some not.
UpdateBuffer mixed_batch(std::mt19937& rng) {
  UpdateBuffer batch;
  for (const int run : {2100, 40, 257, 256, 255, 1}) {
    for (int i = 0; i < run; ++i) batch.add(random_edge(rng, batch));
    Update last = batch.updates().back();
    last.kind = UpdateKind::RemoveEdge;
    last.has_weight = false;
    last.row = -1;
    last.time = kUnsetTime;
    last.type = kUnsetType;
    batch.add(last);
  }
  return batch;
}

std::vector<EdgeId> ids_of(const GraphStore& store) {
  std::vector<EdgeId> ids;
  for (VertexId v = 0; v < store.slot_count(); ++v) {
    const auto note = [&](const EdgeSpan& span) { ids.insert(ids.end(), span.ids, span.ids + span.count); };
    store.visit_out(v, note);
    store.visit_in(v, note);
  }
  return ids;
}

TEST(a_run_is_its_updates_one_by_one) {
  for (const int variant : {0, 1, 2, 3, 4, 5}) {
    std::mt19937 rng(3);
    const int threads = 1 + variant % 2;
    GraphOptions options = all_columns(variant % 3 == 2, false);
    if (variant >= 3) options.block_edges_max = 128;
    const auto runs = empty_graph(options, threads), singles = empty_graph(options, 1);
    for (int round = 0; round < 4; ++round) {
      const UpdateBuffer batch = mixed_batch(rng);
      const std::uint64_t before = runs->digest();
      const std::vector<EdgeId> ids_before = ids_of(*runs);
      const BatchDelta supposed = runs->apply(batch);
      runs->undo(supposed);
      runs->check_invariants();
      CHECK(runs->digest() == before && ids_of(*runs) == ids_before);
      const BatchDelta delta = runs->apply(batch);
      std::size_t added = 0;
      for (const Update& update : batch.updates()) {
        UpdateBuffer alone;
        Update copy = update;
        if (update.row >= 0) copy.row = alone.add_row({batch.row(update), 2});
        alone.add(copy);
        const BatchDelta one = singles->apply(alone);
        added += one.added.size();
        added -= one.removed.size();
      }
      runs->check_invariants();
      CHECK(runs->digest() == singles->digest());
      CHECK(ids_of(*runs) == ids_of(*singles));
      CHECK(runs->next_edge_id() == singles->next_edge_id());
      CHECK(delta.added.size() - delta.removed.size() == added);
      for (const EdgeRecord& edge : delta.added) CHECK(edge.time >= 0 && runs->edge_attr(edge.id) != nullptr);
      const BatchDelta last = runs->apply(mixed_batch(rng));
      runs->undo(last);
    }
    UpdateBuffer gone;
    runs->visit_edges([&](const EdgeRecord& edge) { gone.add(removal({edge.src, edge.dst, 1.0f, 0, edge.id})); });
    runs->apply(gone);
    runs->check_invariants();
    CHECK(runs->edge_count() == 0);
  }
}

TEST(a_bad_update_in_a_run_takes_the_batch_back_and_is_named) {
  std::mt19937 rng(4);
  const auto store = empty_graph(all_columns(false, false), 2);
  store->apply(mixed_batch(rng));
  const std::uint64_t before = store->digest();
  const EdgeId next = store->next_edge_id();
  for (const std::size_t place : {std::size_t{0}, std::size_t{123}, std::size_t{299}}) {
    UpdateBuffer batch;
    for (int i = 0; i < 300; ++i) batch.add(random_edge(rng, batch));
    batch.updates()[place].weight = std::numeric_limits<float>::quiet_NaN();
    std::string message;
    try {
      store->apply(batch);
    } catch (const Error& error) {
      message = error.what();
    }
    CHECK(message.find("update " + std::to_string(place) + " (add_edge") != std::string::npos);
    store->check_invariants();
    CHECK(store->digest() == before && store->next_edge_id() == next);
  }
}

// Nothing but the columns that a temporal stream has: the checks that name a mistake are then taken only where one is.
TEST(plain_runs_are_checked_as_others) {
  for (const bool undirected : {false, true}) {
    GraphOptions options;
    options.has_time = true;
    options.undirected = undirected;
    const auto store = empty_graph(options, 2);
    UpdateBuffer batch;
    for (int i = 0; i < 3000; ++i) {
      Update update{};
      update.kind = UpdateKind::AddEdge;
      update.u = i % 7;
      update.v = i % kVertices;
      update.time = i;
      batch.add(update);
    }
    store->apply_into(batch, nullptr);
    store->check_invariants();
    const std::uint64_t before = store->digest();
    CHECK(store->edge_count() == 3000 && store->next_edge_id() == 3000);
    const auto refused = [&](auto&& spoil, ErrorKind kind) {
      UpdateBuffer bad = batch;
      spoil(bad.updates()[2900]);
      CHECK_THROWS(store->apply(bad), kind);
      store->check_invariants();
      CHECK(store->digest() == before && store->version() == 1 && store->next_edge_id() == 3000);
    };
    refused([](Update& update) { update.u = kVertices; }, ErrorKind::VertexUnknown);
    refused([](Update& update) { update.v = -1; }, ErrorKind::VertexUnknown);
    refused([](Update& update) { update.time = kUnsetTime; }, ErrorKind::ColumnMissing);
    refused([](Update& update) { update.has_weight = true; }, ErrorKind::ColumnMissing);
    refused([](Update& update) { update.type = 0; }, ErrorKind::ColumnMissing);
    refused([](Update& update) { update.edge_id = 5; }, ErrorKind::ValueInvalid);
    UpdateBuffer gaps = batch;
    gaps.updates()[100].edge_id = 3500;
    const BatchDelta delta = store->apply(gaps);
    CHECK(undirected || delta.added.size() == 3000);
    CHECK(store->next_edge_id() == 3500 + 2900);
    store->undo(delta);
    store->check_invariants();
    CHECK(store->digest() == before && store->next_edge_id() == 3000);
  }
}

TEST(graphs_that_look_before_they_add_do_so) {
  std::mt19937 rng(5);
  for (const bool undirected : {false, true}) {
    const auto store = empty_graph(all_columns(undirected, true), 2);
    UpdateBuffer batch;
    for (int i = 0; i < 300; ++i) batch.add(random_edge(rng, batch));  // more edges than pairs of two vertices
    CHECK_THROWS(store->apply(batch), ErrorKind::EdgeDuplicate);
    CHECK(store->edge_count() == 0);
  }
}

}  // namespace
}  // namespace livegnn::testing

LIVEGNN_TEST_MAIN
