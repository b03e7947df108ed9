#include "livegnn/arrivals.h"

#include <algorithm>
#include <unordered_set>

namespace livegnn {
namespace {

std::vector<EdgeId> sorted_ids(const std::vector<EdgeRecord>& edges) {
  std::vector<EdgeId> ids(edges.size());
  std::transform(edges.begin(), edges.end(), ids.begin(), [](const EdgeRecord& edge) { return edge.id; });
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());  // an undirected edge has a record for each direction
  return ids;
}

}  // namespace

void Arrivals::follow(const BatchDelta& delta, const UpdateBuffer& batch) {
  std::unordered_set<EdgeId> of_mine;
  for (const EdgeId id : sorted_ids(delta.removed)) {
    if (std::ranges::binary_search(added_, id, {}, &EdgeEvent::id)) {
      of_mine.insert(id);
    } else {
      removed_.push_back(id);
    }
  }
  if (!of_mine.empty()) std::erase_if(added_, [&](const EdgeEvent& event) { return of_mine.contains(event.id); });
  // The delta knows which edges are there, the batch which end is the source: the two are walked side by side.
  const std::vector<EdgeId> there = sorted_ids(delta.added);
  auto next = there.begin();
  for (const Update& update : batch.updates()) {
    // A vertex removed and added again is in no list of the delta, but its edges and memory are gone.
    if (update.kind == UpdateKind::RemoveVertex) vertices_.push_back(update.u);
    if (update.kind != UpdateKind::AddEdge) continue;
    const EdgeId id = update.edge_id == kNoEdge ? next_edge_id_ : update.edge_id;
    next_edge_id_ = id + 1;
    if (next == there.end() || *next != id) continue;  // came and went within the batch
    ++next;
    if (!edge_types_.empty() && std::ranges::find(edge_types_, update.type) == edge_types_.end()) continue;
    const std::int64_t time = update.time == kUnsetTime ? 0 : update.time;
    added_.push_back({update.u, update.v, time, id, update.type == kUnsetType ? 0 : update.type});
  }
  invariant(next == there.end(), "an edge came that no update added");
  vertices_.insert(vertices_.end(), delta.vertices_removed.begin(), delta.vertices_removed.end());
  std::sort(vertices_.begin(), vertices_.end());
  vertices_.erase(std::unique(vertices_.begin(), vertices_.end()), vertices_.end());
}

void Arrivals::clear() {
  added_.clear();
  removed_.clear();
  vertices_.clear();
}

}  // namespace livegnn
