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

  explicit World(unsigned seed) : rng(seed), graph(options()), program(two_layers(rng)) {
    const std::vector<float> x = normal(rng, kVertices * kWidth, 1.0f);
    std::vector<std::int64_t> src, dst;
    for (int e = 0; e < 4 * kVertices; ++e) {
      src.push_back(rng() % kVertices);
      dst.push_back(rng() % kVertices);
    }
    graph.load(kVertices, x, src, dst, {}, {}, {}, {}, 1);
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
      update.u = rng() % kVertices;
      update.v = rng() % kVertices;
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

}  // namespace

TEST(every_strategy_path_and_thread_count_stays_equal_to_a_run_from_scratch) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    World world(seed);
    std::vector<std::unique_ptr<Engine>> kept;
    for (const Path path : {Path::None, Path::Push, Path::Pull, Path::Sweep}) {
      kept.push_back(Engine::create(world.graph, world.program,
                                    with(1 + static_cast<int>(seed % 2), Strategy::Incremental, path)));
    }
    for (const Strategy strategy : {Strategy::Affected, Strategy::KHop, Strategy::Full}) {
      kept.push_back(Engine::create(world.graph, world.program, with(2, strategy)));
    }
    std::vector<Engine*> engines;
    for (const auto& engine : kept) engines.push_back(engine.get());
    for (int round = 0; round < 8; ++round) {
      apply_batch(world.graph, engines, world.batch(1 + static_cast<int>(world.rng() % 12)));
      for (Engine* engine : engines) {
        const Mismatch mismatch = engine->verify();
        CHECK(!mismatch.found);
      }
      CHECK(engines[0]->digest() == engines[1]->digest());
      CHECK(engines[0]->digest() == engines[4]->digest());
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
    CHECK(!engine->verify().found);
  }
}

TEST(a_message_out_of_range_rolls_everything_back) {
  World world(5);
  const auto engine = Engine::create(world.graph, world.program, with(1));
  Engine* engines[] = {engine.get()};
  const std::uint64_t state = engine->digest(), graph = world.graph.digest();
  UpdateBuffer batch = world.batch(5);
  world.set_row(batch, UpdateKind::SetFeatures, 3, 1e9f);
  bool refused = false;
  try {
    apply_batch(world.graph, engines, batch);
  } catch (const Error& error) {
    refused = error.kind() == ErrorKind::RangeOverflow;
  }
  CHECK(refused);
  CHECK(engine->digest() == state);
  CHECK(world.graph.digest() == graph);
  CHECK(!engine->verify().found);
}

TEST(readers_see_rows_while_batches_are_applied) {
  World world(9);
  const auto engine = Engine::create(world.graph, world.program, with(2));
  Engine* engines[] = {engine.get()};
  std::atomic<bool> stop = false;
  std::atomic<int> reads = 0;
  std::thread reader([&] {
    std::vector<std::int64_t> ids(kVertices);
    for (int v = 0; v < kVertices; ++v) ids[static_cast<std::size_t>(v)] = v;
    std::vector<float> rows(static_cast<std::size_t>(kVertices * kOut));
    while (!stop) {
      engine->read(ids, rows.data());
      ++reads;
    }
  });
  while (reads == 0) std::this_thread::yield();
  for (int round = 0; round < 100; ++round) apply_batch(world.graph, engines, world.batch(10));
  stop = true;
  reader.join();
  CHECK(reads > 0);
  CHECK(!engine->verify().found);
}

int main() { return livegnn::testing::run_all(); }
