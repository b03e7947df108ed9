// All edge lists of one direction. A vertex's record (16 bytes) points straight at its one block; a vertex with more
// than block_edges_max edges is a hub: a chain of blocks, and, in an indexed direction once it is long, an index by
// neighbour.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "livegnn/detail/graph_blocks.h"
#include "livegnn/detail/prefetch.h"
#include "livegnn/types.h"

namespace livegnn {

class ThreadPool;

// Which of several parallel edges is meant; unset fields match all.
struct EdgeFilter {
  EdgeTime time = INT64_MIN;
  std::int32_t type = INT32_MIN;
  EdgeId id = kNoEdge;
  bool matches(const EdgeEntry& entry) const {
    return (time == INT64_MIN || entry.time == time) && (type == INT32_MIN || entry.type == type) &&
           (id == kNoEdge || entry.id == id);
  }
};

struct BlockStats {
  std::int64_t lists = 0;       // that hold edges
  std::int64_t blocks = 0;      // of all lists
  std::int64_t blocks_max = 0;  // of one list
  std::int64_t edges = 0;
  std::int64_t places = 0;  // of the blocks, edges or not
};

class Adjacency {
 public:
  Adjacency() = default;
  ~Adjacency();
  Adjacency(const Adjacency&) = delete;
  Adjacency& operator=(const Adjacency&) = delete;
  // indexed: long lists get an index by neighbour once they need it, so that find_newest() stays O(log d).
  void configure(PoolColumns columns, std::int32_t block_edges_max, bool indexed);

  void reset();                      // back to no slots and no edges
  void resize(VertexId slot_count);  // new lists are empty; lists that go must be
  VertexId slot_count() const { return slot_count_; }
  std::int32_t count(VertexId v) const { return lists_[v].count; }

  void insert(VertexId v, const EdgeEntry& entry);
  void insert_run(VertexId v, const EdgeSpan& run);  // edges new to the list, by ascending id
  void erase(VertexId v, const EdgeKey& key);        // the key must be there
  bool erase_found(VertexId v, const EdgeKey& key);  // false where it is not
  void set_weight(VertexId v, const EdgeKey& key, float weight);
  EdgeKey key(const EdgeEntry& entry) const { return pool_.key(entry); }
  bool is_indexed(VertexId v) const { return lists_[v].capacity == kHub && lists_[v].hub->indexed; }
  // An index is built once it has been missed a few times: a reader that scans a long list for want of one says so, and
  // the writer builds it when it next looks up or inserts there. From then on it is kept up.
  void note_scan(VertexId v) const;
  void index_if_wanted(VertexId v);
  std::int32_t scan_max() const {
    return 4 * pool_.block_edges_max();
  }  // shorter lists are scanned rather than looked up
  // The edge of v's list with this neighbour, the filter's match with the largest id; id == kNoEdge when there is none.
  EdgeEntry find_newest(VertexId v, VertexId neighbour, const EdgeFilter& filter) const;
  std::optional<EdgeEntry> find(VertexId v, const EdgeKey& key) const;
  EdgeEntry first(VertexId v) const;  // first edge of a non-empty list
  EdgeKey last_key(VertexId v) const { return last_key(lists_[v]); }
  EdgeTime first_time_from(VertexId v, EdgeTime time) const;  // of the first edge from that time on; INT64_MAX: none
  std::int64_t erase_before(VertexId v, EdgeTime time);       // edges with an earlier time; returns how many
  void clear(VertexId v);

  template <typename Visitor>
  void visit(VertexId v, Visitor&& visitor) const {
    const EdgeList& list = lists_[v];
    if (list.capacity != kHub) [[likely]] {
      if (list.count > 0) visitor(pool_.span(list.place, list.count));
      return;
    }
    list.hub->edges.visit(pool_, visitor);
  }

  // Where a list lies, for readers with loops of their own: one run of the pool's columns, or a hub's chain.
  struct View {
    const BlockChain* chain;  // nullptr for one run
    std::int64_t place;       // of that run
    std::int32_t count;
  };
  View view(VertexId v) const {
    const EdgeList& list = lists_[v];
    if (list.capacity == kHub) return {&list.hub->edges, 0, list.count};
    return {nullptr, list.place, list.count};
  }

  // visitor(span, first, last) over t_from <= time < t_to; the pool has times.
  template <typename Visitor>
  void visit_between(VertexId v, EdgeTime t_from, EdgeTime t_to, Visitor&& visitor) const {
    const EdgeList& list = lists_[v];
    if (t_from >= t_to || list.count == 0) return;
    const EdgeKey from{t_from, INT64_MIN}, to{t_to, INT64_MIN};
    const auto visit_block = [&](std::int64_t place, std::int32_t count) {
      const std::int32_t first = pool_.lower_bound(place, count, from);
      const std::int32_t last = pool_.lower_bound(place, count, to);
      if (first < last) visitor(pool_.span(place, count), first, last);
    };
    if (list.capacity != kHub) return visit_block(list.place, list.count);
    const auto& pages = list.hub->edges.pages();
    BlockChain::Cursor at = list.hub->edges.lower_bound(pool_, from);
    for (; !list.hub->edges.at_end(at); ++at.page, at.block = 0) {
      const BlockChain::Page& page = pages[at.page];
      for (; at.block < static_cast<std::int32_t>(page.size()); ++at.block) {
        if (!(page[at.block].first < to)) return;
        visit_block(page[at.block].place, page[at.block].count);
      }
    }
  }

  void prefetch_list(VertexId v) const { prefetch_line(lists_.data() + v); }
  void prefetch_edges(VertexId v) const {
    const EdgeList& list = lists_[v];
    if (list.capacity == kHub) return prefetch_line(list.hub);
    prefetch_line(pool_.neighbours(list.place));
  }
  // Towards where a new edge will be written, a link a step: the record, then its block's columns or, for a hub, the
  // hub, the page, the block and its columns. Each step reads what the one before brought in.
  static constexpr int kAppendSteps = 5;
  void prefetch_append(VertexId v, int step) const;

  // ---- bulk load of an empty store, in three steps: plan(degrees), write every edge in id order with place_of(),
  // finish()
  void plan(std::span<const std::int32_t> degrees);
  std::int64_t place_of(VertexId v) const {
    return lists_[v].place;
  }  // start of v's contiguous run; before finish() only
  BlockPool& pool() { return pool_; }
  const BlockPool& pool() const { return pool_; }
  void finish(ThreadPool& threads);  // sorts by time where needed, cuts hubs into blocks

  BlockStats block_stats() const;
  std::size_t live_bytes() const { return static_cast<std::size_t>(entry_count_) * pool_.place_bytes(); }
  std::size_t reserved_bytes() const { return static_cast<std::size_t>(pool_.places_used()) * pool_.place_bytes(); }
  std::size_t index_bytes() const;
  std::size_t list_bytes() const { return lists_.bytes(); }
  std::int64_t entry_count() const { return entry_count_; }
  bool wants_compaction() const;
  void compact();
  void check_invariants() const;

 private:
  static constexpr std::int32_t kHub = -1;
  struct Hub {
    BlockChain edges;
    BlockChain index;
    bool indexed = false;
    mutable std::atomic<std::int32_t> scans{0};  // for want of an index
  };
  struct EdgeList {
    union {
      std::int64_t place;
      Hub* hub;  // owned
    };
    std::int32_t count;
    std::int32_t capacity;  // of its one block, 0 when it has none; kHub
  };
  static_assert(sizeof(EdgeList) == 16);

  std::int32_t index_min() const { return 8 * pool_.block_edges_max(); }
  void resize_block(EdgeList& list, std::int32_t capacity);
  void make_hub(EdgeList& list);
  void make_single(EdgeList& list);
  void release(EdgeList& list);
  void delete_hubs();
  bool wants_index(const EdgeList& list) const;
  EdgeKey last_key(const EdgeList& list) const;  // of a list that is not empty
  template <typename Visitor>
  void each_block(const EdgeList& list, Visitor&& visitor) const {  // visitor(place, count, capacity)
    if (list.capacity != kHub) return visitor(list.place, list.count, list.capacity);
    list.hub->edges.each_block([&](const BlockChain::Block& b) { visitor(b.place, b.count, b.capacity); });
  }
  void append(EdgeList& list, const EdgeSpan& run, std::int32_t first);  // run[first, count), behind the last edge
  void build_index(Hub& hub, std::int32_t count);
  void erase_before_in_index(EdgeList& list, EdgeTime time);
  void drop_index(Hub& hub);
  void shrink_single(EdgeList& list);
  void shrink_hub(EdgeList& list);  // after removals: drop the index, go back to one block
  std::int64_t place_from(const EdgeList& list, const EdgeKey& key) const;
  std::int64_t find_place(const EdgeList& list, const EdgeKey& key) const;  // -1 when it is not there
  std::int64_t place_at(const EdgeList& list, const EdgeKey& key) const;    // it must be there
  EdgeEntry find_by_scan(const EdgeList& list, VertexId neighbour, const EdgeFilter& filter) const;
  EdgeEntry find_by_index(const EdgeList& list, VertexId neighbour, const EdgeFilter& filter) const;
  void check_hub(VertexId v, const EdgeList& list) const;
  std::int64_t run_length(std::int64_t count) const;  // places of a list of so many edges when loaded at once

  BlockPool pool_;
  BlockPool index_pool_;
  bool indexed_ = false;
  Column<EdgeList> lists_;
  VertexId slot_count_ = 0;
  std::int64_t entry_count_ = 0;
};

}  // namespace livegnn
