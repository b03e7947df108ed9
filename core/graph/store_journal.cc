// The net effect of a batch, and the way back.
#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "graph/journal.h"
#include "livegnn/graph.h"

namespace livegnn {

namespace {
constexpr std::size_t kTableBytesMax = std::size_t{1} << 16;  // of the index of changed weights, kept between batches

bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

EdgeRecord& edge_of(EdgeRecord& record) { return record; }
EdgeRecord& edge_of(EdgeReweighted& change) { return change.before; }

// Each undirected edge a second time, the other way round; self-loops once.
template <typename Record>
void add_mirrored(std::vector<Record>& records) {
  const std::size_t count = records.size();
  for (std::size_t i = 0; i < count; ++i) {
    Record turned = records[i];
    EdgeRecord& edge = edge_of(turned);
    if (edge.src == edge.dst) continue;
    std::swap(edge.src, edge.dst);
    records.push_back(turned);
  }
}

// The edge with this id among those that a batch added, by ascending id: by position, unless ids were given with gaps.
EdgeRecord& new_edge(std::vector<EdgeRecord>& edges, EdgeId id) {
  const auto place = static_cast<std::size_t>(id - edges.front().id);
  if (place < edges.size() && edges[place].id == id) return edges[place];
  return *std::lower_bound(edges.begin(), edges.end(), id,
                           [](const EdgeRecord& edge, EdgeId wanted) { return edge.id < wanted; });
}
}  // namespace

// Ids from next_edge_id_before on are new in this batch; older edges can be removed only once. A new edge that goes
// again has no source until the end, where it is dropped.
void GraphStore::write_edges(const BatchDelta::Journal& journal, BatchDelta& delta) {
  EdgeIdMap& reweighted = scratch_->reweighted;
  if (reweighted.count() > 0) reweighted = EdgeIdMap();  // of a batch for which there was no memory
  const auto reweighted_before = [&](EdgeId id) -> EdgeReweighted* {
    const std::int64_t at = reweighted.find(id);
    return at == EdgeIdMap::kNone ? nullptr : &delta.reweighted[static_cast<std::size_t>(at)];
  };
  for (const EdgeChange& change : journal.edges) {
    const EdgeRecord& edge = change.edge;
    const bool is_new = edge.id >= journal.next_edge_id_before;
    const bool loses_row = change.kind == EdgeChangeKind::AttrSet || change.kind == EdgeChangeKind::Removed;
    if (loses_row && change.row_before >= 0 && !is_new) {
      delta.attrs_changed.push_back(edge.id);
      const auto row = journal.rows.begin() + change.row_before;
      delta.attrs_before.insert(delta.attrs_before.end(), row, row + options_.attr_width);
    }
    if (change.kind == EdgeChangeKind::AddedRun) {
      const EdgeRun& run = journal.runs[static_cast<std::size_t>(change.row_before)];
      delta.added.insert(delta.added.end(), run.begin(), run.end());
    } else if (change.kind == EdgeChangeKind::Added) {
      delta.added.push_back(edge);
    } else if (change.kind == EdgeChangeKind::AttrSet) {
      delta.reattributed.push_back(edge);
    } else if (is_new) {
      EdgeRecord& added = new_edge(delta.added, edge.id);
      if (change.kind == EdgeChangeKind::Removed) added.src = kNoVertex;
      added.weight = edge.weight;
    } else if (change.kind == EdgeChangeKind::Reweighted) {
      if (EdgeReweighted* known = reweighted_before(edge.id)) {
        known->weight_after = edge.weight;
      } else {
        reweighted.insert(edge.id, static_cast<std::int64_t>(delta.reweighted.size()));
        delta.reweighted.push_back({edge, edge.weight});
        delta.reweighted.back().before.weight = change.weight_before;
      }
    } else {
      delta.removed.push_back(edge);
      if (EdgeReweighted* known = reweighted_before(edge.id)) {
        delta.removed.back().weight = known->before.weight;
        known->weight_after = known->before.weight;  // drops out below
      }
    }
  }
  for (const EdgeReweighted& change : delta.reweighted) reweighted.erase(change.before.id);
  if (reweighted.bytes() > kTableBytesMax) reweighted = EdgeIdMap();
  std::erase_if(delta.added, [](const EdgeRecord& edge) { return edge.src == kNoVertex; });
  std::erase_if(delta.reweighted,
                [](const EdgeReweighted& change) { return same_bits(change.before.weight, change.weight_after); });
  if (!options_.undirected) return;
  add_mirrored(delta.removed);
  add_mirrored(delta.added);
  add_mirrored(delta.reattributed);
  add_mirrored(delta.reweighted);
}

// A row of 16 bits is compared decoded: as different as the bits that are stored.
void GraphStore::write_vertices(const BatchDelta::Journal& journal, BatchDelta& delta) const {
  const auto stride = static_cast<std::size_t>(feature_stride());
  for (const VertexChange& change : journal.vertices) {
    const bool live = live_[change.v] != 0;
    if (live && !change.was_live) delta.vertices_added.push_back(change.v);
    if (!live && change.was_live) delta.vertices_removed.push_back(change.v);
    if (is_typed() && vertex_types_[change.v] != change.type_before) {
      delta.vertices_retyped.push_back(change.v);
      delta.types_before.push_back(change.type_before);
    }
    if (stride == 0) continue;
    const float* before = change.row_before < 0 ? scratch_->zeros.data() : journal.rows.data() + change.row_before;
    if (std::memcmp(before, feature_row(change.v, scratch_->row.data()), stride * sizeof(float)) == 0) continue;
    delta.features_changed.push_back(change.v);
    delta.features_before.insert(delta.features_before.end(), before, before + stride);
  }
}

void GraphStore::roll_back(const BatchDelta::Journal& journal) {
  for (auto change = journal.edges.rbegin(); change != journal.edges.rend(); ++change) {
    const EdgeRecord& edge = change->edge;
    const float* row = change->row_before < 0 ? nullptr : journal.rows.data() + change->row_before;
    switch (change->kind) {
      case EdgeChangeKind::AddedRun:
        take_out(journal.runs[static_cast<std::size_t>(change->row_before)]);
        break;
      case EdgeChangeKind::Added:
        take_out({&edge, 1});
        break;
      case EdgeChangeKind::Removed:
        link(edge);
        if (row != nullptr) attributes_.insert(edge.id, row);
        break;
      case EdgeChangeKind::Reweighted:
        relabel(edge, change->weight_before);
        break;
      case EdgeChangeKind::AttrSet:
        std::memcpy(attributes_.find(edge.id), row, static_cast<std::size_t>(options_.attr_width) * sizeof(float));
        break;
    }
  }
  for (const VertexChange& change : journal.vertices) {
    live_[change.v] = change.was_live ? 1 : 0;
    if (is_typed()) vertex_types_[change.v] = change.type_before;
    if (change.row_before < 0) continue;
    features_.write(change.v, journal.rows.data() + change.row_before, options_.feature_width);
  }
  if (slot_count_ != journal.slot_count_before) resize_slots(journal.slot_count_before);
  vertex_count_ = journal.vertex_count_before;
  edge_count_ = journal.edge_count_before;
  next_edge_id_ = journal.next_edge_id_before;
}

void GraphStore::undo(const BatchDelta& delta) {
  const std::int64_t serial = delta.journal == nullptr ? 0 : delta.journal->serial;
  if (serial == 0 || serial != scratch_->serial_latest) {
    throw Error(ErrorKind::StateMismatch,
                {.where = "undo",
                 .expected = "the delta of the latest batch (version " + std::to_string(version_) + ")",
                 .got = "another",
                 .advice = "undo later batches first"});
  }
  roll_back(*delta.journal);
  version_ = delta.journal->version_before;
  scratch_->serial_latest = delta.journal->serial_before;
}

}  // namespace livegnn
