// Which edges count for a vertex, and loops over those that do.
#pragma once

#include <algorithm>
#include <vector>

#include "inference/flow.h"
#include "livegnn/graph.h"
#include "livegnn/program.h"

namespace livegnn {

struct CountedEdges {
  bool skips_loops = false;
  int relation = -1;                            // only edges of this type; -1: all
  const std::vector<int>* relations = nullptr;  // only edges of these types; null: all
  bool only_loops = false;

  bool typed() const { return relation >= 0 || relations != nullptr; }
  bool counts_type(std::int32_t type) const {
    if (relation >= 0 && type != relation) return false;
    return relations == nullptr || std::find(relations->begin(), relations->end(), type) != relations->end();
  }
  bool counts(VertexId src, VertexId dst, std::int32_t type) const {
    return counts_type(type) && !(src == dst ? skips_loops : only_loops);
  }
};

inline CountedEdges counted_edges(const AggregationSpec& spec, bool skips_loops, bool only_loops = false) {
  return {skips_loops, spec.relation, spec.relations.empty() ? nullptr : &spec.relations, only_loops};
}

// visit(span, i) for every edge of v in the span that counts.
template <typename Visit>
void visit_counted(const EdgeSpan& span, const CountedEdges& filter, VertexId v, Visit&& visit) {
  const bool typed = filter.typed();
  for (std::int32_t i = 0; i < span.count; ++i) {
    if (span.neighbours[i] == v ? filter.skips_loops : filter.only_loops) continue;
    if (typed && !filter.counts_type(span.types != nullptr ? span.types[i] : 0)) continue;
    visit(span, i);
  }
}

template <typename Visit>
void visit_counted_in(const Flow& flow, const CountedEdges& filter, VertexId v, Visit&& visit) {
  flow.visit_in(v, [&](const EdgeSpan& span) { visit_counted(span, filter, v, visit); });
}

template <typename Visit>
void visit_counted_out(const Flow& flow, const CountedEdges& filter, VertexId u, Visit&& visit) {
  flow.visit_out(u, [&](const EdgeSpan& span) { visit_counted(span, filter, u, visit); });
}

inline float weight_of(const EdgeSpan& span, std::int32_t i) {
  return span.weights != nullptr ? span.weights[i] : 1.0f;
}

}  // namespace livegnn
