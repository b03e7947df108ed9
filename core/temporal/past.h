// The past of targets: which edges of an in-list are candidates, found for a slice of targets at a time.
//
// Closed ranges of times [first, last], so that both ends of int64 can be said: no edge has the smallest time, which
// means "none given".
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "livegnn/detail/prefetch.h"
#include "livegnn/graph.h"
#include "livegnn/temporal.h"
#include "temporal/lanes.h"

namespace livegnn {

struct TimeRange {
  EdgeTime first, last;
};

// A vertex at a time each.
struct Targets {
  std::span<const std::int64_t> vertices, times;
  std::size_t size() const { return vertices.size(); }
  VertexId vertex(std::size_t i) const { return static_cast<VertexId>(vertices[i]); }
  Targets part(std::int64_t first, std::int64_t count) const {
    return {vertices.subspan(first, count), times.subspan(first, count)};
  }
};

// docs/temporal-sampling.md, "The past": what one snapshot of a sampler's options cuts out.
struct TimeWindow {
  const TemporalOptions& options;
  std::int32_t snapshot;

  bool has_first() const { return options.window > 0; }
  TimeRange range(EdgeTime time) const {
    const bool inclusive = options.inclusive;
    if (options.window == 0) return {INT64_MIN, inclusive ? time : time - (time > INT64_MIN)};
    const __int128 window = options.window, end = time - snapshot * window;  // of the snapshot
    // a single window holds both of its ends when inclusive; windows side by side only the later one
    const bool without_start = inclusive && options.snapshots > 1;
    return {clamped(end - window + (without_start ? 1 : 0)), clamped(inclusive ? end : end - 1)};
  }
  static EdgeTime clamped(__int128 time) {
    if (time < INT64_MIN) return INT64_MIN;
    return time > INT64_MAX ? INT64_MAX : static_cast<EdgeTime>(time);
  }
};

// How many of `count` ascending times are at most `time`: a search without branches.
inline std::int32_t count_until(const EdgeTime* times, std::int32_t count, EdgeTime time) {
  if (count == 0) return 0;
  const EdgeTime* base = times;
  while (count > 1) {
    const std::int32_t half = count / 2;
    base += base[half - 1] <= time ? half : 0;
    count -= half;
  }
  return static_cast<std::int32_t>(base - times) + (*base <= time ? 1 : 0);
}

// Candidates of one target, oldest first.
struct Past {
  std::int64_t place;  // of the first in the pool; negative: ~place is that of a LongPast
  std::int32_t count;
};

// Candidates that are no run of the pool: a part of a hub's chain, of a PinnedList where a pin's version differs from
// the store's, or copies of those that are of the wanted edge types.
struct LongPast {
  BlockTable table;
  std::int64_t first;     // rank of the first in the chain
  const EdgeEntry* gone;  // copies that places from kGonePlace on count in, nullptr for a chain of the store
};
inline constexpr std::int64_t kGonePlace = std::int64_t{1} << 62;

// The block that holds the edge of a rank: before[b] <= rank < before[b + 1].
std::int64_t block_of(const BlockTable& table, std::int64_t rank);

// A whole in-list as it was at a pin: runs of the pool between the edges that are newer, and runs of those that have
// gone since, in the order of a chain. Nothing is copied: a place from kGonePlace on counts in the pin's removed edges.
class PinnedList {
 public:
  PinnedList(const BlockPool& pool, const Adjacency::View& list, const TemporalPin& pin,
             const TemporalPin::Changes& changes);
  BlockTable table() const {
    return {static_cast<std::int64_t>(place_.size()), first_.data(), before_.data(), place_.data()};
  }
  const EdgeEntry* gone() const { return gone_; }
  std::int64_t count() const { return count_; }
  std::int64_t count_until(const BlockPool& pool, EdgeTime time) const;  // edges that are at most at `time`

 private:
  void add(EdgeTime first, std::int64_t place, std::int64_t count);

  std::int64_t count_ = 0;
  const EdgeEntry* gone_;
  std::vector<EdgeTime> first_;
  std::vector<std::int64_t> before_, place_;
};

// Which edges a sampler wants, by their type. By vertex type: whether all in-edges of such a vertex are wanted, none,
// or some, so that only lists of the last kind are looked through.
class EdgeTypeFilter {
 public:
  enum class Wants : std::uint8_t { All, None, Some };
  EdgeTypeFilter(const GraphStore& graph, const std::vector<std::int32_t>& edge_types);
  bool is_set() const { return !by_vertex_type_.empty(); }
  bool takes(std::int32_t edge_type) const { return std::ranges::find(types_, edge_type) != types_.end(); }
  Wants of(VertexId v, const TemporalPin* pin) const {
    return by_vertex_type_[pin != nullptr ? pin->vertex_type(v) : graph_.vertex_type(v)];
  }

 private:
  const GraphStore& graph_;
  std::vector<std::int32_t> types_;
  std::vector<Wants> by_vertex_type_;
};

// The pasts of a slice of targets, in their order, and where those that are no runs lie.
struct PastSlice {
  std::vector<Past> pasts;
  std::vector<LongPast> longs;
  std::vector<PinnedList> pinned;                          // each vertex that a pin's version differs in once
  std::unordered_map<VertexId, std::size_t> pinned_place;  // in `pinned`
  std::vector<std::vector<EdgeEntry>> filtered;            // by target
  void clear_longs() {
    longs.clear();
    pinned.clear();
    pinned_place.clear();
    filtered.clear();
  }
  Past add(const LongPast& past, std::int32_t count) {
    longs.push_back(past);
    return {~static_cast<std::int64_t>(longs.size() - 1), count};
  }
  const LongPast& long_past(const Past& past) const { return longs[~past.place]; }
};

// Searches of a slice of targets that go on together, a step of each in turn, so that what each reads next is on its
// way while the others take their step.
class Searches {
 public:
  explicit Searches(const LaneKernels* kernels = lane_kernels()) : kernels_(kernels) {}
  void clear() { searches_.clear(); }
  // How many of `count` > 0 ascending times are at most `time`? `name` comes back with the answer.
  void add(const EdgeTime* times, std::int32_t count, EdgeTime time, std::int32_t name) {
    prefetch_line(times + (count - bit_floor(count)) - (count > bit_floor(count)));
    searches_.push_back({times, time, count, name});
  }
  // visitor(name, end): the times before `end` are those at most at the time asked for.
  template <typename Visitor>
  void run(Visitor&& visitor) {
    run_together();
    for (std::size_t i = 0; i < searches_.size(); ++i)
      visitor(names_[i], begin_[i] + (*begin_[i] <= wanted_[i] ? 1 : 0));
  }

 private:
  struct Search {
    const EdgeTime* times;
    EdgeTime time;
    std::int32_t count;
    std::int32_t name;
  };
  static std::int32_t bit_floor(std::int32_t count) {
    return static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(count)));
  }
  void run_together();
  void step(std::size_t count, std::int32_t half);

  const LaneKernels* kernels_;
  std::vector<Search> searches_;
  // Those of many steps first: where what is not decided begins, the time asked for, the name.
  std::vector<const EdgeTime*> begin_;
  std::vector<EdgeTime> wanted_;
  std::vector<std::int32_t> names_;
};

struct HubSearch {
  const BlockChain* chain;
  std::int32_t count;  // edges of the chain
  std::int32_t target;
  std::int64_t block;          // that the last candidate is in, by its place in the table; -1: the chain's last
  std::int64_t before, place;  // of that block, as in the chain's table
  std::int32_t edges;          // in it
};
// The candidate of a rank, counted from the oldest.
EdgeEntry edge_at(const BlockPool& pool, const PastSlice& slice, const Past& past, std::uint32_t rank);

struct FindScratch {  // by thread
  Searches in_runs, in_tables;
  std::vector<std::int32_t> runs;  // targets whose list is one run
  std::vector<HubSearch> hubs;
  std::vector<TimeRange> ranges;
};

struct PastFinder {
  const GraphStore& graph;
  const TimeWindow window;
  const EdgeTypeFilter& filter;
  const TemporalPin* pin;
  std::int32_t enough;  // no more than the newest so many candidates are wanted; -1: all
  std::int32_t enough_of_any = filter.is_set() ? -1 : enough;  // before the filter
  const Adjacency& lists = graph.in_lists();
  const BlockPool& pool = lists.pool();

  void find(const Targets& targets, PastSlice& slice, FindScratch& scratch) const;
  // After find(), of the same slice: throws Error for a target whose past needs edges that were moved to a file, unless
  // enough were found and none of those away can be newer.
  void check_loaded(const Targets& targets, const PastSlice& slice, const char* where) const;

  void find_all(const Targets& targets, PastSlice& slice, FindScratch& scratch) const;
  Past filtered(const Past& all, PastSlice& slice) const;
  void begin(VertexId v, EdgeTime time, std::int32_t target, PastSlice& slice, FindScratch& scratch) const;
  void take_all(const Targets& targets, PastSlice& slice) const;
  void search_runs(std::size_t first, FindScratch& scratch, const PastSlice& slice) const;
  void hubs_as_runs(FindScratch& scratch, PastSlice& slice) const;
  void search_hubs(FindScratch& scratch, PastSlice& slice) const;
  Past in_run(std::int64_t place, std::int32_t end, const TimeRange& range) const;
  Past in_chain(const HubSearch& hub, std::int32_t in_block, const TimeRange& range, PastSlice& slice) const;
  Past pinned(VertexId v, const TimeRange& range, PastSlice& slice) const;
  const PinnedList& pinned_list(VertexId v, const TemporalPin::Changes& changes, PastSlice& slice) const;
};

}  // namespace livegnn
