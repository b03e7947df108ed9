// What the store still knows of edges that lie in files instead of memory: enough to tell who would miss them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "livegnn/types.h"

namespace livegnn {

struct OffloadedEdges {
  EdgeTime before = 0;  // every one of them has an earlier time; 0 where there are none
  std::int64_t count = 0;
  EdgeId id_max = kNoEdge;
  std::uint64_t digest = 0;  // their part of the graph's digest
  std::vector<std::int32_t> in,
      out;  // by vertex; vertices beyond the end have none. Undirected graphs have `out` alone
  std::size_t bytes() const { return (in.capacity() + out.capacity()) * sizeof(std::int32_t); }
};

// Edges as columns, by ascending id; undirected ones either way round.
struct EdgeColumnsView {
  std::span<const std::int64_t> src, dst, id;
  std::span<const float> weight;
  std::span<const std::int64_t> time;
  std::span<const std::int32_t> type;
  std::span<const float> attr;
};

}  // namespace livegnn
