// What has changed in one vertex's in-list since a pin: the keys of what is newer, and what has gone, in order.
#pragma once

#include <algorithm>
#include <vector>

#include "livegnn/temporal.h"

namespace livegnn {

inline EdgeKey key_of(const EdgeEntry& edge) { return {edge.time, edge.id}; }

struct TemporalPin::Changes {
  std::vector<EdgeKey> added;
  std::vector<EdgeEntry> removed;

  // The first removed edge from `from` on whose key is not below `key`.
  std::size_t removed_below(const EdgeKey& key, std::size_t from) const {
    const auto below = [](const EdgeEntry& edge, const EdgeKey& wanted) { return key_of(edge) < wanted; };
    const auto begin = removed.begin() + static_cast<std::ptrdiff_t>(from);
    return static_cast<std::size_t>(std::lower_bound(begin, removed.end(), key, below) - removed.begin());
  }
  bool any_between(EdgeTime first, EdgeTime last) const {
    const auto from = std::lower_bound(added.begin(), added.end(), EdgeKey{first, INT64_MIN});
    if (from != added.end() && from->major <= last) return true;
    const std::size_t gone = removed_below({first, INT64_MIN}, 0);
    return gone < removed.size() && removed[gone].time <= last;
  }
};

}  // namespace livegnn
