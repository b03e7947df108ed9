// Which edges a one-hop query chooses from, and in what order: the definition that tables keep up and that a query
// sampled ad hoc looks up.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "livegnn/graph.h"
#include "livegnn/sampling.h"
#include "sampling/keys.h"
#include "sampling/row.h"

namespace livegnn {

// Whose edge it is: one that a batch adds, whose id is not settled, one that it re-weights, or one that a sample reads.
enum class WeightOf : std::uint8_t { Added, Reweighted, Read };
void check_sample_weight(const EdgeRecord& edge, float weight, WeightOf of);  // throws Error: a negative one

class Candidates {
 public:
  Candidates(const GraphStore& graph, const OneHop& query, std::uint64_t seed)
      : graph_(graph), query_(query), order_(query.by, seed, query.hop) {
    invariant(query.hop >= 1 && query.fanout >= 1 && query.fanout <= kFanoutMax && query.ttl >= 0,
              "a one-hop query out of range");
  }

  const OneHop& query() const { return query_; }
  bool timed() const { return query_.ttl > 0; }
  EdgeTime horizon(EdgeTime now) const;  // edges up to this time have expired
  bool of_type(const EdgeRecord& edge) const { return query_.edge_type == kAnyType || edge.type == query_.edge_type; }
  bool matches(const EdgeRecord& edge, EdgeTime horizon) const {
    return of_type(edge) && (!timed() || edge.time > horizon) &&
           (query_.by != SampleBy::Weighted || edge.weight > 0.0f);
  }
  void check_weight(const EdgeRecord& edge, float weight, WeightOf of) const;  // throws Error likewise
  RowEntry entry_of(const EdgeRecord& edge, VertexId neighbour) const {
    return {neighbour, edge.weight, edge.id, order_.rank(edge.id, edge.weight, edge.time), edge.time};
  }
  bool before(const RowEntry& a, const RowEntry& b) const { return order_.before(a.rank, a.id, b.rank, b.id); }
  bool before_last(const RowEntry& a, const Row& row) const {
    return order_.before(a.rank, a.id, row.last_rank, row.last_id);
  }
  bool before(const Row& row, std::int32_t at, const RowEntry& a) const {
    return order_.before(row.ranks()[at], row.ids()[at], a.rank, a.id);
  }

  // visitor(v, neighbour) for each end of the edge that has it in its list; an undirected edge has a record for each.
  template <typename Visitor>
  void visit_ends(const EdgeRecord& edge, Visitor&& visitor) const {
    const bool one_way = graph_.options().undirected;
    if (one_way || query_.direction != HopDirection::In) visitor(edge.src, edge.dst);
    if (one_way || query_.direction == HopDirection::Out) return;
    if (query_.direction == HopDirection::In || edge.src != edge.dst) visitor(edge.dst, edge.src);
  }

  // The first `limit` candidates of v into found, sorted; true if they are known to be all. Reads as little as it can:
  // the latest come from the ends of the lists, else one pass keeps what may still be among the first.
  bool scan(VertexId v, EdgeTime horizon, std::int32_t limit, std::vector<RowEntry>& found) const;
  // The same by collecting every neighbour and sorting them all, as a graph database does it.
  void sort_all(VertexId v, EdgeTime horizon, std::vector<RowEntry>& found) const;

 private:
  struct Listed {  // a span of v's lists, and whether its edges come in
    EdgeSpan span;
    bool incoming;
  };
  template <typename Visitor>
  void visit_lists(VertexId v, Visitor&& visitor) const;  // visitor(Listed)
  template <typename Visitor>
  bool visit_place(VertexId v, const Listed& listed, std::int32_t at, EdgeTime horizon, Visitor&& visitor) const;
  bool scan_all(VertexId v, EdgeTime horizon, std::int32_t limit, std::vector<RowEntry>& found) const;
  bool scan_latest(VertexId v, EdgeTime horizon, std::int32_t limit, std::vector<RowEntry>& found) const;
  void trim(std::vector<RowEntry>& found, std::int32_t limit) const;  // to the first, in any order but for the last
  void sort(std::vector<RowEntry>& found) const;

  const GraphStore& graph_;
  OneHop query_;
  EdgeOrder order_;
};

}  // namespace livegnn
