// One growable column: plain values in one contiguous run, 64-byte aligned, zeros where nothing was written; large
// columns lie on 2 MiB boundaries and ask for huge pages, and grow by moving pages instead of bytes where the system
// can (Linux).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace livegnn {

namespace graph_memory {
struct Region {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool mapped = false;   // from mmap, not from the heap
  bool in_file = false;  // a mapped file without a name, of which the system keeps in memory what is read
};
// While one is there, regions that grow in this thread lie in files of its folder, unless they are small. An inner one
// without a folder takes that back.
class InFiles {
 public:
  InFiles(std::string where, std::string folder);  // where: of the call, for errors
  ~InFiles();
  InFiles(const InFiles&) = delete;
  InFiles& operator=(const InFiles&) = delete;
  const std::string& where() const { return where_; }
  const std::string& folder() const { return folder_; }

 private:
  std::string where_, folder_;
  const InFiles* outer_;
};
// Grows region to at least `bytes`, keeping its content. New bytes are zeros. Throws std::bad_alloc, or
// SpillUnavailable inside InFiles; then unchanged.
void grow(Region& region, std::size_t bytes);
void release(Region& region) noexcept;
}  // namespace graph_memory

template <typename T>
class Column {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Column() = default;
  ~Column() { graph_memory::release(region_); }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;
  Column(Column&& other) noexcept { swap(other); }
  Column& operator=(Column&& other) noexcept {
    swap(other);
    return *this;
  }
  void swap(Column& other) noexcept { std::swap(region_, other.region_); }

  T* data() { return reinterpret_cast<T*>(region_.data); }
  const T* data() const { return reinterpret_cast<const T*>(region_.data); }
  T& operator[](std::int64_t i) { return data()[i]; }
  const T& operator[](std::int64_t i) const { return data()[i]; }
  std::int64_t capacity() const { return static_cast<std::int64_t>(region_.bytes / sizeof(T)); }
  std::size_t bytes() const { return region_.bytes; }

  // Room for `count` values at least; growth is by half of what is there, so that appending is O(1) amortised.
  void reserve(std::int64_t count) {
    if (count <= capacity()) return;
    const std::int64_t target = count > capacity() + capacity() / 2 ? count : capacity() + capacity() / 2;
    graph_memory::grow(region_, static_cast<std::size_t>(target) * sizeof(T));
  }

 private:
  graph_memory::Region region_;
};

}  // namespace livegnn
