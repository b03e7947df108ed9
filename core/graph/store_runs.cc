// Long runs of added edges, as bulk streams bring them: checked one by one, as ever, and noted; grouped by the list
// that each edge joins; and each list extended once per group, a thread for each direction. What comes in the order of
// time is copied behind the list's end, late edges go where their time says.
#include <cmath>

#include "graph/journal.h"
#include "livegnn/graph.h"

namespace livegnn {

namespace {
constexpr std::size_t kRunMin = 256;
constexpr std::size_t kParallelMin = 512;  // below, waking a thread costs more than it saves
constexpr std::size_t kStepAhead = 6;      // between the steps of Adjacency::prefetch_append, the last first

void insert_groups(Adjacency& lists, const GroupedRun& grouped) {
  const std::vector<GroupedRun::OwnerGroup>& groups = grouped.groups();
  for (std::size_t at = 0; at < groups.size(); ++at) {
    for (int step = 0; step < Adjacency::kAppendSteps; ++step) {
      const std::size_t ahead = at + kStepAhead * static_cast<std::size_t>(Adjacency::kAppendSteps - step);
      if (ahead < groups.size()) lists.prefetch_append(groups[ahead].owner, step);
    }
    lists.insert_run(groups[at].owner, grouped.span(at));
  }
}
}  // namespace

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

// `at` follows the update under check, so that an error can name it.
void GraphStore::check_run(const UpdateBuffer& batch, std::size_t& at, std::size_t end, EdgeRun& run) {
  const std::span<const Update> updates = batch.updates();
  run.reserve(end - at);
  for (; at < end; ++at) {
    const Update& update = updates[at];
    if (is_plain_addition(update)) {
      run.push_back({static_cast<VertexId>(update.u), static_cast<VertexId>(update.v),
                     options_.has_weight ? update.weight : 1.0f, options_.has_type ? update.type : 0, next_edge_id_,
                     options_.has_time ? update.time : 0});
    } else {
      run.push_back(checked_edge(batch, update));
      if (options_.attr_width > 0) attributes_.insert(run.back().id, batch.row(update));
    }
    next_edge_id_ = run.back().id + 1;
  }
}

// Both directions of every edge of a run. What throws leaves some of them in: see take_out().
void GraphStore::insert_halves(const EdgeRun& run, bool parallel) {
  GroupedRun* const grouped = scratch_->grouped;
  Adjacency* const lists[2] = {&out_, in_};
  const RunSide sides[2] = {options_.undirected ? RunSide::BothEven : RunSide::BySrc,
                            options_.undirected ? RunSide::BothOdd : RunSide::ByDst};
  const auto insert_half = [&](std::int64_t half, int) {
    grouped[half].assign(run, sides[half], slot_count_, out_.pool().columns());
    if (!options_.undirected) insert_groups(*lists[half], grouped[half]);
  };
  if (parallel && scratch_->pool == nullptr) scratch_->pool = std::make_unique<ThreadPool>(2, ThreadPool::kNoSpin);
  if (parallel) {
    scratch_->pool->run(2, insert_half);
  } else {
    for (const int half : {0, 1}) insert_half(half, 0);
  }
  if (!options_.undirected) return;
  for (const int half : {0, 1}) insert_groups(*lists[half], grouped[half]);
}

// What is in of these edges and their attributes. The last edge first: it is then at the end of its lists, or near it.
void GraphStore::take_out(std::span<const EdgeRecord> run) {
  const graph_memory::InFiles in_memory({}, {});  // a disk that is full must not stop this
  for (auto edge = run.rbegin(); edge != run.rend(); ++edge) {
    const EdgeKey key = out_.key(edge->in_out_list());
    out_.erase_found(edge->src, key);
    if (!options_.undirected || edge->src != edge->dst) in_->erase_found(edge->dst, key);
    if (options_.attr_width > 0 && attributes_.find(edge->id) != nullptr) attributes_.erase(edge->id);
  }
}

// The same with their attributes, outside of batches, all or none; attr(i) is the row of edge i.
void GraphStore::insert_edges(const EdgeRun& run, const std::function<const float*(std::size_t)>& attr) {
  try {
    for (std::size_t i = 0; i < run.size() && options_.attr_width > 0; ++i) attributes_.insert(run[i].id, attr(i));
    insert_halves(run, false);
  } catch (...) {
    take_out(run);
    throw;
  }
  edge_count_ += static_cast<std::int64_t>(run.size());
  note_oldest(run);
}

void GraphStore::add_run(const UpdateBuffer& batch, std::size_t& at, std::size_t end) {
  EdgeRun& run = scratch_->journal->begin_run();
  check_run(batch, at, end, run);
  insert_halves(run, apply_threads_ > 1 && run.size() >= kParallelMin);
  edge_count_ += static_cast<std::int64_t>(run.size());
  note_oldest(run);
}

}  // namespace livegnn
