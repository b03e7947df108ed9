// Whole lists at once: bulk load, indexes of hubs, compaction, and the checks.
#include <algorithm>
#include <memory>
#include <string>

#include "livegnn/detail/graph_adjacency.h"
#include "livegnn/error.h"
#include "util/thread_pool.h"

namespace livegnn {

std::int64_t Adjacency::run_length(std::int64_t count) const {
  if (count == 0) return 0;
  const std::int64_t largest = pool_.block_edges_max();
  const std::int64_t rest = count % largest;
  return count - rest + (rest > 0 ? pool_.fit(static_cast<std::int32_t>(rest)) : 0);
}

void Adjacency::reset() {
  delete_hubs();
  slot_count_ = 0;
  entry_count_ = 0;
  pool_ = BlockPool(pool_.columns(), pool_.block_edges_max());
  index_pool_ = BlockPool(index_pool_.columns(), index_pool_.block_edges_max());
}

void Adjacency::plan(std::span<const std::int32_t> degrees) {
  std::int64_t places = 0;
  for (VertexId v = 0; v < slot_count_; ++v) {
    lists_[v] = EdgeList{{places}, degrees[v], 0};
    places += run_length(degrees[v]);
    entry_count_ += degrees[v];
  }
  pool_.reserve(places + places / 8);
  pool_.extend(places);
}

void Adjacency::finish(ThreadPool& threads) {
  threads.run_pieces(slot_count_, 1024, [&](std::int64_t begin, std::int64_t end) {
    for (auto v = static_cast<VertexId>(begin); v < end; ++v) {
      EdgeList& list = lists_[v];
      if (list.count == 0) continue;
      if (pool_.columns().time) pool_.sort(list.place, list.count);
      if (list.count <= pool_.block_edges_max()) {
        list.capacity = pool_.fit(list.count);
        continue;
      }
      auto hub = std::make_unique<Hub>();
      std::int64_t place = list.place;
      for (std::int32_t left = list.count; left > 0;) {
        const std::int32_t block = std::min(left, pool_.block_edges_max()), capacity = pool_.fit(block);
        hub->edges.append_block(pool_, place, block, capacity);
        place += capacity;
        left -= block;
      }
      list.hub = hub.release();
      list.capacity = kHub;
    }
  });
}

// Where there is no memory for it, the hub goes on without, and it is tried again after as many scans.
void Adjacency::build_index(Hub& hub, std::int32_t count) try {
  std::vector<EdgeEntry> entries;
  entries.reserve(static_cast<std::size_t>(count));
  hub.edges.visit(pool_, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) entries.push_back(span.entry(i));
  });
  std::sort(entries.begin(), entries.end(), [](const EdgeEntry& a, const EdgeEntry& b) {
    return a.neighbour < b.neighbour || (a.neighbour == b.neighbour && a.id < b.id);
  });
  const std::int32_t largest = index_pool_.block_edges_max();
  for (std::int32_t begin = 0; begin < count; begin += largest) {
    const std::int32_t block = std::min(largest, count - begin);
    const std::int32_t capacity = index_pool_.fit(block);
    const std::int64_t place = index_pool_.allocate(capacity);
    for (std::int32_t i = 0; i < block; ++i) index_pool_.write(place + i, entries[begin + i]);
    hub.index.append_block(index_pool_, place, block, capacity);
  }
  hub.indexed = true;
} catch (...) {  // no room for it
  drop_index(hub);
}

void Adjacency::drop_index(Hub& hub) {
  hub.index.clear(index_pool_);
  hub.indexed = false;
  hub.scans.store(0, std::memory_order_relaxed);
}

std::size_t Adjacency::index_bytes() const {
  std::size_t total = static_cast<std::size_t>(index_pool_.places_used()) * index_pool_.place_bytes();
  for (VertexId v = 0; v < slot_count_; ++v) {
    if (lists_[v].capacity == kHub) {
      total += sizeof(Hub) + lists_[v].hub->edges.bytes() + lists_[v].hub->index.bytes();
    }
  }
  return total;
}

BlockStats Adjacency::block_stats() const {
  BlockStats stats;
  for (VertexId v = 0; v < slot_count_; ++v) {
    const EdgeList& list = lists_[v];
    if (list.count == 0) continue;
    std::int64_t blocks = 0;
    each_block(list, [&](std::int64_t, std::int32_t, std::int32_t capacity) {
      ++blocks;
      stats.places += capacity;
    });
    ++stats.lists;
    stats.blocks += blocks;
    stats.blocks_max = std::max(stats.blocks_max, blocks);
    stats.edges += list.count;
  }
  return stats;
}

bool Adjacency::wants_compaction() const {
  constexpr std::int64_t kSlack = std::int64_t{1} << 18;  // not worth the walk over all vertices below this
  const auto idle = [](const BlockPool& pool) {
    return pool.places_free() > pool.places_used() - pool.places_free() + kSlack;
  };
  return idle(pool_) || idle(index_pool_);
}

// The same lists, loaded anew.
void Adjacency::compact() {
  Adjacency packed;
  packed.configure(pool_.columns(), pool_.block_edges_max(), indexed_);
  packed.resize(slot_count_);
  std::vector<std::int32_t> degrees(static_cast<std::size_t>(slot_count_));
  for (VertexId v = 0; v < slot_count_; ++v) degrees[v] = lists_[v].count;
  packed.plan(degrees);
  for (VertexId v = 0; v < slot_count_; ++v) {
    std::int64_t end = packed.place_of(v);
    visit(v, [&](const EdgeSpan& span) {
      packed.pool_.write_run(end, span, 0, span.count);
      end += span.count;
    });
  }
  ThreadPool alone(1);
  packed.finish(alone);
  for (VertexId v = 0; v < slot_count_; ++v) {
    if (is_indexed(v)) packed.build_index(*packed.lists_[v].hub, packed.lists_[v].count);
  }
  std::swap(pool_, packed.pool_);
  std::swap(index_pool_, packed.index_pool_);
  lists_.swap(packed.lists_);
}

namespace {
// Blocks filled, keys ascending and `first` true; returns the number of edges.
std::int64_t check_chain(const BlockPool& pool, const BlockChain& chain) {
  std::int64_t count = 0;
  EdgeKey last{INT64_MIN, INT64_MIN};
  for (const BlockChain::Page& page : chain.pages()) {
    invariant(!page.empty() && static_cast<std::int32_t>(page.size()) <= pool.page_blocks_max(),
              "a directory page is empty or too long");
    for (const BlockChain::Block& block : page) {
      invariant(block.count > 0 && block.count <= block.capacity && block.capacity <= pool.block_edges_max(),
                "a block is empty or too long");
      invariant(block.first == pool.key(block.place), "a directory entry differs from its block");
      for (std::int32_t i = 0; i < block.count; ++i) {
        const EdgeKey key = pool.key(block.place + i);
        invariant(last < key, "edges of a hub are out of order");
        last = key;
      }
      count += block.count;
    }
  }
  return count;
}
}  // namespace

void Adjacency::check_hub(VertexId v, const EdgeList& list) const {
  const Hub& hub = *list.hub;
  invariant(check_chain(pool_, hub.edges) == list.count, "a hub's blocks do not hold its degree");
  invariant(hub.indexed || hub.index.empty(), "a hub without an index has index blocks");
  invariant(indexed_ || !hub.indexed, "a hub of a direction without indexes has one");
  if (!hub.indexed) return;
  invariant(check_chain(index_pool_, hub.index) == list.count, "a hub's index does not hold its degree");
  visit(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) {
      const BlockChain::Cursor at = hub.index.lower_bound(index_pool_, {span.neighbours[i], span.ids[i]});
      invariant(!hub.index.at_end(at), "an edge is missing from a hub's index");
      const EdgeEntry found = index_pool_.read(hub.index.place(at));
      invariant(found.neighbour == span.neighbours[i] && found.id == span.ids[i] &&
                    (span.times == nullptr || found.time == span.times[i]),
                "an edge differs from its entry in a hub's index");
    }
  });
}

void Adjacency::check_invariants() const {
  std::int64_t entries = 0, places = 0;
  for (VertexId v = 0; v < slot_count_; ++v) {
    const EdgeList& list = lists_[v];
    entries += list.count;
    each_block(list, [&](std::int64_t, std::int32_t, std::int32_t capacity) { places += capacity; });
    if (list.capacity == kHub) {
      invariant(list.count > pool_.block_edges_max() / 2, "a short list is stored as a hub");
      check_hub(v, list);
      continue;
    }
    invariant(list.count <= list.capacity && list.capacity <= std::max(3 * list.count, 1),
              "a single block is too short or too empty");
    for (std::int32_t i = 1; i < list.count; ++i) {
      invariant(pool_.key(list.place + i - 1) < pool_.key(list.place + i), "edges of a list are out of order");
    }
  }
  invariant(entries == entry_count_, "the edge counter differs from the lists");
  invariant(places + pool_.places_free() == pool_.places_used(), "places leak from the pool");
}

}  // namespace livegnn
