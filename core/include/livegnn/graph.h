// Start here: the dynamic graph store, and batches of updates to it.
//
// Per vertex and direction, edges lie in time-indexed adaptive blocks (GNNFlow 4.1): contiguous columns (neighbour, id,
// and weight, time, type where asked for), blocks and edges in (time, id) order, late edges where their time says.
// A batch is applied one update at a time, in order, with an undo journal: either all of it or, with the error that
// names the update, none of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "livegnn/detail/graph_adjacency.h"
#include "livegnn/detail/graph_attributes.h"
#include "livegnn/detail/graph_memory.h"
#include "livegnn/detail/graph_oldest.h"
#include "livegnn/error.h"
#include "livegnn/graph_features.h"
#include "livegnn/graph_offload.h"
#include "livegnn/types.h"

namespace livegnn {

// The types of vertex that an edge type joins, by their codes.
struct EdgeEnds {
  std::int32_t src = 0;
  std::int32_t dst = 0;
  friend bool operator==(const EdgeEnds&, const EdgeEnds&) = default;
};

struct GraphOptions {
  std::int32_t feature_width = 0;  // typed graphs: the widest of type_widths
  bool has_weight = false;
  bool has_time = false;
  bool has_type = false;
  std::int32_t attr_width = 0;  // 0: no edge attributes
  bool undirected = false;      // each edge is stored both ways under one id; a self-loop once
  bool simple = false;          // a second edge between the same ordered pair is refused
  std::int32_t block_edges_max = 128;
  FeatureDtype feature_dtype = FeatureDtype::Float32;  // how features are stored
  // Typed graphs only, both empty else. A code is a place in these lists; has_type is then true.
  std::vector<std::int32_t> type_widths;  // by vertex type: how many floats of a row are features, the rest is zero
  std::vector<EdgeEnds> edge_ends;        // by edge type
};

enum class UpdateKind : std::uint8_t {
  AddEdge,
  RemoveEdge,
  RemoveEdgesBefore,
  SetWeight,
  SetEdgeAttr,
  SetFeatures,
  AddVertex,
  RemoveVertex
};

// One update. Optional fields: kUnset* and kNoEdge mean not given. Rows live in the buffer's row pool. An added
// edge wants exactly the columns that the graph has.
inline constexpr std::int64_t kUnsetTime = INT64_MIN;
inline constexpr std::int32_t kUnsetType = INT32_MIN;
inline constexpr std::int32_t kNoVertexType = -1;  // of a free slot
struct Update {
  UpdateKind kind;
  bool missing_ignore = false;  // RemoveEdge: no error when nothing matches
  bool has_weight = false;
  bool is_expiry = false;          // RemoveEdgesBefore: not given but implied, see expiry.h; errors do not count it
  std::int32_t type = kUnsetType;  // of the edge, or of the vertex; RemoveEdgesBefore: of the edges that leave
  std::int64_t u = -1;             // 64-bit as the user gave it; checked when applied
  std::int64_t v = -1;
  std::int64_t time = kUnsetTime;
  EdgeId edge_id = kNoEdge;  // AddEdge: the id to give, from next_edge_id() on; partitions of a graph leave gaps
  float weight = 1.0f;
  std::int64_t row = -1;  // offset of the feature or attribute row in the pool, in floats
  std::int32_t row_width = 0;
};

// Updates waiting to be applied, in order. Holds what the caller gave; apply() checks it all against the graph.
class UpdateBuffer {
 public:
  void add(const Update& update) { updates_.push_back(update); }
  std::int64_t add_row(std::span<const float> row);  // copies into the pool, returns its offset
  std::span<const Update> updates() const { return updates_; }
  std::span<Update> updates() { return updates_; }
  const float* row(const Update& update) const { return rows_.data() + update.row; }
  std::size_t size() const { return updates_.size(); }
  void clear();
  void clear_updates() { updates_.clear(); }                          // rows stay
  void reserve(std::size_t more) { grow_for(updates_, more); }        // room for so many more updates, amortised
  void reserve_rows(std::size_t floats) { grow_for(rows_, floats); }  // likewise for their rows
  std::size_t row_floats() const { return rows_.size(); }
  void extend(const UpdateBuffer& other);  // appends the other's updates and rows

 private:
  template <typename T>
  static void grow_for(std::vector<T>& values, std::size_t more) {
    if (values.size() + more > values.capacity()) values.reserve(std::max(values.size() + more, 2 * values.capacity()));
  }
  std::vector<Update> updates_;
  std::vector<float> rows_;
};

// The net effect of one batch: what was there before and is not now, and so on. Edges that came and went inside the
// batch appear nowhere. Undirected edges appear once per direction.
struct BatchDelta {
  std::vector<EdgeRecord> removed;
  std::vector<EdgeRecord> added;
  std::vector<EdgeReweighted> reweighted;
  std::vector<EdgeRecord> reattributed;  // attributes set; an edge may be here that has gone since
  std::vector<EdgeId> attrs_changed;     // edges from before the batch that were removed or reattributed, perhaps twice
  std::vector<float> attrs_before;       // their rows as they were then, attr_width floats each, same order
  std::vector<VertexId> vertices_added;  // not live before, live now (also a slot that was taken again)
  std::vector<VertexId> vertices_removed;  // live before, not live now
  std::vector<VertexId> vertices_retyped;  // of another type than before, a free slot having none; typed graphs only
  std::vector<std::int32_t> types_before;  // theirs, same order
  std::vector<VertexId>
      features_changed;                // bits of the row differ from before; removed vertices count (row is zero now)
  std::vector<float> features_before;  // their old rows, feature_stride floats each, same order (zeros for new slots)
  struct Journal;                      // what undo() needs; opaque
  std::shared_ptr<Journal> journal;
  void clear();
};

// A whole graph as columns, for loading: live[v] != 0 where slot v is live. An empty `live` means that all are, an
// empty edges.id that ids count from 0. Features are rows of feature_width, in one of the two forms.
struct GraphArrays {
  std::int64_t slot_count = 0;
  std::span<const float> features{};
  std::span<const std::uint8_t> live{};
  EdgeColumnsView edges{};
  EdgeId next_edge_id = 0;                         // raised to one past the largest id if that is more
  std::span<const std::int32_t> vertex_type{};     // typed graphs only: by slot; not read of free slots
  std::span<const std::uint16_t> features_half{};  // in the store's own 16 bits
};

struct GraphMemory {           // bytes; parts do not overlap
  std::size_t edges_live;      // columns of live edges, both directions
  std::size_t edges_reserved;  // places of the same columns that hold no edge now: ends of blocks, freed blocks
  std::size_t index;           // directories and indexes of hubs
  std::size_t vertices, features, attributes;
};

// What of a graph counts in a digest, and under which names: a part holds vertices and edges of others, too.
struct DigestShare {
  bool first = true;  // of the parts: the schema is its share
  std::function<std::int64_t(VertexId)> name;
  std::function<bool(VertexId)> counts_vertex;
  std::function<bool(VertexId, VertexId)> counts_edge;
};

class GraphCapture;
class ThreadPool;

// One writer. Reads are safe from any thread while no write runs; callers hold the lock. Vertex arguments of readers
// must be in 0 .. slot_count() - 1; a removed vertex reads as one without edges and with zero features. Features are
// read as float32, whatever they are stored as.
class GraphStore {
 public:
  explicit GraphStore(const GraphOptions& options);
  ~GraphStore();
  GraphStore(const GraphStore&) = delete;
  GraphStore& operator=(const GraphStore&) = delete;

  // Empty store only. Throws Error; then the store is empty as before.
  void load(const GraphArrays& arrays, int threads);

  // ---- batches; long runs of added edges are written by up to two threads
  void set_apply_threads(int threads) { apply_threads_ = threads; }
  // Throws Error naming the update; then nothing has changed.
  BatchDelta apply(const UpdateBuffer& batch) {
    BatchDelta delta;
    apply_into(batch, &delta);
    return delta;
  }
  void apply_into(const UpdateBuffer& batch, BatchDelta* delta);  // reuses its memory; nullptr where nobody reads it
  // Exact: ids, order, next edge id and version as before the batch; only for the latest batch. After that, the batch
  // before is the latest.
  void undo(const BatchDelta& delta);
  // Shows readers the graph as it is now: the last step of a batch that stands. Loading, offload_before() and reload()
  // do it themselves.
  void publish();
  // Version and counts as published last; for any thread, a batch under way or not.
  std::int64_t published_version() const { return published_.version.load(std::memory_order_acquire); }
  std::int64_t published_slot_count() const { return published_.slot_count.load(std::memory_order_acquire); }
  std::int64_t published_vertex_count() const { return published_.vertex_count.load(std::memory_order_acquire); }
  std::int64_t published_edge_count() const { return published_.edge_count.load(std::memory_order_acquire); }

  // ---- edges in files; the graph has times. Version, digest and ids stay; batches before cannot be undone.
  // visitor(const EdgeRecord&) of each edge that offload_before would move.
  template <typename Visitor>
  void visit_edges_before(EdgeTime before, Visitor&& visitor) const {
    for (VertexId u = 0; u < slot_count_; ++u) {
      visit_between(u, true, INT64_MIN, before, [&](const EdgeSpan& span, std::int32_t first, std::int32_t last) {
        visit_once(u, span, first, last, visitor);
      });
    }
  }
  // Forgets them but for their counts, and for their copies where there are some; returns how many. Throws
  // Error(SpillUnavailable) where there is no room for copies; then nothing has changed.
  std::int64_t offload_before(EdgeTime before);
  // Some of them back, in their places; what is still away has times below `before`. Throws Error(StateMismatch) where
  // they are not edges that are away; then nothing has changed.
  void reload(const EdgeColumnsView& edges, EdgeTime before);
  void restore_offloaded(OffloadedEdges offloaded);  // for loading a saved graph
  const OffloadedEdges& offloaded() const { return offloaded_; }
  // Copies of all edges that are away, in files without names in `folder`: readers of whole lists see them from then
  // on, where they were, and so do degrees. `next` gives the edges, file by file, and false after the last. `where`
  // stands in errors. Throws Error(StateMismatch) for others, Error(SpillUnavailable) without room; then nothing has
  // changed.
  void copy_offloaded(const std::string& where, const std::string& folder,
                      const std::function<bool(EdgeColumnsView&)>& next);
  void drop_copies() { away_.reset(); }
  bool has_copies() const { return away_ != nullptr; }
  bool has_offloaded() const { return offloaded_.count > 0; }
  EdgeTime offloaded_before() const { return offloaded_.before; }  // where has_offloaded()
  std::int32_t offloaded_out(VertexId v) const {                   // edges of v that are away
    return static_cast<std::size_t>(v) < offloaded_.out.size() ? offloaded_.out[static_cast<std::size_t>(v)] : 0;
  }
  std::int32_t offloaded_in(VertexId v) const {
    const std::vector<std::int32_t>& counts = options_.undirected ? offloaded_.out : offloaded_.in;
    return static_cast<std::size_t>(v) < counts.size() ? counts[static_cast<std::size_t>(v)] : 0;
  }

  // ---- reading (the writer, or between batches)
  const GraphOptions& options() const { return options_; }
  std::int64_t version() const { return version_; }    // number of batches applied
  void set_version(std::int64_t version);              // for loading a saved graph
  VertexId slot_count() const { return slot_count_; }  // ids run from 0 to slot_count() - 1; some may be removed
  std::int64_t vertex_count() const { return vertex_count_; }  // live vertices
  std::int64_t edge_count() const { return edge_count_; }      // live edges in memory; undirected edges count once
  std::int64_t all_edge_count() const { return edge_count_ + offloaded_.count; }
  EdgeId next_edge_id() const { return next_edge_id_; }
  bool is_live(VertexId v) const { return v >= 0 && v < slot_count_ && live_[v] != 0; }
  bool is_typed() const { return !options_.type_widths.empty(); }  // whether vertices have types
  // 0 in a graph without types; kNoVertexType in a free slot.
  std::int32_t vertex_type(VertexId v) const { return is_typed() ? vertex_types_[v] : 0; }
  std::int32_t width_of_type(std::int32_t vertex_type) const {  // floats of a row that are features of that type
    return is_typed() ? options_.type_widths[static_cast<std::size_t>(vertex_type)] : options_.feature_width;
  }
  // Edges, parallel ones, self-loops and those away counted.
  std::int32_t in_degree(VertexId v) const { return in_->count(v) + offloaded_in(v); }
  std::int32_t out_degree(VertexId v) const { return out_.count(v) + offloaded_out(v); }
  // feature_width floats, padded with zeros to feature_stride(): the stored row itself, or, where features are stored
  // in 16 bits, `buffer`, into which it is decoded. The row is 64-byte aligned where the buffer is.
  const float* feature_row(VertexId v, float* buffer) const { return features_.row(v, buffer); }
  void read_features(VertexId v, float* out, std::int32_t width) const { features_.read(v, out, width); }
  const FeatureTable& features() const { return features_; }
  std::int32_t feature_stride() const { return features_.stride(); }  // feature_width rounded up to 16
  // Whole lists: what is in memory, and the copies of what is away where there are copies.
  const float* edge_attr(EdgeId id) const {  // attr_width floats or nullptr
    const float* row = loaded_attr(id);
    return row == nullptr && away_ != nullptr ? away_->loaded_attr(id) : row;
  }
  // The edge u -> v with that id, or with the largest id where none is given; its id may be kNoEdge.
  EdgeEntry newest_edge(VertexId u, VertexId v, EdgeId id = kNoEdge) const;
  // visitor(const EdgeSpan&), spans in time order; inline, no allocation; the hot path of the engine
  template <typename Visitor>
  void visit_out(VertexId u, Visitor&& visitor) const {
    if (away_ != nullptr && offloaded_out(u) > 0) [[unlikely]]
      return merge_copies(true, u, [&](const EdgeSpan& span) { visitor(span); });
    out_.visit(u, visitor);
  }
  template <typename Visitor>
  void visit_in(VertexId v, Visitor&& visitor) const {
    if (away_ != nullptr && offloaded_in(v) > 0) [[unlikely]]
      return merge_copies(false, v, [&](const EdgeSpan& span) { visitor(span); });
    in_->visit(v, visitor);
  }
  // visit_out or visit_in.
  template <typename Visitor>
  void visit_list(VertexId v, bool outgoing, Visitor&& visitor) const {
    if (away_ != nullptr && (outgoing ? offloaded_out(v) : offloaded_in(v)) > 0) [[unlikely]]
      return merge_copies(outgoing, v, [&](const EdgeSpan& span) { visitor(span); });
    (outgoing ? &out_ : in_)->visit(v, visitor);
  }
  // Hints, in this order and some vertices ahead: first the record, then, once that is there, the first edges.
  void prefetch_out(VertexId u) const { out_.prefetch_list(u); }
  void prefetch_in(VertexId v) const { in_->prefetch_list(v); }
  void prefetch_list_edges(VertexId v, bool outgoing) const { (outgoing ? &out_ : in_)->prefetch_edges(v); }

  // visitor(const EdgeSpan&, first, last): edges in memory with t_from <= time < t_to, by two binary searches; the
  // graph has times
  template <typename Visitor>
  void visit_between(VertexId v, bool outgoing, EdgeTime t_from, EdgeTime t_to, Visitor&& visitor) const {
    invariant(options_.has_time, "a graph without times was asked for a range of times");
    (outgoing ? &out_ : in_)->visit_between(v, t_from, t_to, visitor);
  }
  const Adjacency& in_lists() const { return *in_; }  // for readers with loops of their own
  // visitor(const EdgeRecord&) once per edge, by src; undirected edges with src <= dst
  template <typename Visitor>
  void visit_edges(Visitor&& visitor) const {
    for (VertexId u = 0; u < slot_count_; ++u) {
      visit_out(u, [&](const EdgeSpan& span) { visit_once(u, span, 0, span.count, visitor); });
    }
  }
  // The same of what is in memory alone.
  template <typename Visitor>
  void visit_loaded(VertexId v, bool outgoing, Visitor&& visitor) const {
    (outgoing ? &out_ : in_)->visit(v, visitor);
  }
  template <typename Visitor>
  void visit_loaded_edges(Visitor&& visitor) const {
    for (VertexId u = 0; u < slot_count_; ++u) {
      out_.visit(u, [&](const EdgeSpan& span) { visit_once(u, span, 0, span.count, visitor); });
    }
  }
  const float* loaded_attr(EdgeId id) const { return options_.attr_width > 0 ? attributes_.find(id) : nullptr; }

  GraphMemory memory() const;
  BlockStats block_stats(bool outgoing) const;
  void compact();  // gives back what deletions left; content and ids unchanged
  // Order-free: live vertices, types, features, edges as a multiset (no edge ids).
  std::uint64_t digest() const { return digest_of(nullptr); }
  // A part's share of it: what all parts have adds up to that of the whole graph.
  std::uint64_t digest_of(const DigestShare* share) const;
  void check_invariants() const;  // for tests: both directions agree, blocks ordered, index complete

 private:
  friend class GraphCapture;  // which copies the columns

  template <typename Visitor>
  void visit_once(VertexId u, const EdgeSpan& span, std::int32_t first, std::int32_t last, Visitor&& visitor) const {
    for (std::int32_t i = first; i < last; ++i) {
      if (!options_.undirected || span.neighbours[i] >= u) visitor(EdgeRecord::of(u, span.entry(i)));
    }
  }
  void merge_copies(bool outgoing, VertexId v, const std::function<void(const EdgeSpan&)>& visit) const;

  struct Scratch;  // buffers that batches use again, so that a small batch allocates nothing

  // checks of one update; they throw Error with the part of the message after the update's name
  VertexId live_vertex(std::int64_t id) const;
  void check_row(const UpdateBuffer& batch, const Update& update, std::int32_t width) const;
  void check_feature_row(const UpdateBuffer& batch, const Update& update, std::int32_t width) const;
  void check_filter(const Update& update) const;
  void check_ends(const Update& update, VertexId u, VertexId v) const;
  void check_vertex_type(const Update& update) const;
  VertexId typed_vertex(const Update& update) const;
  EdgeRecord checked_edge(const UpdateBuffer& batch, const Update& update) const;
  EdgeId checked_edge_id(const Update& update) const;
  EdgeEntry find_edge(VertexId u, VertexId v, const EdgeFilter& filter) const;
  EdgeRecord found_edge(const Update& update);
  void check_pair_loaded(const Update& update, VertexId u, VertexId v, EdgeId found) const;
  void check_vertex_loaded(VertexId v) const;
  [[noreturn]] void refuse_offloaded(const char* expected) const;

  // one update each, journaled
  void apply_update(const UpdateBuffer& batch, const Update& update);
  void add_edge(const UpdateBuffer& batch, const Update& update);
  void remove_edge(const Update& update);
  void remove_edges_before(const Update& update);
  void set_weight(const Update& update);
  void set_edge_attr(const UpdateBuffer& batch, const Update& update);
  void set_features(const UpdateBuffer& batch, const Update& update);
  void add_vertex(const UpdateBuffer& batch, const Update& update);
  void remove_vertex(const Update& update);
  void journal_removed(const EdgeRecord& edge);
  void journal_vertex(VertexId v);

  // long runs of added edges
  bool takes_run(std::size_t length) const;
  bool is_plain_addition(const Update& update) const;
  void check_run(const UpdateBuffer& batch, std::size_t& at, std::size_t end, EdgeRun& run);
  void add_run(const UpdateBuffer& batch, std::size_t& at, std::size_t end);
  void insert_halves(const EdgeRun& run, bool parallel);
  void insert_edges(const EdgeRun& run, const std::function<const float*(std::size_t)>& attr);
  void take_out(std::span<const EdgeRecord> run);

  OldestEdges& oldest_of(std::int32_t type);
  void note_oldest(std::span<const EdgeRecord> run);
  void collect_between(VertexId u, EdgeTime from, EdgeTime before, std::int32_t type);

  // both directions of one edge
  void link(const EdgeRecord& edge);
  void unlink(const EdgeRecord& edge);
  void relabel(const EdgeRecord& edge, float weight);

  void prefetch_update(const UpdateBuffer& batch, std::size_t at) const;
  BatchDelta::Journal& begin_journal();
  void roll_back(const BatchDelta::Journal& journal);
  void write_edges(const BatchDelta::Journal& journal, BatchDelta& delta);
  void write_vertices(const BatchDelta::Journal& journal, BatchDelta& delta) const;
  void compact_if_idle();
  void resize_slots(VertexId slot_count);
  void reset();

  OffloadedEdges checked_reload(const EdgeColumnsView& edges) const;
  std::unique_ptr<GraphStore> empty_copies(const std::string& folder) const;
  std::unique_ptr<GraphStore> copies_without(std::span<const std::int64_t> ids) const;
  void insert_copies(const std::string& where, VertexId slots, const EdgeRun& run,
                     const std::function<const float*(std::size_t)>& attr);
  void copy_from(const GraphStore& other, const std::string& where, EdgeRun& edges);
  bool are_copies(const GraphStore& away) const;
  std::uint64_t edge_digest(EdgeRecord edge, const float* attr, const DigestShare* share = nullptr) const;

  void check_arrays(const GraphArrays& arrays, ThreadPool& threads) const;
  void check_edge_columns(const GraphArrays& arrays, ThreadPool& threads) const;
  void check_features(const GraphArrays& arrays, ThreadPool& threads) const;
  void check_types(const GraphArrays& arrays, ThreadPool& threads) const;
  void load_vertices(const GraphArrays& arrays, ThreadPool& threads);
  std::vector<std::vector<std::int64_t>> count_degrees(bool by_src, const EdgeColumnsView& edges,
                                                       ThreadPool& threads) const;
  void plan_lists(Adjacency& adjacency, std::vector<std::vector<std::int64_t>>& cursors, ThreadPool& threads) const;
  void load_direction(Adjacency& adjacency, bool by_src, const EdgeColumnsView& edges, ThreadPool& threads);
  void check_simple(ThreadPool& threads) const;
  void check_edges() const;
  void check_vertices() const;
  void check_offloaded() const;
  void check_oldest() const;
  bool fits_ends(std::int32_t edge_type, std::int32_t src_type, std::int32_t dst_type) const;

  GraphOptions options_;
  Adjacency out_;
  Adjacency in_lists_;       // not used by undirected graphs, where both directions are the same lists
  Adjacency* in_ = nullptr;  // &in_lists_ or &out_
  FeatureTable features_;    // slot_count_ rows
  Column<std::uint8_t> live_;
  Column<std::int32_t> vertex_types_;  // by slot; not there in a graph without types
  AttributeTable attributes_;
  OffloadedEdges offloaded_;
  std::unique_ptr<GraphStore> away_;  // of the same slots or fewer, without features: the edges that are away
  std::string folder_;                // of a store of copies: where its columns lie
  std::vector<OldestEdges> oldest_;   // by edge type, of those that updates have removed by time
  std::unique_ptr<Scratch> scratch_;
  VertexId slot_count_ = 0;
  std::int64_t vertex_count_ = 0;
  std::int64_t edge_count_ = 0;
  EdgeId next_edge_id_ = 0;
  std::int64_t version_ = 0;
  int apply_threads_ = 1;
  struct {
    std::atomic<std::int64_t> version = 0, slot_count = 0, vertex_count = 0, edge_count = 0;
  } published_;
};

}  // namespace livegnn
