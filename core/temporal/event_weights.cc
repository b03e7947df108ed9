// The weight of an event's edge: a binary search in its destination's in-list, or what a pin has kept of it.
#include <optional>
#include <string>

#include "livegnn/temporal.h"
#include "temporal/pin.h"

namespace livegnn {

namespace {
std::optional<float> weight_of(const GraphStore& graph, VertexId v, const EdgeKey& key) {
  const Adjacency& lists = graph.in_lists();
  const Adjacency::View list = lists.view(v);
  std::int64_t place = list.place;
  if (list.chain == nullptr) {
    const std::int32_t at = lists.pool().lower_bound(list.place, list.count, key);
    if (at == list.count) return std::nullopt;
    place += at;
  } else {
    const BlockChain::Cursor at = list.chain->lower_bound(lists.pool(), key);
    if (list.chain->at_end(at)) return std::nullopt;
    place = list.chain->place(at);
  }
  if (!(lists.pool().key(place) == key)) return std::nullopt;
  return lists.pool().read(place).weight;
}
}  // namespace

void read_event_weights(const GraphStore& graph, std::span<const std::int64_t> dst, std::span<const std::int64_t> time,
                        std::span<const std::int64_t> ids, const TemporalPin* pin, float* out) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto v = static_cast<VertexId>(dst[i]);
    const EdgeKey key{graph.options().has_time ? time[i] : 0, ids[i]};
    const EdgeEntry* gone = pin == nullptr ? nullptr : pin->removed(key, v);
    const std::optional<float> found = gone != nullptr ? std::optional(gone->weight) : weight_of(graph, v, key);
    if (!found) {
      throw Error(graph.has_offloaded() ? ErrorKind::EdgeOffloaded : ErrorKind::EdgeMissing,
                  {.where = "weights",
                   .expected = "edges in memory",
                   .got = "edge " + std::to_string(ids[i]) + ", which was removed or lies in a file",
                   .advice = "reload the graph, or leave it out"});
    }
    out[i] = pin == nullptr ? *found : pin->weight(ids[i], *found);
  }
}

}  // namespace livegnn
