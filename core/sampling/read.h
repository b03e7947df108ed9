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
  explicit QueryShape(std::span<const std::int32_t> fan_outs) {
    for (const std::int32_t fan_out : fan_outs) sizes_.push_back(sizes_.back() * fan_out);
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
void read_hop(const Source& source, std::size_t level, std::int32_t fan_out, const std::int64_t* parents,
              std::int64_t count, std::int64_t* vertices, std::int64_t* edge_ids) {
  constexpr std::int64_t kAhead = 8;
  const Row* ahead[2 * kAhead] = {};
  const auto look_up = [&](std::int64_t i) {
    const Row* row = parents[i] < 0 ? nullptr : source.row(level, static_cast<VertexId>(parents[i]));
    if (row != nullptr) {
      prefetch_line(row);
      prefetch_line(reinterpret_cast<const char*>(row) + 64);
      if (edge_ids != nullptr) prefetch_line(reinterpret_cast<const VertexId*>(row + 1) + fan_out);
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
    const std::int32_t there = row == nullptr ? 0 : std::min(row->count, fan_out);
    std::int64_t* out = vertices + i * fan_out;
    const VertexId* neighbours = row == nullptr ? nullptr : row->neighbours();
    for (std::int32_t k = 0; k < there; ++k) out[k] = neighbours[k];
    std::fill(out + there, out + fan_out, -1);
    if (edge_ids == nullptr) continue;
    std::int64_t* ids = edge_ids + i * fan_out;
    if (there > 0) std::memcpy(ids, row->ids(), static_cast<std::size_t>(there) * sizeof(EdgeId));
    std::fill(ids + there, ids + fan_out, -1);
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

// The seeds [first, last) of a request.
template <typename Source>
void read_block(const Source& source, const SampleRequest& request, std::span<const std::int32_t> fan_outs,
                const QueryShape& shape, std::int64_t first, std::int64_t last) {
  const std::int64_t* parents = request.seeds.data() + first;
  const auto features_of = [&](std::size_t level, const std::int64_t* vertices) {
    if (request.features.empty() || request.widths[level] == 0) return;
    const LevelRange range = shape.range(level, first, last);
    read_features(source, vertices, range.count, request.widths[level],
                  request.features[level] + range.first * request.widths[level]);
  };
  features_of(0, parents);
  for (std::size_t hop = 0; hop < fan_outs.size(); ++hop) {
    const LevelRange range = shape.range(hop + 1, first, last);
    std::int64_t* vertices = request.vertices[hop] + range.first;
    std::int64_t* ids = request.edge_ids.empty() ? nullptr : request.edge_ids[hop] + range.first;
    read_hop(source, hop, fan_outs[hop], parents, range.count / fan_outs[hop], vertices, ids);
    features_of(hop + 1, vertices);
    parents = vertices;
  }
}

}  // namespace livegnn
