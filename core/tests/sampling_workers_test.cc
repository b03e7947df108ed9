// The parts of sampling workers one by one: what a partition takes, rows of features, subscriptions of two workers on
// the example of Helios, Figure 7, and tables that take whole steps.
#include "livegnn/sampling_workers.h"

#include <memory>
#include <string>
#include <vector>

#include "tests/check.h"

using namespace livegnn;

namespace {
Update edge(UpdateKind kind, std::int64_t u, std::int64_t v) {
  Update update{};
  update.kind = kind;
  update.u = u;
  update.v = v;
  return update;
}

std::vector<std::uint8_t> flags(bool all) { return std::vector<std::uint8_t>(kBuckets, all ? 1 : 0); }

std::vector<std::uint8_t> bucket_flags(VertexId v) {
  std::vector<std::uint8_t> owned = flags(false);
  owned[static_cast<std::size_t>(bucket_of(v))] = 1;
  return owned;
}

TEST(a_partition_keeps_its_edges_and_numbers_all) {
  CHECK(bucket_of(0) != bucket_of(1) && bucket_of(1) != bucket_of(2));
  UpdateBuffer batch;
  batch.add(edge(UpdateKind::AddEdge, 0, 1));
  batch.add(edge(UpdateKind::AddEdge, 1, 2));
  batch.add(edge(UpdateKind::AddEdge, 2, 0));
  batch.add(edge(UpdateKind::RemoveVertex, 2, -1));
  const auto ids = [&](EdgePolicy policy) {
    const PartitionedUpdates part = partition_updates(batch, bucket_flags(0), policy, 7);
    CHECK(part.next_edge_id == 10);
    std::vector<EdgeId> found;
    for (const Update& update : part.buffer.updates()) found.push_back(update.edge_id);
    return found;
  };
  CHECK((ids(EdgePolicy::BySource) == std::vector<EdgeId>{7, kNoEdge}));
  CHECK((ids(EdgePolicy::ByDestination) == std::vector<EdgeId>{9, kNoEdge}));
  CHECK((ids(EdgePolicy::Both) == std::vector<EdgeId>{7, 9, kNoEdge}));
}

TEST(a_store_takes_given_edge_ids_with_gaps) {
  GraphStore store(GraphOptions{});
  UpdateBuffer batch;
  for (VertexId v = 0; v < 3; ++v) batch.add(edge(UpdateKind::AddVertex, v, -1));
  Update first = edge(UpdateKind::AddEdge, 0, 1), second = edge(UpdateKind::AddEdge, 1, 2);
  first.edge_id = 5;
  second.edge_id = 9;
  batch.add(first);
  batch.add(second);
  batch.add(edge(UpdateKind::RemoveEdge, 0, 1));
  const BatchDelta delta = store.apply(batch);
  CHECK(delta.added.size() == 1 && delta.added[0].id == 9 && delta.removed.empty());
  CHECK(store.next_edge_id() == 10 && store.newest_edge(1, 2).id == 9);
  batch.clear();
  batch.add(second);  // an id that was given before
  CHECK_THROWS(store.apply(batch), ErrorKind::ValueInvalid);
  store.undo(delta);
  CHECK(store.next_edge_id() == 0 && store.edge_count() == 0);
  store.check_invariants();
}

TEST(rows_of_features_come_change_and_go) {
  FeatureRows rows(2);
  CHECK(rows.set(4, std::vector<float>{1, 2}) && rows.count() == 1);
  CHECK(!rows.set(4, std::vector<float>{1, 2}));
  CHECK(rows.set(4, std::vector<float>{1}) && rows.find(4)[1] == 0.0f);  // a narrower type's row
  CHECK(rows.set(9, std::vector<float>{3, 3}));
  CHECK((rows.vertices() == std::vector<VertexId>{4, 9}));
  rows.erase(4);
  rows.erase(4);
  CHECK(rows.find(4) == nullptr && rows.find(9)[0] == 3.0f && rows.count() == 1);
}

// A graph of four vertices on one worker, with a query of two hops, fan-out 1, the latest edge.
struct OneWorker {
  OneWorker() : store(options()), rows(1) {
    const std::vector<float> none;
    const std::vector<std::int64_t> src{0, 1, 2}, dst{1, 3, 3}, time{1, 1, 1};
    store.load({4, none, {}, {src, dst, {}, {}, time}}, 1);
    for (VertexId v = 0; v < 4; ++v) rows.set(v, std::vector<float>{static_cast<float>(v)});
    reservoirs = std::make_unique<Reservoirs>(store, SamplingOptions{0, 1, false, true});
    for (std::int32_t hop = 1; hop <= 2; ++hop) {
      reservoirs->add_table({hop, kAnyType, HopDirection::Out, SampleBy::TopK, 1, 0});
    }
    std::vector<SubscribedTable> tables{{0, 1, {1}, {kAnyType}}, {1, 2, {}, {}}};
    subscriptions = std::make_unique<Subscriptions>(store, *reservoirs, rows, std::move(tables),
                                                    std::vector<std::uint16_t>(kBuckets, 0), 0, 1);
  }
  static GraphOptions options() {
    GraphOptions wanted;
    wanted.has_time = true;
    return wanted;
  }
  void finish() {
    subscriptions->advance();
    subscriptions->advance();
    subscriptions->finish();
  }
  void apply(const UpdateBuffer& batch) {
    const BatchDelta delta = store.apply(batch);
    reservoirs->follow(delta, batch);
    subscriptions->follow(delta, batch);
    finish();
  }

  GraphStore store;
  FeatureRows rows;
  std::unique_ptr<Reservoirs> reservoirs;
  std::unique_ptr<Subscriptions> subscriptions;
};

TEST(a_changed_sample_moves_the_subscriptions_behind_it) {
  OneWorker worker;
  std::vector<std::uint64_t> serving(kBuckets, 0);
  serving[static_cast<std::size_t>(bucket_of(0))] = 0b10;  // serving worker 1 has the seed 0, and no other
  worker.subscriptions->route(serving);
  worker.finish();
  const Push first = worker.subscriptions->push(1);
  CHECK((first.table == std::vector<std::int32_t>{0, 1} && first.vertex == std::vector<VertexId>{0, 1}));
  CHECK((first.neighbours == std::vector<VertexId>{1, 3} && first.feature_vertex == std::vector<VertexId>{0, 1, 3}));
  CHECK(worker.subscriptions->push(0).vertex.empty());
  UpdateBuffer batch;  // 0 -> 2 is newer: 2 takes the place of 1, which nobody else needs; 3 stays needed
  Update newer = edge(UpdateKind::AddEdge, 0, 2);
  newer.time = 5;
  batch.add(newer);
  worker.apply(batch);
  const Push second = worker.subscriptions->push(1);
  CHECK((second.vertex == std::vector<VertexId>{0, 2} && second.dropped == std::vector<VertexId>{1}));
  CHECK((second.dropped_table == std::vector<std::int32_t>{1}));
  CHECK((second.feature_vertex == std::vector<VertexId>{2} && second.features_dropped == std::vector<VertexId>{1}));
  const Reasons counts = worker.subscriptions->counts();
  CHECK(counts.table.back() == kFeatureReasons && counts.vertex.back() == 3 && counts.serving.back() == 1);
  OneWorker restored;  // of the older graph, but counts are counts
  restored.subscriptions->restore(counts, serving);
  CHECK(restored.subscriptions->counts().vertex == counts.vertex);
}

TEST(tables_take_steps_whole_and_answer_for_their_seeds) {
  ServingTables tables({2}, 1);
  Push push;
  push.table = {0};
  push.vertex = {5};
  push.count = {2};
  push.neighbours = {7, 8};
  push.edge_ids = {70, 80};
  push.feature_vertex = {5, 7, 8};
  push.features = {0.5f, 0.7f, 0.8f};
  tables.apply({&push, 1}, bucket_flags(5), 3);
  const std::vector<std::int32_t> wanted{0};
  std::vector<std::int64_t> seeds{5}, vertices(2), ids(2);
  std::vector<float> level_0(1), level_1(2);
  SampleRequest request{wanted, seeds, {vertices.data()}, {ids.data()}, {level_0.data(), level_1.data()}, {1, 1}};
  CHECK(tables.sample(request) == 3);
  CHECK((vertices == std::vector<std::int64_t>{7, 8} && ids == std::vector<std::int64_t>{70, 80}));
  CHECK((level_0[0] == 0.5f && level_1 == std::vector<float>{0.7f, 0.8f}));
  seeds[0] = 7;  // here, but no seed of this worker
  CHECK_THROWS(tables.sample(request), ErrorKind::VertexUnknown);
  seeds[0] = 6;
  CHECK_THROWS(tables.sample(request), ErrorKind::VertexUnknown);
  const Push all = tables.contents();
  CHECK(all.vertex == push.vertex && all.features == push.features);
  Push drop;
  drop.dropped_table = {0};
  drop.dropped = {5};
  drop.features_dropped = {8};
  tables.apply({&drop, 1}, bucket_flags(5), 4);
  seeds[0] = 5;
  CHECK(tables.sample(request) == 4);
  CHECK((vertices == std::vector<std::int64_t>{-1, -1} && tables.contents().vertex.empty()));
  CHECK_THROWS(tables.apply({&drop, 1}, bucket_flags(5), 5), ErrorKind::InvariantBroken);
}
}  // namespace

LIVEGNN_TEST_MAIN
