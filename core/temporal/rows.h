// Rows of the next hop where each (vertex, time) is to stand once: a table by hash, open addressing.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "livegnn/temporal.h"
#include "util/hash.h"

namespace livegnn {

class RowTableOfPairs {
 public:
  // Of a hop whose src, times and rows of targets are written: fills row 0 of edge_index, next_targets and next_times,
  // and cuts these two to what they hold.
  void name_rows(TemporalHopArrays& made, bool root_times) {
    const std::size_t targets = made.targets.size(), edges = made.src.size();
    const std::size_t places = std::bit_ceil(2 * (targets + edges) + 1);
    mask_ = places - 1;
    rows_.assign(places, kNone);
    std::int64_t rows = 0;
    for (; rows < static_cast<std::int64_t>(targets); ++rows) {
      const auto at = static_cast<std::size_t>(rows);
      row_of(made, made.targets[at], made.target_times[at], rows);
    }
    for (std::size_t edge = 0; edge < edges; ++edge) {
      const auto target = static_cast<std::size_t>(made.edge_index[edges + edge]);
      const std::int64_t time = root_times ? made.target_times[target] : made.times[edge];
      const std::int64_t row = row_of(made, made.src[edge], time, rows);
      if (row == rows) {
        made.next_targets[static_cast<std::size_t>(row)] = made.src[edge];
        made.next_times[static_cast<std::size_t>(row)] = time;
        ++rows;
      }
      made.edge_index[edge] = row;
    }
    made.next_targets = made.next_targets.first(static_cast<std::size_t>(rows));
    made.next_times = made.next_times.first(static_cast<std::size_t>(rows));
  }

 private:
  static constexpr std::int64_t kNone = -1;

  // The first row that holds the pair; where there is none, `fresh`, which is to hold it.
  std::int64_t row_of(const TemporalHopArrays& made, std::int64_t v, std::int64_t time, std::int64_t fresh) {
    std::size_t at = mix(static_cast<std::uint64_t>(v) ^ mix(static_cast<std::uint64_t>(time))) & mask_;
    for (; rows_[at] != kNone; at = (at + 1) & mask_) {
      const auto row = static_cast<std::size_t>(rows_[at]);
      if (made.next_targets[row] == v && made.next_times[row] == time) return rows_[at];
    }
    rows_[at] = fresh;
    return fresh;
  }

  std::vector<std::int64_t> rows_;
  std::size_t mask_ = 0;
};

}  // namespace livegnn
