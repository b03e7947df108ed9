// Whole rows, and where they go: into a state, or into the engine's own where they differ.
#pragma once

#include "inference/operators/operator.h"

namespace livegnn {

// sum(v) for the vertices of a range. What the rows after the one at work need is on its way by then: lists of
// in-edges, then edges, then, by fetch(v), messages.
template <typename Fetch, typename Sum>
void sum_rows(const Workspace& work, const VertexRange& range, Fetch&& fetch, Sum&& sum) {
  constexpr std::int64_t kLists = 12, kEdges = 6, kTerms = 2;
  const bool fetches = work.pager == nullptr;
  for (std::int64_t i = range.first; i < range.last; ++i) {
    if (fetches) {
      if (i + kLists < range.last) work.graph.prefetch_in(range[i + kLists]);
      if (i + kEdges < range.last) work.graph.prefetch_in_edges(range[i + kEdges]);
      if (i + kTerms < range.last) fetch(range[i + kTerms]);
    }
    sum(range[i]);
  }
}

// fetch(u) for the first in-edges of v, so that a row of few edges waits for none of them.
template <typename Fetch>
void fetch_first(const GraphStore& graph, VertexId v, Fetch&& fetch) {
  constexpr std::int32_t kFirst = 8;
  graph.visit_in(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < std::min(span.count, kFirst); ++i) fetch(span.neighbours[i]);
  });
}

// Rows of a state, in place.
class TableRows final : public RowSink {
 public:
  // zeros: rows that can only be zero are written, too
  TableRows(const Operator& op, RowTable<std::int64_t>& table, bool zeros) : op_(op), table_(table), zeros_(zeros) {}
  std::int64_t* open(VertexId v) override { return zeros_ || op_.has_row(v) ? table_.row(v) : nullptr; }
  void close(VertexId, std::int64_t*) override {}

 private:
  const Operator& op_;
  RowTable<std::int64_t>& table_;
  const bool zeros_;
};

// The engine's own rows, kept where they differ. Of an operator that has one row open at a time.
class RefreshedRows final : public RowSink {
 public:
  RefreshedRows(Workspace& work, int k, int thread)
      : work_(work),
        k_(k),
        thread_(thread),
        scratch_(work.row_scratch[at(thread)].need(at(work.state.aggregates[at(k)].stride()))) {}
  std::int64_t* open(VertexId v) override { return work_.wants(k_, v) ? scratch_ : nullptr; }
  void close(VertexId v, std::int64_t* row) override { work_.keep_row(k_, v, row, thread_); }

 private:
  Workspace& work_;
  const int k_, thread_;
  std::int64_t* scratch_;
};

// The engine's rows of these vertices again, `share` of them to a task; counted as read again.
void refresh_rows(const Operator& op, Workspace& work, int k, const std::vector<VertexId>& rows, std::int64_t share);

// Whether a sweep has to look at v's row: it can be other than zero, or the type has changed, and its own term left.
inline bool sweeps(const Operator& op, const Workspace& work, int k, VertexId v) {
  return work.wants(k, v) && (op.has_row(v) || (work.source().typed && work.retyped.contains(v)));
}
void count_swept(const Operator& op, Workspace& work, int k);

// All of the engine's rows again, in storage order.
void sweep_rows(const Operator& op, Workspace& work, int k);

}  // namespace livegnn
