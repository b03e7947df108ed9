// The edges of a batch, and what its structure alone can reach.
#pragma once

#include <algorithm>
#include <vector>

#include "inference/counted_edges.h"
#include "inference/operators/operator.h"

namespace livegnn {

inline constexpr std::size_t kEdgesAhead = 3;  // changed edges between op.prefetch_edge and apply

// apply(edge, weight, sign) where wanted(edge), the edge turned as messages go, for every edge that left (-1) or came
// (+1) and counts for a row that the batch is to bring up to date; where `weighted`, also for edges whose weights
// changed, once for either weight. Self-loops are among them.
template <typename Op, typename Wanted, typename Apply>
void each_changed_edge_of(const Workspace& work, int k, const Op& op, const CountedEdges& filter, bool weighted,
                          Wanted&& wanted, Apply&& apply) {
  const BatchDelta& delta = *work.delta;
  const Flow flow = work.flow(k);
  const auto take = [&](const EdgeRecord& as_stored, float weight, int sign) {
    const EdgeRecord edge = flow.turned(as_stored);
    if (filter.counts_type(edge.type) && wanted(edge)) apply(edge, weight, sign);
  };
  const auto run = [&](const std::vector<EdgeRecord>& edges, int sign) {
    for (std::size_t i = 0; i < edges.size(); ++i) {
      if (i + kEdgesAhead < edges.size()) {
        const EdgeRecord ahead = flow.turned(edges[i + kEdgesAhead]);
        op.prefetch_edge(ahead.src, ahead.dst);
      }
      take(edges[i], weighted ? edges[i].weight : 1.0f, sign);
    }
  };
  run(delta.removed, -1);
  run(delta.added, +1);
  for (std::size_t i = 0; weighted && i < delta.reweighted.size(); ++i) {
    take(delta.reweighted[i].before, delta.reweighted[i].before.weight, -1);
    take(delta.reweighted[i].before, delta.reweighted[i].weight_after, +1);
  }
}

template <typename Op, typename Apply>
void each_changed_edge(const Workspace& work, int k, const Op& op, const CountedEdges& filter, bool weighted,
                       Apply&& apply) {
  each_changed_edge_of(
      work, k, op, filter, weighted, [&](const EdgeRecord& edge) { return work.wants(k, edge.dst); }, apply);
}

// Marks the rows that messages of u, or of these vertices, reach.
inline void mark_targets(Workspace& work, const AggregationSpec& spec, VertexId u) {
  Flow(work.graph, spec).visit_out(u, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) work.mark_consumers(spec.consumers, span.neighbours[i], 0);
  });
}
inline void mark_targets(Workspace& work, const AggregationSpec& spec, const std::vector<VertexId>& vertices) {
  for (const VertexId u : vertices) mark_targets(work, spec, u);
}

// Marks the rows that the affected sets of an operator's operands can reach.
inline void mark_operands(Workspace& work, const Operator& op, const AggregationSpec& spec, const VertexSets& sets) {
  const auto moved = [&](int t) -> const std::vector<VertexId>& { return sets[at(work.source().stored[at(t)].stage)]; };
  for (const int t : op.operands().sources) mark_targets(work, spec, moved(t));
  for (const int t : op.operands().targets) {
    for (const VertexId v : moved(t)) work.mark_consumers(spec.consumers, v, 0);
  }
}

}  // namespace livegnn
