// Arrays that end where the next page may not be touched: who reads or writes further ends the test.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <vector>

#include "check.h"

namespace livegnn::testing {

template <typename T>
struct LastOfMemory {
  using value_type = T;
  static std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }
  static std::size_t bytes(std::size_t count) { return (count * sizeof(T) + page() - 1) / page() * page(); }
  T* allocate(std::size_t count) {
    void* const begin =
        mmap(nullptr, bytes(count) + page(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(begin != MAP_FAILED);
    char* const end = static_cast<char*>(begin) + bytes(count);
    CHECK(mprotect(end, page(), PROT_NONE) == 0);
    return reinterpret_cast<T*>(end) - count;
  }
  void deallocate(T* first, std::size_t count) {
    munmap(reinterpret_cast<char*>(first + count) - bytes(count), bytes(count) + page());
  }
  bool operator==(const LastOfMemory&) const = default;
};

// Exact where it is made of a known size and does not grow.
template <typename T>
using LastColumn = std::vector<T, LastOfMemory<T>>;

}  // namespace livegnn::testing
