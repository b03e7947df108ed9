// What operators of messages that are computed edge by edge have in common: which rows a batch can change.
#pragma once

#include <vector>

#include "inference/operators/changed_edges.h"
#include "inference/operators/edge_messages.h"
#include "inference/operators/operator.h"
#include "inference/operators/whole_rows.h"

namespace livegnn {

class EdgeOperator : public Operator {
 public:
  EdgeOperator(Workspace& work, int k, Facts facts_of_it);

  void apply_edges() final;
  void take_others() final;
  void mark_reached(const VertexSets& sets, const BatchDelta& delta) final;
  EdgeTerms edge_terms(VertexId v) const final;

 protected:
  // Computes the rows that this batch can have changed again. Returns them.
  const std::vector<VertexId>& recompute();
  // visitor(edge) for the in-edges of v that count; their share: 1, or as the sample of v has it, if not 0.
  template <typename Visitor>
  void visit_messages(VertexId v, bool sampled, Visitor&& visitor) const {
    const InSample sample = sampled ? work_.sample_in_edges(k_, v) : InSample{};
    visit_counted_in(work_.graph, filter_, v, [&](const EdgeSpan& span, std::int32_t i) {
      const float share = sample.admits(span.ids[i]);
      if (share == 0.0f) return;
      MessageEdge edge = message_edge(work_.graph, edges_, span, i, span.neighbours[i], v);
      edge.share = share;
      visitor(edge);
    });
  }

  const EdgeReduceSpec& edges_;
  const CountedEdges filter_;
  VertexSet touched_;  // rows to compute again
  VertexSet moved_;    // vertices whose row at the source has changed

 private:
  bool own_loop() const { return edges_.loops == Loops::Replace; }  // one message from itself, whatever its edges
};

}  // namespace livegnn
