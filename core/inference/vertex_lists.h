// Lists of vertices, and vectors that have a place for each vertex.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

}  // namespace livegnn
