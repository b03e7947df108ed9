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

[[noreturn]] void refuse(ErrorKind kind, const std::string& expected, const std::string& got, const char* advice) {
  throw Error(kind, {.where = "reload", .expected = expected, .got = got, .advice = advice});
}

constexpr const char* kDamaged = "give the file that offload() wrote";

// One edge less away from a vertex's list; false where none is.
bool take_one(std::vector<std::int32_t>& counts, VertexId v) {
  if (static_cast<std::size_t>(v) >= counts.size() || counts[static_cast<std::size_t>(v)] == 0) return false;
  --counts[static_cast<std::size_t>(v)];
  return true;
}

EdgeEntry entry_at(const EdgeColumnsView& edges, std::size_t i) {
  EdgeEntry entry;
  entry.neighbour = static_cast<VertexId>(edges.dst[i]);
  entry.id = edges.id[i];
  entry.time = edges.time[i];
  if (!edges.weight.empty()) entry.weight = edges.weight[i];
  if (!edges.type.empty()) entry.type = edges.type[i];
  return entry;
}
}  // namespace

std::int64_t GraphStore::offload_before(EdgeTime before) {
  invariant(options_.has_time, "a graph without times was asked to offload old edges");
  OffloadedEdges next = offloaded_;
  next.out.resize(static_cast<std::size_t>(slot_count_), 0);
  if (!options_.undirected) next.in.resize(static_cast<std::size_t>(slot_count_), 0);
  std::vector<std::int32_t>& far = options_.undirected ? next.out : next.in;
  std::vector<EdgeId> ids;
  std::vector<std::pair<VertexId, EdgeEntry>> copied;
  visit_edges_before(before, [&](VertexId u, const EdgeEntry& entry) {
    ++next.out[static_cast<std::size_t>(u)];
    if (!options_.undirected || entry.neighbour != u) ++far[static_cast<std::size_t>(entry.neighbour)];
    next.digest += edge_digest(u, entry, loaded_attr(entry.id));
    next.id_max = std::max(next.id_max, entry.id);
    ids.push_back(entry.id);
    if (away_ != nullptr) copied.emplace_back(u, entry);
  });
  if (ids.empty()) return 0;
  if (away_ != nullptr) away_->insert_copies("offload", copied, *this);
  next.count += static_cast<std::int64_t>(ids.size());
  next.before = offloaded_.count == 0 ? before : std::max(offloaded_.before, before);
  for (VertexId v = 0; v < slot_count_; ++v) {
    out_.erase_before(v, before);
    if (!options_.undirected) in_->erase_before(v, before);
  }
  for (const EdgeId id : ids) {
    if (options_.attr_width > 0) attributes_.erase(id);
  }
  edge_count_ -= static_cast<std::int64_t>(ids.size());
  offloaded_ = std::move(next);
  scratch_->serial_latest = 0;  // what batches before did can no longer be taken back
  compact();
  publish();
  return static_cast<std::int64_t>(ids.size());
}

// What is away once these edges are back. Throws where they are not edges that are away.
OffloadedEdges GraphStore::checked_reload(const EdgeColumnsView& edges) const {
  const std::size_t count = edges.id.size();
  const auto check_length = [&](const char* name, std::size_t got, std::size_t expected) {
    if (got != expected)
      refuse(ErrorKind::StateMismatch, to_string(expected) + " values of " + name, to_string(got), kDamaged);
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
      if (!good) refuse(ErrorKind::StateMismatch, name + expected, got, kDamaged);
    };
    const auto slots = static_cast<std::int64_t>(slot_count_);
    check(edges.src[i] >= 0 && edges.dst[i] >= 0 && edges.src[i] < slots && edges.dst[i] < slots,
          "vertices of this graph", "others");
    check(edges.id[i] > (i > 0 ? edges.id[i - 1] : kNoEdge) && edges.id[i] <= next.id_max,
          "ascending ids of edges that are away", "another");
    check(edges.time[i] < next.before, "a time before that of the offload", "a later one");
    const EdgeEntry entry = entry_at(edges, i);
    const auto u = static_cast<VertexId>(edges.src[i]);
    const bool near_away = take_one(next.out, u);
    const bool far_away = (options_.undirected && entry.neighbour == u) || take_one(far, entry.neighbour);
    check(near_away && far_away, "ends of which edges are away", "ends of which fewer are");
    next.digest -= edge_digest(u, entry, edges.attr.data() + i * static_cast<std::size_t>(options_.attr_width));
    --next.count;
  }
  if (next.count == 0 && next.digest != 0) {
    refuse(ErrorKind::StateMismatch, "the edges that are away", "others in their place", kDamaged);
  }
  return next;
}

EdgeRun GraphStore::run_of(const EdgeColumnsView& edges) const {
  EdgeRun run;
  const PoolColumns columns = out_.pool().columns();
  run.reserve(edges.id.size(), columns);
  for (std::size_t i = 0; i < edges.id.size(); ++i) {
    run.add(static_cast<VertexId>(edges.src[i]), entry_at(edges, i), columns);
  }
  return run;
}

void GraphStore::reload(const EdgeColumnsView& edges, EdgeTime before) {
  OffloadedEdges next = checked_reload(edges);
  next.before = before;
  if (next.count == 0) next = OffloadedEdges();
  std::unique_ptr<GraphStore> away;
  if (away_ != nullptr && next.count > 0) away = copies_without(edges.id);
  const auto width = static_cast<std::size_t>(options_.attr_width);
  insert_edges(run_of(edges), [&](std::size_t i) { return edges.attr.data() + i * width; });
  offloaded_ = std::move(next);
  away_ = std::move(away);
  scratch_->serial_latest = 0;
  publish();
}

void GraphStore::restore_offloaded(OffloadedEdges offloaded) {
  const auto slots = static_cast<std::size_t>(slot_count_);
  std::int64_t ends = 0;
  for (const std::vector<std::int32_t>* counts : {&offloaded.out, &offloaded.in}) {
    if (counts->size() > slots)
      refuse(ErrorKind::StateMismatch, "counts of this graph's vertices", "more", "save it again");
    for (std::size_t v = 0; v < counts->size(); ++v) {
      const std::int32_t count = (*counts)[v];
      if (count < 0 || (count > 0 && live_[static_cast<std::int64_t>(v)] == 0)) {
        refuse(ErrorKind::StateMismatch, "counts of live vertices", "another", "save it again");
      }
      ends += count;
    }
  }
  if (ends > 2 * offloaded.count || ends < offloaded.count || offloaded.id_max >= next_edge_id_) {
    refuse(ErrorKind::StateMismatch, "counts that fit each other", "others", "save it again");
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
