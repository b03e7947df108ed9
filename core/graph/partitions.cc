// A part's score for a vertex v, n of whose edges lead to vertices of the part:
//   LDG      n (capacity - load)                          (Stanton and Kliot 2012, times the capacity: whole numbers)
//   Fennel   n - 3/2 d w sqrt(parts load / total)         (Tsourakakis et al. 2014, gamma = 3/2; w: v adds to a load,
//                                                          d: edges for each 1 of it)
// The best score of the parts with room takes v; of equals the less loaded, then the lower number. Where a heavy vertex
// fits nowhere, the least loaded part takes it.
#include "livegnn/partitions.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "livegnn/error.h"

namespace livegnn {
namespace {

void check_ends(std::span<const std::int64_t> ends, std::int32_t vertices) {
  for (const std::int64_t v : ends) {
    if (v >= 0 && v < vertices) continue;
    throw Error(ErrorKind::VertexUnknown, {.where = "partition",
                                           .expected = "ends of edges below " + std::to_string(vertices),
                                           .got = std::to_string(v),
                                           .advice = "give the number of slots of the whole graph",
                                           .vertex = v});
  }
}

// Drops repeated neighbours, counting them, and closes the gaps.
void merge_parallel(UndirectedLists& lists) {
  std::vector<std::int64_t> seen(lists.starts.size(), -1);  // where each vertex stands in the list at hand
  lists.counts.assign(lists.neighbours.size(), 0);
  std::int64_t end = 0;
  for (std::size_t v = 0; v + 1 < lists.starts.size(); ++v) {
    const std::int64_t first = end, from = lists.starts[v], to = lists.starts[v + 1];
    lists.starts[v] = first;
    for (std::int64_t i = from; i < to; ++i) {
      const std::int32_t u = lists.neighbours[static_cast<std::size_t>(i)];
      std::int64_t& place = seen[static_cast<std::size_t>(u)];
      if (place < first) {
        place = end++;
        lists.neighbours[static_cast<std::size_t>(place)] = u;
        lists.counts[static_cast<std::size_t>(place)] = 0;
      }
      ++lists.counts[static_cast<std::size_t>(place)];
    }
  }
  lists.starts.back() = end;
  lists.neighbours.resize(static_cast<std::size_t>(end));
  lists.counts.resize(static_cast<std::size_t>(end));
}

class Placer {
 public:
  Placer(const StreamOptions& options, const Stream& stream, std::span<std::uint16_t> parts,
         std::span<std::int64_t> loads)
      : options_(options), stream_(stream), parts_(parts), loads_(loads), near_(loads.size(), 0) {
    total_ = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  }

  void place(std::int32_t v) {
    const std::int64_t weight = stream_.weights.empty() ? 1 : stream_.weights[static_cast<std::size_t>(v)];
    std::uint16_t& part = parts_[static_cast<std::size_t>(v)];
    if (part != kNoPart) {
      loads_[part] -= weight;
      total_ -= weight;
    }
    total_ += weight;
    count_neighbours(v);
    part = static_cast<std::uint16_t>(best_part(weight));
    loads_[part] += weight;
    std::ranges::fill(near_, 0);
  }

 private:
  void count_neighbours(std::int32_t v) {
    const auto row = static_cast<std::size_t>(v);
    for (std::int64_t i = stream_.starts[row]; i < stream_.starts[row + 1]; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::uint16_t part = parts_[static_cast<std::size_t>(stream_.neighbours[at])];
      if (part != kNoPart) near_[part] += stream_.counts[at];
    }
  }

  std::size_t best_part(std::int64_t weight) const {
    const auto count = static_cast<double>(loads_.size());
    const std::int64_t total = std::max(options_.expected, total_);
    const double share = static_cast<double>(total) / count;
    const auto capacity = static_cast<std::int64_t>(std::ceil((1.0 + options_.slack) * share));
    const std::size_t none = loads_.size();
    std::size_t best = none, lightest = 0;
    double best_score = 0.0;
    for (std::size_t p = 0; p < loads_.size(); ++p) {
      if (loads_[p] < loads_[lightest]) lightest = p;
      if (loads_[p] + weight > capacity) continue;
      const double score = score_of(p, weight, capacity, share);
      if (best == none || score > best_score || (score == best_score && loads_[p] < loads_[best])) {
        best = p;
        best_score = score;
      }
    }
    return best == none ? lightest : best;
  }

  double score_of(std::size_t p, std::int64_t weight, std::int64_t capacity, double share) const {
    if (options_.rule == StreamRule::Ldg) return static_cast<double>(near_[p] * (capacity - loads_[p]));
    return static_cast<double>(near_[p]) - 1.5 * options_.edges_per_load * static_cast<double>(weight) *
                                               std::sqrt(static_cast<double>(loads_[p]) / share);
  }

  const StreamOptions& options_;
  const Stream& stream_;
  std::span<std::uint16_t> parts_;
  std::span<std::int64_t> loads_;
  std::vector<std::int64_t> near_;  // edges of the vertex at hand into each part
  std::int64_t total_ = 0;
};

}  // namespace

UndirectedLists undirected_lists(std::span<const std::int64_t> src, std::span<const std::int64_t> dst,
                                 std::int32_t vertices) {
  check_ends(src, vertices);
  check_ends(dst, vertices);
  UndirectedLists lists;
  lists.starts.assign(static_cast<std::size_t>(vertices) + 1, 0);
  for (std::size_t i = 0; i < src.size(); ++i) {
    if (src[i] == dst[i]) continue;
    ++lists.starts[static_cast<std::size_t>(src[i]) + 1];
    ++lists.starts[static_cast<std::size_t>(dst[i]) + 1];
  }
  std::partial_sum(lists.starts.begin(), lists.starts.end(), lists.starts.begin());
  lists.neighbours.resize(static_cast<std::size_t>(lists.starts.back()));
  std::vector<std::int64_t> ends(lists.starts.begin(), lists.starts.end() - 1);
  for (std::size_t i = 0; i < src.size(); ++i) {
    if (src[i] == dst[i]) continue;
    const auto u = static_cast<std::size_t>(src[i]), v = static_cast<std::size_t>(dst[i]);
    lists.neighbours[static_cast<std::size_t>(ends[u]++)] = static_cast<std::int32_t>(v);
    lists.neighbours[static_cast<std::size_t>(ends[v]++)] = static_cast<std::int32_t>(u);
  }
  merge_parallel(lists);
  return lists;
}

void place_vertices(const StreamOptions& options, const Stream& stream, std::span<std::uint16_t> parts,
                    std::span<std::int64_t> loads) {
  Placer placer(options, stream, parts, loads);
  for (const std::int32_t v : stream.order) placer.place(v);
}

}  // namespace livegnn
