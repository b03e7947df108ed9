// Batches: one update at a time, each checked against the graph as it is by then, then journaled, then done.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "graph/journal.h"
#include "livegnn/graph.h"

namespace livegnn {

namespace {
using std::to_string;

[[noreturn]] void refuse(ErrorKind kind, const std::string& expected, const std::string& got, const char* advice,
                         std::optional<std::int64_t> vertex = {}) {
  throw Error(kind, {.expected = expected, .got = got, .advice = advice, .vertex = vertex});
}

// What a check of one update has found, with the update: "remove_edge 3 -> 5".
ErrorFacts facts_of(ErrorFacts facts, const Update& update, std::size_t at) {
  constexpr const char* kNames[] = {"add_edge",      "remove_edge",  "remove_edges_before", "set_weight",
                                    "set_edge_attr", "set_features", "add_vertex",          "remove_vertex"};
  facts.where = "apply";
  facts.subject =
      std::string(update.is_expiry ? "expiry of edges before" : kNames[static_cast<int>(update.kind)]) + " ";
  facts.update = static_cast<std::int64_t>(at);
  if (update.kind == UpdateKind::RemoveEdgesBefore) {
    facts.subject += to_string(update.time);
  } else if (update.kind >= UpdateKind::SetFeatures) {
    facts.subject += to_string(update.u);
    facts.vertex = update.u;
  } else {
    facts.subject += to_string(update.u) + " -> " + to_string(update.v);
    facts.edge = {update.u, update.v};
  }
  return facts;
}

// One past the last update of the run of additions that starts at `first`.
std::size_t end_of_run(std::span<const Update> updates, std::size_t first) {
  while (first < updates.size() && updates[first].kind == UpdateKind::AddEdge) ++first;
  return first;
}

void check_weight(const Update& update) {
  if (update.has_weight && !std::isfinite(update.weight)) {
    refuse(ErrorKind::ValueInvalid, "a finite weight", to_string(update.weight), "correct the weight");
  }
}

// The place of an update in the batch as the user gave it; of an expiry, that of the update behind it.
std::size_t given_before(std::span<const Update> updates, std::size_t at) {
  const auto given = [](const Update& update) { return !update.is_expiry; };
  const auto count = static_cast<std::size_t>(std::count_if(updates.begin(), updates.begin() + at + 1, given));
  return std::max<std::size_t>(count, 1) - 1;
}
}  // namespace

// ---- checks

VertexId GraphStore::live_vertex(std::int64_t id) const {
  if (id < 0 || id >= slot_count_) {
    refuse(ErrorKind::VertexUnknown, "vertex ids in 0 .. " + to_string(slot_count_ - 1), to_string(id),
           "add the vertex first", id);
  }
  if (live_[id] == 0) {
    refuse(ErrorKind::VertexUnknown, "a live vertex", to_string(id) + ", which was removed",
           "add the vertex again first", id);
  }
  return static_cast<VertexId>(id);
}

void GraphStore::check_row(const UpdateBuffer& batch, const Update& update, std::int32_t width) const {
  const std::int32_t got = update.row < 0 ? 0 : update.row_width;
  if (got != width) {
    refuse(ErrorKind::WidthMismatch, "a row of " + to_string(width) + " floats", to_string(got), "give one per column");
  }
  if (width == 0) return;
  const float* row = batch.row(update);
  for (std::int32_t i = 0; i < width; ++i) {
    if (!std::isfinite(row[i])) {
      refuse(ErrorKind::ValueInvalid, "finite values", to_string(row[i]) + " in column " + to_string(i),
             "clean the row");
    }
  }
}

// A row of finite values that its vertex can store.
void GraphStore::check_feature_row(const UpdateBuffer& batch, const Update& update, std::int32_t width) const {
  check_row(batch, update, width);
  if (!features_.is_half() || width == 0) return;
  const float* row = batch.row(update);
  const std::int64_t unfit = first_unfit(features_.dtype(), row, width);
  if (unfit == width) return;
  refuse(ErrorKind::ValueInvalid, std::string("features within ") + dtype_name(features_.dtype()),
         to_string(row[unfit]) + " in column " + to_string(unfit),
         "scale it down, or make the graph with a feature_dtype that holds it");
}

void GraphStore::check_filter(const Update& update) const {
  if (!options_.has_time && update.time != kUnsetTime) {
    refuse(ErrorKind::ColumnMissing, "no time (the graph has none)", "one", "create the graph with times");
  }
  if (!options_.has_type && update.type != kUnsetType) {
    refuse(ErrorKind::ColumnMissing, "no edge type (the graph has none)", "one", "create the graph with edge types");
  }
}

void GraphStore::check_ends(const Update& update, VertexId u, VertexId v) const {
  if (fits_ends(update.type, vertex_types_[u], vertex_types_[v])) return;
  const auto types = options_.edge_ends.size();
  if (update.type < 0 || static_cast<std::size_t>(update.type) >= types) {
    refuse(ErrorKind::ValueInvalid, "an edge type below " + to_string(types), to_string(update.type),
           "name an edge type of the graph");
  }
  const EdgeEnds ends = options_.edge_ends[static_cast<std::size_t>(update.type)];
  refuse(ErrorKind::ValueInvalid,
         "ends of vertex types " + to_string(ends.src) + " -> " + to_string(ends.dst) + " for edge type " +
             to_string(update.type),
         to_string(vertex_types_[u]) + " -> " + to_string(vertex_types_[v]), "name the edge type that joins them");
}

void GraphStore::check_vertex_type(const Update& update) const {
  const bool given = update.type != kUnsetType;
  if (given != is_typed()) {
    refuse(ErrorKind::ColumnMissing, given ? "no vertex type (the graph has none)" : "a vertex type",
           given ? "one" : "none", given ? "leave it out" : "give the type of the vertex");
  }
  const auto types = options_.type_widths.size();
  if (given && (update.type < 0 || static_cast<std::size_t>(update.type) >= types)) {
    refuse(ErrorKind::ValueInvalid, "a vertex type below " + to_string(types), to_string(update.type),
           "name a vertex type of the graph");
  }
}

// The live vertex that an update of vertices names, of the type that it names.
VertexId GraphStore::typed_vertex(const Update& update) const {
  const VertexId v = live_vertex(update.u);
  check_vertex_type(update);
  if (is_typed() && vertex_types_[v] != update.type) {
    refuse(ErrorKind::VertexUnknown, "a vertex of type " + to_string(update.type),
           "one of type " + to_string(vertex_types_[v]), "name the type of the vertex");
  }
  return v;
}

EdgeRecord GraphStore::checked_edge(const UpdateBuffer& batch, const Update& update) const {
  const VertexId u = live_vertex(update.u), v = live_vertex(update.v);
  const auto check_column = [](bool has, bool given, const char* name) {
    if (has == given) return;
    refuse(ErrorKind::ColumnMissing, has ? std::string("a ") + name : std::string("no ") + name, has ? "none" : "one",
           "give exactly the columns that the graph has");
  };
  check_column(options_.has_weight, update.has_weight, "weight");
  check_column(options_.has_time, update.time != kUnsetTime, "time");
  check_column(options_.has_type, update.type != kUnsetType, "type");
  check_column(options_.attr_width > 0, update.row >= 0, "row of attributes");
  if (is_typed()) check_ends(update, u, v);
  check_weight(update);
  check_row(batch, update, options_.attr_width);
  if (options_.simple) check_pair_loaded({.kind = UpdateKind::AddEdge}, u, v, kNoEdge);
  if (options_.simple && find_edge(u, v, {}).id != kNoEdge) {
    refuse(ErrorKind::EdgeDuplicate, "no such edge in a simple graph", "one",
           "change its weight or attributes instead");
  }
  if (out_degree(u) == INT32_MAX || in_degree(v) == INT32_MAX) {
    refuse(ErrorKind::RangeOverflow, "fewer than 2^31 edges per vertex", "one more", "split the vertex");
  }
  return {u,
          v,
          options_.has_weight ? update.weight : 1.0f,
          options_.has_type ? update.type : 0,
          checked_edge_id(update),
          options_.has_time ? update.time : 0};
}

// Ids rise with every addition, so that the newest edge has the largest.
EdgeId GraphStore::checked_edge_id(const Update& update) const {
  if (update.edge_id == kNoEdge) return next_edge_id_;
  if (update.edge_id < next_edge_id_ || update.edge_id == INT64_MAX) {
    refuse(ErrorKind::ValueInvalid, "an edge id from " + to_string(next_edge_id_) + " on", to_string(update.edge_id),
           "leave the id out");
  }
  return update.edge_id;
}

EdgeRecord GraphStore::found_edge(const Update& update) {
  const VertexId u = live_vertex(update.u), v = live_vertex(update.v);
  check_filter(update);
  in_->index_if_wanted(v);
  const EdgeFilter filter{update.time, update.type, update.edge_id};
  const EdgeEntry entry = find_edge(u, v, filter);
  check_pair_loaded(update, u, v, entry.id);
  if (entry.id == kNoEdge && !update.missing_ignore) {
    refuse(ErrorKind::EdgeMissing, "an edge", "none",
           update.kind == UpdateKind::RemoveEdge ? "add it first, or pass missing=\"ignore\"" : "add it first");
  }
  return EdgeRecord::of(u, entry);
}

// ---- one update each

void GraphStore::add_edge(const UpdateBuffer& batch, const Update& update) {
  const EdgeRecord edge = checked_edge(batch, update);
  scratch_->journal->edges.push_back({EdgeChangeKind::Added, edge, edge.weight, -1});
  if (options_.attr_width > 0) attributes_.insert(edge.id, batch.row(update));
  link(edge);
  next_edge_id_ = edge.id + 1;
}

void GraphStore::journal_removed(const EdgeRecord& edge) {
  BatchDelta::Journal& journal = *scratch_->journal;
  std::int64_t row = -1;
  if (options_.attr_width > 0) {
    row = journal.save_row(attributes_.find(edge.id), options_.attr_width);
    attributes_.erase(edge.id);
  }
  journal.edges.push_back({EdgeChangeKind::Removed, edge, edge.weight, row});
}

void GraphStore::remove_edge(const Update& update) {
  const EdgeRecord edge = found_edge(update);
  if (edge.id == kNoEdge) return;
  journal_removed(edge);
  unlink(edge);
}

void GraphStore::set_weight(const Update& update) {
  live_vertex(update.u);
  live_vertex(update.v);
  if (!options_.has_weight) {
    refuse(ErrorKind::ColumnMissing, "a graph with weights", "one without", "create the graph with weights");
  }
  if (!update.has_weight) refuse(ErrorKind::ValueInvalid, "a weight", "none", "give the weight");
  check_weight(update);
  EdgeRecord edge = found_edge(update);
  if (edge.id == kNoEdge) return;
  const float before = std::exchange(edge.weight, update.weight);
  scratch_->journal->edges.push_back({EdgeChangeKind::Reweighted, edge, before, -1});
  relabel(edge, update.weight);
}

void GraphStore::set_edge_attr(const UpdateBuffer& batch, const Update& update) {
  live_vertex(update.u);
  live_vertex(update.v);
  if (options_.attr_width == 0) {
    refuse(ErrorKind::ColumnMissing, "a graph with edge attributes", "one without", "create the graph with attributes");
  }
  check_row(batch, update, options_.attr_width);
  const EdgeRecord edge = found_edge(update);
  if (edge.id == kNoEdge) return;
  BatchDelta::Journal& journal = *scratch_->journal;
  float* row = attributes_.find(edge.id);
  const std::int64_t saved = journal.save_row(row, options_.attr_width);
  journal.edges.push_back({EdgeChangeKind::AttrSet, edge, edge.weight, saved});
  std::memcpy(row, batch.row(update), static_cast<std::size_t>(options_.attr_width) * sizeof(float));
}

// Remembers the vertex as it is before its first change in this batch.
void GraphStore::journal_vertex(VertexId v) {
  BatchDelta::Journal& journal = *scratch_->journal;
  const auto place = static_cast<std::size_t>(scratch_->sparse[v]);
  if (place < journal.vertices.size() && journal.vertices[place].v == v) return;
  const std::int64_t row =
      v < journal.slot_count_before ? journal.save_row(feature_row(v, scratch_->row.data()), feature_stride()) : -1;
  scratch_->sparse[v] = static_cast<VertexId>(journal.vertices.size());
  journal.vertices.push_back({v, vertex_type(v), live_[v] != 0, row});
}

void GraphStore::set_features(const UpdateBuffer& batch, const Update& update) {
  const VertexId v = typed_vertex(update);
  const std::int32_t width = width_of_type(vertex_type(v));
  check_feature_row(batch, update, width);
  journal_vertex(v);
  if (width > 0) features_.write(v, batch.row(update), width);
}

void GraphStore::add_vertex(const UpdateBuffer& batch, const Update& update) {
  const std::int64_t id = update.u;
  if (id >= 0 && id < slot_count_ && live_[id] != 0) {
    refuse(ErrorKind::VertexExists, "a new vertex id", to_string(id) + ", which is live",
           "use set_features to change it");
  }
  if (id < 0 || id > slot_count_) {
    refuse(ErrorKind::VertexIdGap, "the next id " + to_string(slot_count_) + " or a removed one", to_string(id),
           "number vertices without gaps");
  }
  if (id == INT32_MAX) {
    refuse(ErrorKind::RangeOverflow, "fewer than 2^31 vertices", "one more", "add a removed vertex again");
  }
  check_vertex_type(update);
  const std::int32_t width = width_of_type(update.type);
  check_feature_row(batch, update, width);
  const auto v = static_cast<VertexId>(id);
  if (v == slot_count_) resize_slots(v + 1);
  journal_vertex(v);
  live_[v] = 1;
  if (is_typed()) vertex_types_[v] = update.type;
  ++vertex_count_;
  if (width > 0) features_.write(v, batch.row(update), width);
}

void GraphStore::remove_vertex(const Update& update) {
  const VertexId u = typed_vertex(update);
  check_vertex_loaded(u);
  std::vector<EdgeEntry>& incident = scratch_->incident;
  const auto collect = [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) incident.push_back(span.entry(i));
  };
  incident.clear();
  visit_out(u, collect);
  for (const EdgeEntry& entry : incident) {
    journal_removed(EdgeRecord::of(u, entry));
    if (!options_.undirected || entry.neighbour != u) in_->erase(entry.neighbour, out_.key(entry));
  }
  edge_count_ -= static_cast<std::int64_t>(incident.size());
  out_.clear(u);
  if (!options_.undirected) {
    incident.clear();
    visit_in(u, collect);
    for (const EdgeEntry& entry : incident) {
      journal_removed({entry.neighbour, u, entry.weight, entry.type, entry.id, entry.time});
      out_.erase(entry.neighbour, out_.key(entry));
    }
    edge_count_ -= static_cast<std::int64_t>(incident.size());
    in_->clear(u);
  }
  journal_vertex(u);
  live_[u] = 0;
  if (is_typed()) vertex_types_[u] = kNoVertexType;
  --vertex_count_;
  features_.clear(u, u + 1);
}

void GraphStore::apply_update(const UpdateBuffer& batch, const Update& update) {
  switch (update.kind) {
    case UpdateKind::AddEdge:
      return add_edge(batch, update);
    case UpdateKind::RemoveEdge:
      return remove_edge(update);
    case UpdateKind::RemoveEdgesBefore:
      return remove_edges_before(update);
    case UpdateKind::SetWeight:
      return set_weight(update);
    case UpdateKind::SetEdgeAttr:
      return set_edge_attr(batch, update);
    case UpdateKind::SetFeatures:
      return set_features(batch, update);
    case UpdateKind::AddVertex:
      return add_vertex(batch, update);
    case UpdateKind::RemoveVertex:
      return remove_vertex(update);
  }
}

// ---- the batch

void GraphStore::prefetch_update(const UpdateBuffer& batch, std::size_t at) const {
  constexpr std::size_t kRecordsAhead = 16, kEdgesAhead = 8;
  const std::span<const Update> updates = batch.updates();
  const auto known = [&](const Update& update) {
    return update.kind < UpdateKind::SetFeatures && update.u >= 0 && update.v >= 0 && update.u < slot_count_ &&
           update.v < slot_count_;
  };
  if (at + kRecordsAhead < updates.size() && known(updates[at + kRecordsAhead])) {
    prefetch_out(static_cast<VertexId>(updates[at + kRecordsAhead].u));
    prefetch_in(static_cast<VertexId>(updates[at + kRecordsAhead].v));
  }
  if (at + kEdgesAhead < updates.size() && known(updates[at + kEdgesAhead])) {
    out_.prefetch_append(static_cast<VertexId>(updates[at + kEdgesAhead].u), 1);
    in_->prefetch_append(static_cast<VertexId>(updates[at + kEdgesAhead].v), 1);
  }
}

// The journal of the batch before, where nothing else holds it.
BatchDelta::Journal& GraphStore::begin_journal() {
  std::shared_ptr<BatchDelta::Journal>& journal = scratch_->journal;
  if (journal == nullptr || journal.use_count() > 1) journal = std::make_shared<BatchDelta::Journal>();
  journal->edges.clear();
  journal->run_count = 0;
  if (journal->run_bytes() > Scratch::kRunBytesMax) journal->runs = {};
  journal->vertices.clear();
  journal->rows.clear();
  journal->serial = 0;
  journal->serial_before = scratch_->serial_latest;
  journal->next_edge_id_before = next_edge_id_;
  journal->version_before = version_;
  journal->vertex_count_before = vertex_count_;
  journal->edge_count_before = edge_count_;
  journal->slot_count_before = slot_count_;
  return *journal;
}

void GraphStore::apply_into(const UpdateBuffer& batch, BatchDelta* delta) {
  if (delta != nullptr) delta->clear();
  BatchDelta::Journal& journal = begin_journal();
  const std::span<const Update> updates = batch.updates();
  const auto take_back = [&] {
    roll_back(journal);
    if (delta != nullptr) delta->clear();
  };
  std::size_t at = 0;
  try {
    for (std::size_t end_seen = 0; at < updates.size();) {
      const std::size_t end = at < end_seen ? at : end_of_run(updates, at);  // a run too short is measured once
      end_seen = std::max(end_seen, end);
      if (takes_run(end - at)) {
        add_run(batch, at, end);
      } else {
        prefetch_update(batch, at);
        apply_update(batch, updates[at]);
        ++at;
      }
    }
    if (delta != nullptr && !journal.edges.empty()) write_edges(journal, *delta);
    if (delta != nullptr && !journal.vertices.empty()) write_vertices(journal, *delta);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::InvariantBroken) throw;
    take_back();
    throw Error(error.kind(), facts_of(error.facts(), updates[at], given_before(updates, at)));
  } catch (...) {
    take_back();
    throw;
  }
  ++version_;
  journal.serial = scratch_->serial_latest = scratch_->serial_next++;
  if (delta != nullptr) delta->journal = scratch_->journal;
  compact_if_idle();
}

}  // namespace livegnn
