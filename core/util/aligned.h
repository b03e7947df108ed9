// Row tables: n rows of a fixed stride, in a column or in pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "livegnn/detail/graph_memory.h"
#include "livegnn/detail/prefetch.h"
#include "util/pager.h"

namespace livegnn {

inline constexpr std::size_t kCacheLine = 64;

constexpr int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

enum class Rows : int { ByVertex, KeptByVertex, ByPlace };  // what the index of a row means; Kept: hub rows are pinned

// n rows of `stride` elements, in memory or, with a pager, in a file. Rows past size() are always zero, so growing
// needs no initialisation.
template <typename T>
class RowTable {
 public:
  RowTable() = default;
  explicit RowTable(int stride, Pager* pager = nullptr, Rows rows = Rows::ByPlace)
      : stride_(stride), pager_(pager), rows_(rows) {}

  int stride() const { return stride_; }
  std::int64_t capacity() const { return capacity_; }
  std::size_t bytes() const { return static_cast<std::size_t>(capacity_) * row_bytes(); }
  std::size_t row_bytes() const { return static_cast<std::size_t>(stride_) * sizeof(T); }
  T* row(std::int64_t index) { return at(index); }
  const T* row(std::int64_t index) const { return at(index); }

  void reserve(std::int64_t rows) {
    if (rows <= capacity_) return;
    const std::int64_t grown = capacity_ == 0 ? rows : std::max(rows, capacity_ + capacity_ / 2 + 16);
    if (pager_ != nullptr) {
      if (paged_ == nullptr)
        paged_ = std::make_unique<PagedRows>(*pager_, row_bytes(), rows_ != Rows::ByPlace, rows_ == Rows::KeptByVertex);
      paged_->reserve(grown);
      capacity_ = grown;
      return;
    }
    memory_.reserve(grown * stride_);
    capacity_ = grown;
  }
  void fetch(std::int64_t first, std::int64_t last) const {  // asks for rows of a pass, where they are not in memory
    if (paged_ != nullptr && first < last) paged_->fetch(first, last);
  }
  void clear() {  // no rows, no memory
    memory_ = Column<T>();
    paged_ = nullptr;
    capacity_ = 0;
  }

 private:
  T* at(std::int64_t index) const {
    if (paged_ != nullptr) [[unlikely]]
      return reinterpret_cast<T*>(paged_->row(index));
    return const_cast<T*>(memory_.data()) + index * stride_;
  }

  int stride_ = 0;
  std::int64_t capacity_ = 0;
  Column<T> memory_;
  std::unique_ptr<PagedRows> paged_;  // where there is a pager, and rows
  Pager* pager_ = nullptr;
  Rows rows_ = Rows::ByPlace;
};

// Scratch that only ever grows; contents are not kept when it does.
template <typename T>
class Scratch {
 public:
  T* need(std::size_t count) {
    if (static_cast<std::int64_t>(count) > memory_.capacity()) {
      memory_ = Column<T>();
      memory_.reserve(static_cast<std::int64_t>(count + count / 2 + 64));
    }
    return data();
  }
  // The first `used` of them are kept.
  T* keep(std::size_t used, std::size_t count) {
    if (static_cast<std::int64_t>(count) > memory_.capacity()) {
      Column<T> larger;
      larger.reserve(static_cast<std::int64_t>(count + count / 2 + 64));
      std::copy_n(memory_.data(), used, larger.data());
      memory_ = std::move(larger);
    }
    return data();
  }
  T* data() { return memory_.data(); }
  const T* data() const { return memory_.data(); }

 private:
  Column<T> memory_;
};

inline void prefetch_row(const void* row, std::size_t bytes) {
  const char* p = static_cast<const char*>(row);
  for (std::size_t offset = 0; offset < bytes; offset += kCacheLine) prefetch_line(p + offset);
}

}  // namespace livegnn
