// Row tables: n rows of a fixed stride, 64-byte aligned, huge pages where the table is large, zero-filled growth.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "livegnn/detail/prefetch.h"
#include "util/pager.h"

namespace livegnn {

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

constexpr int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }

// Zero-filled memory. Large blocks come from the kernel already zeroed and are touched only when used.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t bytes) { allocate(bytes); }
  AlignedBytes(AlignedBytes&& other) noexcept { swap(other); }
  AlignedBytes& operator=(AlignedBytes&& other) noexcept {
    swap(other);
    return *this;
  }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  ~AlignedBytes() { release(); }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void allocate(std::size_t bytes) {
    if (bytes == 0) return;
    if (bytes >= 2 * kHugePage) {
      bytes_ = (bytes + kHugePage - 1) / kHugePage * kHugePage;
      mapped_bytes_ = bytes_ + kHugePage;  // so that a 2 MiB boundary lies inside
      mapped_ =
          mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped_ == MAP_FAILED) {
        mapped_ = nullptr;
        throw std::bad_alloc();
      }
      auto address = (reinterpret_cast<std::uintptr_t>(mapped_) + kHugePage - 1) / kHugePage * kHugePage;
      data_ = reinterpret_cast<void*>(address);
#ifdef MADV_HUGEPAGE
      madvise(data_, bytes_, MADV_HUGEPAGE);
#endif
      return;
    }
    bytes_ = (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
    data_ = std::aligned_alloc(kCacheLine, bytes_);
    if (data_ == nullptr) throw std::bad_alloc();
    std::memset(data_, 0, bytes_);
  }
  void release() {
    if (mapped_ != nullptr) {
      munmap(mapped_, mapped_bytes_);
    } else {
      std::free(data_);
    }
    data_ = mapped_ = nullptr;
    bytes_ = mapped_bytes_ = 0;
  }
  void swap(AlignedBytes& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  void* mapped_ = nullptr;  // set only for blocks that came from mmap
  std::size_t mapped_bytes_ = 0;
};

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
    AlignedBytes next(static_cast<std::size_t>(grown) * row_bytes());
    if (capacity_ > 0) std::memcpy(next.data(), memory_.data(), static_cast<std::size_t>(capacity_) * row_bytes());
    memory_ = std::move(next);
    capacity_ = grown;
  }
  void fetch(std::int64_t first, std::int64_t last) const {  // asks for rows of a pass, where they are not in memory
    if (paged_ != nullptr && first < last) paged_->fetch(first, last);
  }
  void clear() {  // no rows, no memory
    memory_ = AlignedBytes();
    paged_ = nullptr;
    capacity_ = 0;
  }

 private:
  T* at(std::int64_t index) const {
    if (paged_ != nullptr) [[unlikely]]
      return reinterpret_cast<T*>(paged_->row(index));
    return static_cast<T*>(memory_.data()) + index * stride_;
  }

  int stride_ = 0;
  std::int64_t capacity_ = 0;
  AlignedBytes memory_;
  std::unique_ptr<PagedRows> paged_;  // where there is a pager, and rows
  Pager* pager_ = nullptr;
  Rows rows_ = Rows::ByPlace;
};

// Scratch that only ever grows; contents are not kept when it does.
template <typename T>
class Scratch {
 public:
  T* need(std::size_t count) {
    if (count > capacity_) {
      capacity_ = count + count / 2 + 64;
      memory_ = AlignedBytes(capacity_ * sizeof(T));
    }
    return data();
  }
  T* data() { return static_cast<T*>(memory_.data()); }
  const T* data() const { return static_cast<const T*>(memory_.data()); }

 private:
  std::size_t capacity_ = 0;
  AlignedBytes memory_;
};

inline void prefetch_row(const void* row, std::size_t bytes) {
  const char* p = static_cast<const char*>(row);
  for (std::size_t offset = 0; offset < bytes; offset += kCacheLine) prefetch_line(p + offset);
}

}  // namespace livegnn
