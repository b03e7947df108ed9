// All tables over one graph: batches come in, whole versions go out.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "livegnn/sampling.h"
#include "sampling/edge_rows.h"
#include "sampling/read.h"
#include "sampling/reservoir_table.h"
#include "sampling/version_lock.h"
#include "util/thread_pool.h"

namespace livegnn {

int bucket_of(VertexId v) { return static_cast<int>(mix(static_cast<std::uint64_t>(v)) % kBuckets); }

EdgeColumns edge_columns_of(const GraphOptions& graph) { return {graph.has_weight, graph.has_time, graph.attr_width}; }

namespace {
constexpr std::size_t kParallelEdges = 512;  // below, waking the pool costs more than it saves
constexpr std::int64_t kParallelBlocks = 4;

EdgeTime latest_time(const UpdateBuffer& batch, EdgeTime now) {
  for (const Update& update : batch.updates()) {
    if (update.kind == UpdateKind::AddEdge && update.time != kUnsetTime) now = std::max(now, update.time);
  }
  return now;
}
}  // namespace

struct Reservoirs::Impl {
  Impl(const GraphStore& store, const SamplingOptions& wanted, std::vector<std::uint8_t> buckets)
      : graph(store),
        options(wanted),
        owned(std::move(buckets)),
        features(store.features().dtype(), store.feature_stride()),
        edges(store, wanted.edge_data ? edge_columns_of(store.options()) : EdgeColumns{}),
        pool(wanted.threads) {}

  const GraphStore& graph;
  SamplingOptions options;
  OwnedBuckets owned;
  std::vector<std::unique_ptr<ReservoirTable>> tables;  // by number; nullptr where dropped

  // what readers see beside the rows
  mutable VersionLock lock;
  FeatureTable features;  // slot_count rows as the graph stores them, where options.features
  EdgeRows edges;         // no rows unless options.edge_data
  std::vector<EdgeRecord>
      edges_changed;  // of the latest batch, where changes and edges are kept: other values, same edge
  Column<std::uint8_t> live;
  VertexId slot_count = 0;
  std::atomic<std::int64_t> version{0};
  EdgeTime now = INT64_MIN;
  SamplingBytes bytes{};
  std::int64_t refills = 0;
  std::atomic<bool> broken{false};  // memory ended in the middle of a batch, or one was missed

  std::mutex pool_mutex;
  ThreadPool pool;

  const ReservoirTable& table(std::int32_t number) const {
    invariant(number >= 0 && static_cast<std::size_t>(number) < tables.size() && tables[number] != nullptr,
              "a table of samples was asked for that is not there");
    return *tables[static_cast<std::size_t>(number)];
  }

  std::ptrdiff_t table_count() const {
    return std::count_if(tables.begin(), tables.end(), [](const auto& table) { return table != nullptr; });
  }

  // What stats() reads, as of the version that readers see; the caller holds the lock or is alone.
  void note_bytes() {
    SamplingBytes sum{};
    refills = 0;
    for (const auto& table : tables) {
      if (table == nullptr) continue;
      sum.rows_live += table->live_bytes();
      sum.rows_reserved += table->reserved_bytes();
      sum.pointers += table->pointer_bytes();
      sum.expiry += table->expiry_bytes();
      refills += table->refills();
    }
    sum.features = features.bytes() + live.bytes();
    sum.edges = edges.bytes();
    bytes = sum;
  }

  void copy_features(VertexId v) {
    if (options.features) features.copy_row(v, graph.features());
  }

  void note_edges(const BatchDelta& delta) {
    edges_changed.clear();
    if (!options.track_changes || !options.edge_data) return;
    for (const EdgeReweighted& edge : delta.reweighted) edges_changed.push_back(edge.before);
    edges_changed.insert(edges_changed.end(), delta.reattributed.begin(), delta.reattributed.end());
  }

  // Slots that are new since the last batch; readers are held off.
  void grow() {
    const VertexId slots = graph.slot_count();
    for (const auto& table : tables) {
      if (table != nullptr) table->grow(slots);
    }
    if (slots <= slot_count) return;
    live.reserve(slots);
    if (options.features) features.reserve(slots);
    for (VertexId v = slot_count; v < slots; ++v) {
      live[v] = graph.is_live(v) ? 1 : 0;
      copy_features(v);
    }
    slot_count = slots;
  }

  void publish(const BatchDelta& delta, EdgeTime latest) {
    const std::unique_lock held(lock);
    grow();
    for (const auto& table : tables) {
      if (table != nullptr) table->switch_rows();
    }
    for (const VertexId v : delta.vertices_added) live[v] = 1;
    for (const VertexId v : delta.vertices_removed) live[v] = 0;
    for (const VertexId v : delta.features_changed) copy_features(v);
    edges.follow(delta);
    now = latest;
    note_bytes();
    version.store(graph.version(), std::memory_order_release);
  }

  // task(table, shard) for all of them; in this thread where there is little to do.
  template <typename Task>
  void run_shards(bool parallel, const Task& task) {
    std::vector<std::pair<ReservoirTable*, int>> jobs;
    for (const auto& table : tables) {
      for (int shard = 0; table != nullptr && shard < table->shards(); ++shard) jobs.emplace_back(table.get(), shard);
    }
    if (!parallel || pool.threads() == 1) {
      for (const auto& [table, shard] : jobs) task(*table, shard);
      return;
    }
    const std::lock_guard held(pool_mutex);
    pool.run(static_cast<std::int64_t>(jobs.size()),
             [&](std::int64_t at, int) { task(*jobs[static_cast<std::size_t>(at)].first, jobs[at].second); });
  }
};

namespace {
// The tables as read.h wants them: one per hop of a query.
struct TableSource {
  std::vector<const ReservoirTable*> tables;
  const FeatureTable& feature_rows;

  void prefetch_row(std::size_t hop, VertexId v) const { tables[hop]->prefetch_row_pointer(v); }
  const Row* row(std::size_t hop, VertexId v) const { return tables[hop]->row(v); }
  void prefetch_features(VertexId v) const { feature_rows.prefetch(v); }
  bool read_features(VertexId v, std::int32_t width, float* out) const {
    feature_rows.read(v, out, width);
    return true;
  }
};
}  // namespace

Reservoirs::Reservoirs(const GraphStore& graph, const SamplingOptions& options, std::vector<std::uint8_t> owned)
    : impl_(std::make_unique<Impl>(graph, options, std::move(owned))) {
  impl_->grow();
  impl_->version = graph.version();
  impl_->note_bytes();
  if (graph.options().has_time) {
    graph.visit_edges([&](const EdgeRecord& edge) { impl_->now = std::max(impl_->now, edge.time); });
  }
}

Reservoirs::~Reservoirs() = default;

std::int32_t Reservoirs::add_table(const OneHop& query) {
  auto table = std::make_unique<ReservoirTable>(impl_->graph, query, impl_->options);
  table->grow(impl_->graph.slot_count());
  {
    const std::lock_guard held(impl_->pool_mutex);
    impl_->pool.run(table->shards(), [&](std::int64_t shard, int) {
      table->back_fill(static_cast<int>(shard), impl_->owned, impl_->now);
    });
  }
  const std::unique_lock held(impl_->lock);
  impl_->tables.push_back(std::move(table));
  impl_->note_bytes();
  return static_cast<std::int32_t>(impl_->tables.size()) - 1;
}

void Reservoirs::drop_table(std::int32_t table) {
  impl_->table(table);
  std::unique_ptr<ReservoirTable> gone;
  const std::unique_lock held(impl_->lock);
  gone.swap(impl_->tables[static_cast<std::size_t>(table)]);
  impl_->note_bytes();
}

OneHop Reservoirs::query(std::int32_t table) const {
  const std::shared_lock held(impl_->lock);
  return impl_->table(table).query();
}

void Reservoirs::check(const BatchDelta& delta) const {
  if (impl_->broken) return;  // answers no more, and is in nobody's way
  for (const auto& table : impl_->tables) {
    if (table != nullptr) table->check(delta, impl_->owned);
  }
}

void Reservoirs::follow(const BatchDelta& delta, const UpdateBuffer& batch) {
  Impl& impl = *impl_;
  if (impl.broken) return;
  try {
    invariant(impl.graph.version() == impl.version + 1, "a batch went past the tables of samples");
    const EdgeTime latest = latest_time(batch, impl.now);
    for (const auto& table : impl.tables) {
      if (table != nullptr) table->grow_stage();
    }
    const std::size_t edges = delta.added.size() + delta.removed.size() + delta.reweighted.size();
    const std::size_t jobs = edges * static_cast<std::size_t>(impl.table_count());
    impl.run_shards(jobs >= kParallelEdges,
                    [&](ReservoirTable& table, int shard) { table.stage(shard, delta, impl.owned, latest); });
    impl.publish(delta, latest);
    impl.note_edges(delta);
    for (const auto& table : impl.tables) {
      if (table != nullptr) table->retire();
    }
  } catch (...) {
    impl.broken = true;
    throw;
  }
}

std::int64_t Reservoirs::sample(const SampleRequest& request) {
  Impl& impl = *impl_;
  const std::shared_lock held(impl.lock);
  invariant(!impl.broken, "an earlier batch was lost to these tables; make the sampler anew");
  TableSource source{{}, impl.features};
  std::vector<std::int32_t> fanouts;
  for (const std::int32_t table : request.tables) {
    source.tables.push_back(&impl.table(table));
    fanouts.push_back(source.tables.back()->query().fanout);
  }
  for (std::size_t i = 0; i < request.seeds.size(); ++i) {
    const std::int64_t seed = request.seeds[i];
    if (seed >= 0 && seed < impl.slot_count && impl.live[seed] != 0) continue;
    throw Error(ErrorKind::VertexUnknown,
                {.where = "sample",
                 .expected = "seeds that are live vertices (version " + std::to_string(impl.version.load()) + ")",
                 .got = std::to_string(seed) + " at row " + std::to_string(i),
                 .advice = "add the vertex first",
                 .vertex = seed});
  }
  const QueryShape shape(fanouts);
  const auto count = static_cast<std::int64_t>(request.seeds.size());
  const std::int64_t block = shape.block_seeds(), blocks = (count + block - 1) / block;
  const auto read = [&](std::int64_t at, int) {
    const std::int64_t first = at * block, last = std::min(count, (at + 1) * block);
    read_block(source, request, fanouts, shape, first, last);
    if (request.edge_columns.words() > 0) read_edges(impl.edges, request, shape, first, last);
  };
  std::unique_lock pooled(impl.pool_mutex, std::defer_lock);
  if (blocks >= kParallelBlocks && impl.pool.threads() > 1 && pooled.try_lock()) {
    impl.pool.run(blocks, read);
  } else {
    for (std::int64_t at = 0; at < blocks; ++at) read(at, 0);
  }
  return impl.version;
}

EdgeColumns Reservoirs::edge_columns() const {
  return impl_->options.edge_data ? edge_columns_of(impl_->graph.options()) : EdgeColumns{};
}

std::int64_t Reservoirs::version() const { return impl_->version.load(std::memory_order_acquire); }

EdgeTime Reservoirs::now() const {
  const std::shared_lock held(impl_->lock);
  return impl_->now;
}

void Reservoirs::set_now(EdgeTime now) {
  const std::unique_lock held(impl_->lock);
  impl_->now = std::max(impl_->now, now);
}

std::vector<SampleChange> Reservoirs::changes(std::int32_t table) const {
  std::vector<SampleChange> found = impl_->table(table).changes();
  impl_->table(table).add_holders(impl_->edges_changed, found);
  const auto before = [](const SampleChange& a, const SampleChange& b) { return a.vertex < b.vertex; };
  std::stable_sort(found.begin(), found.end(), before);  // a change of entries before one of values
  if (impl_->edges_changed.empty()) return found;
  const auto same = [](const SampleChange& a, const SampleChange& b) { return a.vertex == b.vertex; };
  found.erase(std::unique(found.begin(), found.end(), same), found.end());
  return found;
}

const float* Reservoirs::edge_row(EdgeId id) const { return impl_->edges.row(id); }

SampleView Reservoirs::view(std::int32_t table, VertexId v) const {
  const ReservoirTable& rows = impl_->table(table);
  return rows.view(rows.row(v));
}

SamplingBytes Reservoirs::bytes() const {
  const std::shared_lock held(impl_->lock);
  return impl_->bytes;
}

std::int64_t Reservoirs::refills() const {
  const std::shared_lock held(impl_->lock);
  return impl_->refills;
}

std::uint64_t Reservoirs::digest() const {
  const std::shared_lock held(impl_->lock);
  std::uint64_t sum = 0;
  for (const auto& table : impl_->tables) {
    if (table == nullptr) continue;
    const OneHop& query = table->query();
    std::uint64_t h = impl_->options.seed;
    for (const std::int64_t part :
         {std::int64_t{query.hop}, std::int64_t{query.edge_type}, static_cast<std::int64_t>(query.direction),
          static_cast<std::int64_t>(query.by), std::int64_t{query.fanout}, query.ttl}) {
      h = mix(h ^ static_cast<std::uint64_t>(part));
    }
    sum += mix(h ^ table->digest(impl_->owned));
  }
  return sum;
}

void Reservoirs::check_invariants() const {
  for (const auto& table : impl_->tables) {
    if (table != nullptr) table->check_invariants(impl_->owned, impl_->now);
  }
  for (VertexId v = 0; v < impl_->graph.slot_count(); ++v) {
    invariant((impl_->live[v] != 0) == impl_->graph.is_live(v), "a seed's liveness is out of date");
    invariant(!impl_->options.features || impl_->features.same_row(v, impl_->graph.features()),
              "a copied feature row is out of date");
  }
  impl_->edges.check_invariants();
}

}  // namespace livegnn
