// Single edges in and out of the lists of one direction.
#include <algorithm>
#include <memory>

#include "livegnn/detail/graph_adjacency.h"
#include "livegnn/error.h"

namespace livegnn {

namespace {
// Offset of the last `wanted` in values[0, count), or -1. Sixteen at a time, so that it vectorises.
std::int32_t find_last(const VertexId* values, std::int32_t count, VertexId wanted) {
  constexpr std::int32_t kLanes = 16;
  while (count >= kLanes) {
    const VertexId* chunk = values + count - kLanes;
    std::int32_t hits = 0;
    for (std::int32_t i = 0; i < kLanes; ++i) hits += chunk[i] == wanted;
    if (hits > 0) break;
    count -= kLanes;
  }
  while (count > 0 && values[count - 1] != wanted) --count;
  return count - 1;
}

// False where there was no room for it, in memory or a file; the index is then to be dropped: a hub can do without.
bool add_to_index(BlockChain& index, BlockPool& pool, const EdgeEntry& entry) {
  try {
    index.insert(pool, entry);
    return true;
  } catch (...) {
    return false;
  }
}
}  // namespace

Adjacency::~Adjacency() { delete_hubs(); }

void Adjacency::delete_hubs() {
  for (VertexId v = 0; v < slot_count_; ++v) {
    if (lists_[v].capacity == kHub) delete lists_[v].hub;
  }
}

void Adjacency::configure(PoolColumns columns, std::int32_t block_edges_max, bool indexed) {
  pool_ = BlockPool(columns, block_edges_max);
  PoolColumns index_columns;
  index_columns.time = columns.time;
  index_columns.keyed_by_neighbour = true;
  index_pool_ = BlockPool(index_columns, block_edges_max);
  indexed_ = indexed;
}

void Adjacency::resize(VertexId slot_count) {
  lists_.reserve(slot_count);
  for (VertexId v = slot_count_; v < slot_count; ++v) lists_[v] = EdgeList{{0}, 0, 0};
  slot_count_ = slot_count;
}

void Adjacency::resize_block(EdgeList& list, std::int32_t capacity) {
  const std::int64_t place = pool_.allocate(capacity);
  if (list.capacity > 0) {
    pool_.copy(place, list.place, list.count);
    pool_.free(list.place, list.capacity);
  }
  list.place = place;
  list.capacity = capacity;
}

void Adjacency::make_hub(EdgeList& list) {
  auto hub = std::make_unique<Hub>();
  hub->edges.append_block(pool_, list.place, list.count, list.capacity);
  list.hub = hub.release();
  list.capacity = kHub;
}

void Adjacency::make_single(EdgeList& list) {
  const EdgeList single{{pool_.allocate(pool_.fit(list.count))}, list.count, pool_.fit(list.count)};
  std::int64_t end = single.place;
  list.hub->edges.each_block([&](const BlockChain::Block& block) {
    pool_.copy(end, block.place, block.count);
    end += block.count;
  });
  release(list);
  list = single;
}

// Its blocks are free; it has no edges.
void Adjacency::release(EdgeList& list) {
  if (list.capacity == kHub) {
    list.hub->edges.clear(pool_);
    list.hub->index.clear(index_pool_);
    delete list.hub;
  } else if (list.capacity > 0) {
    pool_.free(list.place, list.capacity);
  }
  list = EdgeList{{0}, 0, 0};
}

void Adjacency::insert(VertexId v, const EdgeEntry& entry) {
  EdgeList& list = lists_[v];
  const std::int32_t largest = pool_.block_edges_max();
  if (list.capacity != kHub && list.count == list.capacity) {
    if (list.count == largest) {
      make_hub(list);
    } else {
      resize_block(list, pool_.grown(list.count + 1));
    }
  }
  if (list.capacity == kHub) {
    Hub& hub = *list.hub;
    hub.edges.insert(pool_, entry);
    ++list.count;
    if (hub.indexed) {
      if (!add_to_index(hub.index, index_pool_, entry)) drop_index(hub);
    } else if (wants_index(list)) {
      build_index(hub, list.count);
    }
  } else {
    const std::int32_t offset = pool_.lower_bound(list.place, list.count, pool_.key(entry));
    pool_.copy(list.place + offset + 1, list.place + offset, list.count - offset);
    pool_.write(list.place + offset, entry);
    ++list.count;
  }
  ++entry_count_;
}

EdgeKey Adjacency::last_key(const EdgeList& list) const {
  if (list.capacity != kHub) return pool_.key(list.place + list.count - 1);
  const BlockChain::Block& block = list.hub->edges.pages().back().back();
  return pool_.key(block.place + block.count - 1);
}

// Pieces that rise and begin behind the list's end are copied there; a late edge goes in alone.
void Adjacency::insert_run(VertexId v, const EdgeSpan& run) {
  for (std::int32_t first = 0; first < run.count;) {
    EdgeList& list = lists_[v];
    const EdgeKey key{run.times != nullptr ? run.times[first] : 0, run.ids[first]};
    if (list.count > 0 && key < last_key(list)) {
      insert(v, run.entry(first++));
      continue;
    }
    std::int32_t last = run.times != nullptr ? first + 1 : run.count;
    while (last < run.count && run.times[last - 1] <= run.times[last]) ++last;
    EdgeSpan piece = run;
    piece.count = last;
    append(list, piece, first);
    first = last;
  }
}

void Adjacency::append(EdgeList& list, const EdgeSpan& run, std::int32_t first) {
  const std::int32_t largest = pool_.block_edges_max(), added = run.count - first;
  if (list.capacity != kHub) {
    const std::int32_t in_block = std::min(added, largest - list.count);
    if (list.count + in_block > list.capacity) resize_block(list, pool_.grown(list.count + in_block));
    pool_.write_run(list.place + list.count, run, first, in_block);
    list.count += in_block;
    entry_count_ += in_block;
    if (in_block == added) return;
    make_hub(list);
    first += in_block;
  }
  Hub& hub = *list.hub;
  try {
    hub.edges.append(pool_, run, first);
  } catch (...) {  // the caller takes out again what is in
    const std::int32_t before = list.count;
    list.count = 0;
    hub.edges.each_block([&](const BlockChain::Block& block) { list.count += block.count; });
    entry_count_ += list.count - before;
    drop_index(hub);
    throw;
  }
  list.count += run.count - first;
  entry_count_ += run.count - first;
  if (hub.indexed) {
    for (std::int32_t i = first; i < run.count && hub.indexed; ++i) {
      if (!add_to_index(hub.index, index_pool_, run.entry(i))) drop_index(hub);
    }
  } else if (wants_index(list)) {
    build_index(hub, list.count);
  }
}

// Many scans cost less than one sort: hubs that are rarely searched go without.
bool Adjacency::wants_index(const EdgeList& list) const {
  constexpr std::int32_t kScansMax = 16;
  return indexed_ && list.count > index_min() && list.hub->scans.load(std::memory_order_relaxed) >= kScansMax;
}

void Adjacency::note_scan(VertexId v) const {
  const EdgeList& list = lists_[v];
  if (list.capacity == kHub && !list.hub->indexed) list.hub->scans.fetch_add(1, std::memory_order_relaxed);
}

void Adjacency::index_if_wanted(VertexId v) {
  EdgeList& list = lists_[v];
  if (list.capacity == kHub && !list.hub->indexed && wants_index(list)) build_index(*list.hub, list.count);
}

// The place of the first edge whose key is not below this one; -1 behind the last edge.
std::int64_t Adjacency::place_from(const EdgeList& list, const EdgeKey& key) const {
  if (list.capacity != kHub) {
    const std::int32_t offset = pool_.lower_bound(list.place, list.count, key);
    return offset < list.count ? list.place + offset : -1;
  }
  const BlockChain::Cursor at = list.hub->edges.lower_bound(pool_, key);
  return list.hub->edges.at_end(at) ? -1 : list.hub->edges.place(at);
}

std::int64_t Adjacency::find_place(const EdgeList& list, const EdgeKey& key) const {
  const std::int64_t place = place_from(list, key);
  return place >= 0 && pool_.key(place) == key ? place : -1;
}

std::int64_t Adjacency::place_at(const EdgeList& list, const EdgeKey& key) const {
  const std::int64_t place = find_place(list, key);
  invariant(place >= 0, "an edge is missing from one direction");
  return place;
}

void Adjacency::erase(VertexId v, const EdgeKey& key) {
  invariant(erase_found(v, key), "an edge is missing from one direction");
}

bool Adjacency::erase_found(VertexId v, const EdgeKey& key) {
  EdgeList& list = lists_[v];
  if (list.capacity == kHub) {
    Hub& hub = *list.hub;
    const BlockChain::Cursor at = hub.edges.lower_bound(pool_, key);
    if (hub.edges.at_end(at) || !(pool_.key(hub.edges.place(at)) == key)) return false;
    if (hub.indexed) {
      const EdgeKey index_key{pool_.read(hub.edges.place(at)).neighbour, key.minor};
      hub.index.erase(index_pool_, hub.index.lower_bound(index_pool_, index_key));
    }
    hub.edges.erase(pool_, at);
    --list.count;
    shrink_hub(list);
  } else {
    const std::int64_t place = find_place(list, key);
    if (place < 0) return false;
    --list.count;
    pool_.copy(place, place + 1, static_cast<std::int32_t>(list.place + list.count - place));
    shrink_single(list);
  }
  --entry_count_;
  return true;
}

void Adjacency::shrink_single(EdgeList& list) {
  if (list.count == 0) {
    release(list);
  } else if (3 * list.count <= list.capacity) {
    resize_block(list, pool_.fit(list.count + list.count / 2));
  }
}

void Adjacency::shrink_hub(EdgeList& list) {
  if (list.hub->indexed && list.count < index_min() / 2) drop_index(*list.hub);
  if (list.count == 0) {
    release(list);
  } else if (list.count <= pool_.block_edges_max() / 2) {
    make_single(list);
  }
}

void Adjacency::set_weight(VertexId v, const EdgeKey& key, float weight) {
  pool_.set_weight(place_at(lists_[v], key), weight);
}

EdgeEntry Adjacency::find_newest(VertexId v, VertexId neighbour, const EdgeFilter& filter) const {
  const EdgeList& list = lists_[v];
  if (list.count == 0) return {};
  const bool has_time = pool_.columns().time;
  if (filter.id != kNoEdge && (!has_time || filter.time != INT64_MIN)) {  // the key is known
    const std::int64_t place = find_place(list, {has_time ? filter.time : 0, filter.id});
    if (place < 0) return {};
    const EdgeEntry entry = pool_.read(place);
    return entry.neighbour == neighbour && filter.matches(entry) ? entry : EdgeEntry{};
  }
  if (list.capacity == kHub && list.hub->indexed) return find_by_index(list, neighbour, filter);
  return find_by_scan(list, neighbour, filter);
}

EdgeEntry Adjacency::find_by_scan(const EdgeList& list, VertexId neighbour, const EdgeFilter& filter) const {
  EdgeEntry best;
  const bool in_id_order = !pool_.columns().time;  // then the first match from the back is the newest
  const auto scan_block = [&](std::int64_t place, std::int32_t count) {
    const VertexId* neighbours = pool_.neighbours(place);
    for (std::int32_t at = find_last(neighbours, count, neighbour); at >= 0;
         at = find_last(neighbours, at, neighbour)) {
      if (pool_.ids(place)[at] < best.id) continue;
      const EdgeEntry entry = pool_.read(place + at);
      if (!filter.matches(entry)) continue;
      best = entry;
      if (in_id_order) return;
    }
  };
  if (list.capacity != kHub) {
    scan_block(list.place, list.count);
    return best;
  }
  const auto& pages = list.hub->edges.pages();
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    for (auto block = page->rbegin(); block != page->rend(); ++block) {
      scan_block(block->place, block->count);
      if (in_id_order && best.id != kNoEdge) return best;
    }
  }
  return best;
}

EdgeEntry Adjacency::find_by_index(const EdgeList& list, VertexId neighbour, const EdgeFilter& filter) const {
  const BlockChain& index = list.hub->index;
  const EdgeKey past{neighbour, filter.id == kNoEdge || filter.id == INT64_MAX ? INT64_MAX : filter.id + 1};
  BlockChain::Cursor at = index.lower_bound(index_pool_, past);
  while (index.previous(at)) {
    const EdgeEntry found = index_pool_.read(index.place(at));
    if (found.neighbour != neighbour || (filter.id != kNoEdge && found.id != filter.id)) break;
    if (filter.time != INT64_MIN && found.time != filter.time) continue;
    const EdgeEntry entry = pool_.read(place_at(list, pool_.key(found)));
    if (filter.matches(entry)) return entry;
  }
  return {};
}

std::optional<EdgeEntry> Adjacency::find(VertexId v, const EdgeKey& key) const {
  const std::int64_t place = find_place(lists_[v], key);
  return place < 0 ? std::nullopt : std::optional(pool_.read(place));
}

EdgeEntry Adjacency::first(VertexId v) const {
  const EdgeList& list = lists_[v];
  return pool_.read(list.capacity == kHub ? list.hub->edges.pages().front().front().place : list.place);
}

EdgeTime Adjacency::first_time_from(VertexId v, EdgeTime time) const {
  const std::int64_t place = place_from(lists_[v], {time, INT64_MIN});
  return place < 0 ? INT64_MAX : pool_.read(place).time;
}

void Adjacency::erase_before_in_index(EdgeList& list, EdgeTime time) {
  Hub& hub = *list.hub;
  std::vector<EdgeKey> keys;
  const auto few = static_cast<std::size_t>(list.count / 8);
  for (BlockChain::Cursor at; keys.size() <= few && !hub.edges.at_end(at);) {
    const EdgeEntry entry = pool_.read(hub.edges.place(at));
    if (entry.time >= time) break;
    keys.push_back({entry.neighbour, entry.id});
    if (++at.offset == hub.edges.block(at).count) at = hub.edges.next_block(at);
  }
  if (keys.size() > few) return drop_index(hub);  // cheaper to build anew than to take out one by one
  for (const EdgeKey& key : keys) hub.index.erase(index_pool_, hub.index.lower_bound(index_pool_, key));
}

std::int64_t Adjacency::erase_before(VertexId v, EdgeTime time) {
  EdgeList& list = lists_[v];
  if (list.count == 0 || first(v).time >= time) return 0;
  const EdgeKey key{time, INT64_MIN};
  std::int64_t erased;
  if (list.capacity == kHub) {
    Hub& hub = *list.hub;
    if (hub.indexed) erase_before_in_index(list, time);
    erased = hub.edges.erase_before(pool_, key);
    list.count -= static_cast<std::int32_t>(erased);
    shrink_hub(list);
  } else {
    erased = pool_.lower_bound(list.place, list.count, key);
    list.count -= static_cast<std::int32_t>(erased);
    pool_.copy(list.place, list.place + erased, list.count);
    shrink_single(list);
  }
  entry_count_ -= erased;
  return erased;
}

void Adjacency::clear(VertexId v) {
  entry_count_ -= lists_[v].count;
  release(lists_[v]);
}

void Adjacency::prefetch_append(VertexId v, int step) const {
  const EdgeList& list = lists_[v];
  if (step == 0) return prefetch_line(&list);
  if (list.capacity != kHub) {
    if (step == 1 && list.capacity > 0) pool_.prefetch_append(list.place + list.count);
    return;
  }
  if (step == 1) return prefetch_line(list.hub);
  const auto& pages = list.hub->edges.pages();
  if (pages.empty()) return;
  if (step == 2) return prefetch_line(&pages.back());
  const BlockChain::Page& page = pages.back();
  if (step == 3) return prefetch_line(&page.back());
  pool_.prefetch_append(page.back().place + page.back().count);
}

}  // namespace livegnn
