// All tables over one graph: batches come in, whole versions go out.
#include <algorithm>
#include <atomic>
#include <map>
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
  const GraphStore& graph;
  SamplingOptions options;
  OwnedBuckets owned;
  EdgeColumns columns = options.edge_data ? edge_columns_of(graph.options()) : EdgeColumns{};
  std::map<std::int32_t, std::unique_ptr<ReservoirTable>> tables{};  // by number
  std::int32_t next_table = 0;

  // what readers see beside the rows
  mutable VersionLock lock{};
  FeatureTable features{graph.features().dtype(), graph.feature_stride()};  // as the graph's, where options.features
  EdgeRows edges{graph, columns};
  std::vector<EdgeRecord> edges_changed{};  // of the latest batch, where changes and edges are kept: with other values
  Column<std::uint8_t> live{};
  VertexId slot_count = 0;
  std::atomic<std::int64_t> version{0};
  EdgeTime now = INT64_MIN;
  SamplingStats stats{};            // of the version
  std::atomic<bool> broken{false};  // memory ended in the middle of a batch, or one was missed

  std::mutex pool_mutex{};
  ThreadPool pool{options.threads};

  const ReservoirTable& table(std::int32_t number) const {
    const auto found = tables.find(number);
    invariant(found != tables.end(), "a table of samples was asked for that is not there");
    return *found->second;
  }

  void note_stats() {  // the caller holds the lock or is alone
    stats = {};
    for (const auto& [number, table] : tables) table->add_to(stats);
    stats.features = features.bytes() + live.bytes();
    stats.edges = edges.bytes();
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
    for (const auto& [number, table] : tables) table->grow_rows();
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
    for (const auto& [number, table] : tables) table->switch_rows();
    for (const VertexId v : delta.vertices_added) live[v] = 1;
    for (const VertexId v : delta.vertices_removed) live[v] = 0;
    for (const VertexId v : delta.features_changed) copy_features(v);
    edges.follow(delta);
    now = latest;
    note_stats();
    version.store(graph.version(), std::memory_order_release);
  }

  // task(table, shard) for all of them; in this thread where there is little to do.
  template <typename Task>
  void run_shards(bool parallel, const Task& task) {
    std::vector<std::pair<ReservoirTable*, int>> jobs;
    for (const auto& [number, table] : tables) {
      for (int shard = 0; shard < table->shards(); ++shard) jobs.emplace_back(table.get(), shard);
    }
    if (!parallel || pool.threads() == 1) {
      for (const auto& [table, shard] : jobs) task(*table, shard);
      return;
    }
    const std::lock_guard held(pool_mutex);
    pool.run(static_cast<std::int64_t>(jobs.size()),
             [&](std::int64_t at, int) { task(*jobs[at].first, jobs[at].second); });
  }
};

Reservoirs::Reservoirs(const GraphStore& graph, const SamplingOptions& options, std::vector<std::uint8_t> owned)
    : impl_(new Impl{graph, options, std::move(owned)}) {
  impl_->grow();
  impl_->version = graph.version();
  impl_->note_stats();
  if (graph.options().has_time) {
    graph.visit_edges([&](const EdgeRecord& edge) { impl_->now = std::max(impl_->now, edge.time); });
  }
}

Reservoirs::~Reservoirs() = default;

std::int32_t Reservoirs::add_table(const OneHop& query) {
  auto table = std::make_unique<ReservoirTable>(impl_->graph, query, impl_->options);
  table->grow_rows();
  {
    const std::lock_guard held(impl_->pool_mutex);
    impl_->pool.run(table->shards(), [&](std::int64_t shard, int) {
      table->back_fill(static_cast<int>(shard), impl_->owned, impl_->now);
    });
  }
  const std::unique_lock held(impl_->lock);
  impl_->tables.emplace(impl_->next_table, std::move(table));
  impl_->note_stats();
  return impl_->next_table++;
}

void Reservoirs::drop_table(std::int32_t table) {
  impl_->table(table);
  decltype(impl_->tables)::node_type gone;  // when readers are let in again
  const std::unique_lock held(impl_->lock);
  gone = impl_->tables.extract(table);
  impl_->note_stats();
}

std::int32_t Reservoirs::fanout(std::int32_t table) const {
  const std::shared_lock held(impl_->lock);
  return impl_->table(table).fanout();
}

void Reservoirs::check(const BatchDelta& delta) const {
  if (impl_->broken) return;  // answers no more, and is in nobody's way
  for (const auto& [number, table] : impl_->tables) table->check(delta, impl_->owned);
}

void Reservoirs::follow(const BatchDelta& delta, const UpdateBuffer& batch) {
  Impl& impl = *impl_;
  if (impl.broken) return;
  try {
    invariant(impl.graph.version() == impl.version + 1, "a batch went past the tables of samples");
    const EdgeTime latest = latest_time(batch, impl.now);
    for (const auto& [number, table] : impl.tables) table->grow_stage();
    const std::size_t edges = delta.added.size() + delta.removed.size() + delta.reweighted.size();
    impl.run_shards(edges * impl.tables.size() >= kParallelEdges,
                    [&](ReservoirTable& table, int shard) { table.stage(shard, delta, impl.owned, latest); });
    impl.publish(delta, latest);
    impl.note_edges(delta);
    for (const auto& [number, table] : impl.tables) table->retire();
  } catch (...) {
    impl.broken = true;
    throw;
  }
}

std::int64_t Reservoirs::sample(const SampleRequest& request) {
  Impl& impl = *impl_;
  const std::shared_lock held(impl.lock);
  invariant(!impl.broken, "an earlier batch was lost to these tables; make the sampler anew");
  std::vector<const ReservoirTable*> tables;
  QueryShape shape;
  for (const std::int32_t number : request.tables) {
    tables.push_back(&impl.table(number));
    shape.add_hop(tables.back()->fanout());
  }
  check_seeds(request, impl.version,
              [&](std::int64_t seed) { return seed >= 0 && seed < impl.slot_count && impl.live[seed] != 0; });
  const auto fill = [&](std::size_t hop, const std::int64_t* parents, const LevelRange& range) {
    read_hop(*tables[hop], request, hop, parents, range);
    if (request.edge_columns.words() > 0) impl.edges.read(request, hop, range);
  };
  const auto count = static_cast<std::int64_t>(request.seeds.size());
  const std::int64_t block = shape.block_seeds(), blocks = (count + block - 1) / block;
  const auto read = [&](std::int64_t at, int) {
    read_block(impl.features, request, shape, at * block, std::min(count, (at + 1) * block), fill);
  };
  std::unique_lock pooled(impl.pool_mutex, std::defer_lock);
  if (blocks >= kParallelBlocks && impl.pool.threads() > 1 && pooled.try_lock()) {
    impl.pool.run(blocks, read);
  } else {
    for (std::int64_t at = 0; at < blocks; ++at) read(at, 0);
  }
  return impl.version;
}

EdgeColumns Reservoirs::edge_columns() const { return impl_->columns; }

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

SamplingStats Reservoirs::stats() const {
  const std::shared_lock held(impl_->lock);
  return impl_->stats;
}

std::uint64_t Reservoirs::digest() const {
  const std::shared_lock held(impl_->lock);
  std::uint64_t sum = 0;
  for (const auto& [number, table] : impl_->tables) {
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
  for (const auto& [number, table] : impl_->tables) table->check_invariants(impl_->owned, impl_->now);
  for (VertexId v = 0; v < impl_->graph.slot_count(); ++v) {
    invariant((impl_->live[v] != 0) == impl_->graph.is_live(v), "a seed's liveness is out of date");
    invariant(!impl_->options.features || impl_->features.same_row(v, impl_->graph.features()),
              "a copied feature row is out of date");
  }
  impl_->edges.check_invariants();
}

}  // namespace livegnn
