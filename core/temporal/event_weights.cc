// The weight of an event's edge: a binary search in its destination's in-list, or what a pin has kept of it.
#include <optional>
#include <string>

#include "livegnn/temporal.h"
#include "temporal/pin.h"

namespace livegnn {

void read_event_weights(const GraphStore& graph, std::span<const std::int64_t> dst, std::span<const std::int64_t> time,
                        std::span<const std::int64_t> ids, const TemporalPin* pin, float* out) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto v = static_cast<VertexId>(dst[i]);
    const EdgeKey key{graph.options().has_time ? time[i] : 0, ids[i]};
    const EdgeEntry* gone = pin == nullptr ? nullptr : pin->removed(key, v);
    const std::optional<EdgeEntry> found = gone != nullptr ? std::optional(*gone) : graph.in_lists().find(v, key);
    if (!found) {
      throw Error(graph.has_offloaded() ? ErrorKind::EdgeOffloaded : ErrorKind::EdgeMissing,
                  {.where = "weights",
                   .expected = "edges in memory",
                   .got = "edge " + std::to_string(ids[i]) + ", which was removed or lies in a file",
                   .advice = "reload the graph, or leave it out"});
    }
    out[i] = pin == nullptr ? found->weight : pin->weight(ids[i], found->weight);
  }
}

}  // namespace livegnn
