// Long runs of added edges, as bulk streams bring them: checked and journaled one by one, as ever, and only then put
// into the lists, so that each direction can be written by its own thread and with its misses overlapped.
#include "graph/journal.h"
#include "graph/parallel.h"
#include "livegnn/graph.h"

namespace livegnn {

namespace {
constexpr std::size_t kRunMin = 256;
constexpr std::size_t kParallelMin = 2048;  // below, a thread costs more than it saves
constexpr std::size_t kRecordsAhead = 24;
constexpr std::size_t kStepAhead = 8;  // between the steps of Adjacency::prefetch_append, the last first
}  // namespace

// One past the last update of the run of additions that starts at `first`.
std::size_t GraphStore::end_of_run(const UpdateBuffer& batch, std::size_t first) const {
  const std::span<const Update> updates = batch.updates();
  std::size_t end = first;
  while (end < updates.size() && updates[end].kind == UpdateKind::AddEdge) ++end;
  return end;
}

// A simple graph looks for the edge before it adds it, and an undirected one keeps both directions in the same lists.
bool GraphStore::takes_run(std::size_t length) const {
  const bool degrees_fit = static_cast<std::size_t>(out_.entry_count()) + length < INT32_MAX;
  return length >= kRunMin && degrees_fit && !options_.simple && !options_.undirected;
}

// `at` follows the update under check, so that an error can name it; what was journaled of the run is then taken back.
void GraphStore::add_run(const UpdateBuffer& batch, std::size_t& at, std::size_t end) {
  const std::span<const Update> updates = batch.updates();
  std::vector<EdgeChange>& changes = scratch_->journal->edges;
  const std::size_t start = changes.size();
  const EdgeId next_before = next_edge_id_;
  const auto slots = static_cast<std::int64_t>(slot_count_);
  const auto prefetch_ends = [&](const Update& update) {
    if (update.u < 0 || update.v < 0 || update.u >= slots || update.v >= slots) return;
    prefetch_line(live_.data() + update.u);
    prefetch_line(live_.data() + update.v);
    out_.prefetch_list(static_cast<VertexId>(update.u));
    in_->prefetch_list(static_cast<VertexId>(update.v));
  };
  try {
    for (; at < end; ++at) {
      if (at + kRecordsAhead < end) prefetch_ends(updates[at + kRecordsAhead]);
      const Update& update = updates[at];
      const VertexId u = live_vertex(update.u), v = live_vertex(update.v);
      const EdgeEntry entry = checked_entry(batch, update, u, v);
      changes.push_back({EdgeChangeKind::Added, u, entry, entry.weight, -1});
      if (options_.attr_width > 0) attributes_.insert(entry.id, batch.row(update));
      next_edge_id_ = entry.id + 1;
    }
  } catch (...) {
    forget_run(start, next_before);
    throw;
  }
  struct alignas(64) Place {  // a cache line each: two threads count
    std::size_t at;
  };
  Place done[2] = {{start}, {start}};  // one past the last that is in the lists, by direction
  const auto owner = [&](std::size_t i, bool by_src) { return by_src ? changes[i].u : changes[i].entry.neighbour; };
  const auto insert_all = [&](Adjacency& lists, bool by_src) {
    for (std::size_t& i = done[by_src].at; i < changes.size(); ++i) {
      for (int step = 0; step < Adjacency::kAppendSteps; ++step) {
        const std::size_t ahead = i + kStepAhead * static_cast<std::size_t>(Adjacency::kAppendSteps - step);
        if (ahead < changes.size()) lists.prefetch_append(owner(ahead, by_src), step);
      }
      EdgeEntry entry = changes[i].entry;
      if (!by_src) entry.neighbour = changes[i].u;
      lists.insert(owner(i, by_src), entry);
    }
  };
  const int threads = changes.size() - start >= kParallelMin ? std::min(apply_threads_, 2) : 1;
  try {
    graph_parallel::run(threads, [&](int thread) {
      if (thread == 0) insert_all(out_, true);
      if (thread == threads - 1) insert_all(*in_, false);
    });
  } catch (...) {
    for (const bool by_src : {true, false}) {
      Adjacency& lists = by_src ? out_ : *in_;
      while (done[by_src].at > start) {
        --done[by_src].at;
        lists.erase(owner(done[by_src].at, by_src), lists.key(changes[done[by_src].at].entry));
      }
    }
    forget_run(start, next_before);
    throw;
  }
  edge_count_ += static_cast<std::int64_t>(changes.size() - start);
}

// The journal and the attributes as before a run of which nothing is in the lists.
void GraphStore::forget_run(std::size_t start, EdgeId next_edge_id) {
  std::vector<EdgeChange>& changes = scratch_->journal->edges;
  for (std::size_t i = start; i < changes.size() && options_.attr_width > 0; ++i) {
    if (attributes_.find(changes[i].entry.id) != nullptr) attributes_.erase(changes[i].entry.id);
  }
  changes.resize(start);
  next_edge_id_ = next_edge_id;
}

}  // namespace livegnn
