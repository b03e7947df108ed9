// Vertices given to parts one after the other, as a stream brings them: the loops of livegnn.distributed.partition.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "livegnn/types.h"

namespace livegnn {

// The neighbours of each vertex over edges of both directions, each neighbour once, in the order in which edges bring
// them; without self-loops. counts: how many edges join the two.
struct UndirectedLists {
  std::vector<std::int64_t> starts;  // one more than vertices
  std::vector<std::int32_t> neighbours;
  std::vector<std::int32_t> counts;
};

// Vertices are 0 .. vertices - 1. Throws Error(VertexUnknown) for another end.
UndirectedLists undirected_lists(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                                 std::int32_t vertices);

inline constexpr std::uint16_t kNoPart = 0xFFFF;

enum class StreamRule : std::uint8_t { Ldg, Fennel };

struct StreamOptions {
  StreamRule rule = StreamRule::Ldg;
  double slack = 0.0;           // a part holds at most (1 + slack) times the mean, rounded up
  double edges_per_load = 0.0;  // Fennel: edges, each counted once, for each 1 of load
  std::int64_t expected = 0;    // the load of all parts in the end; that so far where it is more
};

// What is placed and where. A list may end before `parts` does: vertices at the end are neighbours alone.
struct Stream {
  std::span<const std::int64_t> starts;
  std::span<const std::int32_t> neighbours;
  std::span<const std::int32_t> counts;
  std::span<const std::int32_t> order;    // vertices to place, one after the other
  std::span<const std::int64_t> weights;  // what each adds to the load of its part; empty: 1
};

// Places the vertices of the order. parts: of each vertex, kNoPart before it is placed; one that has a part leaves it
// first. loads: of each part, followed. A function of its arguments alone, on every machine: no sum of floats, no
// function of theirs that is not rounded exactly.
void place_vertices(const StreamOptions& options, const Stream& stream, std::span<std::uint16_t> parts,
                    std::span<std::int64_t> loads);

}  // namespace livegnn
