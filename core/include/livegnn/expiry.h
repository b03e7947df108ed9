// Edges that expire: where in a batch they leave, written out as updates.
//
// now = the largest time of any edge that the history has added. Before each addition the clock moves to its time if
// that is later; each edge with time <= now - ttl then leaves, and so does an added edge that is that old itself. The
// removals are updates (RemoveEdgesBefore) that stand where they can first be noticed: before an update that looks for
// an edge, and at the end of the batch. So the graph after a batch, and each refusal in it, are those of its updates
// applied one by one; and who reads the batch, a log or a worker with a part of the graph, needs no clock.
#pragma once

#include <cstdint>
#include <span>

#include "livegnn/graph.h"

namespace livegnn {

inline constexpr std::int64_t kTtlMax = std::int64_t{1} << 62;

struct Lifetime {
  std::int32_t type = kUnsetType;  // of the edges that live so long; kUnsetType: all
  std::int64_t ttl = 0;            // 1 to kTtlMax, in the unit of the times
};

// The first time that has not expired at `now`; at most kUnsetTime + 1, which no time is below, where all are alive.
EdgeTime first_alive(EdgeTime now, std::int64_t ttl);

// The batch with the removals in it, and `now` after it. simple: additions look for an edge, too.
struct ExplicitBatch {
  UpdateBuffer buffer;
  EdgeTime now;
};
ExplicitBatch with_expiry(const UpdateBuffer& batch, std::span<const Lifetime> lifetimes, EdgeTime now, bool simple);

}  // namespace livegnn
