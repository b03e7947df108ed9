// Lists of vertices, and vectors that have a place for each vertex.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "livegnn/types.h"

namespace livegnn {

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Places for so many slots, and when they grow for some that come later.
template <typename T>
void reserve_places(std::vector<T>& places, std::int64_t slots) {
  if (places.size() < at(slots)) places.resize(at(places.empty() ? slots : slots + slots / 2 + 16));
}

inline void sort_unique(std::vector<VertexId>& vertices) {
  if (!std::is_sorted(vertices.begin(), vertices.end())) std::sort(vertices.begin(), vertices.end());
  vertices.erase(std::unique(vertices.begin(), vertices.end()), vertices.end());
}

// The same of vertices below `slots`: by a bit for each slot, but where they are so few that sorting is cheaper.
inline void sort_unique(std::vector<VertexId>& vertices, std::int64_t slots) {
  constexpr std::int64_t kBits = 64, kSlotsPerSorted = 1024;
  if (std::adjacent_find(vertices.begin(), vertices.end(), std::greater_equal<>()) == vertices.end()) return;
  if (static_cast<std::int64_t>(vertices.size()) < slots / kSlotsPerSorted) return sort_unique(vertices);
  std::vector<std::uint64_t> marks(at(slots / kBits + 1), 0);
  for (const VertexId v : vertices) marks[at(v / kBits)] |= std::uint64_t{1} << (v % kBits);
  vertices.clear();
  for (std::size_t word = 0; word < marks.size(); ++word) {
    for (std::uint64_t left = marks[word]; left != 0; left &= left - 1) {
      vertices.push_back(static_cast<VertexId>(word * at(kBits)) + static_cast<VertexId>(std::countr_zero(left)));
    }
  }
}

}  // namespace livegnn
