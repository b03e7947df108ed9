// Which vertices may hold edges older than a given time, for removals by time that cost what they remove.
//
// Per vertex a lower bound on the times of its out-edges (of one type, or of all), and a heap of these bounds. A new
// edge lowers the bound of its source; a removal leaves it, so a bound may be too early and never too late. An entry of
// the heap that differs from its vertex's bound is stale and is dropped when it comes up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "livegnn/types.h"

namespace livegnn {

class OldestEdges {
 public:
  using Due = std::pair<EdgeTime, VertexId>;  // the bound first: so entries compare
  static constexpr EdgeTime kNever = INT64_MAX;

  explicit OldestEdges(std::int32_t type) : type_(type) {}

  std::int32_t type() const { return type_; }
  EdgeTime bound(VertexId u) const {
    return static_cast<std::size_t>(u) < bounds_.size() ? bounds_[static_cast<std::size_t>(u)] : kNever;
  }
  std::size_t bytes() const { return bounds_.capacity() * sizeof(EdgeTime) + heap_.capacity() * sizeof(Due); }

  // u has an out-edge of the type with this time.
  void note(VertexId u, EdgeTime time) {
    const auto place = static_cast<std::size_t>(u);
    if (place >= bounds_.size()) bounds_.resize(std::max(place + 1, bounds_.size() + bounds_.size() / 4), kNever);
    if (time >= bounds_[place]) return;
    heap_.emplace_back(time, u);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    bounded_ += bounds_[place] == kNever;
    bounds_[place] = time;
    if (heap_.size() > 2 * bounded_ + 64) drop_stale();
  }

  // The earliest bound of a vertex, where it is earlier than `before`.
  std::optional<Due> next(EdgeTime before) {
    while (!heap_.empty() && heap_.front().first < before) {
      const Due due = heap_.front();
      if (bound(due.second) == due.first) return due;
      pop();
    }
    return std::nullopt;
  }

  // After next(): the bound of that vertex becomes a later one.
  void settle(const Due& due, EdgeTime later) {
    pop();
    bounds_[static_cast<std::size_t>(due.second)] = kNever;
    --bounded_;
    if (later != kNever) note(due.second, later);
  }

 private:
  void pop() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
  }
  void drop_stale() {
    heap_.clear();
    for (std::size_t u = 0; u < bounds_.size(); ++u) {
      if (bounds_[u] != kNever) heap_.emplace_back(bounds_[u], static_cast<VertexId>(u));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  std::int32_t type_;
  std::vector<EdgeTime> bounds_;  // by vertex; vertices beyond the end have no edge
  std::vector<Due> heap_;
  std::size_t bounded_ = 0;  // vertices that have a bound
};

}  // namespace livegnn
