// How a vertex's edges are cut into blocks: what each policy costs in memory, and how fast samples come out of it.
//
//   block_policies EVENTS TARGETS VERTICES BATCH FIXED TAU FANOUT
//
// EVENTS: int64 triples (src, dst, time) in order of time; TARGETS: int64 pairs (vertex, time). The events go in BATCH
// at a time, each into the list of its dst; then FANOUT edges before the target's time are taken, the newest and at
// random. One thread. Writes a JSON array, one object a policy; edge data is 20 bytes a place (neighbour, id, time).
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "graph/edge_run.h"
#include "livegnn/detail/graph_adjacency.h"

namespace livegnn {
namespace {

constexpr std::int64_t kPlaceBytes = sizeof(VertexId) + sizeof(EdgeId) + sizeof(EdgeTime);

struct Shape {
  double length_mean = 0;  // of a vertex's chain of blocks, vertices without edges counted
  std::int64_t length_max = 0;
  std::int64_t places = 0;
  std::int64_t metadata_bytes = 0;
};

struct Random {  // SplitMix64
  std::uint64_t state;
  std::uint64_t below(std::uint64_t count) {
    std::uint64_t x = state += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(x ^ (x >> 31)) * count) >> 64);
  }
};

// Edges before t in one run of places, newest last.
struct Piece {
  const EdgeTime* times;
  const EdgeId* ids;
  std::int64_t count;
};

std::int64_t before(const EdgeTime* times, std::int64_t count, EdgeTime t) {
  return std::lower_bound(times, times + count, t) - times;
}

class Policy {
 public:
  virtual ~Policy() = default;
  virtual void append(VertexId v, const EdgeSpan& run) = 0;
  virtual void finish() {}
  virtual Shape shape() const = 0;
  // Ids of at most k edges before t: the newest first, or at random with replacement where there are more than k.
  virtual void recent(VertexId v, EdgeTime t, int k, std::vector<EdgeId>& out) const = 0;
  virtual void uniform(VertexId v, EdgeTime t, int k, Random& random, std::vector<EdgeId>& out) const = 0;

 protected:
  static bool take_newest(const Piece& piece, int& wanted, std::vector<EdgeId>& out) {
    for (std::int64_t i = piece.count; i-- > 0 && wanted > 0; --wanted) out.push_back(piece.ids[i]);
    return wanted > 0;
  }
  // pieces, the newest first
  static void draw(const std::vector<Piece>& pieces, int k, Random& random, std::vector<EdgeId>& out) {
    static thread_local std::vector<std::uint64_t> ends;
    ends.clear();
    std::uint64_t total = 0;
    for (const Piece& piece : pieces) ends.push_back(total += static_cast<std::uint64_t>(piece.count));
    if (total <= static_cast<std::uint64_t>(k)) {
      for (const Piece& piece : pieces) out.insert(out.end(), piece.ids, piece.ids + piece.count);
      return;
    }
    for (int i = 0; i < k; ++i) {
      const std::uint64_t rank = random.below(total);
      const auto at = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), rank) - ends.begin());
      out.push_back(pieces[at].ids[ends[at] - rank - 1]);
    }
  }
};

// One allocation an edge, linked to the one before.
class AdjacencyList final : public Policy {
 public:
  explicit AdjacencyList(VertexId vertices) : last_(static_cast<std::size_t>(vertices), nullptr) {}
  void append(VertexId v, const EdgeSpan& run) override {
    for (std::int32_t i = 0; i < run.count; ++i) {
      nodes_.push_back({last_[static_cast<std::size_t>(v)], run.ids[i], run.times[i], run.neighbours[i]});
      last_[static_cast<std::size_t>(v)] = &nodes_.back();
    }
  }
  Shape shape() const override {
    Shape shape;
    for (const Entry* entry : last_) {
      std::int64_t length = 0;
      for (; entry != nullptr; entry = entry->previous) ++length;
      shape.length_max = std::max(shape.length_max, length);
    }
    shape.places = static_cast<std::int64_t>(nodes_.size());
    shape.length_mean = static_cast<double>(shape.places) / static_cast<double>(last_.size());
    shape.metadata_bytes = static_cast<std::int64_t>((nodes_.size() + last_.size()) * sizeof(Entry*));
    return shape;
  }
  void recent(VertexId v, EdgeTime t, int k, std::vector<EdgeId>& out) const override {
    for (const Entry* entry = first_before(v, t); entry != nullptr && k > 0; entry = entry->previous, --k) {
      out.push_back(entry->id);
    }
  }
  void uniform(VertexId v, EdgeTime t, int k, Random& random, std::vector<EdgeId>& out) const override {
    static thread_local std::vector<EdgeId> all;
    all.clear();
    for (const Entry* entry = first_before(v, t); entry != nullptr; entry = entry->previous) all.push_back(entry->id);
    const Piece whole{nullptr, all.data(), static_cast<std::int64_t>(all.size())};
    draw({whole}, k, random, out);
  }

 private:
  struct Entry {
    const Entry* previous;
    EdgeId id;
    EdgeTime time;
    VertexId neighbour;
  };
  const Entry* first_before(VertexId v, EdgeTime t) const {
    const Entry* entry = last_[static_cast<std::size_t>(v)];
    while (entry != nullptr && entry->time >= t) entry = entry->previous;
    return entry;
  }
  std::deque<Entry> nodes_;
  std::vector<const Entry*> last_;
};

enum class Sizing { PerBatch, Fixed, Adaptive };

// A chain of blocks a vertex, the newest first; sizes by rule.
class BlockLists final : public Policy {
 public:
  BlockLists(VertexId vertices, Sizing sizing, std::int64_t limit)
      : sizing_(sizing), limit_(limit), tables_(static_cast<std::size_t>(vertices)) {}
  void append(VertexId v, const EdgeSpan& run) override {
    Table& table = tables_[static_cast<std::size_t>(v)];
    for (std::int32_t first = 0; first < run.count;) {
      Block* block = table.last;
      if (block == nullptr || block->count == block->capacity) {
        block = add_block(table, run.count - first);
      }
      const auto taken =
          static_cast<std::int32_t>(std::min<std::int64_t>(run.count - first, block->capacity - block->count));
      std::copy_n(run.neighbours + first, taken, block->neighbours() + block->count);
      std::copy_n(run.ids + first, taken, block->ids() + block->count);
      std::copy_n(run.times + first, taken, block->times() + block->count);
      if (block->count == 0) block->t_min = run.times[first];
      block->count += taken;
      block->t_max = run.times[first + taken - 1];
      table.degree += taken;
      first += taken;
    }
  }
  Shape shape() const override {
    Shape shape;
    std::int64_t blocks = 0;
    for (const Table& table : tables_) {
      shape.length_max = std::max(shape.length_max, table.blocks);
      blocks += table.blocks;
      for (const Block* block = table.last; block != nullptr; block = block->previous) shape.places += block->capacity;
    }
    shape.length_mean = static_cast<double>(blocks) / static_cast<double>(tables_.size());
    shape.metadata_bytes =
        blocks * static_cast<std::int64_t>(sizeof(Block)) + static_cast<std::int64_t>(tables_.size() * sizeof(Table));
    return shape;
  }
  void recent(VertexId v, EdgeTime t, int k, std::vector<EdgeId>& out) const override {
    for (const Block* block = first_before(v, t); block != nullptr; block = block->previous) {
      if (!take_newest(piece_of(*block, t), k, out)) return;
    }
  }
  void uniform(VertexId v, EdgeTime t, int k, Random& random, std::vector<EdgeId>& out) const override {
    static thread_local std::vector<Piece> pieces;
    pieces.clear();
    for (const Block* block = first_before(v, t); block != nullptr; block = block->previous) {
      pieces.push_back(piece_of(*block, t));
    }
    draw(pieces, k, random, out);
  }

 private:
  struct Block {
    const Block* previous;
    std::unique_ptr<std::byte[]> data;  // times, ids, neighbours
    EdgeTime t_min, t_max;
    std::int64_t count, capacity;
    EdgeTime* times() const { return reinterpret_cast<EdgeTime*>(data.get()); }
    EdgeId* ids() const { return reinterpret_cast<EdgeId*>(times() + capacity); }
    VertexId* neighbours() const { return reinterpret_cast<VertexId*>(ids() + capacity); }
  };
  struct Table {
    Block* last = nullptr;
    std::int64_t degree = 0;
    std::int64_t blocks = 0;
  };
  Block* add_block(Table& table, std::int64_t incoming) {
    std::int64_t capacity = incoming;
    if (sizing_ == Sizing::Fixed) capacity = limit_;
    if (sizing_ == Sizing::Adaptive) capacity = std::clamp<std::int64_t>(table.degree, 1, limit_);
    auto data = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(capacity * kPlaceBytes));
    blocks_.push_back({table.last, std::move(data), 0, 0, 0, capacity});
    table.last = &blocks_.back();
    ++table.blocks;
    return table.last;
  }
  const Block* first_before(VertexId v, EdgeTime t) const {
    const Block* block = tables_[static_cast<std::size_t>(v)].last;
    while (block != nullptr && block->t_min >= t) block = block->previous;
    return block;
  }
  static Piece piece_of(const Block& block, EdgeTime t) {
    const std::int64_t count = block.t_max < t ? block.count : before(block.times(), block.count, t);
    return {block.times(), block.ids(), count};
  }
  Sizing sizing_;
  std::int64_t limit_;
  std::deque<Block> blocks_;
  std::vector<Table> tables_;
};

// Everything known beforehand: one array, a range of it a vertex.
class StaticArray final : public Policy {
 public:
  explicit StaticArray(VertexId vertices) : starts_(static_cast<std::size_t>(vertices) + 1, 0) {}
  void append(VertexId v, const EdgeSpan& run) override {
    for (std::int32_t i = 0; i < run.count; ++i) waiting_.push_back({v, run.neighbours[i], run.ids[i], run.times[i]});
  }
  void finish() override {
    for (const Waiting& edge : waiting_) ++starts_[static_cast<std::size_t>(edge.owner) + 1];
    for (std::size_t v = 1; v < starts_.size(); ++v) starts_[v] += starts_[v - 1];
    neighbours_.resize(waiting_.size());
    ids_.resize(waiting_.size());
    times_.resize(waiting_.size());
    std::vector<std::int64_t> next(starts_.begin(), starts_.end() - 1);
    for (const Waiting& edge : waiting_) {
      const auto place = static_cast<std::size_t>(next[static_cast<std::size_t>(edge.owner)]++);
      neighbours_[place] = edge.neighbour;
      ids_[place] = edge.id;
      times_[place] = edge.time;
    }
    waiting_ = {};
  }
  Shape shape() const override {
    Shape shape;
    std::int64_t lists = 0;
    for (std::size_t v = 1; v < starts_.size(); ++v) lists += starts_[v] > starts_[v - 1];
    shape.length_mean = static_cast<double>(lists) / static_cast<double>(starts_.size() - 1);
    shape.length_max = 1;
    shape.places = static_cast<std::int64_t>(ids_.size());
    shape.metadata_bytes = static_cast<std::int64_t>(starts_.size() * sizeof(std::int64_t));
    return shape;
  }
  void recent(VertexId v, EdgeTime t, int k, std::vector<EdgeId>& out) const override {
    take_newest(piece_of(v, t), k, out);
  }
  void uniform(VertexId v, EdgeTime t, int k, Random& random, std::vector<EdgeId>& out) const override {
    draw({piece_of(v, t)}, k, random, out);
  }

 private:
  struct Waiting {
    VertexId owner, neighbour;
    EdgeId id;
    EdgeTime time;
  };
  Piece piece_of(VertexId v, EdgeTime t) const {
    const std::int64_t start = starts_[static_cast<std::size_t>(v)], end = starts_[static_cast<std::size_t>(v) + 1];
    return {times_.data() + start, ids_.data() + start, before(times_.data() + start, end - start, t)};
  }
  std::vector<Waiting> waiting_;
  std::vector<std::int64_t> starts_;
  std::vector<VertexId> neighbours_;
  std::vector<EdgeId> ids_;
  std::vector<EdgeTime> times_;
};

// The store of livegnn: one block that grows, then a directory of blocks in pages.
class LivegnnStore final : public Policy {
 public:
  LivegnnStore(VertexId vertices, std::int32_t block_edges_max) {
    PoolColumns columns;
    columns.time = true;
    lists_.configure(columns, block_edges_max, false);
    lists_.resize(vertices);
  }
  void append(VertexId v, const EdgeSpan& run) override { lists_.insert_run(v, run); }
  Shape shape() const override {
    const BlockStats stats = lists_.block_stats();
    Shape shape;
    shape.length_mean = static_cast<double>(stats.blocks) / static_cast<double>(lists_.slot_count());
    shape.length_max = stats.blocks_max;
    shape.places = lists_.pool().places_used();
    shape.metadata_bytes = static_cast<std::int64_t>(lists_.index_bytes() + lists_.list_bytes());
    return shape;
  }
  void recent(VertexId v, EdgeTime t, int k, std::vector<EdgeId>& out) const override {
    visit_back(v, t, [&](const Piece& piece) { return take_newest(piece, k, out); });
  }
  void uniform(VertexId v, EdgeTime t, int k, Random& random, std::vector<EdgeId>& out) const override {
    static thread_local std::vector<Piece> pieces;
    pieces.clear();
    visit_back(v, t, [&](const Piece& piece) {
      pieces.push_back(piece);
      return true;
    });
    draw(pieces, k, random, out);
  }

 private:
  template <typename Visitor>
  void visit_back(VertexId v, EdgeTime t, Visitor&& visitor) const {
    const Adjacency::View view = lists_.view(v);
    const BlockPool& pool = lists_.pool();
    const auto piece_of = [&](std::int64_t place, std::int64_t count) {
      return Piece{pool.times(place), pool.ids(place), before(pool.times(place), count, t)};
    };
    if (view.count == 0) return;
    if (view.chain == nullptr) {
      visitor(piece_of(view.place, view.count));
      return;
    }
    BlockChain::Cursor at = view.chain->lower_bound(pool, {t, INT64_MIN});
    if (!view.chain->previous(at)) return;
    const std::vector<BlockChain::Page>& pages = view.chain->pages();
    const BlockChain::Block& last = pages[static_cast<std::size_t>(at.page)][static_cast<std::size_t>(at.block)];
    if (!visitor(Piece{pool.times(last.place), pool.ids(last.place), at.offset + 1})) return;
    for (std::int32_t page = at.page, block = at.block; page >= 0;) {
      if (--block < 0) {
        if (--page < 0) return;
        block = static_cast<std::int32_t>(pages[static_cast<std::size_t>(page)].size());
        continue;
      }
      const BlockChain::Block& one = pages[static_cast<std::size_t>(page)][static_cast<std::size_t>(block)];
      if (!visitor(Piece{pool.times(one.place), pool.ids(one.place), one.count})) return;
    }
  }
  Adjacency lists_;
};

std::vector<std::int64_t> read_all(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error(std::string("[block_policies] expected a file, got none at ") + path);
  std::vector<std::int64_t> values(static_cast<std::size_t>(file.tellg()) / sizeof(std::int64_t));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(std::int64_t)));
  return values;
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct Work {
  std::vector<std::int64_t> events, targets;
  VertexId vertices;
  std::size_t batch;
  int fanout;
};

double inject(Policy& policy, const Work& work) {
  EdgeRun run;
  GroupedRun grouped;
  PoolColumns columns;
  columns.time = true;
  double seconds = 0;
  const std::size_t events = work.events.size() / 3;
  for (std::size_t first = 0; first < events; first += work.batch) {
    run.clear();
    for (std::size_t i = first; i < std::min(first + work.batch, events); ++i) {
      const std::int64_t* event = work.events.data() + 3 * i;
      run.push_back({static_cast<VertexId>(event[0]), static_cast<VertexId>(event[1]), 1.0f, 0, static_cast<EdgeId>(i),
                     event[2]});
    }
    const Clock::time_point begin = Clock::now();
    grouped.assign(run, RunSide::ByDst, work.vertices, columns);
    for (std::size_t g = 0; g < grouped.groups().size(); ++g) {
      policy.append(grouped.groups()[g].owner, grouped.span(g));
    }
    seconds += seconds_since(begin);
  }
  const Clock::time_point begin = Clock::now();
  policy.finish();
  return seconds + seconds_since(begin);
}

void measure(const char* name, Policy& policy, const Work& work, bool last) {
  const double inject_seconds = inject(policy, work);
  const Shape shape = policy.shape();
  std::vector<EdgeId> out;
  std::uint64_t recent_sum = 0, recent_count = 0, uniform_count = 0, late = 0;
  double recent_seconds = 1e300, uniform_seconds = 1e300;
  for (int round = 0; round < 3; ++round) {
    recent_sum = recent_count = uniform_count = late = 0;
    Clock::time_point begin = Clock::now();
    for (std::size_t i = 0; i < work.targets.size(); i += 2) {
      out.clear();
      policy.recent(static_cast<VertexId>(work.targets[i]), work.targets[i + 1], work.fanout, out);
      for (const EdgeId id : out) recent_sum = recent_sum * 31 + static_cast<std::uint64_t>(id);
      recent_count += out.size();
    }
    recent_seconds = std::min(recent_seconds, seconds_since(begin));
    Random random{7};
    begin = Clock::now();
    for (std::size_t i = 0; i < work.targets.size(); i += 2) {
      out.clear();
      policy.uniform(static_cast<VertexId>(work.targets[i]), work.targets[i + 1], work.fanout, random, out);
      for (const EdgeId id : out) late += work.events[3 * static_cast<std::size_t>(id) + 2] >= work.targets[i + 1];
      uniform_count += out.size();
    }
    uniform_seconds = std::min(uniform_seconds, seconds_since(begin));
  }
  const auto edges = static_cast<std::int64_t>(work.events.size() / 3);
  std::printf(
      "{\"policy\": \"%s\", \"length_mean\": %.4f, \"length_max\": %lld, \"edge_bytes\": %lld, \"waste_bytes\": %lld, "
      "\"metadata_bytes\": %lld, \"inject_seconds\": %.6f, \"recent_seconds\": %.6f, \"uniform_seconds\": %.6f, "
      "\"recent_sum\": \"%llu\", \"recent_count\": %llu, \"uniform_count\": %llu, \"late\": %llu}%s\n",
      name, shape.length_mean, static_cast<long long>(shape.length_max),
      static_cast<long long>(shape.places * kPlaceBytes), static_cast<long long>((shape.places - edges) * kPlaceBytes),
      static_cast<long long>(shape.metadata_bytes), inject_seconds, recent_seconds, uniform_seconds,
      static_cast<unsigned long long>(recent_sum), static_cast<unsigned long long>(recent_count),
      static_cast<unsigned long long>(uniform_count), static_cast<unsigned long long>(late), last ? "" : ",");
}

template <typename Kind, typename... Arguments>
void run_policy(const char* name, const Work& work, bool last, Arguments... arguments) {
  Kind policy(work.vertices, arguments...);
  measure(name, policy, work, last);
}

int run(char** arguments) {
  Work work;
  work.events = read_all(arguments[1]);
  work.targets = read_all(arguments[2]);
  work.vertices = static_cast<VertexId>(std::atoll(arguments[3]));
  work.batch = static_cast<std::size_t>(std::atoll(arguments[4]));
  const std::int64_t fixed = std::atoll(arguments[5]), tau = std::atoll(arguments[6]);
  work.fanout = std::atoi(arguments[7]);
  std::printf("[\n");
  run_policy<AdjacencyList>("adjacency list", work, false);
  run_policy<BlockLists>("a block a batch", work, false, Sizing::PerBatch, std::int64_t{0});
  run_policy<BlockLists>("fixed blocks", work, false, Sizing::Fixed, fixed);
  run_policy<BlockLists>("adaptive blocks", work, false, Sizing::Adaptive, tau);
  run_policy<LivegnnStore>("livegnn, tau 128", work, false, 128);
  run_policy<LivegnnStore>("livegnn, tau 1024", work, false, 1024);
  run_policy<StaticArray>("static array", work, true);
  std::printf("]\n");
  return 0;
}

}  // namespace
}  // namespace livegnn

int main(int count, char** arguments) {
  if (count != 8) {
    std::fprintf(stderr, "[block_policies] expected EVENTS TARGETS VERTICES BATCH FIXED TAU FANOUT, got %d\n",
                 count - 1);
    return 2;
  }
  try {
    return livegnn::run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
