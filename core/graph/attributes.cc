// Edge attributes by id.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "livegnn/detail/graph_attributes.h"
#include "livegnn/error.h"

namespace livegnn {

void EdgeIdMap::rehash(std::size_t cells) {
  Column<IdCell> old;
  old.reserve(static_cast<std::int64_t>(cells));
  std::fill_n(old.data(), cells, IdCell{kNoEdge, kNone});
  old.swap(cells_);
  const std::size_t old_size = std::exchange(size_, cells);
  mask_ = cells - 1;
  shift_ = 64 - std::countr_zero(cells);
  count_ = 0;
  for (std::size_t at = 0; at < old_size; ++at) {
    if (old[at].id != kNoEdge) insert(old[at].id, old[at].value);
  }
}

void EdgeIdMap::reserve(std::int64_t count) {
  const auto cells = std::bit_ceil(static_cast<std::size_t>(count) * 8 / 5 + 16);
  if (cells > size_) rehash(cells);
}

void EdgeIdMap::insert(EdgeId id, std::int64_t value) {
  if (static_cast<std::size_t>(count_ + 1) * 8 > size_ * 5) rehash(size_ == 0 ? 16 : size_ * 2);
  std::size_t at = home(id);
  while (cells_[at].id != kNoEdge) at = (at + 1) & mask_;
  cells_[at] = {id, value};
  ++count_;
}

std::int64_t EdgeIdMap::erase(EdgeId id) {
  const IdCell* cell = cell_of(id);
  if (cell == nullptr) return kNone;
  const std::int64_t value = cell->value;
  auto hole = static_cast<std::size_t>(cell - cells_.data());
  for (std::size_t at = (hole + 1) & mask_; cells_[at].id != kNoEdge; at = (at + 1) & mask_) {
    // A cell may move into the hole if the hole lies between its home and where it is.
    if (((at - home(cells_[at].id)) & mask_) < ((at - hole) & mask_)) continue;
    cells_[hole] = cells_[at];
    hole = at;
  }
  cells_[hole].id = kNoEdge;
  --count_;
  return value;
}

void EdgeIdMap::copy_from(const EdgeIdMap& other, CopyPlan& plan) {
  plan.add(cells_, other.cells_, static_cast<std::int64_t>(other.size_));
  size_ = other.size_;
  mask_ = other.mask_;
  shift_ = other.shift_;
  count_ = other.count_;
}

void AttributeTable::copy_from(const AttributeTable& other, CopyPlan& plan) {
  rows_of_.copy_from(other.rows_of_, plan);
  plan.add(rows_, other.rows_, other.row_count_ * width_);
  row_count_ = other.row_count_;
}

void AttributeTable::reserve(std::int64_t count) {
  rows_of_.reserve(count);
  rows_.reserve(count * width_);
}

void AttributeTable::insert(EdgeId id, const float* row) {
  std::int64_t at = row_count_;
  if (rows_free_.empty()) {
    rows_.reserve((row_count_ + 1) * width_);
    ++row_count_;
  } else {
    at = rows_free_.back();
    rows_free_.pop_back();
  }
  std::memcpy(rows_.data() + at * width_, row, static_cast<std::size_t>(width_) * sizeof(float));
  rows_of_.insert(id, at);
}

void AttributeTable::erase(EdgeId id) {
  const std::int64_t row = rows_of_.erase(id);
  invariant(row != EdgeIdMap::kNone, "an edge has no attribute row");
  rows_free_.push_back(row);
}

std::size_t AttributeTable::bytes() const {
  return rows_of_.bytes() + static_cast<std::size_t>(row_count_ * width_) * sizeof(float) +
         rows_free_.capacity() * sizeof(std::int64_t);
}

bool AttributeTable::wants_compaction() const {
  return static_cast<std::int64_t>(rows_free_.size()) > rows_of_.count() + (std::int64_t{1} << 16);
}

void AttributeTable::compact() {
  AttributeTable packed(width_);
  packed.reserve(rows_of_.count());
  rows_of_.visit([&](EdgeId id, std::int64_t row) { packed.insert(id, rows_.data() + row * width_); });
  std::swap(*this, packed);
}

}  // namespace livegnn
