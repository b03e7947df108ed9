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
  // by vertex; vertices beyond the end have none. Undirected graphs have `out` alone
  std::vector<std::int32_t> in, out;
  std::size_t bytes() const { return (in.capacity() + out.capacity()) * sizeof(std::int32_t); }
};

// Edges as columns, by ascending id; undirected ones either way round. Columns that the graph lacks are empty.
struct EdgeColumnsView {
  std::span<const std::int64_t> src{}, dst{}, id{};
  std::span<const float> weight{};
  std::span<const std::int64_t> time{};
  std::span<const std::int32_t> type{};
  std::span<const float> attr{};  // one row an edge

  std::size_t size() const { return src.size(); }
  EdgeId id_of(std::size_t i) const { return id.empty() ? static_cast<EdgeId>(i) : id[i]; }
  EdgeRecord edge(std::size_t i) const {  // whose ends are vertices
    const EdgeEntry entry{static_cast<VertexId>(dst[i]), type.empty() ? 0 : type[i], weight.empty() ? 1.0f : weight[i],
                          id_of(i), time.empty() ? 0 : time[i]};
    return EdgeRecord::of(static_cast<VertexId>(src[i]), entry);
  }
  EdgeRun run() const {
    EdgeRun edges;
    edges.reserve(size());
    for (std::size_t i = 0; i < size(); ++i) edges.push_back(edge(i));
    return edges;
  }
};

}  // namespace livegnn
