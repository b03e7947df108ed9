// The net effect of a batch, and the way back.
#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "graph/journal.h"
#include "livegnn/graph.h"

namespace livegnn {

namespace {
constexpr std::size_t kScanMax = 16;  // up to here a linear scan beats a table

bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

EdgeRecord mirrored(const EdgeRecord& record) {
  EdgeRecord turned = record;
  std::swap(turned.src, turned.dst);
  return turned;
}

// Each undirected edge a second time, the other way round; self-loops once.
void add_mirrored(std::vector<EdgeRecord>& records) {
  const std::size_t count = records.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (records[i].src != records[i].dst) records.push_back(mirrored(records[i]));
  }
}

// delta.reweighted by edge id.
class ReweightedIndex {
 public:
  ReweightedIndex(std::vector<EdgeReweighted>& entries, EdgeIdMap& table) : entries_(entries), table_(table) {}
  ~ReweightedIndex() {
    if (tabled_) table_ = EdgeIdMap();
  }
  EdgeReweighted* find(EdgeId id) {
    if (tabled_) {
      const std::int64_t at = table_.find(id);
      return at == EdgeIdMap::kNone ? nullptr : &entries_[static_cast<std::size_t>(at)];
    }
    for (EdgeReweighted& entry : entries_) {
      if (entry.before.id == id) return &entry;
    }
    return nullptr;
  }
  void add(const EdgeReweighted& entry) {
    entries_.push_back(entry);
    if (tabled_) {
      table_.insert(entry.before.id, static_cast<std::int64_t>(entries_.size()) - 1);
    } else if (entries_.size() > kScanMax) {
      tabled_ = true;
      for (std::size_t i = 0; i < entries_.size(); ++i) {
        table_.insert(entries_[i].before.id, static_cast<std::int64_t>(i));
      }
    }
  }

 private:
  std::vector<EdgeReweighted>& entries_;
  EdgeIdMap& table_;
  bool tabled_ = false;
};
}  // namespace

namespace {
// The edge with this id among those that a batch added, by ascending id: by position, unless ids were given with gaps.
template <typename NewEdge>
NewEdge& new_edge(std::vector<NewEdge>& edges, EdgeId id) {
  const EdgeId first = edges.front().record.id;
  const auto place = static_cast<std::size_t>(id - first);
  if (place < edges.size() && edges[place].record.id == id) return edges[place];
  return *std::lower_bound(edges.begin(), edges.end(), id,
                           [](const NewEdge& edge, EdgeId wanted) { return edge.record.id < wanted; });
}
}  // namespace

// Ids from next_edge_id_before on are new in this batch; older edges can be removed only once.
void GraphStore::write_edges(const BatchDelta::Journal& journal, BatchDelta& delta) {
  std::vector<Scratch::NewEdge>& new_edges = scratch_->new_edges;
  new_edges.clear();
  ReweightedIndex reweighted(delta.reweighted, scratch_->reweighted);
  for (const EdgeChange& change : journal.edges) {
    if (change.kind == EdgeChangeKind::AddedRun) {
      const EdgeRun& run = journal.runs[static_cast<std::size_t>(change.row_before)];
      for (std::size_t i = 0; i < run.size(); ++i) {
        const EdgeEntry entry = run.entry(i);
        new_edges.push_back({{run.src[i], entry.neighbour, entry.weight, entry.type, entry.id, entry.time}, true});
      }
      continue;
    }
    const EdgeEntry& entry = change.entry;
    const EdgeRecord record{change.u, entry.neighbour, entry.weight, entry.type, entry.id, entry.time};
    const bool loses_row = change.kind == EdgeChangeKind::AttrSet || change.kind == EdgeChangeKind::Removed;
    if (loses_row && change.row_before >= 0 && entry.id < journal.next_edge_id_before) {
      delta.attrs_changed.push_back(entry.id);
      const auto row = journal.rows.begin() + change.row_before;
      delta.attrs_before.insert(delta.attrs_before.end(), row, row + options_.attr_width);
    }
    if (change.kind == EdgeChangeKind::AttrSet) {
      delta.reattributed.push_back(record);
      continue;
    }
    if (change.kind == EdgeChangeKind::Added) {
      new_edges.push_back({record, true});
    } else if (entry.id >= journal.next_edge_id_before) {
      Scratch::NewEdge& edge = new_edge(new_edges, entry.id);
      if (change.kind == EdgeChangeKind::Removed) edge.alive = false;
      edge.record.weight = entry.weight;
    } else if (change.kind == EdgeChangeKind::Reweighted) {
      if (EdgeReweighted* known = reweighted.find(entry.id)) {
        known->weight_after = entry.weight;
      } else {
        reweighted.add({record, entry.weight});
        delta.reweighted.back().before.weight = change.weight_before;
      }
    } else {
      delta.removed.push_back(record);
      if (EdgeReweighted* known = reweighted.find(entry.id)) {
        delta.removed.back().weight = known->before.weight;
        known->weight_after = known->before.weight;  // drops out below
      }
    }
  }
  for (const Scratch::NewEdge& edge : new_edges) {
    if (edge.alive) delta.added.push_back(edge.record);
  }
  std::erase_if(delta.reweighted,
                [](const EdgeReweighted& entry) { return same_bits(entry.before.weight, entry.weight_after); });
  if (!options_.undirected) return;
  add_mirrored(delta.removed);
  add_mirrored(delta.added);
  add_mirrored(delta.reattributed);
  const std::size_t count = delta.reweighted.size();
  for (std::size_t i = 0; i < count; ++i) {
    const EdgeReweighted entry = delta.reweighted[i];
    if (entry.before.src != entry.before.dst) delta.reweighted.push_back({mirrored(entry.before), entry.weight_after});
  }
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

void GraphStore::write_delta(const BatchDelta::Journal& journal, BatchDelta& delta) {
  if (!journal.edges.empty()) write_edges(journal, delta);
  if (!journal.vertices.empty()) write_vertices(journal, delta);
}

// The last edge first: each is then at the end of its lists, or near it.
void GraphStore::unlink_run(const EdgeRun& run) {
  for (std::size_t i = run.size(); i-- > 0;) {
    unlink(run.src[i], run.entry(i));
    if (options_.attr_width > 0) attributes_.erase(run.ids[i]);
  }
}

void GraphStore::roll_back(const BatchDelta::Journal& journal) {
  for (auto change = journal.edges.rbegin(); change != journal.edges.rend(); ++change) {
    const float* row = change->row_before < 0 ? nullptr : journal.rows.data() + change->row_before;
    switch (change->kind) {
      case EdgeChangeKind::AddedRun:
        unlink_run(journal.runs[static_cast<std::size_t>(change->row_before)]);
        break;
      case EdgeChangeKind::Added:
        unlink(change->u, change->entry);
        if (options_.attr_width > 0) attributes_.erase(change->entry.id);
        break;
      case EdgeChangeKind::Removed:
        link(change->u, change->entry);
        if (row != nullptr) attributes_.insert(change->entry.id, row);
        break;
      case EdgeChangeKind::Reweighted:
        relabel(change->u, change->entry, change->weight_before);
        break;
      case EdgeChangeKind::AttrSet:
        std::memcpy(attributes_.find(change->entry.id), row,
                    static_cast<std::size_t>(options_.attr_width) * sizeof(float));
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
