// Published rows and snapshots of them, while a writer stages and publishes: every row of every version is known
// beforehand (run under ASan, UBSan and TSan).
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "inference/publication.h"
#include "tests/check.h"

using namespace livegnn;

namespace {

constexpr int kWidth = 5, kPadded = 16, kVertices = 40, kThreads = 2;

struct Truth {  // of one version
  std::vector<float> rows;
  std::vector<bool> live;
  std::int64_t live_count() const { return std::count(live.begin(), live.end(), true); }
};

// Batches that write, remove and add vertices, and what they come to.
struct History {
  struct Batch {
    std::vector<VertexId> written, added, removed;
    bool dropped;  // staged first and taken back, as what_if does
  };
  std::vector<Truth> versions;
  std::vector<Batch> batches;

  History(unsigned seed, int count) {
    std::mt19937 rng(seed);
    Truth now{std::vector<float>(kVertices), std::vector<bool>(kVertices, true)};
    for (int v = 0; v < kVertices; ++v) now.rows[v] = static_cast<float>(v);
    versions.push_back(now);
    for (int k = 0; k < count; ++k) {
      Batch batch{{}, {}, {}, rng() % 3 == 0};
      const unsigned most = k % 7 == 0 ? kVertices : 4;
      for (VertexId v = 0; v < kVertices; ++v) {
        if (rng() % kVertices >= most) continue;
        batch.written.push_back(v);
        now.rows[v] = static_cast<float>(1000 * (k + 1) + v);
        if (rng() % 4 != 0) continue;
        (now.live[v] ? batch.removed : batch.added).push_back(v);
        now.live[v] = !now.live[v];
      }
      batches.push_back(batch);
      versions.push_back(now);
    }
  }
};

struct World {
  GraphStore graph;
  Publication publication;

  World() : graph(options()), publication(kWidth, kThreads, nullptr) {
    graph.load({kVertices, std::vector<float>(kVertices)}, 1);
    publication.reset(graph);
    for (VertexId v = 0; v < kVertices; ++v) std::fill_n(publication.row(v), kWidth, static_cast<float>(v));
  }
  static GraphOptions options() {
    GraphOptions made;
    made.feature_width = 1;
    return made;
  }
  void stage(const History::Batch& batch, const Truth& after, float more) {
    publication.prepare(kVertices, kVertices);
    for (std::size_t i = 0; i < batch.written.size(); ++i) {
      std::vector<float> row(kPadded, 0.0f);
      std::fill_n(row.begin(), kWidth, after.rows[static_cast<std::size_t>(batch.written[i])] + more);
      publication.stage(batch.written[i], row.data(), static_cast<int>(i % kThreads));
    }
  }
  void apply(const History::Batch& batch, const Truth& after) {
    if (batch.dropped) {
      stage(batch, after, 0.5f);
      publication.drop_staged();
    }
    stage(batch, after, 0.0f);
    graph.apply_into(UpdateBuffer(), nullptr);
    publication.publish(graph, batch.added, batch.removed);
    graph.publish();
  }
};

// Whether every live vertex reads as that version has it, and every other one is refused.
template <typename Read>
bool agrees(const Truth& truth, const Read& read) {
  std::vector<std::int64_t> ids;
  for (std::size_t v = 0; v < truth.live.size(); ++v) {
    if (truth.live[v]) ids.push_back(static_cast<std::int64_t>(v));
  }
  std::vector<float> rows(ids.size() * kWidth);
  read(ids, rows.data());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] != truth.rows[static_cast<std::size_t>(ids[i / kWidth])]) return false;
  }
  for (std::size_t v = 0; v < truth.live.size(); ++v) {
    const std::vector<std::int64_t> one{static_cast<std::int64_t>(v)};
    bool refused = false;
    try {
      read(one, rows.data());
    } catch (const Error& error) {
      refused = error.kind() == ErrorKind::VertexUnknown;
    }
    if (refused == truth.live[v]) return false;
  }
  return true;
}

bool snapshot_agrees(const World& world, const SnapshotFacts& facts, const History& history) {
  const Truth& truth = history.versions[static_cast<std::size_t>(facts.version)];
  return facts.vertex_count == truth.live_count() && agrees(truth, [&](std::span<const std::int64_t> ids, float* out) {
           world.publication.read_snapshot(facts.moment, ids, out);
         });
}

}  // namespace

TEST(snapshots_keep_their_version_however_they_open_and_close) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const History history(seed, 30);
    World world;
    std::mt19937 rng(seed);
    std::vector<SnapshotFacts> open;
    const std::size_t bytes = world.publication.bytes();
    for (std::size_t k = 0; k < history.batches.size(); ++k) {
      for (unsigned i = rng() % 3; i > 0; --i) open.push_back(world.publication.open_snapshot());
      world.apply(history.batches[k], history.versions[k + 1]);
      for (const SnapshotFacts& facts : open) CHECK(snapshot_agrees(world, facts, history));
      if (rng() % 2 == 0 && !open.empty()) {
        std::swap(open[rng() % open.size()], open.back());
        world.publication.close_snapshot(open.back().moment);
        open.pop_back();
      }
    }
    for (const SnapshotFacts& facts : open) {
      CHECK(snapshot_agrees(world, facts, history));
      world.publication.close_snapshot(facts.moment);
    }
    World plain;
    for (std::size_t k = 0; k < history.batches.size(); ++k) plain.apply(history.batches[k], history.versions[k + 1]);
    CHECK(world.publication.bytes() == plain.publication.bytes());  // all that they kept is given back
    CHECK(world.publication.bytes() >= bytes);
  }
}

TEST(a_snapshot_keeps_a_row_once_however_often_it_changes) {
  const History history(3, 400);
  World world;
  const SnapshotFacts facts = world.publication.open_snapshot();
  std::size_t most = 0;
  for (std::size_t k = 0; k < history.batches.size(); ++k) {
    world.apply(history.batches[k], history.versions[k + 1]);
    if (k == 200) most = world.publication.bytes();
  }
  CHECK(world.publication.bytes() == most);
  CHECK(snapshot_agrees(world, facts, history));
}

TEST(readers_and_snapshots_in_many_threads_see_known_versions) {
  const History history(7, 300);
  World world;
  std::atomic<bool> stop = false;
  std::atomic<int> reads = 0, wrong = 0;
  const auto read_snapshots = [&](unsigned seed) {
    std::mt19937 rng(seed);
    std::int64_t latest = 0;
    std::vector<SnapshotFacts> open;
    while (!stop) {
      open.push_back(world.publication.open_snapshot());
      if (open.back().version < latest) ++wrong;
      latest = open.back().version;
      if (!snapshot_agrees(world, open[rng() % open.size()], history)) ++wrong;
      if (open.size() > 5) {
        std::swap(open[rng() % open.size()], open.back());
        world.publication.close_snapshot(open.back().moment);
        open.pop_back();
      }
      ++reads;
    }
    for (const SnapshotFacts& facts : open) world.publication.close_snapshot(facts.moment);
  };
  const auto read_versions = [&] {
    const std::vector<std::int64_t> none;
    std::int64_t latest = 0;
    while (!stop) {
      const std::int64_t published = world.graph.published_version(), before = world.publication.version();
      const std::int64_t read = world.publication.read(none, nullptr);
      const std::int64_t after = world.publication.version();
      if (published > before || before > read || read > after || before < latest) ++wrong;
      latest = after;
      ++reads;
    }
  };
  std::vector<std::thread> readers;
  for (unsigned seed = 0; seed < 2; ++seed) readers.emplace_back(read_snapshots, seed);
  readers.emplace_back(read_versions);
  while (reads < 10) std::this_thread::yield();
  for (std::size_t k = 0; k < history.batches.size(); ++k) {
    world.apply(history.batches[k], history.versions[k + 1]);
    if (k % 20 == 0) {  // however the threads are scheduled, some reads fall between
      const int seen = reads;
      while (reads < seen + 3) std::this_thread::yield();
    }
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);
}

int main() { return livegnn::testing::run_all(); }
