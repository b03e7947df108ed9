// Queries sampled when they are asked, from the store: what pre-sampling is compared with, and checked against.
#include <algorithm>
#include <cstring>
#include <string>

#include "livegnn/sampling.h"
#include "sampling/candidates.h"
#include "sampling/read.h"
#include "util/thread_pool.h"

namespace livegnn {

namespace {
struct StoreFeatures {
  const GraphStore& graph;
  void prefetch_features(VertexId v) const { graph.features().prefetch(v); }
  bool read_features(VertexId v, std::int32_t width, float* out) const {
    graph.read_features(v, out, width);
    return true;
  }
};

class AdHoc {
 public:
  AdHoc(const GraphStore& graph, std::span<const OneHop> hops, std::uint64_t seed, EdgeTime now, AdHocMethod method)
      : graph_(graph), now_(now), method_(method) {
    for (const OneHop& hop : hops) hops_.emplace_back(graph, hop, seed);
  }

  void read(const SampleRequest& request, const QueryShape& shape, std::int64_t first, std::int64_t last) const {
    std::vector<RowEntry> found;
    const StoreFeatures source{graph_};
    const std::int64_t* parents = request.seeds.data() + first;
    std::int64_t count = last - first;
    const auto features_of = [&](std::size_t level, const std::int64_t* vertices, std::int64_t values) {
      if (request.features.empty() || request.widths[level] == 0) return;
      const std::int64_t start = shape.range(level, first, last).first;
      read_features(source, vertices, values, request.widths[level],
                    request.features[level] + start * request.widths[level]);
    };
    features_of(0, parents, count);
    for (std::size_t hop = 0; hop < hops_.size(); ++hop) {
      const LevelRange range = shape.range(hop + 1, first, last);
      const std::int32_t fanout = hops_[hop].query().fanout;
      std::int64_t* vertices = request.vertices[hop] + range.first;
      std::int64_t* ids = request.edge_ids.empty() ? nullptr : request.edge_ids[hop] + range.first;
      for (std::int64_t i = 0; i < count; ++i) {
        find(hops_[hop], parents[i], found);
        const auto there = std::min<std::int64_t>(static_cast<std::int64_t>(found.size()), fanout);
        for (std::int64_t k = 0; k < fanout; ++k) {
          const RowEntry* entry = k < there ? &found[static_cast<std::size_t>(k)] : nullptr;
          vertices[i * fanout + k] = entry != nullptr ? entry->neighbour : -1;
          if (ids != nullptr) ids[i * fanout + k] = entry != nullptr ? entry->id : -1;
          write_edge(request.edge_columns, entry, request.edge_values(hop, range.first + i * fanout + k));
        }
      }
      parents = vertices;
      count = range.count;
      features_of(hop + 1, vertices, count);
    }
  }

 private:
  // Zeros where there is no edge.
  void write_edge(const EdgeColumns& columns, const RowEntry* entry, const EdgeValues& out) const {
    if (columns.weight) *out.weight = entry != nullptr ? entry->weight : 0.0f;
    if (columns.time) *out.time = entry != nullptr ? entry->time : 0;
    if (columns.attr_width == 0) return;
    if (entry == nullptr) {
      std::fill_n(out.attr, columns.attr_width, 0.0f);
    } else {
      std::copy_n(graph_.edge_attr(entry->id), columns.attr_width, out.attr);
    }
  }

  void find(const Candidates& hop, std::int64_t parent, std::vector<RowEntry>& found) const {
    found.clear();
    if (parent < 0) return;
    const auto v = static_cast<VertexId>(parent);
    if (method_ == AdHocMethod::SortAll) {
      hop.sort_all(v, hop.horizon(now_), found);
    } else {
      hop.scan(v, hop.horizon(now_), hop.query().fanout, found);
    }
  }

  const GraphStore& graph_;
  EdgeTime now_;
  AdHocMethod method_;
  std::vector<Candidates> hops_;
};
}  // namespace

void sample_ad_hoc(const GraphStore& graph, std::span<const OneHop> hops, std::uint64_t seed, EdgeTime now,
                   AdHocMethod method, const SampleRequest& request, int threads) {
  for (std::size_t i = 0; i < request.seeds.size(); ++i) {
    const std::int64_t v = request.seeds[i];
    if (v < graph.slot_count() && v >= 0 && graph.is_live(static_cast<VertexId>(v))) continue;
    throw Error(ErrorKind::VertexUnknown, {.where = "sample",
                                           .expected = "seeds that are live vertices",
                                           .got = std::to_string(v) + " at row " + std::to_string(i),
                                           .advice = "add the vertex first",
                                           .vertex = v});
  }
  const AdHoc ad_hoc(graph, hops, seed, now, method);
  std::vector<std::int32_t> fanouts;
  for (const OneHop& hop : hops) fanouts.push_back(hop.fanout);
  const QueryShape shape(fanouts);
  const auto count = static_cast<std::int64_t>(request.seeds.size());
  ThreadPool pool(static_cast<int>(std::min<std::int64_t>(std::max<std::int64_t>(count, 1), threads)),
                  ThreadPool::kNoSpin);
  pool.run(count, [&](std::int64_t row, int) { ad_hoc.read(request, shape, row, row + 1); });
}

}  // namespace livegnn
