// Rows of past versions, for the snapshots that are open on them.
//
// A moment is the number of publications so far. Snapshots of one moment share a group, which keeps the old row of
// every vertex whose row was published anew between its moment and the next group's, and likewise who was live. A row
// at a moment is thus in the first group from that moment's on that keeps one; if none does, it is the row published
// now. A publication adds to the latest group alone, and only rows that it does not keep yet: at most one row a vertex
// and group. A group that closes leaves the one before it what that does not keep, and gives the rest back.
//
// No locks here: Publication has them.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "inference/row_places.h"
#include "inference/vertex_lists.h"

namespace livegnn {

class Snapshots {
 public:
  struct MomentRows {
    std::int64_t moment, version;
    VertexId slots;
    std::int64_t vertex_count;
    int holders = 0;
    RowPlaces rows;  // into blocks
    std::unordered_map<VertexId, bool> live;
    std::vector<std::unique_ptr<float[]>> blocks;  // of block_rows_ rows each, the last one perhaps not full
    std::int64_t row_count = 0;
  };

  explicit Snapshots(int width);

  // ---- writer
  bool none() const { return groups_.empty(); }
  const MomentRows& open(std::int64_t moment, std::int64_t version, VertexId slots, std::int64_t vertex_count);
  // What nothing reads any more, to be destroyed by the caller without a lock; null where others hold the group.
  std::unique_ptr<MomentRows> close(std::int64_t moment);
  void keep(VertexId v, const float* row) { keep(*groups_.back(), v, row); }  // before another row is published
  void keep_live(VertexId v, bool live) { groups_.back()->live.try_emplace(v, live); }

  // ---- readers
  std::size_t place(std::int64_t moment) const;  // of the group; throws Error where it was closed
  const MomentRows& group(std::size_t place) const { return *groups_[place]; }
  const float* row(std::size_t place, VertexId v) const;  // null: as published now
  bool live(std::size_t place, VertexId v, bool live_now) const;

  std::size_t bytes() const;

 private:
  void keep(MomentRows& group, VertexId v, const float* row);

  int width_;
  std::int64_t block_rows_;
  std::vector<std::unique_ptr<MomentRows>> groups_;  // by moment, ascending
};

}  // namespace livegnn
