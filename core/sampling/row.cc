#include "sampling/row.h"

#include <algorithm>

namespace livegnn {

RowPool::RowPool(std::int32_t capacity_max, RowColumns columns, std::int32_t words)
    : columns_(columns), words_(static_cast<std::size_t>(words)) {
  // 1, 2, 3, 4, 6, 8, 12, 16, 24, ... and capacity_max itself
  for (std::int32_t power = 1; power < capacity_max; power *= 2) {
    capacities_.push_back(power);
    if (power > 1 && power + power / 2 < capacity_max) capacities_.push_back(power + power / 2);
  }
  capacities_.push_back(capacity_max);
  class_of_.resize(static_cast<std::size_t>(capacity_max) + 1);
  for (std::size_t count = 0, at = 0; count < class_of_.size(); ++count) {
    if (static_cast<std::int32_t>(count) > capacities_[at]) ++at;
    class_of_[count] = static_cast<std::uint8_t>(at);
  }
  free_.resize(capacities_.size());
}

std::size_t RowPool::row_bytes(std::int32_t capacity) const {
  const auto c = static_cast<std::size_t>(capacity);
  return sizeof(Row) + (c + 1) / 2 * 2 * sizeof(VertexId) + c * 8 * static_cast<std::size_t>(columns_) +
         (c * words_ + 1) / 2 * 8;
}

char* RowPool::new_chunk(std::size_t bytes) {
  Column<std::byte>& chunk = chunks_.emplace_back();
  chunk.reserve(static_cast<std::int64_t>(bytes));
  chunk_total_ += bytes;
  return reinterpret_cast<char*>(chunk.data());
}

Row* RowPool::allocate(std::int32_t count) {
  const std::size_t kind = class_of_[static_cast<std::size_t>(count)];
  const std::int32_t capacity = capacities_[kind];
  const std::size_t bytes = row_bytes(capacity);
  Row* row = nullptr;
  if (!free_[kind].empty()) {
    row = free_[kind].back();
    free_[kind].pop_back();
  } else if (bytes > kChunkBytesMax / 4) {
    row = reinterpret_cast<Row*>(new_chunk(bytes));
  } else {
    if (bytes > chunk_left_) {
      const std::size_t size = std::clamp(chunk_total_, 4 * bytes, kChunkBytesMax);  // as much again as there is
      chunk_ = new_chunk(size);
      chunk_left_ = size;
    }
    row = reinterpret_cast<Row*>(chunk_);
    chunk_ += bytes;
    chunk_left_ -= bytes;
  }
  *row = {0, capacity, 1, 0, 0, 0, kNotNoted};
  live_bytes_ += bytes;
  return row;
}

void RowPool::free(Row* row) {
  live_bytes_ -= row_bytes(row->capacity);
  free_[class_of_[static_cast<std::size_t>(row->capacity)]].push_back(row);
}

}  // namespace livegnn
