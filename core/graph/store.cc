// The store's small parts: options, slots, both directions of one edge, lookups, memory.
#include <algorithm>
#include <cstring>
#include <string>

#include "graph/journal.h"
#include "livegnn/graph.h"

namespace livegnn {

namespace {
constexpr std::int32_t kLineFloats = 16, kWidthMax = 1 << 24;

std::int32_t stride_of(std::int32_t width) { return (width + kLineFloats - 1) / kLineFloats * kLineFloats; }

void check_option(bool condition, const std::string& expected, const std::string& got) {
  if (condition) return;
  throw Error(ErrorKind::ValueInvalid,
              {.where = "graph", .expected = expected, .got = got, .advice = "correct the option"});
}

// Widths and ends of a typed graph; nothing to check in one without types.
void check_typed_options(const GraphOptions& options) {
  const std::vector<std::int32_t>& widths = options.type_widths;
  if (widths.empty()) {
    check_option(options.edge_ends.empty(), "edge_ends only beside type_widths", "edge_ends alone");
    return;
  }
  const auto [narrowest, widest] = std::minmax_element(widths.begin(), widths.end());
  check_option(*narrowest >= 0, "type_widths of at least 0", std::to_string(*narrowest));
  check_option(*widest == options.feature_width, "feature_width as the widest of type_widths",
               std::to_string(options.feature_width));
  check_option(options.has_type, "has_type in a graph with types of vertex", "none");
  const auto types = static_cast<std::int32_t>(widths.size());
  for (const EdgeEnds& ends : options.edge_ends) {
    check_option(ends.src >= 0 && ends.src < types && ends.dst >= 0 && ends.dst < types,
                 "edge_ends below " + std::to_string(types),
                 std::to_string(ends.src) + " -> " + std::to_string(ends.dst));
    check_option(!options.undirected || ends.src == ends.dst, "edge types that join one type in an undirected graph",
                 std::to_string(ends.src) + " -> " + std::to_string(ends.dst));
  }
}
}  // namespace

std::int64_t UpdateBuffer::add_row(std::span<const float> row) {
  const auto offset = static_cast<std::int64_t>(rows_.size());
  rows_.insert(rows_.end(), row.begin(), row.end());
  return offset;
}

void UpdateBuffer::clear() {
  updates_.clear();
  rows_.clear();
}

void UpdateBuffer::extend(const UpdateBuffer& other) {
  const auto shift = static_cast<std::int64_t>(rows_.size());
  const std::size_t added = other.updates_.size(), row_floats = other.rows_.size();  // `other` may be this buffer
  grow_for(updates_, added);
  grow_for(rows_, row_floats);
  for (std::size_t i = 0; i < added; ++i) {
    updates_.push_back(other.updates_[i]);
    if (updates_.back().row >= 0) updates_.back().row += shift;
  }
  rows_.resize(rows_.size() + row_floats);
  std::copy_n(other.rows_.data(), row_floats, rows_.data() + shift);
}

void BatchDelta::clear() {
  const auto clear_all = [](auto&... values) { (values.clear(), ...); };
  clear_all(removed, added, reweighted, reattributed, attrs_changed, attrs_before, vertices_added, vertices_removed,
            vertices_retyped, types_before, features_changed, features_before);
  journal.reset();
}

GraphStore::GraphStore(const GraphOptions& options)
    : options_(options),
      features_(options.feature_dtype, stride_of(std::clamp(options.feature_width, 0, kWidthMax))),
      attributes_(options.attr_width),
      scratch_(std::make_unique<Scratch>()) {
  check_option(options.feature_width >= 0 && options.feature_width <= kWidthMax, "feature_width in 0 .. 2^24",
               std::to_string(options.feature_width));
  check_option(options.attr_width >= 0 && options.attr_width <= kWidthMax, "attr_width in 0 .. 2^24",
               std::to_string(options.attr_width));
  check_option(options.block_edges_max >= 2 && options.block_edges_max <= (1 << 20), "block_edges_max in 2 .. 2^20",
               std::to_string(options.block_edges_max));
  check_typed_options(options);
  scratch_->zeros.assign(static_cast<std::size_t>(feature_stride()), 0.0f);
  scratch_->row.assign(static_cast<std::size_t>(feature_stride()), 0.0f);
  PoolColumns columns;
  columns.weight = options.has_weight;
  columns.time = options.has_time;
  columns.type = options.has_type;
  in_ = options.undirected ? &out_ : &in_lists_;
  out_.configure(columns, options.block_edges_max, options.undirected);
  if (!options.undirected) in_lists_.configure(columns, options.block_edges_max, true);
}

GraphStore::~GraphStore() = default;

void GraphStore::set_version(std::int64_t version) {
  version_ = version;
  publish();
}

// The version last: counts read after it are of that version or of a later one.
void GraphStore::publish() {
  published_.slot_count.store(slot_count_, std::memory_order_release);
  published_.vertex_count.store(vertex_count_, std::memory_order_release);
  published_.edge_count.store(edge_count_, std::memory_order_release);
  published_.version.store(version_, std::memory_order_release);
}

void GraphStore::resize_slots(VertexId slot_count) {
  out_.resize(slot_count);
  if (in_ != &out_) in_->resize(slot_count);
  features_.reserve(slot_count);
  live_.reserve(slot_count);
  if (is_typed()) {
    vertex_types_.reserve(slot_count);
    for (VertexId v = slot_count_; v < slot_count; ++v) vertex_types_[v] = kNoVertexType;
  }
  scratch_->sparse.resize(static_cast<std::size_t>(slot_count), 0);
  if (slot_count > slot_count_) {
    features_.clear(slot_count_, slot_count);
    std::memset(live_.data() + slot_count_, 0, static_cast<std::size_t>(slot_count - slot_count_));
  }
  slot_count_ = slot_count;
}

bool GraphStore::fits_ends(std::int32_t edge_type, std::int32_t src_type, std::int32_t dst_type) const {
  if (edge_type < 0 || static_cast<std::size_t>(edge_type) >= options_.edge_ends.size()) return false;
  return options_.edge_ends[static_cast<std::size_t>(edge_type)] == EdgeEnds{src_type, dst_type};
}

// What throws leaves the edge in one of its lists or in none.
void GraphStore::link(const EdgeRecord& edge) {
  out_.insert(edge.src, edge.in_out_list());
  if (!options_.undirected || edge.src != edge.dst) in_->insert(edge.dst, edge.in_in_list());
  ++edge_count_;
  note_oldest({&edge, 1});
}

void GraphStore::unlink(const EdgeRecord& edge) {
  const EdgeKey key = out_.key(edge.in_out_list());
  out_.erase(edge.src, key);
  if (!options_.undirected || edge.src != edge.dst) in_->erase(edge.dst, key);
  --edge_count_;
}

void GraphStore::relabel(const EdgeRecord& edge, float weight) {
  const EdgeKey key = out_.key(edge.in_out_list());
  out_.set_weight(edge.src, key, weight);
  if (!options_.undirected || edge.src != edge.dst) in_->set_weight(edge.dst, key, weight);
}

// The shorter side is scanned; where both are long, the destination's index knows, once there is one. entry.neighbour
// is v.
EdgeEntry GraphStore::find_edge(VertexId u, VertexId v, const EdgeFilter& filter) const {
  const std::int32_t out_count = out_.count(u), in_count = in_->count(v);
  if (std::min(out_count, in_count) == 0) return {};
  const bool key_known = filter.id != kNoEdge && (!options_.has_time || filter.time != INT64_MIN);
  if (!key_known && std::min(out_count, in_count) > out_.scan_max()) in_->note_scan(v);
  const bool scan_out = in_->is_indexed(v) ? out_count <= out_.scan_max() : out_count <= in_count;
  if (scan_out) return out_.find_newest(u, v, filter);
  EdgeEntry found = in_->find_newest(v, u, filter);
  found.neighbour = v;
  return found;
}

GraphMemory GraphStore::memory() const {
  GraphMemory total{};
  for (const Adjacency* lists : {&out_, &in_lists_}) {
    total.edges_live += lists->live_bytes();
    total.edges_reserved += lists->reserved_bytes() - lists->live_bytes();
    total.index += lists->index_bytes();
    total.vertices += lists->list_bytes();
  }
  total.vertices += live_.bytes() + vertex_types_.bytes() + scratch_->sparse.capacity() * sizeof(VertexId);
  total.vertices += offloaded_.bytes() + scratch_->run_bytes();
  for (const OldestEdges& each : oldest_) total.vertices += each.bytes();
  total.features = features_.bytes();
  total.attributes = attributes_.bytes();
  return total;
}

BlockStats GraphStore::block_stats(bool outgoing) const { return (outgoing ? out_ : *in_).block_stats(); }

void GraphStore::compact() {
  out_.compact();
  if (in_ != &out_) in_->compact();
  attributes_.compact();
  scratch_->release_runs();
}

void GraphStore::compact_if_idle() {
  if (out_.wants_compaction()) out_.compact();
  if (in_ != &out_ && in_->wants_compaction()) in_->compact();
  if (attributes_.wants_compaction()) attributes_.compact();
  if (scratch_->run_bytes() > Scratch::kRunBytesMax) scratch_->release_runs();
}

void GraphStore::reset() {
  out_.reset();
  if (!options_.undirected) in_lists_.reset();
  attributes_ = AttributeTable(options_.attr_width);
  offloaded_ = OffloadedEdges();
  away_.reset();
  oldest_.clear();
  slot_count_ = 0;
  vertex_count_ = edge_count_ = 0;
  next_edge_id_ = 0;
}

}  // namespace livegnn
