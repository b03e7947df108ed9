#include "temporal/past.h"

#include <numeric>

#include "livegnn/prefetch.h"
#include "temporal/pin.h"

namespace livegnn {

namespace {
constexpr std::size_t kRecordsAhead = 24;  // targets whose list record is on its way
constexpr std::size_t kTimesAhead = 10;    // targets whose newest times are on their way

std::int64_t edges_of(const BlockChain::Page& page, std::size_t first, std::size_t last) {
  std::int64_t edges = 0;
  for (std::size_t block = first; block < last; ++block) edges += page[block].count;
  return edges;
}

// The first edge of the chain that comes after `time`, or the end.
BlockChain::Cursor end_of(const BlockPool& pool, const BlockChain& chain, EdgeTime time) {
  const auto pages = static_cast<std::int32_t>(chain.pages().size());
  if (time == INT64_MAX) return {pages, 0, 0};
  const BlockChain::Block& newest = chain.pages().back().back();
  if (pool.times(newest.place)[newest.count - 1] <= time) return {pages, 0, 0};
  return chain.lower_bound(pool, {time + 1, INT64_MIN});
}
}  // namespace

std::int64_t rank_of(const BlockChain& chain, const BlockChain::Cursor& at, std::int64_t count) {
  const auto& pages = chain.pages();
  if (chain.at_end(at)) return count;
  const BlockChain::Page& page = pages[at.page];
  const auto block = static_cast<std::size_t>(at.block);
  std::int64_t rank = 0;
  if (2 * static_cast<std::size_t>(at.page) < pages.size()) {
    for (std::int32_t i = 0; i < at.page; ++i) rank += edges_of(pages[i], 0, pages[i].size());
    return rank + edges_of(page, 0, block) + at.offset;
  }
  rank = count - edges_of(page, block, page.size()) + at.offset;
  for (std::size_t i = static_cast<std::size_t>(at.page) + 1; i < pages.size(); ++i) {
    rank -= edges_of(pages[i], 0, pages[i].size());
  }
  return rank;
}

void PastFinder::find(std::span<const std::int64_t> vertices, std::span<const std::int64_t> times, Past* pasts,
                      PastSlice& slice) const {
  slice.clear();
  const std::size_t count = vertices.size();
  for (std::size_t i = 0; i < std::min(count, kRecordsAhead); ++i) {
    lists_.prefetch_list(static_cast<VertexId>(vertices[i]));
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kRecordsAhead < count) lists_.prefetch_list(static_cast<VertexId>(vertices[i + kRecordsAhead]));
    if (i + kTimesAhead < count) {
      const Adjacency::View list = lists_.view(static_cast<VertexId>(vertices[i + kTimesAhead]));
      if (list.chain == nullptr) {
        prefetch_line(pool_.times(list.place) + list.count - 1);
        prefetch_line(pool_.times(list.place) + list.count / 2);
      } else {
        prefetch_line(list.chain->pages().data());
      }
    }
    pasts[i] = find_one(static_cast<VertexId>(vertices[i]), times[i], slice);
  }
}

// Every look at a list of edges for a range of times passes here, for hops and for walks, pinned or not.
Past PastFinder::find_one(VertexId v, EdgeTime time, PastSlice& slice) const {
  const TimeRange range = cut_.range(time);
  if (range.first > range.last) return {0, 0};
  if (pin_ != nullptr && differs(v, range)) [[unlikely]]
    return pinned(v, range, slice);
  const Adjacency::View list = lists_.view(v);
  if (list.chain != nullptr) return in_chain(list, range, slice);
  return in_run(list, range);
}

Past PastFinder::in_run(const Adjacency::View& list, const TimeRange& range) const {
  if (list.count == 0) return {0, 0};
  const EdgeTime* times = pool_.times(list.place);
  const std::int32_t end =
      times[list.count - 1] <= range.last ? list.count : count_until(times, list.count, range.last);
  std::int32_t first = 0;
  if (cut_.has_first() && end > 0 && times[0] < range.first) first = count_until(times, end, range.first - 1);
  return {list.place + first, end - first};
}

Past PastFinder::in_chain(const Adjacency::View& list, const TimeRange& range, PastSlice& slice) const {
  const BlockChain& chain = *list.chain;
  LongPast found{&chain, end_of(pool_, chain, range.last), 0};
  const std::int64_t end = rank_of(chain, found.end, list.count);
  if (cut_.has_first()) found.first = rank_of(chain, chain.lower_bound(pool_, {range.first, INT64_MIN}), list.count);
  slice.longs.push_back(found);
  return {~static_cast<std::int64_t>(slice.longs.size() - 1), static_cast<std::int32_t>(end - found.first)};
}

bool PastFinder::differs(VertexId v, const TimeRange& range) const {
  const TemporalPin::Changes* changes = pin_->changes(v);
  return changes != nullptr && changes->any_between(range.first, range.last);
}

// The store's edges of the range that are no newer than the pin, and those that have gone since: from the newest back,
// until there are enough.
Past PastFinder::pinned(VertexId v, const TimeRange& range, PastSlice& slice) const {
  const TemporalPin::Changes& changes = *pin_->changes(v);
  const std::size_t start = slice.copies.size();
  const auto full = [&] { return enough_ >= 0 && slice.copies.size() - start >= static_cast<std::size_t>(enough_); };
  auto gone = changes.removed_until(range.last);
  const auto gone_first = changes.removed_until(range.first - (range.first > INT64_MIN));
  const auto take_gone_after = [&](const EdgeKey& key) {
    for (; gone != gone_first && key < std::prev(gone)->key(); --gone) slice.copies.push_back(std::prev(gone)->entry);
  };
  const auto take = [&](std::int64_t place) {  // false once no older edge can be wanted
    const EdgeKey key = pool_.key(place);
    if (key.major < range.first || full()) return false;
    take_gone_after(key);
    if (key.minor < pin_->next_edge_id()) slice.copies.push_back(pool_.read(place));
    return true;
  };
  const Adjacency::View list = lists_.view(v);
  if (list.chain != nullptr) {
    BlockChain::Cursor at = end_of(pool_, *list.chain, range.last);
    if (list.chain->at_end(at)) {
      at.page = static_cast<std::int32_t>(list.chain->pages().size()) - 1;
      at.block = static_cast<std::int32_t>(list.chain->pages().back().size()) - 1;
      at.offset = list.chain->block(at).count;
    }
    while (list.chain->previous(at) && take(list.chain->place(at))) {
    }
  } else {
    std::int32_t end = count_until(pool_.times(list.place), list.count, range.last);
    while (end > 0 && take(list.place + end - 1)) --end;
  }
  take_gone_after({INT64_MIN, INT64_MIN});
  if (full()) slice.copies.resize(start + static_cast<std::size_t>(enough_));
  std::reverse(slice.copies.begin() + static_cast<std::ptrdiff_t>(start), slice.copies.end());
  slice.longs.push_back({nullptr, {}, static_cast<std::int64_t>(start)});
  return {~static_cast<std::int64_t>(slice.longs.size() - 1), static_cast<std::int32_t>(slice.copies.size() - start)};
}

}  // namespace livegnn
