// A run of added edges as columns, and the same edges by the list that each joins.
//
// Grouping is a stable radix sort by owner: inside a group edges keep their order, so ids rise, and a list's end is
// looked for once per group instead of once per edge.
#pragma once

#include <cstdint>
#include <vector>

#include "livegnn/detail/graph_blocks.h"
#include "livegnn/types.h"

namespace livegnn {

struct EdgeRun {  // one value an edge in every column; columns that the graph lacks are empty
  std::vector<VertexId> src, dst;
  std::vector<EdgeId> ids;
  std::vector<float> weights;
  std::vector<EdgeTime> times;
  std::vector<std::int32_t> types;

  std::size_t size() const { return ids.size(); }
  std::size_t bytes() const;  // of memory kept
  void clear();
  void reserve(std::size_t count, const PoolColumns& columns);
  void add(VertexId u, const EdgeEntry& entry, const PoolColumns& columns);  // entry.neighbour is dst
  EdgeEntry entry(std::size_t i) const;                                      // as added
};

// Which end's lists. Both: an edge is in the lists of both its ends, a loop once; that work comes in halves by the
// owner's last bit, so that two threads can group a run.
enum class RunSide : std::uint8_t { BySrc, ByDst, BothEven, BothOdd };

class GroupedRun {
 public:
  struct Group {
    VertexId owner;
    std::int64_t begin;  // its first edge; its last one ends where the next group begins
  };
  void assign(const EdgeRun& run, RunSide side, VertexId slot_count);
  void clear() { groups_.clear(); }
  std::size_t bytes() const;  // of memory kept
  const std::vector<Group>& groups() const { return groups_; }
  std::int64_t end_of(std::size_t group) const {
    return group + 1 < groups_.size() ? groups_[group + 1].begin : static_cast<std::int64_t>(ids_.size());
  }
  EdgeSpan span(std::int64_t first, std::int64_t last) const;

 private:
  void collect_both(const EdgeRun& run, VertexId last_bit);
  void sort(VertexId slot_count);

  std::vector<Group> groups_;
  std::vector<std::uint64_t> keys_, spare_;  // owner << 32 | place, the place counting both ends where both have a list
  std::vector<std::uint32_t> counts_;
  std::vector<VertexId> neighbours_;
  std::vector<EdgeId> ids_;
  std::vector<float> weights_;
  std::vector<EdgeTime> times_;
  std::vector<std::int32_t> types_;
};

}  // namespace livegnn
