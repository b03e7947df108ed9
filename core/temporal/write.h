// The second pass over a slice of targets: copies what is taken of each past to where it belongs.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "livegnn/temporal.h"
#include "temporal/draw.h"
#include "temporal/lanes.h"
#include "temporal/past.h"

namespace livegnn {

// How many edges a target takes of so many candidates.
struct TakeRule {
  std::int32_t fan_out;  // -1: all
  bool replace;
  std::int32_t of(std::int32_t candidates) const {
    if (fan_out < 0) return candidates;
    return replace && candidates > 0 ? fan_out : std::min(candidates, fan_out);
  }
};

// Edges that stand one after the other in the answer, and where in the pool they come from; their lines are on the way.
struct EdgesToCome {
  static constexpr std::int32_t kCount = 96;  // so many lines stay in the near cache beside what is being copied
  static constexpr std::int32_t kFew = 16;    // edges of a target that are written without asking how many there are
  std::int64_t first = 0;                     // in the answer
  std::int32_t count = 0;
  std::array<std::int64_t, kCount + kFew> places, rows;
};

struct WriteScratch {
  std::vector<std::uint32_t> ranks, left;
  std::array<EdgesToCome, 2> edges;
  std::vector<RunTarget> runs, drawn;  // of the slice, for the kernels
  std::vector<ChainTarget> drawn_in_chains;
};

struct SliceWriter {
  const BlockPool& pool;
  const PastSlice& slice;
  TakeRule taken;
  std::int64_t first_row, first_edge;  // of the slice in the answer
  TemporalHopArrays& made;
  WriteScratch& scratch;
  const LaneKernels* kernels = lane_kernels();
  EdgesToCome* next = &scratch.edges[0];    // being filled
  EdgesToCome* coming = &scratch.edges[1];  // full, copied when the next are

  // The newest of each target, or, where `drawn`, what it draws as its row of a larger hop would. rows: of all targets,
  // or empty where this hop is all of it.
  void write(bool drawn, std::uint64_t part_key, std::span<const std::int64_t> rows);
  void source_rows() const;  // each edge's source has a row of its own, after the targets
  void root_times() const;   // next_times of the sources: their targets' times

 private:
  // visitor(to, from) for each column that the store has: of the answer, and of the pool from place 0 on.
  template <typename Visitor>
  void visit_columns(const Visitor& visitor) const;
  void turn(std::int64_t edge);
  void make_room(std::int64_t edge, std::int32_t take);
  bool add_for_kernels(const Past& past, const RunTarget& target, bool draws);
  void run_kernels() const;
  void draw_ranks(const Draw& draw, const Past& past, std::int32_t take) const;
  void add_newest(const Past& past, std::int64_t row, std::int64_t edge, std::int32_t take);
  void add_drawn(const Past& past, std::int64_t row, std::int64_t edge, std::int32_t take);
  void add_rows(std::int64_t row, std::int32_t take);
  void prefetch(std::int64_t place) const;
  void copy(const EdgesToCome& edges) const;
  void copy_newest(const Past& past, std::int64_t row, std::int64_t edge, std::int32_t take) const;
  void copy_run(std::int64_t place, std::int64_t edge, std::int32_t count) const;
  void put(std::int64_t edge, const EdgeEntry& entry) const;
};

}  // namespace livegnn
