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

// An edge as the list of one end has it. Fields without a column read as these defaults.
struct EdgeEntry {
  VertexId neighbour = kNoVertex;
  std::int32_t type = 0;
  float weight = 1.0f;
  EdgeId id = kNoEdge;
  EdgeTime time = 0;
};

struct EdgeRecord {
  VertexId src;
  VertexId dst;
  float weight;       // 1 where the graph has no weights
  std::int32_t type;  // 0 where the graph has no types
  EdgeId id;
  EdgeTime time = 0;  // 0 where the graph has no times

  static EdgeRecord of(VertexId src, const EdgeEntry& entry) {
    return {src, entry.neighbour, entry.weight, entry.type, entry.id, entry.time};
  }
  EdgeEntry in_out_list() const { return {dst, type, weight, id, time}; }
  EdgeEntry in_in_list() const { return {src, type, weight, id, time}; }
};

using EdgeRun = std::vector<EdgeRecord>;  // of added edges: ids ascend

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

  EdgeEntry entry(std::int32_t i) const {
    return {neighbours[i], types ? types[i] : 0, weights ? weights[i] : 1.0f, ids[i], times ? times[i] : 0};
  }
};

}  // namespace livegnn
