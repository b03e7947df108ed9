// Long runs of added edges, as bulk streams bring them: checked one by one, as ever, into columns; grouped by the list
// that each edge joins; and each list extended once per group, a thread for each direction. What comes in the order of
// time is copied behind the list's end, late edges go where their time says.
#include <cmath>
#include <system_error>

#include "graph/journal.h"
#include "livegnn/graph.h"

namespace livegnn {

namespace {
constexpr std::size_t kRunMin = 256;
constexpr std::size_t kParallelMin = 512;              // below, waking a thread costs more than it saves
constexpr std::size_t kRunMax = std::size_t{1} << 30;  // places of a group's edges are 32 bits, both ends counted
constexpr std::size_t kStepAhead = 6;  // between the steps of Adjacency::prefetch_append, the last first
}  // namespace

// One past the last update of the run of additions that starts at `first`.
std::size_t GraphStore::end_of_run(const UpdateBuffer& batch, std::size_t first) const {
  const std::span<const Update> updates = batch.updates();
  const std::size_t last = std::min(updates.size(), first + kRunMax);
  std::size_t end = first;
  while (end < last && updates[end].kind == UpdateKind::AddEdge) ++end;
  return end;
}

// A simple graph looks for the edge before it adds it.
bool GraphStore::takes_run(std::size_t length) const {
  const bool degrees_fit = static_cast<std::size_t>(out_.entry_count()) + 2 * length < INT32_MAX;
  return length >= kRunMin && degrees_fit && !options_.simple;
}

// Whether an update needs none of the checks that name what is wrong with it.
bool GraphStore::is_plain_addition(const Update& update) const {
  const auto slots = static_cast<std::uint64_t>(slot_count_);
  return static_cast<std::uint64_t>(update.u) < slots && static_cast<std::uint64_t>(update.v) < slots &&
         live_[update.u] != 0 && live_[update.v] != 0 && update.edge_id == kNoEdge &&
         update.has_weight == options_.has_weight && (update.time != kUnsetTime) == options_.has_time &&
         (update.type != kUnsetType) == options_.has_type && update.row < 0 && options_.attr_width == 0 &&
         !is_typed() && std::isfinite(update.weight);
}

// `at` follows the update under check, so that an error can name it; what was noted of the run is then forgotten.
void GraphStore::check_run(const UpdateBuffer& batch, std::size_t& at, std::size_t end, EdgeRun& run) {
  const std::span<const Update> updates = batch.updates();
  const PoolColumns columns = out_.pool().columns();
  const EdgeId next_before = next_edge_id_;
  run.clear();
  run.reserve(end - at, columns);
  try {
    for (; at < end; ++at) {
      const Update& update = updates[at];
      if (is_plain_addition(update)) {
        const EdgeEntry entry{static_cast<VertexId>(update.v), update.type, update.weight, next_edge_id_, update.time};
        run.add(static_cast<VertexId>(update.u), entry, columns);
        ++next_edge_id_;
        continue;
      }
      const VertexId u = live_vertex(update.u), v = live_vertex(update.v);
      const EdgeEntry entry = checked_entry(batch, update, u, v);
      run.add(u, entry, columns);
      if (options_.attr_width > 0) attributes_.insert(entry.id, batch.row(update));
      next_edge_id_ = entry.id + 1;
    }
  } catch (...) {
    forget_attributes(run);
    next_edge_id_ = next_before;
    throw;
  }
}

void GraphStore::insert_groups(Adjacency& lists, const GroupedRun& grouped, std::size_t& done) {
  const std::vector<GroupedRun::Group>& groups = grouped.groups();
  for (; done < groups.size(); ++done) {
    for (int step = 0; step < Adjacency::kAppendSteps; ++step) {
      const std::size_t ahead = done + kStepAhead * static_cast<std::size_t>(Adjacency::kAppendSteps - step);
      if (ahead < groups.size()) lists.prefetch_append(groups[ahead].owner, step);
    }
    lists.insert_run(groups[done].owner, grouped.span(groups[done].begin, grouped.end_of(done)));
  }
}

// The edges of the first `done` groups out of their lists, the last first; before them what is in of the group that
// was under way.
void GraphStore::erase_groups(Adjacency& lists, const GroupedRun& grouped, std::size_t done) {
  if (done < grouped.groups().size()) {
    const VertexId owner = grouped.groups()[done].owner;
    const EdgeSpan span = grouped.span(grouped.groups()[done].begin, grouped.end_of(done));
    for (std::int32_t i = span.count - 1; i >= 0; --i) {
      EdgeFilter filter{.id = span.ids[i]};
      if (span.times != nullptr) filter.time = span.times[i];
      const EdgeEntry found = lists.find_newest(owner, span.neighbours[i], filter);
      if (found.id != kNoEdge) lists.erase(owner, lists.key(found));
    }
  }
  while (done > 0) {
    --done;
    const EdgeSpan span = grouped.span(grouped.groups()[done].begin, grouped.end_of(done));
    for (std::int32_t i = span.count - 1; i >= 0; --i) {
      lists.erase(grouped.groups()[done].owner, {span.times != nullptr ? span.times[i] : 0, span.ids[i]});
    }
  }
}

// Where the system gives no thread, this one does both.
void GraphStore::for_both_halves(bool parallel, const std::function<void(std::int64_t, int)>& work) {
  if (parallel && scratch_->pool == nullptr) {
    try {
      scratch_->pool = std::make_unique<ThreadPool>(2, ThreadPool::kNoSpin);
    } catch (const std::system_error&) {
      parallel = false;
    }
  }
  if (parallel) return scratch_->pool->run(2, work);
  for (const std::int64_t half : {0, 1}) work(half, 0);
}

// Both directions of every edge of a run, or none.
void GraphStore::insert_halves(const EdgeRun& run, bool parallel) {
  struct alignas(64) Place {  // a cache line each: two threads count
    std::size_t at = 0;
  };
  Place done[2];  // groups that are in the lists
  GroupedRun* const grouped = scratch_->grouped;
  for (const int half : {0, 1}) grouped[half].clear();  // what a failure finds there is of this run
  Adjacency* const lists[2] = {&out_, in_};
  const RunSide sides[2] = {options_.undirected ? RunSide::BothEven : RunSide::BySrc,
                            options_.undirected ? RunSide::BothOdd : RunSide::ByDst};
  try {
    for_both_halves(parallel, [&](std::int64_t half, int) {
      grouped[half].assign(run, sides[half], slot_count_);
      if (!options_.undirected) insert_groups(*lists[half], grouped[half], done[half].at);
    });
    for (int half = 0; half < 2; ++half) insert_groups(*lists[half], grouped[half], done[half].at);
  } catch (...) {
    const graph_memory::InFiles in_memory({}, {});  // a disk that is full must not stop this
    for (const int half : {1, 0}) erase_groups(*lists[half], grouped[half], done[half].at);
    throw;
  }
}

// The same with their attributes, outside of batches; attr(i) is the row of edge i.
void GraphStore::insert_edges(const EdgeRun& run, const std::function<const float*(std::size_t)>& attr) {
  try {
    for (std::size_t i = 0; i < run.size() && options_.attr_width > 0; ++i) attributes_.insert(run.ids[i], attr(i));
    insert_halves(run, false);
  } catch (...) {
    forget_attributes(run);
    throw;
  }
  edge_count_ += static_cast<std::int64_t>(run.size());
  note_oldest(run);
}

void GraphStore::add_run(const UpdateBuffer& batch, std::size_t& at, std::size_t end) {
  BatchDelta::Journal& journal = *scratch_->journal;
  const EdgeId next_before = next_edge_id_;
  EdgeRun& run = journal.next_run();
  check_run(batch, at, end, run);
  bool kept = false;
  try {
    journal.keep_run();  // nothing can fail once the edges are in
    kept = true;
    insert_halves(run, apply_threads_ > 1 && run.size() >= kParallelMin);
  } catch (...) {
    if (kept) journal.drop_run();
    forget_attributes(run);
    next_edge_id_ = next_before;
    throw;
  }
  edge_count_ += static_cast<std::int64_t>(run.size());
  note_oldest(run);
}

void GraphStore::forget_attributes(const EdgeRun& run) {
  if (options_.attr_width == 0) return;
  for (const EdgeId id : run.ids) {
    if (attributes_.find(id) != nullptr) attributes_.erase(id);
  }
}

}  // namespace livegnn
