// The past of targets: which edges of an in-list are candidates, found for a slice of targets at a time.
//
// Closed ranges of times [first, last], so that both ends of int64 can be said: no edge has the smallest time, which
// means "none given".
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "livegnn/detail/prefetch.h"
#include "livegnn/graph.h"
#include "livegnn/temporal.h"

namespace livegnn {

struct TimeRange {
  EdgeTime first, last;
};

// docs/temporal-sampling.md, "The past": what one snapshot of a sampler's options cuts out.
class Cut {
 public:
  Cut(const TemporalOptions& options, std::int32_t snapshot)
      : window_(options.window),
        back_(static_cast<__int128>(snapshot) * options.window),
        inclusive_(options.inclusive),
        side_by_side_(options.snapshots > 1) {}
  bool has_first() const { return window_ > 0; }
  TimeRange range(EdgeTime time) const {
    if (window_ == 0) return {INT64_MIN, inclusive_ ? time : time - (time > INT64_MIN)};
    const __int128 end = static_cast<__int128>(time) - back_;  // of the snapshot
    const __int128 start = end - window_;
    // a single window holds both of its ends when inclusive; windows side by side only the later one
    return {clamped(start + (inclusive_ && side_by_side_ ? 1 : 0)), clamped(inclusive_ ? end : end - 1)};
  }

 private:
  static EdgeTime clamped(__int128 time) {
    if (time < INT64_MIN) return INT64_MIN;
    return time > INT64_MAX ? INT64_MAX : static_cast<EdgeTime>(time);
  }
  std::int64_t window_;
  __int128 back_;
  bool inclusive_;
  bool side_by_side_;
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
// the store's, or a FilteredPast.
struct LongPast {
  BlockTable table;
  std::int64_t first;     // rank of the first in the chain
  const EdgeEntry* gone;  // copies that places from kGonePlace on count in, nullptr for a chain of the store
};

// The block that holds the edge of a rank: before[b] <= rank < before[b + 1].
std::int64_t block_of(const BlockTable& table, std::int64_t rank);

// A whole in-list as it was at a pin: runs of the pool between the edges that are newer, and runs of those that have
// gone since, in the order of a chain. Nothing is copied: a place from kGonePlace on counts in the pin's removed edges.
class PinnedList {
 public:
  static constexpr std::int64_t kGonePlace = std::int64_t{1} << 62;
  PinnedList(const BlockPool& pool, const Adjacency::View& list, const TemporalPin& pin,
             const TemporalPin::Changes& changes);
  BlockTable table() const {
    return {static_cast<std::int64_t>(place_.size()), first_.data(), before_.data(), place_.data()};
  }
  const EdgeEntry* gone() const { return gone_; }
  std::int64_t count_until(const BlockPool& pool, EdgeTime time) const;  // edges that are at most at `time`

 private:
  void add(EdgeTime first, std::int64_t place, std::int64_t count);

  std::int64_t count_ = 0;
  const EdgeEntry* gone_;
  std::vector<EdgeTime> first_;
  std::vector<std::int64_t> before_, place_;
};

// The candidates of one target that are of the wanted edge types, copied.
class FilteredPast {
 public:
  std::vector<EdgeEntry> edges;
  LongPast long_past() {
    first_ = edges.front().time;
    return {{1, &first_, &before_, &place_}, 0, edges.data()};
  }

 private:
  EdgeTime first_ = 0;
  std::int64_t before_ = 0, place_ = PinnedList::kGonePlace;
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
    const std::int32_t type = pin != nullptr ? pin->vertex_type(v) : graph_.vertex_type(v);
    return by_vertex_type_[static_cast<std::size_t>(type)];
  }

 private:
  const GraphStore& graph_;
  std::vector<std::int32_t> types_;
  std::vector<Wants> by_vertex_type_;
};

// The pasts of a slice of targets, and where those that are no runs lie.
struct PastSlice {
  std::vector<LongPast> longs;
  std::vector<PinnedList> pinned;                          // each vertex that a pin's version differs in once
  std::unordered_map<VertexId, std::size_t> pinned_place;  // in `pinned`
  std::deque<FilteredPast> filtered;
  void clear() {
    longs.clear();
    release();
  }
  void release() {  // what may be large
    filtered.clear();
    if (pinned.empty()) return;
    pinned = std::vector<PinnedList>();
    pinned_place.clear();
  }
};

// Searches of a slice of targets that go on together, a step of each in turn, so that what each reads next is on its
// way while the others take their step.
class Searches {
 public:
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
    for (const Search& search : ordered_) visitor(search.name, search.times + (*search.times <= search.time ? 1 : 0));
  }

 private:
  struct Search {
    const EdgeTime* times;  // begins with what is not decided
    EdgeTime time;
    std::int32_t count;  // not decided
    std::int32_t name;
  };
  static std::int32_t bit_floor(std::int32_t count) {
    return static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(count)));
  }
  void run_together();

  std::vector<Search> searches_;
  std::vector<Search> ordered_;  // those of many steps first
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

class PastFinder {
 public:
  // enough: no more than the newest so many candidates are wanted; -1: all.
  PastFinder(const GraphStore& graph, const Cut& cut, const EdgeTypeFilter& filter, const TemporalPin* pin,
             std::int32_t enough)
      : graph_(graph),
        lists_(graph.in_lists()),
        pool_(lists_.pool()),
        cut_(cut),
        filter_(filter),
        pin_(pin),
        enough_(filter.is_set() ? -1 : enough),
        filtered_enough_(enough) {}

  // Of all targets of a slice, in order; `pasts` has room for them.
  void find(std::span<const std::int64_t> vertices, std::span<const std::int64_t> times, Past* pasts, PastSlice& slice,
            FindScratch& scratch) const;
  // After find(), of the same slice: throws Error for a target whose past needs edges that were moved to a file. Only
  // the newest `taken` are wanted (-1: all): enough where so many were found that none of those away can be newer.
  void check_loaded(std::span<const std::int64_t> vertices, std::span<const std::int64_t> times, const Past* pasts,
                    const PastSlice& slice, std::int32_t taken, const char* where) const;
  const BlockPool& pool() const { return pool_; }

 private:
  void find_all(std::span<const std::int64_t> vertices, std::span<const std::int64_t> times, Past* pasts,
                PastSlice& slice, FindScratch& scratch) const;
  Past filtered(const Past& all, PastSlice& slice) const;
  void begin(VertexId v, EdgeTime time, std::int32_t target, Past* pasts, PastSlice& slice, FindScratch& scratch) const;
  void take_all(std::span<const std::int64_t> vertices, Past* pasts, PastSlice& slice) const;
  void search_hubs(FindScratch& scratch, Past* pasts, PastSlice& slice) const;
  Past in_run(std::int64_t place, std::int32_t end, const TimeRange& range) const;
  Past in_chain(const HubSearch& hub, std::int32_t in_block, const TimeRange& range, PastSlice& slice) const;
  bool differs(VertexId v, const TimeRange& range) const;
  Past pinned(VertexId v, const TimeRange& range, PastSlice& slice) const;

  const GraphStore& graph_;
  const Adjacency& lists_;
  const BlockPool& pool_;
  Cut cut_;
  const EdgeTypeFilter& filter_;
  const TemporalPin* pin_;
  std::int32_t enough_;           // of any type
  std::int32_t filtered_enough_;  // of the wanted ones
};

}  // namespace livegnn
