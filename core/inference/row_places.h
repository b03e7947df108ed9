// Where the kept row of a vertex lies. Open addressing, at most half full; nothing is removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "inference/vertex_lists.h"
#include "util/hash.h"

namespace livegnn {

class RowPlaces {
 public:
  // Null where none is kept.
  const float* find(VertexId v) const { return entries_.empty() ? nullptr : entries_[place(v)].second; }

  // v has none yet.
  void add(VertexId v, const float* row) {
    if (2 * (size_ + 1) > entries_.size()) grow();
    entries_[place(v)] = {v, row};
    ++size_;
  }

  template <class Visit>
  void each(Visit visit) const {
    for (const auto& [v, row] : entries_) {
      if (row != nullptr) visit(v, row);
    }
  }

  std::size_t bytes() const { return entries_.size() * sizeof(Entry); }

 private:
  using Entry = std::pair<VertexId, const float*>;

  // Of v, or where it would go.
  std::size_t place(VertexId v) const {
    const std::size_t mask = entries_.size() - 1;
    std::size_t i = mix(static_cast<std::uint64_t>(v)) & mask;
    while (entries_[i].second != nullptr && entries_[i].first != v) i = (i + 1) & mask;
    return i;
  }

  void grow() {
    std::vector<Entry> old(entries_.empty() ? 64 : 2 * entries_.size());
    old.swap(entries_);
    for (const auto& entry : old) {
      if (entry.second != nullptr) entries_[place(entry.first)] = entry;
    }
  }

  std::vector<Entry> entries_;  // a power of two of them, or none
  std::size_t size_ = 0;
};

}  // namespace livegnn
