// Start here: the dynamic graph store, and batches of updates to it.
//
// Per vertex and direction, edges lie in time-indexed adaptive blocks (GNNFlow 4.1): contiguous columns (neighbour, id,
// and weight, time, type where asked for), blocks and edges in (time, id) order, late edges where their time says.
// A batch is applied one update at a time, in order, with an undo journal: either all of it or, with the error that
// names the update, none of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "livegnn/error.h"
#include "livegnn/types.h"

namespace livegnn {

struct GraphOptions {
  std::int32_t feature_width = 0;
  bool has_weight = false;
  bool has_time = false;
  bool has_type = false;
  std::int32_t attr_width = 0;    // 0: no edge attributes
  bool undirected = false;        // each edge is stored both ways under one id; a self-loop once
  bool simple = false;            // a second edge between the same ordered pair is refused
  std::int32_t block_edges_max = 128;
};

enum class UpdateKind : std::uint8_t {
  AddEdge, RemoveEdge, RemoveEdgesBefore, SetWeight, SetEdgeAttr, SetFeatures, AddVertex, RemoveVertex
};

// One update. Optional fields: NaN weight = not given; kUnset* = not given. Rows live in the buffer's row pool.
inline constexpr std::int64_t kUnsetTime = INT64_MIN;
inline constexpr std::int32_t kUnsetType = INT32_MIN;
struct Update {
  UpdateKind kind;
  bool missing_ignore = false;   // RemoveEdge: no error when nothing matches
  bool has_weight = false;
  std::int32_t type = kUnsetType;
  std::int64_t u = -1;           // 64-bit as the user gave it; checked when applied
  std::int64_t v = -1;
  std::int64_t time = kUnsetTime;
  EdgeId edge_id = kNoEdge;
  float weight = 1.0f;
  std::int64_t row = -1;         // offset of the feature or attribute row in the pool, in floats
  std::int32_t row_width = 0;
};

// Updates waiting to be applied, in order. Checks values (NaN, inf) as they come in; ids are checked against the graph.
class UpdateBuffer {
 public:
  void add(const Update& update) { updates_.push_back(update); }
  std::int64_t add_row(std::span<const float> row);  // copies into the pool, returns its offset
  std::span<const Update> updates() const { return updates_; }
  std::span<Update> updates() { return updates_; }
  const float* row(const Update& update) const { return rows_.data() + update.row; }
  std::size_t size() const { return updates_.size(); }
  void clear();

 private:
  std::vector<Update> updates_;
  std::vector<float> rows_;
};

// The net effect of one batch: what was there before and is not now, and so on. Edges that came and went inside the
// batch appear nowhere. Undirected edges appear once per direction.
struct BatchDelta {
  std::vector<EdgeRecord> removed;
  std::vector<EdgeRecord> added;
  std::vector<EdgeReweighted> reweighted;
  std::vector<VertexId> vertices_added;     // not live before, live now (also a slot that was taken again)
  std::vector<VertexId> vertices_removed;   // live before, not live now
  std::vector<VertexId> features_changed;   // bits of the row differ from before; removed vertices count (row is zero now)
  std::vector<float> features_before;       // their old rows, feature_stride floats each, same order (zeros for new slots)
  struct Journal;                           // what undo() needs; opaque
  std::shared_ptr<Journal> journal;
  void clear();
};

struct GraphMemory {  // bytes
  std::size_t edges_live, edges_reserved, index, vertices, features, attributes;
};

// One writer. Reads are safe from any thread while no write runs; callers hold the lock.
class GraphStore {
 public:
  explicit GraphStore(const GraphOptions& options);
  ~GraphStore();
  GraphStore(const GraphStore&) = delete;
  GraphStore& operator=(const GraphStore&) = delete;

  // ---- loading: empty store only. features: vertex_count x feature_width, row-major. Columns may be empty where the graph has none.
  void load(std::int64_t vertex_count, std::span<const float> features, std::span<const std::int64_t> src,
            std::span<const std::int64_t> dst, std::span<const float> weight, std::span<const std::int64_t> time,
            std::span<const std::int32_t> type, std::span<const float> attr, int threads);

  // ---- batches
  BatchDelta apply(const UpdateBuffer& batch);  // throws Error naming the update; then nothing has changed
  void undo(const BatchDelta& delta);           // exact: ids, order and next edge id as before the batch; only for the latest batch

  // ---- reading
  const GraphOptions& options() const;
  std::int64_t version() const;        // number of batches applied
  void set_version(std::int64_t);      // for loading a saved graph
  VertexId slot_count() const;         // ids run from 0 to slot_count() - 1; some may be removed
  std::int64_t vertex_count() const;   // live vertices
  std::int64_t edge_count() const;     // live edges; undirected edges count once
  EdgeId next_edge_id() const;
  bool is_live(VertexId v) const;
  std::int32_t in_degree(VertexId v) const;    // edges, parallel ones and self-loops counted
  std::int32_t out_degree(VertexId v) const;
  const float* feature_row(VertexId v) const;  // feature_width floats, padded with zeros to feature_stride(); 64-byte aligned
  std::int32_t feature_stride() const;         // feature_width rounded up to 16
  const float* edge_attr(EdgeId id) const;     // attr_width floats or nullptr
  EdgeId newest_edge(VertexId u, VertexId v) const;       // largest id among edges u -> v, or kNoEdge
  float newest_edge_weight(VertexId u, VertexId v) const; // its weight (1 where the graph has no weights)

  // visitor(const EdgeSpan&), spans in time order; inline, no allocation; the hot path of the engine
  template <typename Visitor> void visit_out(VertexId u, Visitor&& visitor) const;
  template <typename Visitor> void visit_in(VertexId v, Visitor&& visitor) const;
  void prefetch_out(VertexId u) const;
  void prefetch_in(VertexId v) const;

  // visitor(const EdgeSpan&, first, last): edges with t_from <= time < t_to, by two binary searches
  template <typename Visitor>
  void visit_out_between(VertexId u, EdgeTime t_from, EdgeTime t_to, Visitor&& visitor) const;
  template <typename Visitor>
  void visit_in_between(VertexId v, EdgeTime t_from, EdgeTime t_to, Visitor&& visitor) const;

  GraphMemory memory() const;
  void compact();                      // gives back what deletions left; content and ids unchanged
  std::uint64_t digest() const;        // order-free: live vertices, features, edges as a multiset (no edge ids)
  void check_invariants() const;       // for tests: both directions agree, blocks ordered, index complete

 private:
  struct Impl;  // or plain members: the author of the store decides; visit_* must inline
};

}  // namespace livegnn
