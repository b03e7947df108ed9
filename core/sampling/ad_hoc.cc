// Queries sampled when they are asked, from the store: what pre-sampling is compared with, and checked against.
#include <algorithm>

#include "livegnn/sampling.h"
#include "sampling/candidates.h"
#include "sampling/read.h"
#include "util/thread_pool.h"

namespace livegnn {

namespace {
// Zeros where there is no edge.
void write_edge(const GraphStore& graph, const EdgeColumns& columns, const RowEntry* entry, const EdgeValues& out) {
  if (columns.weight) *out.weight = entry != nullptr ? entry->weight : 0.0f;
  if (columns.time) *out.time = entry != nullptr ? entry->time : 0;
  if (columns.attr_width == 0) return;
  if (entry == nullptr) {
    std::fill_n(out.attr, columns.attr_width, 0.0f);
  } else {
    std::copy_n(graph.edge_attr(entry->id), columns.attr_width, out.attr);
  }
}

// The first of a vertex's candidates into `found`, sorted.
void find(const Candidates& candidates, std::int64_t vertex, EdgeTime now, bool sort_all,
          std::vector<RowEntry>& found) {
  found.clear();
  if (vertex < 0) return;
  const auto v = static_cast<VertexId>(vertex);
  if (sort_all) {
    candidates.sort_all(v, candidates.horizon(now), found);
  } else {
    candidates.scan(v, candidates.horizon(now), candidates.query().fanout, found);
  }
}
}  // namespace

void sample_ad_hoc(const GraphStore& graph, std::span<const OneHop> hops, std::uint64_t seed, EdgeTime now,
                   bool sort_all, const SampleRequest& request, int threads) {
  check_seeds(request, graph.version(), [&](std::int64_t v) {
    return v >= 0 && v < graph.slot_count() && graph.is_live(static_cast<VertexId>(v));
  });
  std::vector<Candidates> candidates;
  QueryShape shape;
  for (const OneHop& hop : hops) {
    candidates.emplace_back(graph, hop, seed);
    shape.add_hop(hop.fanout);
  }
  const auto read = [&](std::int64_t first, std::int64_t last) {
    std::vector<RowEntry> found;
    read_block(graph.features(), request, shape, first, last,
               [&](std::size_t hop, const std::int64_t* parents, const LevelRange& range) {
                 std::int64_t place = range.first;
                 for (std::int64_t i = 0; i < range.count / hops[hop].fanout; ++i) {
                   find(candidates[hop], parents[i], now, sort_all, found);
                   for (std::int32_t k = 0; k < hops[hop].fanout; ++k, ++place) {
                     const RowEntry* entry = k < std::ssize(found) ? &found[k] : nullptr;
                     request.vertices[hop][place] = entry != nullptr ? entry->neighbour : -1;
                     if (!request.edge_ids.empty()) request.edge_ids[hop][place] = entry != nullptr ? entry->id : -1;
                     write_edge(graph, request.edge_columns, entry, request.edge_values(hop, place));
                   }
                 }
               });
  };
  const auto count = static_cast<std::int64_t>(request.seeds.size());
  ThreadPool pool(static_cast<int>(std::min<std::int64_t>(threads, std::max<std::int64_t>(count, 1))),
                  ThreadPool::kNoSpin);
  pool.run_pieces(count, 1, read);
}

}  // namespace livegnn
