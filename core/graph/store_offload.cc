// Old edges out of memory, and back: the files are the caller's. They stay edges of the graph: the version, the digest
// and the ids do not change, and the store keeps, per vertex, how many of its edges are away.
#include <algorithm>
#include <cmath>
#include <string>

#include "graph/journal.h"
#include "livegnn/graph.h"

namespace livegnn {

namespace {
using std::to_string;

[[noreturn]] void refuse(const std::string& expected, const std::string& got, const char* advice) {
  throw Error(ErrorKind::StateMismatch, {.where = "reload", .expected = expected, .got = got, .advice = advice});
}

constexpr const char* kDamaged = "give the file that offload() wrote";
constexpr const char* kUnfit = "save it again";

// One edge less away from a vertex's list; false where none is.
bool take_one(std::vector<std::int32_t>& counts, VertexId v) {
  if (static_cast<std::size_t>(v) >= counts.size() || counts[static_cast<std::size_t>(v)] == 0) return false;
  --counts[static_cast<std::size_t>(v)];
  return true;
}
}  // namespace

std::int64_t GraphStore::offload_before(EdgeTime before) {
  invariant(options_.has_time, "a graph without times was asked to offload old edges");
  OffloadedEdges next = offloaded_;
  next.out.resize(static_cast<std::size_t>(slot_count_), 0);
  if (!options_.undirected) next.in.resize(static_cast<std::size_t>(slot_count_), 0);
  std::vector<std::int32_t>& far = options_.undirected ? next.out : next.in;
  std::vector<EdgeId> ids;
  EdgeRun copied;  // where copies are kept
  visit_edges_before(before, [&](const EdgeRecord& edge) {
    ++next.out[static_cast<std::size_t>(edge.src)];
    if (!options_.undirected || edge.src != edge.dst) ++far[static_cast<std::size_t>(edge.dst)];
    next.digest += edge_digest(edge, loaded_attr(edge.id));
    next.id_max = std::max(next.id_max, edge.id);
    ids.push_back(edge.id);
    if (away_ != nullptr) copied.push_back(edge);
  });
  if (ids.empty()) return 0;
  if (away_ != nullptr) away_->copy_from(*this, "offload", copied);
  const auto count = static_cast<std::int64_t>(ids.size());
  next.count += count;
  next.before = offloaded_.count == 0 ? before : std::max(offloaded_.before, before);
  for (VertexId v = 0; v < slot_count_; ++v) {
    out_.erase_before(v, before);
    if (!options_.undirected) in_->erase_before(v, before);
  }
  for (const EdgeId id : ids) {
    if (options_.attr_width > 0) attributes_.erase(id);
  }
  edge_count_ -= count;
  offloaded_ = std::move(next);
  scratch_->serial_latest = 0;  // what batches before did can no longer be taken back
  compact();
  publish();
  return count;
}

// What is away once these edges are back. Throws where they are not edges that are away.
OffloadedEdges GraphStore::checked_reload(const EdgeColumnsView& edges) const {
  const std::size_t count = edges.id.size();
  const auto check_length = [&](const char* name, std::size_t got, std::size_t expected) {
    if (got != expected) refuse(to_string(expected) + " values of " + name, to_string(got), kDamaged);
  };
  check_length("src", edges.src.size(), count);
  check_length("dst", edges.dst.size(), count);
  check_length("time", edges.time.size(), count);
  check_length("weight", edges.weight.size(), options_.has_weight ? count : 0);
  check_length("type", edges.type.size(), options_.has_type ? count : 0);
  check_length("attr", edges.attr.size(), count * static_cast<std::size_t>(options_.attr_width));
  OffloadedEdges next = offloaded_;
  std::vector<std::int32_t>& far = options_.undirected ? next.out : next.in;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "edge " + to_string(edges.id[i]) + ": ";
    const auto check = [&](bool good, const char* expected, const char* got) {
      if (!good) refuse(name + expected, got, kDamaged);
    };
    const auto slots = static_cast<std::int64_t>(slot_count_);
    check(edges.src[i] >= 0 && edges.dst[i] >= 0 && edges.src[i] < slots && edges.dst[i] < slots,
          "vertices of this graph", "others");
    check(edges.id[i] > (i > 0 ? edges.id[i - 1] : kNoEdge) && edges.id[i] <= next.id_max,
          "ascending ids of edges that are away", "another");
    check(edges.time[i] < next.before, "a time before that of the offload", "a later one");
    const EdgeRecord edge = edges.edge(i);
    const bool near_away = take_one(next.out, edge.src);
    const bool far_away = (options_.undirected && edge.src == edge.dst) || take_one(far, edge.dst);
    check(near_away && far_away, "ends of which edges are away", "ends of which fewer are");
    next.digest -= edge_digest(edge, edges.attr.data() + i * static_cast<std::size_t>(options_.attr_width));
    --next.count;
  }
  if (next.count == 0 && next.digest != 0) {
    refuse("the edges that are away", "others in their place", kDamaged);
  }
  return next;
}

void GraphStore::reload(const EdgeColumnsView& edges, EdgeTime before) {
  OffloadedEdges next = checked_reload(edges);
  next.before = before;
  if (next.count == 0) next = OffloadedEdges();
  std::unique_ptr<GraphStore> away;
  if (away_ != nullptr && next.count > 0) away = copies_without(edges.id);
  const auto width = static_cast<std::size_t>(options_.attr_width);
  insert_edges(edges.run(), [&](std::size_t i) { return edges.attr.data() + i * width; });
  offloaded_ = std::move(next);
  away_ = std::move(away);
  scratch_->serial_latest = 0;
  publish();
}

void GraphStore::restore_offloaded(OffloadedEdges offloaded) {
  const auto slots = static_cast<std::size_t>(slot_count_);
  std::int64_t ends = 0;
  for (const std::vector<std::int32_t>* counts : {&offloaded.out, &offloaded.in}) {
    if (counts->size() > slots) refuse("counts of this graph's vertices", "more", kUnfit);
    for (std::size_t v = 0; v < counts->size(); ++v) {
      const std::int32_t count = (*counts)[v];
      if (count < 0 || (count > 0 && live_[static_cast<std::int64_t>(v)] == 0)) {
        refuse("counts of live vertices", "another", kUnfit);
      }
      ends += count;
    }
  }
  if (ends > 2 * offloaded.count || ends < offloaded.count || offloaded.id_max >= next_edge_id_) {
    refuse("counts that fit each other", "others", kUnfit);
  }
  offloaded_ = std::move(offloaded);
}

// ---- updates that would need what is away

void GraphStore::check_pair_loaded(const Update& update, VertexId u, VertexId v, EdgeId found) const {
  if (offloaded_.count == 0 || offloaded_out(u) == 0 || offloaded_in(v) == 0) return;
  if (found > offloaded_.id_max) return;  // the newest edge is meant, and that is in memory
  if (update.time != kUnsetTime && update.time >= offloaded_.before) return;
  if (update.edge_id != kNoEdge && (found != kNoEdge || update.edge_id > offloaded_.id_max)) return;
  refuse_offloaded("edges between the two in memory");
}

void GraphStore::check_vertex_loaded(VertexId v) const {
  if (offloaded_out(v) > 0 || offloaded_in(v) > 0) refuse_offloaded("the vertex's edges in memory");
}

void GraphStore::refuse_offloaded(const char* expected) const {
  throw Error(ErrorKind::EdgeOffloaded,
              {.expected = expected,
               .got = "some with a time before " + to_string(offloaded_.before) + " in a file",
               .advice = "reload the graph first"});
}

}  // namespace livegnn
