// The content's digest, and the checks that tests run after every batch.
#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <vector>

#include "graph/journal.h"
#include "livegnn/graph.h"
#include "util/hash.h"

namespace livegnn {

namespace {
std::uint64_t chain(std::uint64_t hash, std::uint64_t word) { return mix(hash ^ word) + hash * 0xD6E8FEB86659FD93ull; }

std::uint64_t chain_row(std::uint64_t hash, const float* row, std::int32_t width) {
  std::int32_t i = 0;
  for (; i + 1 < width; i += 2) {
    std::uint64_t word;
    std::memcpy(&word, row + i, sizeof(word));
    hash = chain(hash, word);
  }
  return i < width ? chain(hash, std::bit_cast<std::uint32_t>(row[i])) : hash;
}

std::uint64_t word_of(std::int32_t a, std::int32_t b) {
  return static_cast<std::uint64_t>(a) << 32 | static_cast<std::uint32_t>(b);
}

constexpr std::uint64_t kVertexSeed = 0x6C69766567766572ull;
constexpr std::uint64_t kEdgeSeed = 0x6C69766567656467ull;

using EdgeTuple = std::tuple<VertexId, VertexId, EdgeId, EdgeTime, std::uint32_t, std::int32_t>;

std::vector<EdgeTuple> collect(const Adjacency& lists, bool owner_is_src) {
  std::vector<EdgeTuple> all;
  for (VertexId v = 0; v < lists.slot_count(); ++v) {
    std::int32_t count = 0;
    lists.visit(v, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < span.count; ++i) {
        const EdgeEntry e = span.entry(i);
        all.emplace_back(owner_is_src ? v : e.neighbour, owner_is_src ? e.neighbour : v, e.id, e.time,
                         std::bit_cast<std::uint32_t>(e.weight), e.type);
      }
      count += span.count;
    });
    invariant(count == lists.count(v), "a degree differs from the list");
  }
  std::sort(all.begin(), all.end());
  return all;
}
}  // namespace

// An edge's part of the digest; an undirected one's is that of the smaller end first.
std::uint64_t GraphStore::edge_digest(EdgeRecord edge, const float* attr, const DigestShare* share) const {
  if (share != nullptr) {
    edge.src = static_cast<VertexId>(share->name(edge.src));
    edge.dst = static_cast<VertexId>(share->name(edge.dst));
  }
  const bool turned = options_.undirected && edge.dst < edge.src;
  const std::uint64_t ends = turned ? word_of(edge.dst, edge.src) : word_of(edge.src, edge.dst);
  const std::uint64_t label = word_of(std::bit_cast<std::int32_t>(edge.weight), edge.type);
  const std::uint64_t hash = chain(chain(chain(kEdgeSeed, ends), label), static_cast<std::uint64_t>(edge.time));
  return options_.attr_width > 0 ? chain_row(hash, attr, options_.attr_width) : hash;
}

std::uint64_t GraphStore::digest_of(const DigestShare* share) const {
  std::uint64_t sum = mix(static_cast<std::uint64_t>(options_.feature_width) ^ 0x6C697665ull);
  for (const std::int32_t width : options_.type_widths) sum = chain(sum, static_cast<std::uint64_t>(width));
  for (const EdgeEnds& ends : options_.edge_ends) sum = chain(sum, word_of(ends.src, ends.dst));
  if (share != nullptr && !share->first) sum = 0;
  sum += offloaded_.digest;  // from here on an order-free sum
  std::vector<float> row(static_cast<std::size_t>(feature_stride()));
  for (VertexId v = 0; v < slot_count_; ++v) {
    if (live_[v] == 0 || (share != nullptr && !share->counts_vertex(v))) continue;
    std::uint64_t hash = chain(kVertexSeed, static_cast<std::uint64_t>(share == nullptr ? v : share->name(v)));
    if (is_typed()) hash = chain(hash, static_cast<std::uint64_t>(vertex_types_[v]));
    sum += chain_row(hash, feature_row(v, row.data()), width_of_type(vertex_type(v)));
  }
  visit_loaded_edges([&](const EdgeRecord& edge) {
    if (share == nullptr || share->counts_edge(edge.src, edge.dst))
      sum += edge_digest(edge, loaded_attr(edge.id), share);
  });
  return sum;
}

void GraphStore::check_edges() const {
  const std::vector<EdgeTuple> out = collect(out_, true);
  if (!options_.undirected) invariant(out == collect(*in_, false), "the two directions hold different edges");
  std::vector<EdgeId> ids;
  for (const auto& [src, dst, id, time, weight, type] : out) {
    invariant(src >= 0 && src < slot_count_ && dst >= 0 && dst < slot_count_, "an edge ends outside the graph");
    invariant(live_[src] != 0 && live_[dst] != 0, "an edge ends at a removed vertex");
    invariant(id >= 0 && id < next_edge_id_, "an edge id is not below the next one");
    invariant(options_.attr_width == 0 || loaded_attr(id) != nullptr, "an edge has no attributes");
    invariant(!is_typed() || fits_ends(type, vertex_types_[src], vertex_types_[dst]),
              "an edge joins vertices of other types than its own type says");
    if (options_.undirected && src != dst) {
      invariant(std::binary_search(out.begin(), out.end(), EdgeTuple{dst, src, id, time, weight, type}),
                "an undirected edge is stored one way only");
    }
    if (!options_.undirected || src <= dst) ids.push_back(id);
  }
  invariant(static_cast<std::int64_t>(ids.size()) == edge_count_, "the number of edges is wrong");
  invariant(options_.attr_width == 0 || attributes_.count() == edge_count_, "the number of attribute rows is wrong");
  std::sort(ids.begin(), ids.end());
  invariant(std::adjacent_find(ids.begin(), ids.end()) == ids.end(), "an edge id is used twice");
  if (!options_.simple) return;
  for (std::size_t i = 1; i < out.size(); ++i) {
    invariant(std::get<0>(out[i]) != std::get<0>(out[i - 1]) || std::get<1>(out[i]) != std::get<1>(out[i - 1]),
              "a simple graph has a duplicate edge");
  }
}

void GraphStore::check_offloaded() const {
  std::int64_t out = 0, in = 0;
  for (VertexId v = 0; v < slot_count_; ++v) {
    out += offloaded_out(v);
    in += offloaded_in(v);
    invariant(live_[v] != 0 || (offloaded_out(v) == 0 && offloaded_in(v) == 0), "a removed vertex has edges in a file");
  }
  const bool fits = options_.undirected ? out >= offloaded_.count && out <= 2 * offloaded_.count
                                        : out == offloaded_.count && in == offloaded_.count;
  invariant(fits, "the counts of edges in files differ from their number");
  invariant(offloaded_.id_max < next_edge_id_, "an edge in a file has an id that is not given yet");
  if (away_ == nullptr) return;
  away_->out_.check_invariants();
  away_->in_->check_invariants();
  invariant(are_copies(*away_), "the copies of edges in files are others");
}

// Each edge that a removal by time would take is behind the bound of one of its ends.
void GraphStore::check_oldest() const {
  for (const OldestEdges& each : oldest_) {
    visit_loaded_edges([&](const EdgeRecord& edge) {
      if (each.type() != kUnsetType && each.type() != edge.type) return;
      const EdgeTime bound = each.bound(edge.src);
      invariant((options_.undirected ? std::min(bound, each.bound(edge.dst)) : bound) <= edge.time,
                "an edge is older than the bound of its vertex");
    });
  }
}

void GraphStore::check_vertices() const {
  invariant(out_.slot_count() == slot_count_ && in_->slot_count() == slot_count_, "directions differ in slots");
  std::int64_t live = 0;
  std::vector<float> buffer(static_cast<std::size_t>(feature_stride()));
  for (VertexId v = 0; v < slot_count_; ++v) {
    live += live_[v];
    const std::int32_t type = vertex_type(v);
    const auto types = static_cast<std::int32_t>(options_.type_widths.size());
    invariant(!is_typed() || (live_[v] != 0 ? type >= 0 && type < types : type == kNoVertexType),
              "a vertex has a type that is not there, or a free slot has one");
    const std::int32_t used = live_[v] != 0 ? width_of_type(type) : 0;
    const float* row = feature_row(v, buffer.data());
    for (std::int32_t i = used; i < feature_stride(); ++i) {
      invariant(std::bit_cast<std::uint32_t>(row[i]) == 0, "padding or a removed vertex's row is not zero");
    }
  }
  invariant(live == vertex_count_, "the number of live vertices is wrong");
}

void GraphStore::check_invariants() const {
  out_.check_invariants();
  if (!options_.undirected) in_->check_invariants();
  check_vertices();
  check_offloaded();
  check_edges();
  check_oldest();
}

}  // namespace livegnn
