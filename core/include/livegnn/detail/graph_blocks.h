// Blocks of edges: one pool of columns for all blocks of one direction, and chains of blocks for long lists.
//
// The pool keeps each column (neighbour, id, and weight, time, type where asked for) in one array shared by all blocks;
// a block is a run [place, place + capacity) in all of them. So a scan of neighbours touches neighbours only, and
// blocks loaded together lie in vertex order as in CSR. Freed runs go to a list of their size class; the links lie in
// ids.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "livegnn/detail/graph_copies.h"
#include "livegnn/detail/graph_memory.h"
#include "livegnn/detail/prefetch.h"
#include "livegnn/types.h"

namespace livegnn {

// The order of edges in a list: (time, id), or (0, id) without times; in a hub's index: (neighbour, id).
struct EdgeKey {
  std::int64_t major;
  std::int64_t minor;
  friend bool operator<(const EdgeKey& a, const EdgeKey& b) {
    return a.major < b.major || (a.major == b.major && a.minor < b.minor);
  }
  friend bool operator==(const EdgeKey&, const EdgeKey&) = default;
};

struct PoolColumns {
  bool weight = false;
  bool time = false;
  bool type = false;
  bool keyed_by_neighbour = false;
};

class BlockPool {
 public:
  BlockPool() = default;
  BlockPool(PoolColumns columns, std::int32_t block_edges_max);

  std::int32_t block_edges_max() const { return class_capacity_.back(); }
  std::int32_t page_blocks_max() const { return page_blocks_max_; }
  // Smallest capacity of a size class that holds `count` edges, 1 <= count <= block_edges_max.
  std::int32_t fit(std::int32_t count) const { return class_capacity_[class_of_[count]]; }

  // Capacity of a block that has to grow to hold `count` edges: with half as many to spare.
  std::int32_t grown(std::int32_t count) const { return fit(std::min(count + count / 2, block_edges_max())); }

  std::int64_t allocate(std::int32_t capacity);  // capacity as given by fit(); may move the columns
  void free(std::int64_t place, std::int32_t capacity);
  void reserve(std::int64_t places);         // room for so many places in all
  std::int64_t extend(std::int64_t places);  // for bulk loads: a fresh run, cut into blocks by the caller
  // The places of another pool with the same columns, to be read here; this pool is empty, and hands out none.
  void copy_from(const BlockPool& other, CopyPlan& plan);

  EdgeKey key(std::int64_t place) const {
    if (columns_.keyed_by_neighbour) return {neighbours_[place], ids_[place]};
    return {columns_.time ? times_[place] : 0, ids_[place]};
  }
  EdgeKey key(const EdgeEntry& e) const {
    if (columns_.keyed_by_neighbour) return {e.neighbour, e.id};
    return {columns_.time ? e.time : 0, e.id};
  }
  EdgeEntry read(std::int64_t place) const { return span(place, 1).entry(0); }
  void write(std::int64_t place, const EdgeEntry& entry) {
    neighbours_[place] = entry.neighbour;
    ids_[place] = entry.id;
    if (columns_.weight) weights_[place] = entry.weight;
    if (columns_.time) times_[place] = entry.time;
    if (columns_.type) types_[place] = entry.type;
  }
  void write_run(std::int64_t place, const EdgeSpan& run, std::int32_t first, std::int32_t count);
  void set_weight(std::int64_t place, float weight) { weights_[place] = weight; }
  void copy(std::int64_t to, std::int64_t from, std::int32_t count);  // may overlap
  // First place in [place, place + count) whose key is not below `key`, as an offset.
  std::int32_t lower_bound(std::int64_t place, std::int32_t count, const EdgeKey& key) const;
  void sort(std::int64_t place, std::int64_t count);  // by key, stable

  EdgeSpan span(std::int64_t place, std::int32_t count) const {
    return {neighbours_.data() + place,
            columns_.weight ? weights_.data() + place : nullptr,
            ids_.data() + place,
            columns_.time ? times_.data() + place : nullptr,
            columns_.type ? types_.data() + place : nullptr,
            count};
  }
  const VertexId* neighbours(std::int64_t place) const { return neighbours_.data() + place; }
  const EdgeId* ids(std::int64_t place) const { return ids_.data() + place; }
  bool has_times() const { return columns_.time; }
  bool has_types() const { return columns_.type; }
  bool has_weights() const { return columns_.weight; }
  const std::int32_t* types(std::int64_t place) const { return types_.data() + place; }  // of a pool with types
  const float* weights(std::int64_t place) const { return weights_.data() + place; }     // of a pool with weights
  const EdgeTime* times(std::int64_t place) const { return times_.data() + place; }      // of a pool with times

  void prefetch(std::int64_t place) const {
    prefetch_line(neighbours_.data() + place);
    prefetch_line(ids_.data() + place);
  }

  void prefetch_append(std::int64_t place) const {  // the last key before the place, and every column at it
    prefetch(place);
    prefetch_line(ids_.data() + place - 1);
    if (columns_.time) {
      prefetch_line(times_.data() + place);
      prefetch_line(times_.data() + place - 1);
    }
    if (columns_.type) prefetch_line(types_.data() + place);
    if (columns_.weight) prefetch_line(weights_.data() + place);
  }

  PoolColumns columns() const { return columns_; }
  std::int64_t places_used() const { return top_; }   // handed out or on a free list
  std::int64_t places_free() const { return free_; }  // on free lists
  std::size_t place_bytes() const;                    // bytes per place, all columns

 private:
  PoolColumns columns_;
  std::int32_t page_blocks_max_ = 128;
  Column<VertexId> neighbours_;
  Column<EdgeId> ids_;
  Column<float> weights_;
  Column<EdgeTime> times_;
  Column<std::int32_t> types_;
  std::int64_t top_ = 0;
  std::int64_t free_ = 0;
  std::vector<std::int32_t> class_capacity_;  // ascending
  std::vector<std::uint8_t> class_of_;        // by count
  std::vector<std::int64_t> class_head_;      // first free block of each class, -1 when none
};

// Where the edges of a chain stand, by block in key order: for readers that ask for ranks, which the pages do not know.
struct BlockTable {
  std::int64_t blocks;
  const std::int64_t* first;   // the major part of the block's first key
  const std::int64_t* before;  // edges in the blocks before it
  const std::int64_t* place;
};

struct BlockTail {  // of the last block, as in the table
  std::int64_t first, before, place;
};

// The blocks from the first on that lie one behind the other in the pool, as those of a bulk load do.
struct BlockRun {
  std::int64_t place;
  std::int64_t edges;  // before the first block that lies elsewhere; INT64_MAX: there is none
  std::int64_t next;   // the major part of that block's first key
  // Whether all of a chain's `count` edges that come before a key with a larger major part lie in it.
  bool holds(std::int64_t count, std::int64_t major) const { return count <= edges || major < next; }
};

// The table of one chain, made by the first reader that wants it and dropped by the writer where blocks change. Readers
// may ask at the same time; a writer is alone.
class BlockTableSlot {
 public:
  BlockTableSlot() = default;
  BlockTableSlot(BlockTableSlot&&) noexcept {}  // a chain that was moved makes its table anew
  BlockTableSlot& operator=(BlockTableSlot&& other) noexcept {
    drop();
    other.drop();
    return *this;
  }
  ~BlockTableSlot() { drop(); }
  void drop() {
    if (values_.load(std::memory_order_relaxed) != nullptr) delete[] values_.exchange(nullptr);
  }
  bool empty() const { return values_.load(std::memory_order_acquire) == nullptr; }
  static constexpr std::int64_t kHead = 7;  // values before the three columns: blocks, BlockTail's, BlockRun's
  void set(std::unique_ptr<std::int64_t[]> values) const {  // the first one stays
    std::int64_t* none = nullptr;
    if (values_.compare_exchange_strong(none, values.get(), std::memory_order_acq_rel)) values.release();
  }
  BlockTable get() const {
    const std::int64_t* values = values_.load(std::memory_order_acquire);
    return {values[0], values + kHead, values + kHead + values[0], values + kHead + 2 * values[0]};
  }
  BlockTail tail() const {  // side by side, where the table begins
    const std::int64_t* values = values_.load(std::memory_order_acquire);
    return {values[1], values[2], values[3]};
  }
  BlockRun run() const {
    const std::int64_t* values = values_.load(std::memory_order_acquire);
    return {values[4], values[5], values[6]};
  }
  void prefetch() const { prefetch_line(values_.load(std::memory_order_relaxed)); }

 private:
  mutable std::atomic<std::int64_t*> values_{nullptr};
};

// A long list: blocks in key order, their directory in pages, so that an insertion or a removal moves at most one block
// of edges and one page of the directory: O(log d + block_edges_max).
class BlockChain {
 public:
  struct Block {
    EdgeKey first;  // key of its first edge; its last one ends before the next block's first
    std::int64_t place;
    std::int32_t count;
    std::int32_t capacity;
  };
  using Page = std::vector<Block>;
  struct Cursor {
    std::int32_t page = 0;
    std::int32_t block = 0;
    std::int32_t offset = 0;
  };

  const std::vector<Page>& pages() const { return pages_; }
  template <typename Visitor>
  void each_block(Visitor&& visitor) const {
    for (const Page& page : pages_) {
      for (const Block& block : page) visitor(block);
    }
  }
  bool empty() const { return pages_.empty(); }
  const Block& block(const Cursor& at) const { return pages_[at.page][at.block]; }
  bool at_end(const Cursor& at) const { return at.page == static_cast<std::int32_t>(pages_.size()); }
  std::int64_t place(const Cursor& at) const { return block(at).place + at.offset; }

  Cursor lower_bound(const BlockPool& pool, const EdgeKey& key) const;  // first edge not below key, or the end
  Cursor next_block(const Cursor& at) const {
    if (at.block + 1 < static_cast<std::int32_t>(pages_[at.page].size())) return {at.page, at.block + 1, 0};
    return {at.page + 1, 0, 0};
  }
  bool previous(Cursor& at) const;  // one edge back; false at the start
  void insert(BlockPool& pool, const EdgeEntry& entry);
  void append(BlockPool& pool, const EdgeSpan& run, std::int32_t first);  // run[first, count), behind the last edge
  void erase(BlockPool& pool, const Cursor& at);
  void append_block(const BlockPool& pool, std::int64_t place, std::int32_t count, std::int32_t capacity);
  std::int64_t erase_before(BlockPool& pool, const EdgeKey& key);  // returns how many edges went
  void clear(BlockPool& pool);
  std::size_t bytes() const;

  // Stays as it is while edges are only appended to the last block, and that has room.
  BlockTable table() const {
    if (table_.empty()) make_table();
    return table_.get();
  }
  BlockTail tail() const {
    if (table_.empty()) make_table();
    return table_.tail();
  }
  BlockRun run() const {
    if (table_.empty()) make_table();
    return table_.run();
  }
  void prefetch_table() const { table_.prefetch(); }

  template <typename Visitor>
  void visit(const BlockPool& pool, Visitor&& visitor) const {
    for (const Page& page : pages_) {
      for (std::size_t i = 0; i < page.size(); ++i) {
        if (i + 1 < page.size()) prefetch_line(pool.neighbours(page[i + 1].place));
        visitor(pool.span(page[i].place, page[i].count));
      }
    }
  }

 private:
  Cursor block_for(const EdgeKey& key) const;  // the last block whose first key is not above key, or the first block
  void insert_block(const BlockPool& pool, const Cursor& before, const Block& block);
  void erase_block(BlockPool& pool, std::int32_t page, std::int32_t block);
  void split(BlockPool& pool, Cursor& at);  // makes room at `at` in a full block
  std::int32_t last_capacity(const BlockPool& pool, std::int32_t count) const;
  void merge(BlockPool& pool, std::int32_t page, std::int32_t left);
  static void resize(BlockPool& pool, Block& block, std::int32_t capacity);

  void make_table() const;

  std::vector<Page> pages_;  // none is empty
  BlockTableSlot table_;
};

}  // namespace livegnn
