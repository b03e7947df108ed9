#include "temporal/write.h"

#include <cstring>

#include "livegnn/prefetch.h"
#include "temporal/draw.h"

namespace livegnn {

namespace {
constexpr std::size_t kEdgesAhead = 8;  // targets whose edges are on their way

// Walks a chain forward to edges of ascending rank.
class ChainReader {
 public:
  ChainReader(const BlockChain& chain) : pages_(chain.pages()) {}
  std::int64_t place(std::int64_t rank) {
    while (rank >= before_ + pages_[page_][block_].count) {
      before_ += pages_[page_][block_].count;
      if (++block_ == pages_[page_].size()) {
        ++page_;
        block_ = 0;
      }
    }
    return pages_[page_][block_].place + (rank - before_);
  }

 private:
  const std::vector<BlockChain::Page>& pages_;
  std::size_t page_ = 0, block_ = 0;
  std::int64_t before_ = 0;  // edges in blocks before this one
};
}  // namespace

EdgeEntry edge_at(const BlockPool& pool, const PastSlice& slice, const Past& past, std::uint32_t rank) {
  if (past.place >= 0) return pool.read(past.place + rank);
  const LongPast& found = slice.longs[static_cast<std::size_t>(~past.place)];
  if (found.chain == nullptr) return slice.copies[static_cast<std::size_t>(found.first + rank)];
  return pool.read(ChainReader(*found.chain).place(found.first + rank));
}

void SliceWriter::begin_row(std::size_t i, std::int64_t edge, std::int32_t take) const {
  const std::int64_t row = row_ + static_cast<std::int64_t>(i);
  made_.ptr[static_cast<std::size_t>(row)] = edge;
  std::int64_t* rows = made_.edge_index.data() + made_.src.size() + edge;
  for (std::int32_t k = 0; k < take; ++k) rows[k] = row;
}

void SliceWriter::put(std::int64_t edge, const EdgeEntry& entry) const {
  made_.src[static_cast<std::size_t>(edge)] = entry.neighbour;
  made_.edge_ids[static_cast<std::size_t>(edge)] = entry.id;
  made_.times[static_cast<std::size_t>(edge)] = entry.time;
}

void SliceWriter::copy_run(std::int64_t place, std::int64_t edge, std::int32_t count) const {
  const VertexId* neighbours = pool_.neighbours(place);
  const EdgeId* ids = pool_.ids(place);
  const EdgeTime* times = pool_.times(place);
  std::int64_t* src = made_.src.data() + edge;
  std::int64_t* out_ids = made_.edge_ids.data() + edge;
  std::int64_t* out_times = made_.times.data() + edge;
  for (std::int32_t k = 0; k < count; ++k) src[k] = neighbours[k];
  std::memcpy(out_ids, ids, static_cast<std::size_t>(count) * sizeof(EdgeId));
  std::memcpy(out_times, times, static_cast<std::size_t>(count) * sizeof(EdgeTime));
}

void SliceWriter::copy_newest(const Past& past, std::int64_t edge, std::int32_t take) const {
  if (past.place >= 0) return copy_run(past.place + past.count - take, edge, take);
  const LongPast& found = slice_.longs[static_cast<std::size_t>(~past.place)];
  if (found.chain == nullptr) {
    const EdgeEntry* copies = slice_.copies.data() + found.first + past.count - take;
    for (std::int32_t k = 0; k < take; ++k) put(edge + k, copies[k]);
    return;
  }
  const auto& pages = found.chain->pages();
  BlockChain::Cursor at = found.end;
  while (take > 0) {
    if (at.offset == 0) {
      if (at.block == 0) at.block = static_cast<std::int32_t>(pages[--at.page].size());
      at.offset = pages[at.page][--at.block].count;
    }
    const std::int32_t count = std::min(take, at.offset);
    take -= count;
    at.offset -= count;
    copy_run(pages[at.page][at.block].place + at.offset, edge + take, count);
  }
}

void SliceWriter::recent() const {
  std::int64_t edge = edge_;
  for (std::size_t i = 0; i < pasts_.size(); ++i) {
    if (i + kEdgesAhead < pasts_.size() && pasts_[i + kEdgesAhead].place >= 0) {
      const Past& ahead = pasts_[i + kEdgesAhead];
      const std::int64_t place = ahead.place + ahead.count - taken_.of(ahead.count);
      pool_.prefetch(place);
      prefetch_line(pool_.ids(place) + taken_.of(ahead.count));
      prefetch_line(pool_.times(place));
    }
    const std::int32_t take = taken_.of(pasts_[i].count);
    begin_row(i, edge, take);
    copy_newest(pasts_[i], edge, take);
    edge += take;
  }
}

void SliceWriter::copy_ranks(const Past& past, const std::uint32_t* ranks, std::int64_t edge,
                             std::int32_t count) const {
  if (past.place >= 0) {
    for (std::int32_t k = 0; k < count; ++k) put(edge + k, pool_.read(past.place + ranks[k]));
    return;
  }
  const LongPast& found = slice_.longs[static_cast<std::size_t>(~past.place)];
  if (found.chain == nullptr) {
    for (std::int32_t k = 0; k < count; ++k) {
      put(edge + k, slice_.copies[static_cast<std::size_t>(found.first + ranks[k])]);
    }
    return;
  }
  ChainReader reader(*found.chain);
  for (std::int32_t k = 0; k < count; ++k) put(edge + k, pool_.read(reader.place(found.first + ranks[k])));
}

void SliceWriter::uniform(std::uint64_t part_key, bool replace, WriteScratch& scratch) const {
  std::int64_t edge = edge_;
  for (std::size_t i = 0; i < pasts_.size(); ++i) {
    const Past& past = pasts_[i];
    const std::int32_t take = taken_.of(past.count);
    begin_row(i, edge, take);
    const bool drawn = take > 0 && taken_.fan_out >= 0 && (replace || take < past.count);
    if (!drawn) {
      copy_newest(past, edge, take);
    } else {
      if (scratch.ranks.size() < static_cast<std::size_t>(take)) scratch.ranks.resize(static_cast<std::size_t>(take));
      const Draw draw(part_key, static_cast<std::uint64_t>(row_) + i);
      const auto n = static_cast<std::uint32_t>(past.count), k = static_cast<std::uint32_t>(take);
      if (replace) {
        draw_with_replacement(draw, n, k, scratch.ranks.data());
      } else {
        draw_distinct(draw, n, k, scratch.ranks.data(), scratch.left);
      }
      copy_ranks(past, scratch.ranks.data(), edge, take);
    }
    edge += take;
  }
}

void SliceWriter::source_rows() const {
  std::int64_t end = edge_;
  for (const Past& past : pasts_) end += taken_.of(past.count);
  const auto rows = static_cast<std::int64_t>(made_.targets.size());
  std::int64_t* source_row = made_.edge_index.data();
  for (std::int64_t edge = edge_; edge < end; ++edge) source_row[edge] = rows + edge;
}

void SliceWriter::root_times() const {
  std::int64_t* next_times = made_.next_times.data() + made_.targets.size();
  std::int64_t edge = edge_;
  for (std::size_t i = 0; i < pasts_.size(); ++i) {
    const std::int64_t time = made_.target_times[static_cast<std::size_t>(row_) + i];
    for (std::int32_t k = taken_.of(pasts_[i].count); k > 0; --k) next_times[edge++] = time;
  }
}

}  // namespace livegnn
