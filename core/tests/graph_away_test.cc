// Whole lists of a store whose old edges are away but copied: as of one that has all of them in memory.
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <random>
#include <set>
#include <string>

#include "tests/graph_model.h"

namespace livegnn::testing {
namespace {

const std::string kFolder = std::filesystem::temp_directory_path();

struct Columns {
  std::vector<std::int64_t> src, dst, id, time;
  std::vector<float> weight, attr;
  std::vector<std::int32_t> type;
  EdgeColumnsView view() const { return {src, dst, id, weight, time, type, attr}; }
};

void add_vertex(UpdateBuffer& batch, VertexId v) {
  batch.add({.kind = UpdateKind::AddVertex, .u = v, .row = batch.add_row(Row{1}), .row_width = 1});
}

// A store, the model of all its edges, and which of them are away.
struct World {
  std::mt19937 rng;
  GraphModel model;
  std::unique_ptr<GraphStore> store;
  std::set<EdgeId> away;

  World(unsigned seed, bool undirected, bool columns, VertexId slots) : rng(seed) {
    GraphOptions options;
    options.feature_width = 1;
    options.has_time = true;
    options.has_weight = options.has_type = columns;
    options.attr_width = columns ? 3 : 0;
    options.undirected = undirected;
    options.block_edges_max = 4;
    model.options = options;
    store = std::make_unique<GraphStore>(options);
    UpdateBuffer batch;
    for (VertexId v = 0; v < slots; ++v) add_vertex(batch, v);
    apply(batch);
  }
  void apply(const UpdateBuffer& batch) {
    store->apply(batch);
    CHECK(!model.apply(batch));
  }
  // Late ones among them.
  void add_edges(int count, EdgeTime now) {
    UpdateBuffer batch;
    for (int i = 0; i < count; ++i) {
      Update update{.kind = UpdateKind::AddEdge};
      update.u = static_cast<std::int64_t>(rng() % static_cast<unsigned>(model.slot_count));
      update.v = rng() % 3 == 0 ? 0 : static_cast<std::int64_t>(rng() % static_cast<unsigned>(model.slot_count));
      update.time = now - (rng() % 4 == 0 ? static_cast<EdgeTime>(rng() % 40) : 0);
      if (model.options.has_weight) {
        update.has_weight = true;
        update.weight = static_cast<float>(rng() % 100);
        update.type = static_cast<std::int32_t>(rng() % 3);
        update.row = batch.add_row(Row{static_cast<float>(rng() % 10), 1.0f, static_cast<float>(i)});
        update.row_width = 3;
      }
      batch.add(update);
    }
    apply(batch);
  }
  void offload(EdgeTime before) {
    std::int64_t moved = 0;
    for (const auto& [id, edge] : model.edges) moved += edge.time < before && away.insert(id).second;
    CHECK(store->offload_before(before) == moved);
  }
  Columns columns(const std::set<EdgeId>& ids) const {
    Columns found;
    for (const EdgeId id : ids) {
      const ModelEdge& edge = model.edges.at(id);
      found.src.push_back(edge.u), found.dst.push_back(edge.v), found.id.push_back(id), found.time.push_back(edge.time);
      if (!model.options.has_weight) continue;
      found.weight.push_back(edge.weight), found.type.push_back(edge.type);
      found.attr.insert(found.attr.end(), edge.attr.begin(), edge.attr.end());
    }
    return found;
  }
  void reload(EdgeTime since) {
    std::set<EdgeId> back;
    for (const EdgeId id : away) {
      if (model.edges.at(id).time >= since) back.insert(id);
    }
    store->reload(columns(back).view(), since);
    for (const EdgeId id : back) away.erase(id);
  }
  // As from two files.
  void copy(const std::string& folder = kFolder) {
    std::set<EdgeId> odd, even;
    for (const EdgeId id : away) (id % 2 != 0 ? odd : even).insert(id);
    const Columns parts[2] = {columns(odd), columns(even)};
    int given = 0;
    store->copy_offloaded("copy", folder, [&](EdgeColumnsView& view) {
      if (given == 2) return false;
      view = parts[given++].view();
      return true;
    });
  }
  void check() const {
    store->check_invariants();
    CHECK(store->all_edge_count() == static_cast<std::int64_t>(model.edges.size()));
    for (VertexId v = 0; v < model.slot_count; ++v) {
      for (const bool out : {true, false}) check_list(*store, model, v, out);
      EdgeId newest = kNoEdge;
      for (const auto& [id, other] : model.list(0, false)) newest = other == v ? std::max(newest, id) : newest;
      CHECK(store->newest_edge(v, 0).id == newest);
      if (newest != kNoEdge) CHECK(store->newest_edge(v, 0).weight == model.edges.at(newest).weight);
    }
    std::int64_t edges = 0, loaded = 0;
    store->visit_edges([&](auto...) { ++edges; });
    store->visit_loaded_edges([&](auto...) { ++loaded; });
    CHECK(edges == store->all_edge_count() && loaded == store->edge_count());
  }
};

TEST(whole_lists_are_those_of_all_edges) {
  for (unsigned seed = 0; seed < 24; ++seed) {
    World world(seed, seed % 2 != 0, seed % 4 < 2, 7);
    world.copy();  // of nothing
    for (EdgeTime now = 10; now < 400; now += 10) {
      world.add_edges(static_cast<int>(world.rng() % 60), now);
      switch (world.rng() % 5) {
        case 0:
        case 1:
          world.offload(now - static_cast<EdgeTime>(world.rng() % 60));
          break;
        case 2:
          if (world.store->has_offloaded()) world.reload(now - static_cast<EdgeTime>(world.rng() % 200));
          break;
        case 3:
          world.store->drop_copies();
          world.store->check_invariants();
          world.copy();
          break;
        default: {
          UpdateBuffer batch;
          add_vertex(batch, world.model.slot_count);
          world.apply(batch);
        }
      }
      if (!world.store->has_copies()) world.copy();
      world.check();
    }
  }
}

TEST(a_batch_is_taken_back_with_copies_there) {
  World world(3, false, true, 5);
  world.add_edges(200, 100);
  world.copy();
  world.offload(90);
  const std::uint64_t digest = world.store->digest();
  UpdateBuffer batch;
  add_vertex(batch, 5);
  Update edge{.kind = UpdateKind::AddEdge, .has_weight = true, .type = 1, .u = 5, .v = 0, .time = 50};
  edge.row = batch.add_row(Row{1, 2, 3}), edge.row_width = 3;
  batch.add(edge);
  world.store->undo(world.store->apply(batch));
  CHECK(world.store->digest() == digest);
  world.check();
}

TEST(other_edges_are_refused) {
  World world(4, false, true, 5);
  world.add_edges(100, 100);
  world.offload(101);
  Columns columns = world.columns(world.away);
  columns.weight[7] += 1.0f;
  int given = 0;
  const auto next = [&](EdgeColumnsView& view) {
    view = columns.view();
    return given++ == 0;
  };
  CHECK_THROWS(world.store->copy_offloaded("copy", kFolder, next), ErrorKind::StateMismatch);
  CHECK_THROWS(world.store->copy_offloaded("copy", kFolder, [](EdgeColumnsView&) { return false; }),
               ErrorKind::StateMismatch);
  CHECK(!world.store->has_copies());
  world.copy();
  world.check();
}

// The limit of a file's size stands for a disk that is full.
struct FullDisk {
  rlimit before{};
  explicit FullDisk(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit full{bytes, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &full);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before); }
};

TEST(a_full_disk_leaves_everything_as_it_was) {
  for (const bool undirected : {false, true}) {
    for (const bool columns : {false, true}) {
      World world(5, undirected, columns, 50);
      world.copy();
      world.add_edges(20000, 100);
      world.offload(95);
      world.check();
      int refused = 0;
      for (rlim_t bytes = 1 << 16; world.store->offloaded_before() != 101; bytes += 1 << 16) {
        const FullDisk full(bytes);
        try {
          world.offload(101);
        } catch (const Error& error) {
          CHECK(error.kind() == ErrorKind::SpillUnavailable);
          world.store->check_invariants();
          world.away.clear();
          for (const auto& [id, edge] : world.model.edges) {
            if (edge.time < 95) world.away.insert(id);
          }
          if (++refused == 1) world.check();
        }
      }
      CHECK(refused >= 2);
      world.check();
      world.store->drop_copies();
      {
        const FullDisk full(1 << 17);
        CHECK_THROWS(world.copy(), ErrorKind::SpillUnavailable);
      }
      CHECK_THROWS(world.copy("/no/such/folder"), ErrorKind::SpillUnavailable);
      CHECK(!world.store->has_copies());
      world.copy();
      world.check();
    }
  }
}

}  // namespace
}  // namespace livegnn::testing

LIVEGNN_TEST_MAIN
