// Reservoirs under random streams, by several threads, with readers beside: rows equal a scan after every batch, and
// what is read is one whole version.
#include <atomic>
#include <random>
#include <thread>

#include "livegnn/engine.h"
#include "livegnn/sampling.h"
#include "tests/check.h"

namespace livegnn::testing {
namespace {

struct World {
  explicit World(VertexId vertices, bool undirected = false) : graph(options(undirected)), count(vertices) {
    const std::vector<float> features(static_cast<std::size_t>(vertices) * 2, 1.0f);
    graph.load({vertices, features}, 1);
  }
  static GraphOptions options(bool undirected) {
    GraphOptions wanted;
    wanted.feature_width = 2;
    wanted.has_weight = wanted.has_time = wanted.has_type = true;
    wanted.undirected = undirected;
    wanted.block_edges_max = 16;
    return wanted;
  }

  void add(UpdateBuffer& batch, VertexId u, VertexId v, EdgeTime time, float weight, std::int32_t type) {
    Update update{};
    update.kind = UpdateKind::AddEdge;
    update.u = u;
    update.v = v;
    update.has_weight = true;
    update.weight = weight;
    update.time = time;
    update.type = type;
    batch.add(update);
  }
  // Additions at skewed vertices, removals and new weights of edges that are there.
  UpdateBuffer batch(int size) {
    UpdateBuffer made;
    std::vector<EdgeRecord> edges;
    graph.visit_edges([&](const EdgeRecord& edge) { edges.push_back(edge); });
    std::shuffle(edges.begin(), edges.end(), rng);
    for (int i = 0; i < size; ++i) {
      const auto kind = rng() % 10;
      if (kind < 6 || edges.empty()) {
        const auto u = static_cast<VertexId>(rng() % 3 == 0 ? rng() % 2 : rng() % count);
        add(made, u, static_cast<VertexId>(rng() % count), now + rng() % 40 - 20, rng() % 5 * 0.5f, rng() % 2);
        ++now;
        continue;
      }
      Update update{};
      update.kind = kind < 9 ? UpdateKind::RemoveEdge : UpdateKind::SetWeight;
      update.u = edges.back().src;
      update.v = edges.back().dst;
      update.edge_id = edges.back().id;
      if (kind == 9) {
        update.has_weight = true;
        update.weight = static_cast<float>(rng() % 4);
      }
      edges.pop_back();
      made.add(update);
    }
    return made;
  }

  std::mt19937 rng{17};
  GraphStore graph;
  VertexId count;
  EdgeTime now = 100;
};

void apply(World& world, BatchFollower* follower, const UpdateBuffer& batch) {
  BatchFollower* followers[] = {follower};
  apply_batch(world.graph, {}, followers, batch);
}

TEST(rows_equal_a_scan_after_every_batch) {
  for (const bool undirected : {false, true}) {
    for (const EdgeTime ttl : {0, 60}) {
      World world(40, undirected);
      Reservoirs many(world.graph, {11, 3, true, false}), tracked(world.graph, {11, 1, false, true});
      std::int32_t hop = 1;
      for (const SampleBy by : {SampleBy::Random, SampleBy::TopK, SampleBy::Weighted}) {
        for (const HopDirection direction : {HopDirection::Out, HopDirection::In, HopDirection::Both}) {
          const OneHop query{hop++, hop % 2 == 0 ? kAnyType : 1, direction, by, 3, ttl};
          CHECK(many.add_table(query) == tracked.add_table(query));
        }
      }
      for (int round = 0; round < 30; ++round) {
        const UpdateBuffer batch = world.batch(round % 3 == 0 ? 700 : 20);  // the large ones go to the pool
        BatchFollower* followers[] = {&many, &tracked};
        apply_batch(world.graph, {}, followers, batch);
        many.check_invariants();
        tracked.check_invariants();
        CHECK(many.digest() == tracked.digest());
      }
      CHECK(many.stats().refills > 0);
      Reservoirs owned(world.graph, {11, 1, false, false}, std::vector<std::uint8_t>(kBuckets, 0));
      owned.add_table({});
      owned.check_invariants();
      CHECK(owned.view(0, 0).neighbours.empty());
    }
  }
}

TEST(a_refused_batch_leaves_the_rows_alone) {
  World world(10);
  Reservoirs reservoirs(world.graph, {1, 2, true, false});
  reservoirs.add_table({1, kAnyType, HopDirection::Out, SampleBy::Weighted, 2, 0});
  apply(world, &reservoirs, world.batch(50));
  const std::uint64_t before = reservoirs.digest(), graph_before = world.graph.digest();
  UpdateBuffer bad = world.batch(5);
  world.add(bad, 0, 1, 0, -1.0f, 0);
  CHECK_THROWS(apply(world, &reservoirs, bad), ErrorKind::ValueInvalid);
  CHECK(reservoirs.digest() == before && world.graph.digest() == graph_before);
  reservoirs.check_invariants();
}

TEST(readers_see_whole_versions) {
  constexpr VertexId kRing = 300;
  constexpr int kRounds = 40;
  World world(kRing);
  Reservoirs reservoirs(world.graph, {1, 2, true, false});
  const std::int32_t tables[] = {reservoirs.add_table({1, kAnyType, HopDirection::Out, SampleBy::TopK, 1, 0}),
                                 reservoirs.add_table({2, kAnyType, HopDirection::Out, SampleBy::TopK, 1, 0})};
  const auto step = [&](int round) {  // version `round` points every vertex v at v + round, and says so in its features
    UpdateBuffer batch;
    for (VertexId v = 0; v < kRing; ++v) {
      world.add(batch, v, (v + round) % kRing, round, 1.0f, 0);
      Update update{};
      update.kind = UpdateKind::SetFeatures;
      update.u = v;
      const float row[] = {static_cast<float>(round), 0.0f};
      update.row = batch.add_row(row);
      update.row_width = 2;
      batch.add(update);
    }
    apply(world, &reservoirs, batch);
  };
  step(1);
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0, reads = 0;
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      std::vector<std::int64_t> seeds(kRing), first(kRing), second(kRing);
      std::vector<float> rows(kRing * 2);
      std::vector<float> own(kRing * 2), near(kRing * 2);
      for (VertexId v = 0; v < kRing; ++v) seeds[v] = v;
      while (!stop) {
        SampleRequest request{
            tables, seeds, {first.data(), second.data()}, {}, {own.data(), near.data(), rows.data()}, {2, 2, 2}};
        const std::int64_t version = reservoirs.sample(request);
        for (VertexId v = 0; v < kRing; ++v) {
          wrong += first[v] != (v + version) % kRing || second[v] != (v + 2 * version) % kRing;
          wrong += rows[2 * v] != static_cast<float>(version);
        }
        ++reads;
      }
    });
  }
  readers.emplace_back([&] {  // tables that come and go, and numbers that are looked at, disturb nobody
    while (!stop) wrong += reservoirs.stats().rows_live == 0 || reservoirs.stats().refills != 0 || reservoirs.now() < 1;
  });
  while (reads == 0) std::this_thread::yield();
  for (int round = 2; round <= kRounds; ++round) {
    step(round);
    reservoirs.drop_table(reservoirs.add_table({3, kAnyType, HopDirection::In, SampleBy::Random, 2, 0}));
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);
  reservoirs.check_invariants();
}

}  // namespace
}  // namespace livegnn::testing

LIVEGNN_TEST_MAIN
