// Rows of edge attributes by edge id: an open-addressed table from id to row. Removed rows are taken again.
#pragma once

#include <cstdint>
#include <vector>

#include "livegnn/detail/graph_copies.h"
#include "livegnn/detail/graph_memory.h"
#include "livegnn/detail/prefetch.h"
#include "livegnn/types.h"

namespace livegnn {

// Edge id, or any other id from 0 on, -> int64, linear probing, at most 5/8 full; removal shifts back, so there are no
// tombstones.
class EdgeIdMap {
 public:
  static constexpr std::int64_t kNone = -1;
  std::int64_t find(EdgeId id) const {
    const IdCell* cell = cell_of(id);
    return cell == nullptr ? kNone : cell->value;
  }
  // Where the value is, to change it, or nullptr; until the next insert or erase.
  const std::int64_t* place_of(EdgeId id) const {
    const IdCell* cell = cell_of(id);
    return cell == nullptr ? nullptr : &cell->value;
  }
  std::int64_t* place_of(EdgeId id) {
    return const_cast<std::int64_t*>(static_cast<const EdgeIdMap*>(this)->place_of(id));
  }
  void prefetch(EdgeId id) const {
    if (count_ > 0) prefetch_line(cells_.data() + home(id));
  }
  void reserve(std::int64_t count);
  void insert(EdgeId id, std::int64_t value);  // id is not there
  std::int64_t erase(EdgeId id);               // its value, or kNone
  std::int64_t count() const { return count_; }
  std::size_t bytes() const { return cells_.bytes(); }
  void copy_from(const EdgeIdMap& other, CopyPlan& plan);  // into an empty map
  template <typename Visitor>
  void visit(Visitor&& visitor) const {
    for (std::size_t at = 0; at < size_; ++at) {
      if (cells_[at].id != kNoEdge) visitor(cells_[at].id, cells_[at].value);
    }
  }

 private:
  struct IdCell {
    EdgeId id;
    std::int64_t value;
  };
  std::size_t home(EdgeId id) const {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(id) * 0x9E3779B97F4A7C15ull) >> shift_);
  }
  const IdCell* cell_of(EdgeId id) const {
    if (count_ == 0) return nullptr;
    for (std::size_t at = home(id);; at = (at + 1) & mask_) {
      if (cells_[at].id == id) return cells_.data() + at;
      if (cells_[at].id == kNoEdge) return nullptr;
    }
  }
  void rehash(std::size_t cells);

  Column<IdCell> cells_;
  std::size_t size_ = 0, mask_ = 0;  // of the table: cells, and one less
  int shift_ = 63;
  std::int64_t count_ = 0;
};

class AttributeTable {
 public:
  explicit AttributeTable(std::int32_t width = 0) : width_(width) {}
  const float* find(EdgeId id) const {
    const std::int64_t row = rows_of_.find(id);
    return row == EdgeIdMap::kNone ? nullptr : rows_.data() + row * width_;
  }
  void prefetch(EdgeId id) const { rows_of_.prefetch(id); }
  float* find(EdgeId id) { return const_cast<float*>(static_cast<const AttributeTable*>(this)->find(id)); }
  void reserve(std::int64_t count);
  void insert(EdgeId id, const float* row);  // id is not there
  void erase(EdgeId id);
  std::int64_t count() const { return rows_of_.count(); }
  const EdgeIdMap& index() const { return rows_of_; }
  std::size_t bytes() const;
  void copy_from(const AttributeTable& other, CopyPlan& plan);  // of the same width, into an empty table, to be read
  bool wants_compaction() const;
  void compact();

 private:
  std::int32_t width_ = 0;
  EdgeIdMap rows_of_;
  Column<float> rows_;
  std::int64_t row_count_ = 0;
  std::vector<std::int64_t> rows_free_;
};

}  // namespace livegnn
