// The engine without Python: random streams against a run from scratch, every path and strategy, what_if, failed
// batches, and readers in other threads (run under ASan, UBSan and TSan).
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "livegnn/engine.h"
#include "tests/check.h"

using namespace livegnn;

namespace {

constexpr int kWidth = 6, kHidden = 20, kOut = 5, kVertices = 60;

std::vector<float> normal(std::mt19937& rng, int count, float scale = 0.4f) {
  std::normal_distribution<float> draw(0.0f, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& x : values) x = draw(rng);
  return values;
}

Instruction step(Op op, int out, int a, int index, int width) {
  Instruction made{};
  made.op = op;
  made.out = out;
  made.a = a;
  made.index = index;
  made.width = width;
  return made;
}

AggregationSpec sum(const char* name, int width, int stage, Norm norm, int table) {
  AggregationSpec spec;
  spec.name = name;
  spec.width = width;
  spec.stage = stage;
  spec.norm = norm;
  spec.message_table = table;
  spec.consumers = {stage + 1};
  return spec;
}

// relu(W1 (sum x)) with x as the message, then a degree-normalised sum of W2 h with self-loops.
Program two_layers(std::mt19937& rng) {
  Program p;
  p.input_width = kWidth;
  p.output_width = kOut;
  p.register_widths = {kWidth, kHidden, kOut};
  p.register_parents = {-1, -1, -1};
  p.register_offsets = {0, 0, 0};
  p.weights = {{kHidden, kWidth, normal(rng, kHidden * kWidth)}, {kOut, kHidden, normal(rng, kOut * kHidden)}};
  p.contexts = {{false, true, 1.0f}};
  p.aggregations = {sum("first", kWidth, 0, Norm::Sum, -1), sum("second", kOut, 1, Norm::Gcn, 0)};
  p.aggregations[0].root = Root::Message;
  p.aggregations[0].root_coefficient = 1.5f;
  p.aggregations[1].context = 0;
  p.aggregations[1].self_loops = true;
  p.aggregations[1].root = Root::Message;
  StoredSpec messages;
  messages.name = "messages";
  messages.width = kOut;
  messages.stage = 1;
  p.stored = {messages};
  p.stages.resize(3);
  p.stages[1] = {step(Op::LoadAggregate, 0, -1, 0, kWidth), step(Op::Gemm, 1, 0, 0, kHidden),
                 step(Op::Activate, 1, 1, -1, kHidden), step(Op::Gemm, 2, 1, 1, kOut),
                 step(Op::StoreMessage, -1, 2, 1, kOut)};
  p.stages[2] = {step(Op::LoadAggregate, 2, -1, 1, kOut), step(Op::Output, -1, 2, -1, kOut)};
  return p;
}

struct World {
  std::mt19937 rng;
  GraphStore graph;
  Program program;

  unsigned vertices;

  explicit World(unsigned seed, unsigned vertex_count = kVertices, unsigned edges_per_vertex = 4)
      : rng(seed), graph(options()), program(two_layers(rng)), vertices(vertex_count) {
    const std::vector<float> x = normal(rng, static_cast<int>(vertices) * kWidth, 1.0f);
    std::vector<std::int64_t> src, dst;
    for (unsigned e = 0; e < edges_per_vertex * vertices; ++e) {
      src.push_back(rng() % vertices);
      dst.push_back(rng() % vertices);
    }
    graph.load({vertices, x, {}, {src, dst}}, 1);
  }
  std::vector<std::int64_t> ids() const {
    std::vector<std::int64_t> all(vertices);
    for (unsigned v = 0; v < vertices; ++v) all[v] = v;
    return all;
  }
  static GraphOptions options() {
    GraphOptions made;
    made.feature_width = kWidth;
    made.block_edges_max = 4;
    return made;
  }
  void set_row(UpdateBuffer& batch, UpdateKind kind, std::int64_t u, float scale) {
    Update update{};
    update.kind = kind;
    update.u = u;
    const std::vector<float> row = normal(rng, kWidth, scale);
    update.row = batch.add_row(row);
    update.row_width = kWidth;
    batch.add(update);
  }
  UpdateBuffer batch(int size) {
    UpdateBuffer made;
    for (int i = 0; i < size; ++i) {
      Update update{};
      update.u = rng() % vertices;
      update.v = rng() % vertices;
      update.missing_ignore = true;
      if (rng() % 4 == 0) {
        set_row(made, UpdateKind::SetFeatures, update.u, 1.0f);
        continue;
      }
      update.kind = rng() % 2 == 0 ? UpdateKind::AddEdge : UpdateKind::RemoveEdge;
      made.add(update);
    }
    return made;
  }
};

EngineOptions with(int threads, Strategy strategy = Strategy::Incremental, Path path = Path::None) {
  EngineOptions options;
  options.threads = threads;
  options.strategy = strategy;
  options.force_path = path;
  return options;
}

bool refuses(GraphStore& graph, std::span<Engine* const> engines, const UpdateBuffer& batch) {
  try {
    apply_batch(graph, engines, {}, batch);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::RangeOverflow;
  }
  return false;
}

// Random batches, by engines of every kind on one graph.
void check_every_way(World& world, unsigned seed) {
  std::vector<std::unique_ptr<Engine>> kept;
  for (const Path path : {Path::None, Path::Push, Path::Pull, Path::Sweep}) {
    kept.push_back(
        Engine::create(world.graph, world.program, with(1 + static_cast<int>(seed % 2), Strategy::Incremental, path)));
  }
  for (const Path path : {Path::None, Path::Sweep}) {
    EngineOptions options = with(2, Strategy::Incremental, path);
    options.compact = true;
    kept.push_back(Engine::create(world.graph, world.program, options));
  }
  for (const Strategy strategy : {Strategy::Affected, Strategy::KHop, Strategy::Full}) {
    kept.push_back(Engine::create(world.graph, world.program, with(2, strategy)));
  }
  std::vector<Engine*> engines;
  for (const auto& engine : kept) engines.push_back(engine.get());
  for (int round = 0; round < 8; ++round) {
    apply_batch(world.graph, engines, {}, world.batch(1 + static_cast<int>(world.rng() % 12)));
    for (Engine* engine : engines) {
      CHECK(!engine->verify());
    }
    CHECK(engines[0]->digest() == engines[1]->digest());
    for (const std::size_t other : {2, 3, 4, 5, 6}) CHECK(engines[0]->digest() == engines[other]->digest());
  }
}

}  // namespace

TEST(every_strategy_path_and_thread_count_stays_equal_to_a_run_from_scratch) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    World world(seed);
    check_every_way(world, seed);
  }
}

TEST(sums_over_out_degrees_stay_equal_to_a_run_from_scratch) {
  for (const Scaling scaling : {Scaling::Root, Scaling::Inverse, Scaling::One}) {
    for (unsigned seed = 0; seed < 6; ++seed) {
      World world(seed);
      world.program.contexts[0] = {false, false, 1.0f, -1, true, scaling};
      AggregationSpec& second = world.program.aggregations[1];
      second.norm = scaling == Scaling::Root ? Norm::Gcn : Norm::Source;
      second.root = scaling == Scaling::One ? Root::Message : Root::None;
      check_every_way(world, seed);
    }
  }
}

TEST(what_if_puts_every_row_back) {
  World world(77);
  const auto engine = Engine::create(world.graph, world.program, with(2));
  for (int round = 0; round < 60; ++round) {
    const std::uint64_t state = engine->digest(), graph = world.graph.digest();
    {
      const UpdateBuffer batch = world.batch(9);
      WhatIf view(world.graph, *engine, batch);
      CHECK(!engine->staged_vertices().empty() || engine->digest() == state);
    }
    CHECK(engine->digest() == state);
    CHECK(world.graph.digest() == graph);
    CHECK(!engine->verify());
  }
}

TEST(a_message_out_of_range_rolls_everything_back) {
  World world(5);
  const auto engine = Engine::create(world.graph, world.program, with(1));
  Engine* engines[] = {engine.get()};
  const std::uint64_t state = engine->digest(), graph = world.graph.digest();
  UpdateBuffer batch = world.batch(5);
  world.set_row(batch, UpdateKind::SetFeatures, 3, 1e9f);
  CHECK(refuses(world.graph, engines, batch));
  CHECK(engine->digest() == state);
  CHECK(world.graph.digest() == graph);
  CHECK(!engine->verify());
}

TEST(large_batches_on_many_threads_stay_equal_to_a_run_from_scratch) {
  World world(21, 3000, 12);
  std::vector<std::unique_ptr<Engine>> kept;
  for (const int threads : {1, 2, 3})
    kept.push_back(Engine::create(world.graph, world.program, with(threads, Strategy::Incremental, Path::Push)));
  EngineOptions compact = with(2);
  compact.compact = true;
  kept.push_back(Engine::create(world.graph, world.program, compact));
  std::vector<Engine*> engines;
  for (const auto& engine : kept) engines.push_back(engine.get());
  for (const int size : {40, 400, 1500, 5, 3000}) {
    const std::vector<Changes> changes = apply_batch(world.graph, engines, {}, world.batch(size));
    for (std::size_t i = 0; i < engines.size(); ++i) {
      CHECK(!engines[i]->verify());
      CHECK(engines[i]->digest() == engines[0]->digest());
      Changes own = changes[i], first = changes[0];
      own.arrange();
      first.arrange();
      CHECK(own.vertices == first.vertices);
    }
    for (Engine* engine : {engines[2], engines[3]}) {
      const std::uint64_t state = engine->digest();
      const UpdateBuffer supposed = world.batch(size);
      {
        WhatIf view(world.graph, *engine, supposed);
      }
      CHECK(engine->digest() == state);
      CHECK(!engine->verify());
    }
  }
}

// Every version's rows are known beforehand; a reader must never see anything else, nor go back in time.
void check_readers(unsigned vertices, unsigned edges_per_vertex, int batch, int rounds) {
  World first(9, vertices, edges_per_vertex), second(9, vertices, edges_per_vertex);
  const std::vector<std::int64_t> ids = first.ids();
  const auto rows_of = [&](const Engine& engine) {
    std::vector<float> rows(ids.size() * kOut);
    engine.read(ids, rows.data());
    return rows;
  };
  const auto before = Engine::create(first.graph, first.program, with(2));
  const auto engine = Engine::create(second.graph, second.program, with(2));
  std::vector<std::vector<float>> versions{rows_of(*before)};
  for (int round = 0; round < rounds; ++round) {
    Engine* engines[] = {before.get()};
    apply_batch(first.graph, engines, {}, first.batch(batch));
    versions.push_back(rows_of(*before));
  }
  std::atomic<bool> stop = false;
  std::atomic<int> reads = 0, wrong = 0;
  std::thread reader([&] {
    std::size_t version = 0;
    while (!stop) {
      const std::vector<float> rows = rows_of(*engine);
      while (version < versions.size() && rows != versions[version]) ++version;
      if (version == versions.size()) {
        ++wrong;
        version = 0;
      }
      ++reads;
    }
  });
  while (reads == 0) std::this_thread::yield();
  Engine* engines[] = {engine.get()};
  for (int round = 0; round < rounds; ++round) {
    UpdateBuffer next = second.batch(batch);
    if (round % 3 == 0) {
      WhatIf view(second.graph, *engine, next);
    }
    apply_batch(second.graph, engines, {}, next);
  }
  stop = true;
  reader.join();
  CHECK(reads > 0);
  CHECK(wrong == 0);
  CHECK(rows_of(*engine) == versions.back());
}

TEST(small_batches_after_a_failed_one_find_the_new_state) {
  for (const bool compact : {false, true}) {
    World world(31);
    EngineOptions options = with(2);
    options.compact = compact;
    const auto engine = Engine::create(world.graph, world.program, options);
    Engine* engines[] = {engine.get()};
    for (int round = 0; round < 10; ++round) {
      UpdateBuffer batch = world.batch(5);
      world.set_row(batch, UpdateKind::SetFeatures, 3, 1e9f);
      CHECK(refuses(world.graph, engines, batch));
      UpdateBuffer small;
      world.set_row(small, UpdateKind::SetFeatures, 1, 1.0f);
      apply_batch(world.graph, engines, {}, small);
      CHECK(!engine->verify());
    }
  }
}

TEST(what_is_thrown_before_publication_takes_the_batch_back) {
  World world(41);
  const auto first = Engine::create(world.graph, world.program, with(1));
  const auto second = Engine::create(world.graph, world.program, with(2));
  Engine* engines[] = {first.get(), second.get()};
  const std::vector<std::int64_t> ids = world.ids();
  const auto rows_of = [&](const Engine& engine) {
    std::vector<float> rows(ids.size() * kOut);
    engine.read(ids, rows.data());
    return rows;
  };
  const std::uint64_t state = first->digest(), graph = world.graph.digest();
  const std::vector<float> rows = rows_of(*first);
  const UpdateBuffer batch = world.batch(9);
  bool thrown = false;
  try {
    apply_batch(world.graph, engines, {}, batch, [&] {
      CHECK(world.graph.version() == 1);
      CHECK(rows_of(*first) == rows);
      throw Error(ErrorKind::ValueInvalid, "no room on the disk");
    });
  } catch (const Error&) {
    thrown = true;
  }
  CHECK(thrown);
  CHECK(world.graph.version() == 0);
  CHECK(world.graph.digest() == graph);
  for (const Engine* engine : engines) {
    CHECK(engine->digest() == state);
    CHECK(rows_of(*engine) == rows);
  }
  apply_batch(world.graph, engines, {}, batch, [] {});
  CHECK(!first->verify());
  CHECK(first->digest() == second->digest());
}

TEST(readers_see_whole_versions_while_batches_are_applied) { check_readers(kVertices, 4, 10, 100); }

TEST(readers_see_whole_versions_of_large_batches) { check_readers(3000, 12, 600, 8); }

int main() { return livegnn::testing::run_all(); }
