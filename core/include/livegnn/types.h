// Ids and small records that every part of the core shares.
#pragma once

#include <cstdint>
#include <vector>

namespace livegnn {

using VertexId = std::int32_t;  // dense slot of a vertex; stable for its whole life
using EdgeId = std::int64_t;    // counts all additions in log order; never reused
using EdgeTime = std::int64_t;  // in the user's own unit

inline constexpr VertexId kNoVertex = -1;
inline constexpr EdgeId kNoEdge = -1;

struct EdgeRecord {
  VertexId src;
  VertexId dst;
  float weight;       // 1 where the graph has no weights
  std::int32_t type;  // 0 where the graph has no types
  EdgeId id;
  EdgeTime time = 0;  // 0 where the graph has no times
};

struct EdgeReweighted {
  EdgeRecord before;  // carries the old weight
  float weight_after;
};

// A contiguous run of one vertex's live edges, in (time, id) order. No tombstones.
struct EdgeSpan {
  const VertexId* neighbours;
  const float* weights;  // nullptr where the graph has no weights
  const EdgeId* ids;
  const EdgeTime* times;      // nullptr where the graph has no times
  const std::int32_t* types;  // nullptr where the graph has no types
  std::int32_t count;
};

}  // namespace livegnn
