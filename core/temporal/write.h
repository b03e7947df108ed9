// The second pass over a slice of targets: copies what is taken of each past to where it belongs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "livegnn/temporal.h"
#include "temporal/past.h"

namespace livegnn {

// How many edges a target takes of so many candidates.
struct Taken {
  std::int32_t fan_out;  // -1: all
  bool replace;
  std::int32_t of(std::int32_t candidates) const {
    if (fan_out < 0) return candidates;
    return replace && candidates > 0 ? fan_out : std::min(candidates, fan_out);
  }
};

struct WriteScratch {
  std::vector<std::uint32_t> ranks, left;
  std::vector<std::int64_t> places;
};

class SliceWriter {
 public:
  SliceWriter(const BlockPool& pool, std::span<const Past> pasts, const PastSlice& slice, const Taken& taken,
              std::int64_t first_row, std::int64_t first_edge, TemporalHopArrays& made)
      : pool_(pool), pasts_(pasts), slice_(slice), taken_(taken), row_(first_row), edge_(first_edge), made_(made) {}

  void recent() const;  // the newest
  void uniform(std::uint64_t part_key, bool replace, WriteScratch& scratch) const;
  void source_rows() const;  // each edge's source has a row of its own, after the targets
  void root_times() const;   // next_times of the sources: their targets' times

 private:
  void begin_row(std::size_t i, std::int64_t edge, std::int32_t take) const;
  void copy_newest(const Past& past, std::int64_t edge, std::int32_t take) const;
  void copy_run(std::int64_t place, std::int64_t edge, std::int32_t count) const;
  std::int64_t* places_of(const Past& past, const std::uint32_t* ranks, std::int32_t count, std::int64_t edge,
                          std::int64_t* places) const;
  void copy_places(const std::int64_t* places, std::int64_t edge, std::int32_t count) const;
  void put(std::int64_t edge, const EdgeEntry& entry) const;

  const BlockPool& pool_;
  std::span<const Past> pasts_;
  const PastSlice& slice_;
  Taken taken_;
  std::int64_t row_, edge_;
  TemporalHopArrays& made_;
};

}  // namespace livegnn
