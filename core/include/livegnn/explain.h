// What explanations read of an engine: rows that it keeps, the terms that they are sums of, and what a batch has
// replaced (docs/explain-live.md).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "livegnn/types.h"

namespace livegnn {

// Operands of the terms of one row, given as they are or as they once were; one of each per term.
struct TermOperands {
  std::size_t count = 0;
  std::span<const float> messages;          // rows, as wide as the aggregation
  std::span<const float> factors, weights;  // of sums: the source's factor, the edge's weight
  std::span<const float> scores;            // of attention: rows, one score a head
  std::span<const float> shift;             // of attention: the target's own scores, one row
};

// Rows that a batch has replaced, as they were before it: of a table, or a context's s and L.
struct ReplacedRows {
  int number = -1, width = 0;
  std::vector<VertexId> vertices;
  std::vector<float> rows;
};

// What one batch has replaced and which edges it has changed. sound: false where the state was built anew instead.
struct BatchRecord {
  bool sound = false;
  std::vector<ReplacedRows> tables, contexts;
  ReplacedRows features;
  EdgeRun added, removed;
  std::vector<EdgeReweighted> reweighted;
};

// Messages along the in-edges of one vertex that are computed edge by edge.
struct EdgeTerms {
  EdgeRun edges;
  std::vector<float> messages;  // rows
};

}  // namespace livegnn
