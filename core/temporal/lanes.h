// What temporal sampling does with vector instructions. Of a target with a short fan-out, the lanes of a register draw
// all ranks, put them in order and read their edges, without a loop or a branch for each. Of searches that go on
// together, each lane takes the step of one. Samples are the same without: past.cc and write.cc then do it one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "livegnn/detail/graph_blocks.h"

namespace livegnn {

// A target whose candidates are a run of the pool.
struct RunTarget {
  std::int64_t place;   // in the pool: of its first candidate, or, where nothing is drawn, of the first that is taken
  std::int64_t edge;    // of its first in the answer
  std::int64_t row;     // of the target in the answer
  std::uint64_t state;  // of its Draw
  std::uint32_t count;  // candidates, where some are drawn
  std::int32_t take;
};

// A target whose candidates are a part of a chain.
struct ChainTarget {
  RunTarget target;  // place: the first candidate's rank in the chain
  BlockTable table;
};

// Columns of the pool from place 0 on, and of the answer; nullptr for those that the store lacks.
struct LaneColumns {
  const std::int32_t *neighbours, *types;
  const std::int64_t *ids, *times;
  const float* weights;
  std::int64_t *to_src, *to_types, *to_ids, *to_times;
  float* to_weights;
  std::int64_t* to_rows;  // of the targets
};

struct LaneKernels {
  static constexpr std::int32_t kDrawnMax = 16;  // edges of a target that are drawn
  // The first `take` of each run.
  void (*runs)(std::span<const RunTarget> targets, const LaneColumns& columns);
  // As many as draw_distinct() or draw_with_replacement() draws: all targets take alike, 0 < take <= kDrawnMax, and
  // without replacement at most half of their candidates.
  void (*drawn)(std::span<const RunTarget> targets, const LaneColumns& columns, bool replace);
  void (*drawn_in_chains)(std::span<const ChainTarget> targets, const LaneColumns& columns, bool replace);
  // A step of each search: moves on by `half` times where the last of these is not later than the one asked for.
  void (*search_step)(const std::int64_t** begin, const std::int64_t* wanted, std::size_t count, std::int64_t half);
};

const LaneKernels* lane_kernels();  // nullptr where the machine has none, or LIVEGNN_KERNELS wants others

}  // namespace livegnn
