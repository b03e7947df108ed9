// Nearly all the time of a search is waiting for memory, and a target's lines are found one by the other. So a slice of
// targets is taken through the same steps together: list records, newest times, hubs' tables, then searches in
// lockstep.
#include "temporal/past.h"

#include <array>
#include <numeric>
#include <string>

#include "livegnn/detail/prefetch.h"
#include "temporal/pin.h"

namespace livegnn {

namespace {
constexpr std::size_t kRecordsAhead = 32;  // targets whose list record is on its way

constexpr std::int64_t kLastBlock = -1;  // a HubSearch's block: the chain's last

constexpr int kClasses = 32;  // of searches, by their number of steps
}  // namespace

// A search of n times first decides on n - p of them, p the power of two below, and then halves p, p / 2, ... So all
// that take a certain step take it alike, and with those of many steps in front they are a head of the list.
void Searches::run_together() {
  std::array<std::size_t, kClasses + 1> begin{};  // of the searches of so many steps, from the most on
  const auto steps = [](const Search& search) { return std::bit_width(static_cast<std::uint32_t>(search.count)) - 1; };
  for (const Search& search : searches_) ++begin[kClasses - steps(search)];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  begin_.resize(searches_.size());
  wanted_.resize(searches_.size());
  names_.resize(searches_.size());
  std::array<std::size_t, kClasses + 1> next = begin;
  for (const Search& search : searches_) {
    const int halvings = steps(search);
    const std::int32_t rest = search.count - (std::int32_t{1} << halvings);
    const std::size_t place = next[kClasses - 1 - halvings]++;
    begin_[place] = search.times + (search.times[rest - (rest > 0)] <= search.time ? rest : 0);
    wanted_[place] = search.time;
    names_[place] = search.name;
    prefetch_line(begin_[place] + ((std::int32_t{1} << halvings) / 2) - (halvings > 0));
  }
  for (int left = kClasses - 1; left > 0; --left) step(begin[kClasses - left], std::int32_t{1} << (left - 1));
}

// Of the first `count`: moves on by `half` times where the last of these is not later than the one asked for.
void Searches::step(std::size_t count, std::int32_t half) {
  if (count == 0) return;
  if (kernels_ != nullptr) return kernels_->search_step(begin_.data(), wanted_.data(), count, half);
  for (std::size_t i = 0; i < count; ++i) {
    begin_[i] += begin_[i][half - 1] <= wanted_[i] ? half : 0;
    if (half > 1) prefetch_line(begin_[i] + half / 2 - 1);
  }
}

std::int64_t block_of(const BlockTable& table, std::int64_t rank) {
  const std::int64_t* base = table.before;
  for (std::int64_t left = table.blocks; left > 1;) {
    const std::int64_t half = left / 2;
    base += base[half] <= rank ? half : 0;
    left -= half;
  }
  return base - table.before;
}

// Every look at a list of edges for a range of times begins here, for hops and for walks, pinned or not.
void PastFinder::begin(VertexId v, EdgeTime time, std::int32_t target, PastSlice& slice, FindScratch& scratch) const {
  const TimeRange range = scratch.ranges[target] = window.range(time);
  const Adjacency::View list = lists.view(v);
  Past& past = slice.pasts[target] = {0, 0};
  if (range.first > range.last) return;
  const TemporalPin::Changes* changes = pin == nullptr ? nullptr : pin->changes(v);
  if (changes != nullptr && changes->any_between(range.first, range.last)) [[unlikely]] {
    past = pinned(v, range, slice);
  } else if (list.chain != nullptr) {
    prefetch_line(list.chain);
    scratch.hubs.push_back({list.chain, list.count, target, kLastBlock, 0, 0, 0});
  } else if (list.count > 0) {
    past = {list.place, list.count};
    prefetch_line(pool.times(list.place) + list.count - 1);
    scratch.runs.push_back(target);
  }
}

EdgeTypeFilter::EdgeTypeFilter(const GraphStore& graph, const std::vector<std::int32_t>& edge_types)
    : graph_(graph), types_(edge_types) {
  if (types_.empty()) return;
  by_vertex_type_.assign(std::max<std::size_t>(graph.options().type_widths.size(), 1), Wants::Some);
  if (!graph.is_typed()) return;
  for (std::size_t vertex_type = 0; vertex_type < by_vertex_type_.size(); ++vertex_type) {
    bool any = false, all = true;
    for (std::int32_t type = 0; type < std::ssize(graph.options().edge_ends); ++type) {
      if (graph.options().edge_ends[type].dst != static_cast<std::int32_t>(vertex_type)) continue;
      any = any || takes(type);
      all = all && takes(type);
    }
    by_vertex_type_[vertex_type] = !any ? Wants::None : all ? Wants::All : Wants::Some;
  }
}

void PastFinder::find(const Targets& targets, PastSlice& slice, FindScratch& scratch) const {
  slice.clear_longs();
  slice.pasts.resize(targets.size());
  find_all(targets, slice, scratch);
  if (!filter.is_set()) return;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const auto wants = filter.of(targets.vertex(i), pin);
    if (wants == EdgeTypeFilter::Wants::None) slice.pasts[i] = {0, 0};
    if (wants == EdgeTypeFilter::Wants::Some) slice.pasts[i] = filtered(slice.pasts[i], slice);
  }
}

// From the newest on, until enough are found.
Past PastFinder::filtered(const Past& all, PastSlice& slice) const {
  static constexpr std::int64_t kBefore = 0;
  std::vector<EdgeEntry> found;
  for (std::int32_t rank = all.count; rank-- > 0;) {
    if (enough >= 0 && found.size() == static_cast<std::size_t>(enough)) break;
    const EdgeEntry edge = edge_at(pool, slice, all, static_cast<std::uint32_t>(rank));
    if (filter.takes(edge.type)) found.push_back(edge);
  }
  if (found.empty()) return {0, 0};
  std::ranges::reverse(found);
  const std::vector<EdgeEntry>& edges = slice.filtered.emplace_back(std::move(found));
  return slice.add({{1, &edges.front().time, &kBefore, &kGonePlace}, 0, edges.data()},
                   static_cast<std::int32_t>(edges.size()));
}

void PastFinder::find_all(const Targets& targets, PastSlice& slice, FindScratch& scratch) const {
  const std::size_t count = targets.size();
  if (!graph.options().has_time) return take_all(targets, slice);
  scratch.in_runs.clear();
  scratch.in_tables.clear();
  scratch.runs.clear();
  scratch.hubs.clear();
  scratch.ranges.resize(count);
  for (std::size_t i = 0; i < std::min(count, kRecordsAhead); ++i) lists.prefetch_list(targets.vertex(i));
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kRecordsAhead < count) lists.prefetch_list(targets.vertex(i + kRecordsAhead));
    begin(targets.vertex(i), targets.times[i], static_cast<std::int32_t>(i), slice, scratch);
  }
  for (const HubSearch& hub : scratch.hubs) hub.chain->prefetch_table();
  search_runs(0, scratch, slice);
  search_hubs(scratch, slice);
  scratch.in_runs.run([&](std::int32_t name, const EdgeTime* end) {
    const std::int64_t place = end - pool.times(0);
    if (name >= 0) {
      Past& past = slice.pasts[name];
      past = in_run(past.place, static_cast<std::int32_t>(place - past.place), scratch.ranges[name]);
    } else {
      const HubSearch& hub = scratch.hubs[~name];
      const auto in_block = static_cast<std::int32_t>(place - hub.place);
      slice.pasts[hub.target] = in_chain(hub, in_block, scratch.ranges[hub.target], slice);
    }
  });
}

// Of the runs from number `first` on those whose newest edge is too late.
void PastFinder::search_runs(std::size_t first, FindScratch& scratch, const PastSlice& slice) const {
  for (std::size_t i = first; i < scratch.runs.size(); ++i) {
    const std::int32_t target = scratch.runs[i];
    const Past& all = slice.pasts[target];
    const EdgeTime last = scratch.ranges[target].last;
    const EdgeTime* in_list = pool.times(all.place);
    if (!window.has_first() && in_list[all.count - 1] <= last) continue;
    scratch.in_runs.add(in_list, all.count, last, target);
  }
}

// Without times every edge is in the past of every target.
void PastFinder::take_all(const Targets& targets, PastSlice& slice) const {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (i + kRecordsAhead < targets.size()) lists.prefetch_list(targets.vertex(i + kRecordsAhead));
    const VertexId v = targets.vertex(i);
    const Adjacency::View list = lists.view(v);
    const TemporalPin::Changes* changes = pin == nullptr ? nullptr : pin->changes(v);
    if (changes != nullptr) [[unlikely]] {
      const PinnedList& then = pinned_list(v, *changes, slice);
      const auto count = static_cast<std::int32_t>(then.count());
      slice.pasts[i] = count == 0 ? Past{0, 0} : slice.add({then.table(), 0, then.gone()}, count);
      continue;
    }
    slice.pasts[i] = {list.place, list.count};
    if (list.chain == nullptr) continue;
    const BlockRun run = list.chain->run();
    slice.pasts[i].place = run.place;
    if (run.edges < list.count) slice.pasts[i] = slice.add({list.chain->table(), 0, nullptr}, list.count);
  }
}

// Hubs whose candidates all lie in the run that the chain begins with are runs.
void PastFinder::hubs_as_runs(FindScratch& scratch, PastSlice& slice) const {
  const std::size_t first = scratch.runs.size();
  std::erase_if(scratch.hubs, [&](const HubSearch& hub) {
    const BlockRun run = hub.chain->run();
    if (!run.holds(hub.count, scratch.ranges[hub.target].last)) return false;
    const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(hub.count, run.edges));
    slice.pasts[hub.target] = {run.place, count};
    prefetch_line(pool.times(run.place) + count - 1);
    scratch.runs.push_back(hub.target);
    return true;
  });
  search_runs(first, scratch, slice);
}

// Which block of each other hub the last candidate is in; its search there joins those in runs. Where it is the last
// block, the table's head says so.
void PastFinder::search_hubs(FindScratch& scratch, PastSlice& slice) const {
  hubs_as_runs(scratch, slice);
  const auto last_of = [&](const HubSearch& hub) { return scratch.ranges[hub.target].last; };
  const auto enter = [&](HubSearch& hub, std::int64_t place, std::int64_t before, std::int64_t end) {
    hub.before = before;
    hub.place = place;
    hub.edges = static_cast<std::int32_t>(end - before);
    prefetch_line(pool.times(place) + hub.edges - 1);
  };
  for (std::size_t i = 0; i < scratch.hubs.size(); ++i) {
    HubSearch& hub = scratch.hubs[i];
    const BlockTail tail = hub.chain->tail();
    if (tail.first <= last_of(hub)) {
      enter(hub, tail.place, tail.before, hub.count);
    } else {
      const BlockTable table = hub.chain->table();
      scratch.in_tables.add(table.first, static_cast<std::int32_t>(table.blocks), last_of(hub),
                            static_cast<std::int32_t>(i));
    }
  }
  scratch.in_tables.run([&](std::int32_t name, const EdgeTime* end) {
    HubSearch& hub = scratch.hubs[name];
    const BlockTable table = hub.chain->table();
    hub.block = std::max<std::int64_t>(end - table.first - 1, 0);  // where all come later, none of the first
    prefetch_line(table.before + hub.block + 1);
    prefetch_line(table.place + hub.block);
  });
  for (HubSearch& hub : scratch.hubs) {
    if (hub.block == kLastBlock) continue;
    const BlockTable table = hub.chain->table();
    const std::int64_t end = hub.block + 1 < table.blocks ? table.before[hub.block + 1] : hub.count;
    enter(hub, table.place[hub.block], table.before[hub.block], end);
  }
  for (std::size_t i = 0; i < scratch.hubs.size(); ++i) {
    const HubSearch& hub = scratch.hubs[i];
    const EdgeTime* in_block = pool.times(hub.place);
    if (in_block[hub.edges - 1] <= last_of(hub)) {
      slice.pasts[hub.target] = in_chain(hub, hub.edges, scratch.ranges[hub.target], slice);
    } else {
      scratch.in_runs.add(in_block, hub.edges, last_of(hub), ~static_cast<std::int32_t>(i));
    }
  }
}

Past PastFinder::in_run(std::int64_t place, std::int32_t end, const TimeRange& range) const {
  if (!window.has_first() || range.first == INT64_MIN) return {place, end};
  const std::int32_t first = count_until(pool.times(place), end, range.first - 1);
  return {place + first, end - first};
}

// Where all that is wanted lies in one block, it is a run like others.
Past PastFinder::in_chain(const HubSearch& hub, std::int32_t in_block, const TimeRange& range, PastSlice& slice) const {
  const std::int64_t end = hub.before + in_block;
  std::int64_t first = 0;
  if (window.has_first() && range.first > INT64_MIN) {
    const BlockTable table = hub.chain->table();
    const std::int64_t last = hub.block == kLastBlock ? table.blocks - 1 : hub.block;
    const std::int32_t blocks =
        count_until(table.first, static_cast<std::int32_t>(last + 1), range.first - 1);  // that begin before it
    if (blocks > 0) {
      const std::int64_t block = blocks - 1;
      const std::int64_t block_end = block == last ? end : table.before[block + 1];
      const auto edges = static_cast<std::int32_t>(block_end - table.before[block]);
      first = table.before[block] + count_until(pool.times(table.place[block]), edges, range.first - 1);
    }
  }
  auto count = static_cast<std::int32_t>(end - first);
  if (enough_of_any >= 0) count = std::min(count, enough_of_any);
  if (count <= in_block) return {hub.place + in_block - count, count};
  return slice.add({hub.chain->table(), end - count, nullptr}, count);
}

void PastFinder::check_loaded(const Targets& targets, const PastSlice& slice, const char* where) const {
  if (!graph.has_offloaded()) return;
  const EdgeTime before = graph.offloaded_before();
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const VertexId v = targets.vertex(i);
    const TimeRange range = window.range(targets.times[i]);
    if (filter.is_set() && filter.of(v, pin) == EdgeTypeFilter::Wants::None) continue;
    if (graph.offloaded_in(v) == 0 || range.first > range.last || range.first >= before) continue;
    // edges in memory may be old as well: late ones, and those of a file that came back
    const Past& past = slice.pasts[i];
    if (enough >= 0 && past.count >= enough &&
        edge_at(pool, slice, past, static_cast<std::uint32_t>(past.count - enough)).time >= before) {
      continue;
    }
    throw Error(ErrorKind::EdgeOffloaded, {.where = where,
                                           .expected = "the past of vertex " + std::to_string(v) + " before " +
                                                       std::to_string(targets.times[i]) + " in memory",
                                           .got = "edges with times before " + std::to_string(before) + " in a file",
                                           .advice = "reload the graph, or look back over a shorter window",
                                           .vertex = v});
  }
}

const PinnedList& PastFinder::pinned_list(VertexId v, const TemporalPin::Changes& changes, PastSlice& slice) const {
  const auto [known, fresh] = slice.pinned_place.try_emplace(v, slice.pinned.size());
  if (fresh) slice.pinned.emplace_back(pool, lists.view(v), *pin, changes);
  return slice.pinned[known->second];
}

Past PastFinder::pinned(VertexId v, const TimeRange& range, PastSlice& slice) const {
  const PinnedList& list = pinned_list(v, *pin->changes(v), slice);
  const std::int64_t end = list.count_until(pool, range.last);
  const std::int64_t first = range.first == INT64_MIN ? 0 : list.count_until(pool, range.first - 1);
  auto count = static_cast<std::int32_t>(end - first);
  if (enough_of_any >= 0) count = std::min(count, enough_of_any);
  if (count == 0) return {0, 0};
  return slice.add({list.table(), end - count, list.gone()}, count);
}

// ---- lists as they were at a pin

PinnedList::PinnedList(const BlockPool& pool, const Adjacency::View& list, const TemporalPin& pin,
                       const TemporalPin::Changes& changes)
    : gone_(changes.removed.data()) {
  const std::vector<EdgeKey>& added = changes.added;
  const std::vector<EdgeEntry>& removed = changes.removed;
  std::size_t newer = 0, gone = 0;  // the next of both
  const auto add_gone = [&](std::size_t until) {
    if (until == gone) return;
    add(removed[gone].time, kGonePlace + static_cast<std::int64_t>(gone), static_cast<std::int64_t>(until - gone));
    gone = until;
  };
  const auto add_run = [&](std::int64_t place, std::int32_t count) {
    for (std::int32_t at = 0; at < count;) {
      const EdgeKey key = pool.key(place + at);
      if (gone < removed.size() && key_of(removed[gone]) < key) add_gone(changes.removed_below(key, gone));
      while (newer < added.size() && added[newer] < key) ++newer;
      if (key.minor >= pin.next_edge_id()) {
        ++at;
        continue;
      }
      std::int32_t end = count;  // of the run: the next change, or the block's end
      if (newer < added.size()) end = at + pool.lower_bound(place + at, end - at, added[newer]);
      if (gone < removed.size()) end = at + pool.lower_bound(place + at, end - at, key_of(removed[gone]));
      add(key.major, place + at, end - at);
      at = end;
    }
  };
  if (list.chain == nullptr) {
    add_run(list.place, list.count);
  } else {
    for (const BlockChain::Page& page : list.chain->pages()) {
      for (const BlockChain::Block& block : page) add_run(block.place, block.count);
    }
  }
  add_gone(removed.size());
}

void PinnedList::add(EdgeTime first, std::int64_t place, std::int64_t count) {
  first_.push_back(first);
  before_.push_back(count_);
  place_.push_back(place);
  count_ += count;
}

std::int64_t PinnedList::count_until(const BlockPool& pool, EdgeTime time) const {
  const std::int32_t blocks = livegnn::count_until(first_.data(), static_cast<std::int32_t>(first_.size()), time);
  if (blocks == 0) return 0;
  const auto block = static_cast<std::size_t>(blocks - 1);
  const std::int64_t end = block + 1 < before_.size() ? before_[block + 1] : count_;
  const auto edges = static_cast<std::int32_t>(end - before_[block]);
  if (place_[block] < kGonePlace) return before_[block] + livegnn::count_until(pool.times(place_[block]), edges, time);
  const EdgeEntry* from = gone_ + (place_[block] - kGonePlace);
  const auto later = [](EdgeTime wanted, const EdgeEntry& edge) { return wanted < edge.time; };
  return before_[block] + (std::upper_bound(from, from + edges, time, later) - from);
}

EdgeEntry edge_at(const BlockPool& pool, const PastSlice& slice, const Past& past, std::uint32_t rank) {
  if (past.place >= 0) return pool.read(past.place + rank);
  const LongPast& found = slice.long_past(past);
  const std::int64_t wanted = found.first + rank;
  const std::int64_t block = block_of(found.table, wanted);
  const std::int64_t place = found.table.place[block] + wanted - found.table.before[block];
  return place < kGonePlace ? pool.read(place) : found.gone[place - kGonePlace];
}

}  // namespace livegnn
