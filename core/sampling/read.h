// A query, answered level by level over blocks of seeds, with what comes next prefetched. A Source gives
//   prefetch_row(level, v), row(level, v) -> const Row* or nullptr, prefetch_features(v), and
//   read_features(v, width, out) -> whether v has any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "livegnn/sampling.h"
#include "sampling/row.h"

namespace livegnn {

inline constexpr std::int64_t kBlockVertices = 4096;  // of the last level in a block: its rows stay in the near cache

// First index and count of a level's values for the seeds [first, last).
struct LevelRange {
  std::int64_t first, count;
};

class QueryShape {
 public:
  explicit QueryShape(std::span<const std::int32_t> fanouts) {
    for (const std::int32_t fanout : fanouts) sizes_.push_back(sizes_.back() * fanout);
  }
  LevelRange range(std::size_t level, std::int64_t first, std::int64_t last) const {
    return {first * sizes_[level], (last - first) * sizes_[level]};
  }
  std::int64_t leaves() const { return sizes_.back(); }
  std::int64_t block_seeds() const {
    return std::max<std::int64_t>(1, kBlockVertices / std::max<std::int64_t>(1, leaves()));
  }

 private:
  std::vector<std::int64_t> sizes_{1};  // values of a level per seed
};

template <typename Source>
void read_hop(const Source& source, std::size_t level, std::int32_t fanout, const std::int64_t* parents,
              std::int64_t count, std::int64_t* vertices, std::int64_t* edge_ids) {
  constexpr std::int64_t kAhead = 8;
  const Row* ahead[2 * kAhead] = {};
  const auto look_up = [&](std::int64_t i) {
    const Row* row = parents[i] < 0 ? nullptr : source.row(level, static_cast<VertexId>(parents[i]));
    if (row != nullptr) {
      prefetch_line(row);
      prefetch_line(reinterpret_cast<const char*>(row) + 64);
      if (edge_ids != nullptr) prefetch_line(reinterpret_cast<const VertexId*>(row + 1) + fanout);
    }
    ahead[i % (2 * kAhead)] = row;
  };
  for (std::int64_t i = 0; i < std::min(2 * kAhead, count); ++i) {
    if (parents[i] >= 0) source.prefetch_row(level, static_cast<VertexId>(parents[i]));
  }
  for (std::int64_t i = 0; i < std::min(kAhead, count); ++i) look_up(i);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + 2 * kAhead < count && parents[i + 2 * kAhead] >= 0) {
      source.prefetch_row(level, static_cast<VertexId>(parents[i + 2 * kAhead]));
    }
    if (i + kAhead < count) look_up(i + kAhead);
    const Row* row = ahead[i % (2 * kAhead)];
    const std::int32_t there = row == nullptr ? 0 : std::min(row->count, fanout);
    std::int64_t* out = vertices + i * fanout;
    const VertexId* neighbours = row == nullptr ? nullptr : row->neighbours();
    for (std::int32_t k = 0; k < there; ++k) out[k] = neighbours[k];
    std::fill(out + there, out + fanout, -1);
    if (edge_ids == nullptr) continue;
    std::int64_t* ids = edge_ids + i * fanout;
    if (there > 0) std::memcpy(ids, row->ids(), static_cast<std::size_t>(there) * sizeof(EdgeId));
    std::fill(ids + there, ids + fanout, -1);
  }
}

template <typename Source>
void read_features(const Source& source, const std::int64_t* vertices, std::int64_t count, std::int32_t width,
                   float* out) {
  constexpr std::int64_t kAhead = 16;
  const std::size_t bytes = static_cast<std::size_t>(width) * sizeof(float);
  for (std::int64_t i = 0; i < std::min(kAhead, count); ++i) {
    if (vertices[i] >= 0) source.prefetch_features(static_cast<VertexId>(vertices[i]));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count && vertices[i + kAhead] >= 0) {
      source.prefetch_features(static_cast<VertexId>(vertices[i + kAhead]));
    }
    float* row = out + i * width;
    if (vertices[i] < 0 || !source.read_features(static_cast<VertexId>(vertices[i]), width, row)) {
      std::memset(row, 0, bytes);
    }
  }
}

// The columns of the sampled edges, for the seeds [first, last) of a request whose edge ids are there.
template <typename Edges>
void read_edges(const Edges& edges, const SampleRequest& request, const QueryShape& shape, std::int64_t first,
                std::int64_t last) {
  constexpr std::int64_t kAhead = 16;
  for (std::size_t hop = 0; hop < request.edge_ids.size(); ++hop) {
    const LevelRange range = shape.range(hop + 1, first, last);
    const std::int64_t* ids = request.edge_ids[hop];
    const std::int64_t end = range.first + range.count;
    for (std::int64_t i = range.first; i < end; ++i) {
      if (i + kAhead < end && ids[i + kAhead] >= 0) edges.prefetch(ids[i + kAhead]);
      edges.read(ids[i], request.edge_values(hop, i));
    }
  }
}

// The seeds [first, last) of a request.
template <typename Source>
void read_block(const Source& source, const SampleRequest& request, std::span<const std::int32_t> fanouts,
                const QueryShape& shape, std::int64_t first, std::int64_t last) {
  const std::int64_t* parents = request.seeds.data() + first;
  const auto features_of = [&](std::size_t level, const std::int64_t* vertices) {
    if (request.features.empty() || request.widths[level] == 0) return;
    const LevelRange range = shape.range(level, first, last);
    read_features(source, vertices, range.count, request.widths[level],
                  request.features[level] + range.first * request.widths[level]);
  };
  features_of(0, parents);
  for (std::size_t hop = 0; hop < fanouts.size(); ++hop) {
    const LevelRange range = shape.range(hop + 1, first, last);
    std::int64_t* vertices = request.vertices[hop] + range.first;
    std::int64_t* ids = request.edge_ids.empty() ? nullptr : request.edge_ids[hop] + range.first;
    read_hop(source, hop, fanouts[hop], parents, range.count / fanouts[hop], vertices, ids);
    features_of(hop + 1, vertices);
    parents = vertices;
  }
}

}  // namespace livegnn
