// Sets of vertices, with O(1) clearing: a vertex is in the set when its mark carries the set's epoch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "inference/vertex_lists.h"

namespace livegnn {

// Threads may add at the same time as long as no two of them add the same vertex.
class VertexSet {
 public:
  void prepare(std::int64_t slots, int threads) {  // and the set is empty
    if (++epoch_ == 0) {                           // marks of old epochs would count again
      std::fill(marks_.begin(), marks_.end(), 0);
      epoch_ = 1;
    }
    reserve_places(marks_, slots);
    lists_.resize(at(threads));
    for (auto& list : lists_) list.clear();
  }
  bool contains(VertexId v) const { return marks_[at(v)] == epoch_; }
  bool add(VertexId v, int thread = 0) {  // whether v is new in the set
    std::uint32_t& mark = marks_[at(v)];
    if (mark == epoch_) return false;
    mark = epoch_;
    lists_[at(thread)].push_back(v);
    return true;
  }
  // All members so far, which stay in the set but leave its lists; relist puts one back.
  std::vector<VertexId> unlist() {
    collect();
    return std::exchange(lists_[0], {});
  }
  void relist(VertexId v, int thread) { lists_[at(thread)].push_back(v); }
  const std::vector<VertexId>& list(int thread) const { return lists_[at(thread)]; }
  std::int64_t size() const {
    std::size_t size = 0;
    for (const auto& list : lists_) size += list.size();
    return static_cast<std::int64_t>(size);
  }
  const void* mark_address(VertexId v) const { return &marks_[at(v)]; }
  const std::vector<VertexId>& collect() {  // all members in one list; the order has no meaning
    for (std::size_t t = 1; t < lists_.size(); ++t) {
      lists_[0].insert(lists_[0].end(), lists_[t].begin(), lists_[t].end());
      lists_[t].clear();
    }
    return lists_[0];
  }
  // Only members that `wanted` names stay, in the lists and in the set.
  template <typename Wanted>
  void keep(Wanted&& wanted) {
    collect();
    std::erase_if(lists_[0], [&](VertexId v) {
      if (wanted(v)) return false;
      marks_[at(v)] = epoch_ - 1;
      return true;
    });
  }
  // collect(), members of one type side by side.
  template <typename Type>
  const std::vector<VertexId>& collect_by(Type&& type) {
    collect();
    std::stable_sort(lists_[0].begin(), lists_[0].end(), [&](VertexId a, VertexId b) { return type(a) < type(b); });
    return lists_[0];
  }
  std::size_t bytes() const { return marks_.capacity() * sizeof(std::uint32_t); }

 private:
  std::vector<std::uint32_t> marks_;
  std::vector<std::vector<VertexId>> lists_ = std::vector<std::vector<VertexId>>(1);  // one per thread
  std::uint32_t epoch_ = 0;
};

}  // namespace livegnn
