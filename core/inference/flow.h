// Which way messages go: from an edge's source to its destination, or, reversed, from its destination to its source, as
// if every edge were turned round. An operator sees the graph through its flow, so it reads in-lists where messages
// come from, and out-lists where they go, or the other way round. No edge is stored twice.
#pragma once

#include <cstdint>
#include <utility>

#include "livegnn/graph.h"
#include "livegnn/program.h"

namespace livegnn {

class Flow {
 public:
  Flow(const GraphStore& graph, bool reversed) : graph_(graph), reversed_(reversed) {}
  Flow(const GraphStore& graph, const AggregationSpec& spec) : Flow(graph, spec.reversed) {}

  bool reversed() const { return reversed_; }
  // Edges whose messages come to v, or leave it.
  std::int32_t in_degree(VertexId v) const { return reversed_ ? graph_.out_degree(v) : graph_.in_degree(v); }
  std::int32_t out_degree(VertexId v) const { return reversed_ ? graph_.in_degree(v) : graph_.out_degree(v); }
  template <typename Visitor>
  void visit_in(VertexId v, Visitor&& visitor) const {
    graph_.visit_list(v, reversed_, visitor);
  }
  template <typename Visitor>
  void visit_out(VertexId u, Visitor&& visitor) const {
    graph_.visit_list(u, !reversed_, visitor);
  }
  void prefetch_in(VertexId v) const { reversed_ ? graph_.prefetch_out(v) : graph_.prefetch_in(v); }
  void prefetch_out(VertexId u) const { reversed_ ? graph_.prefetch_in(u) : graph_.prefetch_out(u); }
  void prefetch_in_edges(VertexId v) const { graph_.prefetch_list_edges(v, reversed_); }
  void prefetch_out_edges(VertexId u) const { graph_.prefetch_list_edges(u, !reversed_); }
  // The edge as its messages go: src sends, dst receives.
  EdgeRecord turned(EdgeRecord edge) const {
    if (reversed_) std::swap(edge.src, edge.dst);
    return edge;
  }

 private:
  const GraphStore& graph_;
  const bool reversed_;
};

}  // namespace livegnn
