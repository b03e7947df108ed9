// The last word on an id wins: a vertex removed by one batch and added again by the next has a row again, another one.
#include <algorithm>
#include <utility>

#include "livegnn/feature_cache.h"

namespace livegnn {

// A row that is set to the graph's own bits counts: the rows cached may lie elsewhere, and be others or more precise.
void ChangedRows::follow(const BatchDelta& delta, const UpdateBuffer& batch) {
  const std::lock_guard lock(mutex_);
  if (edges_) {
    for (const EdgeRecord& edge : delta.reattributed) note(edge.id, graph_.edge_attr(edge.id) == nullptr);
    for (const EdgeRecord& edge : delta.removed) note(edge.id, true);
    return;
  }
  for (const Update& update : batch.updates()) {
    const bool of_vertex = update.kind == UpdateKind::SetFeatures || update.kind == UpdateKind::AddVertex ||
                           update.kind == UpdateKind::RemoveVertex;
    if (of_vertex) note(update.u, !graph_.is_live(static_cast<VertexId>(update.u)));
  }
}

void ChangedRows::note(std::int64_t id, bool gone) {
  if (std::int64_t* place = pending_.place_of(id)) {
    *place = gone;
  } else {
    pending_.insert(id, gone);
  }
}

RowChanges ChangedRows::take() {
  EdgeIdMap pending;
  {
    const std::lock_guard lock(mutex_);
    if (pending_.count() == 0) return {};
    std::swap(pending, pending_);
  }
  std::vector<std::pair<std::int64_t, std::uint8_t>> found;
  found.reserve(static_cast<std::size_t>(pending.count()));
  pending.visit([&](EdgeId id, std::int64_t gone) { found.emplace_back(id, static_cast<std::uint8_t>(gone)); });
  std::sort(found.begin(), found.end());
  RowChanges taken;
  for (const auto& [id, gone] : found) {
    taken.ids.push_back(id);
    taken.gone.push_back(gone);
  }
  return taken;
}

}  // namespace livegnn
