// A run of added edges by the list that each joins.
//
// Grouping is a stable radix sort by owner: inside a group edges keep their order, so ids rise, and a list's end is
// looked for once per group instead of once per edge.
#pragma once

#include <cstdint>
#include <vector>

#include "livegnn/detail/graph_blocks.h"
#include "livegnn/types.h"

namespace livegnn {

// Which end's lists. Both: an edge is in the lists of both its ends, a loop once; that work comes in halves by the
// owner's last bit, so that two threads can group a run.
enum class RunSide : std::uint8_t { BySrc, ByDst, BothEven, BothOdd };

class GroupedRun {
 public:
  struct OwnerGroup {
    VertexId owner;
    std::int64_t begin;  // its first edge; its last one ends where the next group begins
  };
  void assign(const EdgeRun& run, RunSide side, VertexId slot_count, const PoolColumns& columns);
  std::size_t bytes() const;  // of memory kept
  const std::vector<OwnerGroup>& groups() const { return groups_; }
  EdgeSpan span(std::size_t group) const;

 private:
  void collect_both(const EdgeRun& run, VertexId last_bit);
  void sort(VertexId slot_count);

  std::vector<OwnerGroup> groups_;
  std::vector<std::uint64_t> keys_, spare_;  // owner << 32 | place, the place counting both ends where both have a list
  std::vector<std::uint32_t> counts_;
  std::vector<VertexId> neighbours_;
  std::vector<EdgeId> ids_;
  std::vector<float> weights_;  // this one and the next two are empty where the graph has no such column
  std::vector<EdgeTime> times_;
  std::vector<std::int32_t> types_;
};

}  // namespace livegnn
