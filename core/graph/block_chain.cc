// Long lists. Two adjacent blocks of a page hold more than three quarters of block_edges_max together, two adjacent
// pages more than half of page_blocks_max: so places and directory stay within a factor of the edges.
#include <algorithm>

#include "livegnn/detail/graph_blocks.h"
#include "livegnn/error.h"

namespace livegnn {

namespace {
bool starts_after(const EdgeKey& key, const BlockChain::Block& block) { return key < block.first; }
// May the blocks `left` and `left + 1` of the page become one?
bool sparse(const BlockPool& pool, const BlockChain::Page& page, std::int32_t left) {
  return page[left].count + page[left + 1].count <= pool.block_edges_max() * 3 / 4;
}
bool page_starts_after(const EdgeKey& key, const BlockChain::Page& page) { return key < page.front().first; }
}  // namespace

BlockChain::Cursor BlockChain::block_for(const EdgeKey& key) const {
  auto page = std::upper_bound(pages_.begin(), pages_.end(), key, page_starts_after);
  if (page == pages_.begin()) return {0, 0, 0};
  --page;
  const auto block = std::upper_bound(page->begin(), page->end(), key, starts_after) - 1;
  return {static_cast<std::int32_t>(page - pages_.begin()), static_cast<std::int32_t>(block - page->begin()), 0};
}

BlockChain::Cursor BlockChain::lower_bound(const BlockPool& pool, const EdgeKey& key) const {
  if (pages_.empty()) return {};
  Cursor at = block_for(key);
  const Block& found = block(at);
  at.offset = pool.lower_bound(found.place, found.count, key);
  if (at.offset < found.count) return at;
  return next_block(at);
}

bool BlockChain::previous(Cursor& at) const {
  if (at.offset > 0) {
    --at.offset;
    return true;
  }
  if (at.block > 0) {
    --at.block;
  } else {
    if (at.page == 0) return false;
    --at.page;
    at.block = static_cast<std::int32_t>(pages_[at.page].size()) - 1;
  }
  at.offset = block(at).count - 1;
  return true;
}

void BlockChain::resize(BlockPool& pool, Block& block, std::int32_t capacity) {
  const std::int64_t place = pool.allocate(capacity);
  pool.copy(place, block.place, block.count);
  pool.free(block.place, block.capacity);
  block.place = place;
  block.capacity = capacity;
}

void BlockChain::insert_block(const BlockPool& pool, const Cursor& before, const Block& block) {
  table_.drop();
  const auto count = static_cast<std::int32_t>(pages_[before.page].size()) + 1;
  const bool splits = count > pool.page_blocks_max();
  const bool at_tail = before.block == count - 1 && before.page + 1 == static_cast<std::int32_t>(pages_.size());
  const std::int32_t kept = at_tail ? count - 1 : count / 2;
  Page right;
  if (splits) {  // memory first: what throws leaves all as it was
    right.reserve(static_cast<std::size_t>(count - kept));
    if (pages_.size() == pages_.capacity()) pages_.reserve(2 * pages_.size());
  }
  Page& page = pages_[before.page];
  page.insert(page.begin() + before.block, block);
  if (!splits) return;
  right.assign(page.begin() + kept, page.end());
  page.resize(static_cast<std::size_t>(kept));
  pages_.insert(pages_.begin() + before.page + 1, std::move(right));
}

void BlockChain::erase_block(BlockPool& pool, std::int32_t page_index, std::int32_t block) {
  table_.drop();
  Page& page = pages_[page_index];
  page.erase(page.begin() + block);
  if (page.empty()) {
    pages_.erase(pages_.begin() + page_index);
    return;
  }
  for (const std::int32_t left : {page_index - 1, page_index}) {
    if (left < 0 || left + 1 >= static_cast<std::int32_t>(pages_.size())) continue;
    Page& into = pages_[left];
    Page& from = pages_[left + 1];
    if (static_cast<std::int32_t>(into.size() + from.size()) > pool.page_blocks_max() / 2) continue;
    const auto seam = static_cast<std::int32_t>(into.size()) - 1;
    into.insert(into.end(), from.begin(), from.end());
    pages_.erase(pages_.begin() + left + 1);
    if (sparse(pool, pages_[left], seam)) merge(pool, left, seam);
    return;
  }
}

// Of a new last block that begins with so many edges: about an eighth of the list, so that lists which have just grown
// long do not all hold a block's worth of idle places.
std::int32_t BlockChain::last_capacity(const BlockPool& pool, std::int32_t count) const {
  constexpr std::size_t kShare = 8;
  const std::int32_t largest = pool.block_edges_max();
  const std::size_t blocks = pages_.size() > 1 ? kShare : std::min(kShare, pages_.front().size());
  return pool.fit(std::max(count, static_cast<std::int32_t>(blocks * static_cast<std::size_t>(largest) / kShare)));
}

void BlockChain::split(BlockPool& pool, Cursor& at) {
  const Block full = block(at);
  const bool at_tail = at.offset == full.count && at.page + 1 == static_cast<std::int32_t>(pages_.size()) &&
                       at.block + 1 == static_cast<std::int32_t>(pages_[at.page].size());
  const std::int32_t kept = at_tail ? full.count : (full.count + 1) / 2;
  const std::int32_t capacity = at_tail ? last_capacity(pool, 1) : pool.block_edges_max();
  const std::int64_t place = pool.allocate(capacity);
  Block right{{0, 0}, place, full.count - kept, capacity};
  pool.copy(place, full.place + kept, right.count);
  if (right.count > 0) right.first = pool.key(place);
  pages_[at.page][at.block].count = kept;
  const bool goes_right = at.offset > kept || at_tail;
  // The new entry's own key becomes `first` of an empty right block when it is written.
  try {
    insert_block(pool, {at.page, at.block + 1, 0}, right);
  } catch (...) {
    pages_[at.page][at.block].count = full.count;
    pool.free(place, capacity);
    throw;
  }
  if (goes_right) {
    at.offset -= kept;
    ++at.block;
  }
  const auto in_page = static_cast<std::int32_t>(pages_[at.page].size());
  if (at.block >= in_page) {
    at.block -= in_page;
    ++at.page;
  }
}

void BlockChain::insert(BlockPool& pool, const EdgeEntry& entry) {
  const EdgeKey key = pool.key(entry);
  if (pages_.empty()) {
    const std::int32_t capacity = pool.fit(1);
    pages_.push_back({Block{key, pool.allocate(capacity), 0, capacity}});
  }
  Cursor at = block_for(key);
  {
    Block& block = pages_[at.page][at.block];
    at.offset = pool.lower_bound(block.place, block.count, key);
    if (block.count == block.capacity) {
      if (block.capacity < pool.block_edges_max()) {
        table_.drop();
        resize(pool, block, pool.grown(block.count + 1));
      } else {
        split(pool, at);
      }
    }
  }
  Block& block = pages_[at.page][at.block];
  if (at.offset == 0 || &block != &pages_.back().back()) table_.drop();
  pool.copy(block.place + at.offset + 1, block.place + at.offset, block.count - at.offset);
  pool.write(block.place + at.offset, entry);
  if (at.offset == 0) block.first = key;
  ++block.count;
}

void BlockChain::append(BlockPool& pool, const EdgeSpan& run, std::int32_t first) {
  const std::int32_t largest = pool.block_edges_max();
  while (first < run.count) {
    Block& last = pages_.back().back();
    const std::int32_t taken = std::min(run.count - first, largest - last.count);
    if (taken > 0) {
      if (last.count + taken > last.capacity) {
        table_.drop();
        resize(pool, last, pool.grown(last.count + taken));
      }
      pool.write_run(last.place + last.count, run, first, taken);
      last.count += taken;
      first += taken;
    } else {
      const std::int32_t fresh = std::min(run.count - first, largest);
      const std::int32_t capacity = last_capacity(pool, fresh);
      const std::int64_t place = pool.allocate(capacity);
      pool.write_run(place, run, first, fresh);
      try {
        append_block(pool, place, fresh, capacity);
      } catch (...) {
        pool.free(place, capacity);
        throw;
      }
      first += fresh;
    }
  }
}

void BlockChain::merge(BlockPool& pool, std::int32_t page_index, std::int32_t left) {
  Block& into = pages_[page_index][left];
  const Block from = pages_[page_index][left + 1];
  if (into.capacity < into.count + from.count) resize(pool, into, pool.fit(into.count + from.count));
  pool.copy(into.place + into.count, from.place, from.count);
  into.count += from.count;
  pool.free(from.place, from.capacity);
  erase_block(pool, page_index, left + 1);
}

void BlockChain::erase(BlockPool& pool, const Cursor& at) {
  table_.drop();
  Page& page = pages_[at.page];
  Block& block = page[at.block];
  --block.count;
  pool.copy(block.place + at.offset, block.place + at.offset + 1, block.count - at.offset);
  if (block.count == 0) {
    pool.free(block.place, block.capacity);
    erase_block(pool, at.page, at.block);
    return;
  }
  if (at.offset == 0) block.first = pool.key(block.place);
  for (const std::int32_t left : {at.block - 1, at.block}) {
    if (left < 0 || left + 1 >= static_cast<std::int32_t>(page.size())) continue;
    if (!sparse(pool, page, left)) continue;
    merge(pool, at.page, left);
    return;
  }
}

void BlockChain::append_block(const BlockPool& pool, std::int64_t place, std::int32_t count, std::int32_t capacity) {
  table_.drop();
  const Block block{pool.key(place), place, count, capacity};
  if (pages_.empty() || static_cast<std::int32_t>(pages_.back().size()) == pool.page_blocks_max()) {
    pages_.push_back({block});  // no empty page where there is no memory for it
  } else {
    pages_.back().push_back(block);
  }
}

std::int64_t BlockChain::erase_before(BlockPool& pool, const EdgeKey& key) {
  table_.drop();
  std::int64_t erased = 0;
  const Cursor stop = lower_bound(pool, key);
  for (std::int32_t p = 0; p <= stop.page && p < static_cast<std::int32_t>(pages_.size()); ++p) {
    Page& page = pages_[p];
    const auto blocks = p < stop.page ? static_cast<std::int32_t>(page.size()) : stop.block;
    for (std::int32_t b = 0; b < blocks; ++b) {
      erased += page[b].count;
      pool.free(page[b].place, page[b].capacity);
    }
    page.erase(page.begin(), page.begin() + blocks);
  }
  pages_.erase(pages_.begin(), pages_.begin() + stop.page);
  if (pages_.empty() || stop.offset == 0) return erased;
  Block& block = pages_.front().front();
  block.count -= stop.offset;
  pool.copy(block.place, block.place + stop.offset, block.count);
  block.first = pool.key(block.place);
  return erased + stop.offset;
}

void BlockChain::clear(BlockPool& pool) {
  table_.drop();
  each_block([&](const Block& block) { pool.free(block.place, block.capacity); });
  pages_.clear();
}

void BlockChain::make_table() const {
  std::size_t blocks = 0;
  for (const Page& page : pages_) blocks += page.size();
  std::unique_ptr<std::int64_t[]> values(new std::int64_t[BlockTableSlot::kHead + 3 * blocks]);
  values[0] = static_cast<std::int64_t>(blocks);
  std::int64_t* at = values.get() + BlockTableSlot::kHead;
  std::int64_t before = 0, end = pages_.front().front().place;  // of the run so far, while it goes on
  BlockRun run{end, INT64_MAX, INT64_MAX};
  each_block([&](const Block& block) {
    if (run.edges == INT64_MAX && block.place != end) {
      run.edges = before;
      run.next = block.first.major;
    }
    end = block.place + block.count;
    at[0] = block.first.major;
    at[blocks] = before;
    at[2 * blocks] = block.place;
    before += block.count;
    ++at;
  });
  for (std::size_t column = 0; column < 3; ++column) {
    values[1 + column] = values[BlockTableSlot::kHead + (column + 1) * blocks - 1];
  }
  values[4] = run.place;
  values[5] = run.edges;
  values[6] = run.next;
  table_.set(std::move(values));
}

std::size_t BlockChain::bytes() const {
  std::size_t total = pages_.capacity() * sizeof(Page);
  if (!table_.empty()) {
    total += static_cast<std::size_t>(BlockTableSlot::kHead + 3 * table_.get().blocks) * sizeof(std::int64_t);
  }
  for (const Page& page : pages_) total += page.capacity() * sizeof(Block);
  return total;
}

}  // namespace livegnn
