// A query, answered level by level over blocks of seeds, with what comes next prefetched. Tables of samples give
// fanout(), prefetch_row(v) and row(v) -> const Row* or nullptr; tables of features prefetch(v) and read(v, out,
// width).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "livegnn/error.h"
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
  void add_hop(std::int32_t fanout) { sizes_.push_back(sizes_.back() * fanout); }
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

// Throws Error for a seed that is not live.
template <typename IsLive>
void check_seeds(const SampleRequest& request, std::int64_t version, const IsLive& is_live) {
  for (std::size_t i = 0; i < request.seeds.size(); ++i) {
    const std::int64_t seed = request.seeds[i];
    if (is_live(seed)) continue;
    throw Error(ErrorKind::VertexUnknown,
                {.where = "sample",
                 .expected = "seeds that are live vertices (version " + std::to_string(version) + ")",
                 .got = std::to_string(seed) + " at row " + std::to_string(i),
                 .advice = "add the vertex first",
                 .vertex = seed});
  }
}

// Vertices and edge ids of one hop, of rows in a table.
template <typename Table>
void read_hop(const Table& table, const SampleRequest& request, std::size_t hop, const std::int64_t* parents,
              const LevelRange& range) {
  constexpr std::int64_t kAhead = 8;
  const std::int32_t fanout = table.fanout();
  const std::int64_t count = range.count / fanout;
  std::int64_t* vertices = request.vertices[hop] + range.first;
  std::int64_t* edge_ids = request.edge_ids.empty() ? nullptr : request.edge_ids[hop] + range.first;
  const Row* ahead[2 * kAhead] = {};
  const auto prefetch = [&](std::int64_t i) {
    if (parents[i] >= 0) table.prefetch_row(static_cast<VertexId>(parents[i]));
  };
  const auto look_up = [&](std::int64_t i) {
    const Row* row = parents[i] < 0 ? nullptr : table.row(static_cast<VertexId>(parents[i]));
    if (row != nullptr) {
      prefetch_line(row);
      prefetch_line(reinterpret_cast<const char*>(row) + 64);
      if (edge_ids != nullptr) prefetch_line(reinterpret_cast<const VertexId*>(row + 1) + fanout);
    }
    ahead[i % (2 * kAhead)] = row;
  };
  for (std::int64_t i = 0; i < std::min(2 * kAhead, count); ++i) prefetch(i);
  for (std::int64_t i = 0; i < std::min(kAhead, count); ++i) look_up(i);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + 2 * kAhead < count) prefetch(i + 2 * kAhead);
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

template <typename Features>
void read_features(const Features& features, const std::int64_t* vertices, std::int64_t count, std::int32_t width,
                   float* out) {
  constexpr std::int64_t kAhead = 16;
  const auto prefetch = [&](std::int64_t i) {
    if (vertices[i] >= 0) features.prefetch(static_cast<VertexId>(vertices[i]));
  };
  for (std::int64_t i = 0; i < std::min(kAhead, count); ++i) prefetch(i);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) prefetch(i + kAhead);
    if (vertices[i] < 0) {
      std::fill_n(out + i * width, width, 0.0f);
    } else {
      features.read(static_cast<VertexId>(vertices[i]), out + i * width, width);
    }
  }
}

// The seeds [first, last) of a request. fill(hop, parents, range) gives what is asked for of the hop's edges.
template <typename Features, typename Fill>
void read_block(const Features& features, const SampleRequest& request, const QueryShape& shape, std::int64_t first,
                std::int64_t last, const Fill& fill) {
  const std::int64_t* vertices = request.seeds.data() + first;
  for (std::size_t level = 0; level <= request.vertices.size(); ++level) {
    const LevelRange range = shape.range(level, first, last);
    if (level > 0) {
      fill(level - 1, vertices, range);
      vertices = request.vertices[level - 1] + range.first;
    }
    const std::int32_t width = request.features.empty() ? 0 : request.widths[level];
    if (width > 0) read_features(features, vertices, range.count, width, request.features[level] + range.first * width);
  }
}

}  // namespace livegnn
