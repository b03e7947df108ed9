// Weights, times and attributes of edges, copied for readers: the store's own columns change while they read.
//
// A row of words per edge id: the weight, the time in two words and the attributes, as far as the graph has them.
// Invariant between batches: there is a row for each edge of the store, and its values are the store's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "livegnn/detail/graph_attributes.h"
#include "livegnn/graph.h"
#include "livegnn/sampling.h"
#include "sampling/read.h"

namespace livegnn {

// The values of a row; zeros for nullptr.
inline void read_edge_row(const EdgeColumns& columns, const float* row, const EdgeValues& out) {
  if (columns.weight) *out.weight = row == nullptr ? 0.0f : *row;
  if (columns.time) {
    *out.time = 0;
    if (row != nullptr) std::memcpy(out.time, row + columns.weight, sizeof(EdgeTime));
  }
  if (row == nullptr) {
    std::fill_n(out.attr, columns.attr_width, 0.0f);
  } else {
    std::copy_n(row + columns.words() - columns.attr_width, columns.attr_width, out.attr);
  }
}

class EdgeRows {
 public:
  EdgeRows(const GraphStore& graph, const EdgeColumns& columns)
      : graph_(graph), columns_(columns), buffer_(static_cast<std::size_t>(columns.words())), rows_(columns.words()) {
    if (columns_.words() == 0) return;
    rows_.reserve(graph.all_edge_count());
    graph.visit_edges([&](const EdgeRecord& edge) { insert(edge.id, edge.weight, edge.time); });
  }

  // The store holds the batch; readers are held off.
  void follow(const BatchDelta& delta) {
    if (columns_.words() == 0) return;
    // Undirected edges come once per direction, and attributes may be set of an edge that has gone since.
    for (const EdgeRecord& edge : delta.removed) {
      if (rows_.find(edge.id) != nullptr) rows_.erase(edge.id);
    }
    for (const EdgeRecord& edge : delta.added) {
      if (rows_.find(edge.id) == nullptr) insert(edge.id, edge.weight, edge.time);
    }
    for (const EdgeReweighted& edge : delta.reweighted) {
      float* row = columns_.weight ? rows_.find(edge.before.id) : nullptr;
      if (row != nullptr) *row = edge.weight_after;
    }
    for (const EdgeRecord& edge : delta.reattributed) {
      if (float* row = rows_.find(edge.id)) copy_attributes(edge.id, row);
    }
    if (rows_.wants_compaction()) rows_.compact();
  }

  const float* row(EdgeId id) const {
    const float* found = rows_.find(id);
    invariant(found != nullptr, "a sampled edge has no row of values");
    return found;
  }

  // Of one hop's edges, whose ids are there; zeros for an id below 0.
  void read(const SampleRequest& request, std::size_t hop, const LevelRange& range) const {
    constexpr std::int64_t kAhead = 16;
    const std::int64_t* ids = request.edge_ids[hop];
    const std::int64_t end = range.first + range.count;
    for (std::int64_t i = range.first; i < end; ++i) {
      if (i + kAhead < end && ids[i + kAhead] >= 0) rows_.prefetch(ids[i + kAhead]);
      read_edge_row(columns_, ids[i] < 0 ? nullptr : row(ids[i]), request.edge_values(hop, i));
    }
  }

  std::size_t bytes() const { return rows_.bytes(); }

  void check_invariants() const {
    if (columns_.words() == 0) return;
    invariant(rows_.count() == graph_.all_edge_count(), "copied rows of edges are not those of the graph");
    std::vector<float> expected(buffer_.size());
    graph_.visit_edges([&](const EdgeRecord& edge) {
      fill(edge.id, edge.weight, edge.time, expected.data());
      const float* row = rows_.find(edge.id);
      invariant(row != nullptr && std::memcmp(row, expected.data(), expected.size() * sizeof(float)) == 0,
                "a copied row of an edge is out of date");
    });
  }

 private:
  void copy_attributes(EdgeId id, float* row) const {
    if (columns_.attr_width == 0) return;
    std::copy_n(graph_.edge_attr(id), columns_.attr_width, row + columns_.words() - columns_.attr_width);
  }

  void fill(EdgeId id, float weight, EdgeTime time, float* row) const {
    if (columns_.weight) *row = weight;
    if (columns_.time) std::memcpy(row + columns_.weight, &time, sizeof(EdgeTime));
    copy_attributes(id, row);
  }

  void insert(EdgeId id, float weight, EdgeTime time) {
    fill(id, weight, time, buffer_.data());
    rows_.insert(id, buffer_.data());
  }

  const GraphStore& graph_;
  EdgeColumns columns_;
  std::vector<float> buffer_;  // one row
  AttributeTable rows_;
};

}  // namespace livegnn
