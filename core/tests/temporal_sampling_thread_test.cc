// Temporal samples by several threads equal those of one, over a graph that changes, pinned and not; and buffers that
// are given back by other threads.
#include <algorithm>
#include <random>
#include <thread>

#include "livegnn/temporal.h"
#include "tests/check.h"

namespace livegnn::testing {
namespace {

struct World {
  World() : graph(options()) { graph.load({.slot_count = 40}, 1); }
  static GraphOptions options() {
    GraphOptions wanted;
    wanted.has_time = true;
    wanted.block_edges_max = 8;
    return wanted;
  }
  UpdateBuffer batch(int size) {
    UpdateBuffer made;
    std::vector<EdgeRecord> edges;
    graph.visit_edges([&](const EdgeRecord& edge) { edges.push_back(edge); });
    std::shuffle(edges.begin(), edges.end(), rng);
    for (int i = 0; i < size; ++i) {
      Update update{};
      const bool adds = rng() % 3 != 0 || edges.empty();
      update.kind = adds ? UpdateKind::AddEdge : UpdateKind::RemoveEdge;
      update.u = adds ? static_cast<std::int64_t>(rng() % 40) : edges.back().src;
      update.v = adds ? static_cast<std::int64_t>(std::min(rng() % 40, rng() % 40)) : edges.back().dst;
      if (adds) update.time = static_cast<std::int64_t>(rng() % 1000);
      if (!adds) {
        update.edge_id = edges.back().id;
        edges.pop_back();
      }
      made.add(update);
    }
    return made;
  }
  GraphStore graph;
  std::mt19937_64 rng{1};
};

TemporalOptions options_of(TemporalBy by, int threads) {
  TemporalOptions options;
  options.fan_outs = {5, 3};
  options.by = by;
  options.threads = threads;
  return options;
}

using Hops = std::vector<TemporalHopArrays>;

bool same(const Hops& a, const Hops& b) {
  const auto equal = [](auto x, auto y) { return std::equal(x.begin(), x.end(), y.begin(), y.end()); };
  for (std::size_t k = 0; k < a.size(); ++k) {
    if (!equal(a[k].ptr, b[k].ptr) || !equal(a[k].edge_ids, b[k].edge_ids) ||
        !equal(a[k].edge_index, b[k].edge_index) || !equal(a[k].next_targets, b[k].next_targets) ||
        !equal(a[k].next_times, b[k].next_times)) {
      return false;
    }
  }
  return a.size() == b.size();
}

struct Targets {
  explicit Targets(std::mt19937_64& rng) {
    for (int i = 0; i < 1500; ++i) {
      vertices.push_back(static_cast<std::int64_t>(std::min(rng() % 40, rng() % 40)));
      times.push_back(static_cast<std::int64_t>(rng() % 1100));
    }
  }
  std::vector<std::int64_t> vertices, times;
};

}  // namespace

TEST(threads_do_not_show) {
  World world;
  for (const TemporalBy by : {TemporalBy::Recent, TemporalBy::Uniform}) {
    TemporalSampler one(world.graph, options_of(by, 1)), three(world.graph, options_of(by, 3));
    for (std::uint64_t call = 0; call < 6; ++call) {
      world.graph.apply(world.batch(800));
      const Targets targets(world.rng);
      CHECK(same(one.sample(targets.vertices, targets.times, call, 0, nullptr),
                 three.sample(targets.vertices, targets.times, call, 0, nullptr)));
    }
  }
}

// Chains that were loaded at once begin as one run; edges that come and go break it up.
TEST(pasts_of_loaded_chains_are_the_edges_before) {
  World world;
  std::vector<std::int64_t> src, dst, time;
  for (int i = 0; i < 4000; ++i) {
    src.push_back(static_cast<std::int64_t>(world.rng() % 40));
    dst.push_back(static_cast<std::int64_t>(std::min(world.rng() % 40, world.rng() % 40)));
    time.push_back(static_cast<std::int64_t>(world.rng() % 600));
  }
  GraphArrays loaded;
  loaded.slot_count = 40;
  loaded.edges.src = src;
  loaded.edges.dst = dst;
  loaded.edges.time = time;
  GraphStore graph(World::options());
  graph.load(loaded, 1);
  TemporalOptions options;
  options.fan_outs = {-1};
  TemporalSampler sampler(graph, options);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::vector<std::pair<EdgeTime, EdgeId>>> lists(40);
    graph.visit_edges(
        [&](const EdgeRecord& edge) { lists[static_cast<std::size_t>(edge.dst)].emplace_back(edge.time, edge.id); });
    const Targets targets(world.rng);
    const Hops hops = sampler.sample(targets.vertices, targets.times, 0, 0, nullptr);
    std::vector<std::int64_t> wanted;
    for (std::size_t i = 0; i < targets.times.size(); ++i) {
      auto& list = lists[static_cast<std::size_t>(targets.vertices[i])];
      std::sort(list.begin(), list.end());
      for (const auto& [when, id] : list) {
        if (when < targets.times[i]) wanted.push_back(id);
      }
    }
    CHECK(std::ranges::equal(hops[0].edge_ids, wanted));
    UpdateBuffer batch;
    for (int i = 0; i < 20; ++i) {  // newest ones and late ones
      Update update{};
      update.kind = UpdateKind::AddEdge;
      update.u = static_cast<std::int64_t>(world.rng() % 40);
      update.v = static_cast<std::int64_t>(std::min(world.rng() % 40, world.rng() % 40));
      update.time = i % 3 == 0 ? static_cast<std::int64_t>(world.rng() % 700) : 700 + round;
      batch.add(update);
    }
    graph.apply(batch);
  }
}

// As workers do that share a hop: each samples some of its rows.
TEST(rows_of_a_hop_are_answered_as_in_the_whole) {
  World world;
  world.graph.apply(world.batch(3000));
  const Targets targets(world.rng);
  for (const TemporalBy by : {TemporalBy::Recent, TemporalBy::Uniform}) {
    TemporalSampler sampler(world.graph, options_of(by, 2));
    const Hops whole = sampler.sample(targets.vertices, targets.times, 9, 0, nullptr);
    for (std::size_t hop = 0; hop < whole.size(); ++hop) {
      std::vector<std::int64_t> vertices, times, rows;
      for (std::size_t row = 0; row < whole[hop].targets.size(); row += 1 + world.rng() % 3) {
        vertices.push_back(whole[hop].targets[row]);
        times.push_back(whole[hop].target_times[row]);
        rows.push_back(static_cast<std::int64_t>(row));
      }
      const TemporalHopArrays part = sampler.sample_rows(vertices, times, rows, {hop, 9, 0});
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto row = static_cast<std::size_t>(rows[i]);
        const auto edges = [](const TemporalHopArrays& of, std::size_t at) {
          return of.edge_ids.subspan(static_cast<std::size_t>(of.ptr[at]),
                                     static_cast<std::size_t>(of.ptr[at + 1] - of.ptr[at]));
        };
        const auto got = edges(part, i), wanted = edges(whole[hop], row);
        CHECK(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()));
      }
    }
  }
}

TEST(a_pin_stays_where_it_is) {
  World world;
  world.graph.apply(world.batch(3000));
  for (const TemporalBy by : {TemporalBy::Recent, TemporalBy::Uniform}) {
    TemporalSampler sampler(world.graph, options_of(by, 3));
    const Targets targets(world.rng);
    TemporalPin pin(world.graph);
    const Hops before = sampler.sample(targets.vertices, targets.times, 7, 0, nullptr);
    const TemporalWalkArrays walks = sampler.walks(targets.vertices, targets.times, 4, 7, nullptr);
    for (int i = 0; i < 4; ++i) {
      const UpdateBuffer batch = world.batch(500);
      pin.follow(world.graph.apply(batch), batch);
      CHECK(same(before, sampler.sample(targets.vertices, targets.times, 7, 0, &pin)));
      CHECK(walks.edge_ids == sampler.walks(targets.vertices, targets.times, 4, 7, &pin).edge_ids);
    }
    CHECK(!same(before, sampler.sample(targets.vertices, targets.times, 7, 0, nullptr)));
    CHECK(pin.bytes() > 0);
  }
}

// The first readers of a hub make its table, at the same time.
TEST(readers_side_by_side) {
  World world;
  world.graph.apply(world.batch(5000));
  const Targets targets(world.rng);
  TemporalSampler known(world.graph, options_of(TemporalBy::Uniform, 1));
  const GraphStore& graph = world.graph;
  std::vector<Hops> found(4);
  std::vector<std::thread> readers;
  for (Hops& hops : found) {
    readers.emplace_back([&] {
      TemporalSampler sampler(graph, options_of(TemporalBy::Uniform, 2));
      hops = sampler.sample(targets.vertices, targets.times, 1, 0, nullptr);
    });
  }
  for (std::thread& reader : readers) reader.join();
  const Hops wanted = known.sample(targets.vertices, targets.times, 1, 0, nullptr);
  for (const Hops& hops : found) CHECK(same(wanted, hops));
}

TEST(buffers_are_given_back_by_any_thread) {
  TemporalBuffers buffers;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = 1; i < 200; ++i) {
        TemporalBuffers::Buffer buffer = buffers.take(i * 10);
        CHECK(buffer.capacity >= i * 10);
        std::fill_n(buffer.values.get(), i * 10, 1);
        buffers.give(std::move(buffer));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::int64_t* given = nullptr;  // and are used again
  for (int i = 0; i < 2; ++i) {
    TemporalBuffers::Buffer buffer = buffers.take(5000);
    CHECK(i == 0 || buffer.values.get() == given);
    given = buffer.values.get();
    buffers.give(std::move(buffer));
  }
}

TEST(a_target_that_is_not_live_is_named) {
  World world;
  TemporalSampler sampler(world.graph, options_of(TemporalBy::Recent, 1));
  const std::vector<std::int64_t> vertices = {1, 40}, times = {1, 1};
  CHECK_THROWS(sampler.sample(vertices, times, 0, 0, nullptr), ErrorKind::VertexUnknown);
  CHECK_THROWS(sampler.walks(vertices, times, 2, 0, nullptr), ErrorKind::VertexUnknown);
}

}  // namespace livegnn::testing

LIVEGNN_TEST_MAIN
