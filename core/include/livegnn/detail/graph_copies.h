// Copies of whole columns: noted first, then made together by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "livegnn/detail/graph_memory.h"

namespace livegnn {

class CopyPlan {
 public:
  enum class Room { Exact, ToGrow };
  explicit CopyPlan(Room room) : room_(room) {}

  // The first `count` values of a column. `to` gets room for them, and keeps room that it has.
  template <typename T>
  void add(Column<T>& to, const Column<T>& from, std::int64_t count) {
    if (count == 0) return;
    to.reserve(room_ == Room::Exact ? count : count + count / 16);
    parts_.push_back({reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from.data()),
                      static_cast<std::size_t>(count) * sizeof(T)});
  }
  // Has the system give the memory of all copies, which may take longer than copying.
  void touch(int threads) const;
  void run(int threads) const;  // makes the copies

 private:
  struct Part {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
  };
  std::vector<Part> pieces() const;

  Room room_;
  std::vector<Part> parts_;
};

}  // namespace livegnn
