// Whole rows, made a range at a time.
#pragma once

#include <utility>

#include "inference/operators/operator.h"

namespace livegnn {

// sum(v) for the vertices of a range, by messages of this flow. What the rows after the one at work need is on its way
// by then: lists of in-edges, then edges, then, by fetch(v), messages.
template <typename Fetch, typename Sum>
void sum_rows(const Workspace& work, const Flow& flow, const VertexRange& range, Fetch&& fetch, Sum&& sum) {
  constexpr std::int64_t kLists = 12, kEdges = 6, kTerms = 2;
  const bool fetches = work.pager == nullptr;
  for (std::int64_t i = range.first; i < range.last; ++i) {
    if (fetches) {
      if (i + kLists < range.last) flow.prefetch_in(range[i + kLists]);
      if (i + kEdges < range.last) flow.prefetch_in_edges(range[i + kEdges]);
      if (i + kTerms < range.last) fetch(range[i + kTerms]);
    }
    sum(range[i]);
  }
}

// fetch(u) for the first in-edges of v, so that a row of few edges waits for none of them.
template <typename Fetch>
void fetch_first(const Flow& flow, VertexId v, Fetch&& fetch) {
  constexpr std::int32_t kFirst = 8;
  flow.visit_in(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < std::min(span.count, kFirst); ++i) fetch(span.neighbours[i]);
  });
}

// Rows in their places: place(v) is v's. clears: zeros are written where a row can only be zero.
template <typename Place>
class PlacedRows final : public RowSink {
 public:
  PlacedRows(const Operator& op, bool clears, Place place) : op_(op), clears_(clears), place_(std::move(place)) {}
  std::int64_t* open(VertexId v) override {
    if (op_.has_row(v)) return place_(v);
    if (clears_) std::memset(static_cast<void*>(place_(v)), 0, at(op_.stride()) * sizeof(std::int64_t));
    return nullptr;
  }

 private:
  const Operator& op_;
  const bool clears_;
  const Place place_;
};

}  // namespace livegnn
