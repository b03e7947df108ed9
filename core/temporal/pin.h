// What has changed in one vertex's in-list since a pin: the keys of what is newer, and what has gone, in order.
#pragma once

#include <algorithm>
#include <vector>

#include "livegnn/temporal.h"

namespace livegnn {

struct TemporalPin::Changes {
  struct Removed {
    EdgeEntry entry;
    EdgeKey key() const { return {entry.time, entry.id}; }
  };
  std::vector<EdgeKey> added;
  std::vector<Removed> removed;

  // The first removed edge that came after `time`.
  std::vector<Removed>::const_iterator removed_until(EdgeTime time) const {
    return std::upper_bound(removed.begin(), removed.end(), time,
                            [](EdgeTime wanted, const Removed& edge) { return wanted < edge.entry.time; });
  }
  bool any_between(EdgeTime first, EdgeTime last) const {
    const auto from = std::lower_bound(added.begin(), added.end(), EdgeKey{first, INT64_MIN});
    if (from != added.end() && from->major <= last) return true;
    const auto gone = std::lower_bound(removed.begin(), removed.end(), first,
                                       [](const Removed& edge, EdgeTime wanted) { return edge.entry.time < wanted; });
    return gone != removed.end() && gone->entry.time <= last;
  }
};

}  // namespace livegnn
