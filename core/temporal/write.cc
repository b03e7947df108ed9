#include "temporal/write.h"

#include <cstring>

#include "livegnn/prefetch.h"
#include "temporal/draw.h"

namespace livegnn {

namespace {
constexpr std::size_t kEdgesAhead = 8;  // targets whose edges are on their way
constexpr std::size_t kTogether = 16;   // targets whose draws are copied together

}  // namespace

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
  if (count == 0) return;  // the pool may be empty
  const VertexId* neighbours = pool_.neighbours(place);
  const EdgeId* ids = pool_.ids(place);
  std::int64_t* src = made_.src.data() + edge;
  std::int64_t* out_ids = made_.edge_ids.data() + edge;
  std::int64_t* out_times = made_.times.data() + edge;
  for (std::int32_t k = 0; k < count; ++k) src[k] = neighbours[k];
  std::memcpy(out_ids, ids, static_cast<std::size_t>(count) * sizeof(EdgeId));
  if (!pool_.has_times()) return;
  std::memcpy(out_times, pool_.times(place), static_cast<std::size_t>(count) * sizeof(EdgeTime));
}

void SliceWriter::copy_newest(const Past& past, std::int64_t edge, std::int32_t take) const {
  if (past.place >= 0) return copy_run(past.place + past.count - take, edge, take);
  const LongPast& found = slice_.longs[static_cast<std::size_t>(~past.place)];
  const std::int64_t first = found.first + past.count - take;
  const BlockTable& table = found.table;
  if (take == 0) return;
  std::int64_t block = block_of(table, first), in_block = first - table.before[block];
  while (take > 0) {
    const std::int64_t there = block + 1 < table.blocks ? table.before[block + 1] - table.before[block] : INT32_MAX;
    const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(take, there - in_block));
    const std::int64_t place = table.place[block] + in_block;
    if (place < PinnedList::kGonePlace) {
      copy_run(place, edge, count);
    } else {
      const EdgeEntry* gone = found.gone + (place - PinnedList::kGonePlace);
      for (std::int32_t k = 0; k < count; ++k) put(edge + k, gone[k]);
    }
    edge += count;
    take -= count;
    ++block;
    in_block = 0;
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
      if (pool_.has_times()) prefetch_line(pool_.times(place));
    }
    const std::int32_t take = taken_.of(pasts_[i].count);
    begin_row(i, edge, take);
    copy_newest(pasts_[i], edge, take);
    edge += take;
  }
}

// Where the edges of these ranks lie in the pool, with their lines on their way; those of a list that edges have gone
// from are put at once.
std::int64_t* SliceWriter::places_of(const Past& past, const std::uint32_t* ranks, std::int32_t count,
                                     std::int64_t edge, std::int64_t* places) const {
  const LongPast* found = past.place >= 0 ? nullptr : &slice_.longs[static_cast<std::size_t>(~past.place)];
  for (std::int32_t k = 0; k < count; ++k) {
    std::int64_t place = past.place + ranks[k];
    if (found != nullptr) {
      if (found->gone != nullptr) {
        put(edge + k, edge_at(pool_, slice_, past, ranks[k]));
        continue;
      }
      const std::int64_t rank = found->first + ranks[k];
      const std::int64_t block = block_of(found->table, rank);
      place = found->table.place[block] + rank - found->table.before[block];
    }
    pool_.prefetch(place);
    if (pool_.has_times()) prefetch_line(pool_.times(place));
    *places++ = place;
  }
  return places;
}

// A few targets at a time: first where their edges lie, then, when the lines are there, the copies.
void SliceWriter::uniform(std::uint64_t part_key, bool replace, WriteScratch& scratch) const {
  struct Drawn {
    std::int64_t edge, count;
  };
  Drawn drawn[kTogether];
  std::int64_t edge = edge_;
  for (std::size_t first = 0; first < pasts_.size(); first += kTogether) {
    const std::size_t last = std::min(first + kTogether, pasts_.size());
    std::size_t draws = 0;
    std::int64_t wanted = 0;
    for (std::size_t i = first; i < last; ++i) wanted += taken_.of(pasts_[i].count);
    scratch.places.resize(static_cast<std::size_t>(wanted));
    std::int64_t* places = scratch.places.data();
    for (std::size_t i = first; i < last; ++i) {
      const Past& past = pasts_[i];
      const std::int32_t take = taken_.of(past.count);
      begin_row(i, edge, take);
      if (take == 0 || taken_.fan_out < 0 || (!replace && take == past.count)) {
        copy_newest(past, edge, take);
      } else {
        scratch.ranks.resize(static_cast<std::size_t>(take));
        const Draw draw(part_key, static_cast<std::uint64_t>(row_) + i);
        const auto n = static_cast<std::uint32_t>(past.count), k = static_cast<std::uint32_t>(take);
        if (replace) {
          draw_with_replacement(draw, n, k, scratch.ranks.data());
        } else {
          draw_distinct(draw, n, k, scratch.ranks.data(), scratch.left);
        }
        std::int64_t* end = places_of(past, scratch.ranks.data(), take, edge, places);
        drawn[draws++] = {edge, end - places};
        places = end;
      }
      edge += take;
    }
    const std::int64_t* place = scratch.places.data();
    for (std::size_t d = 0; d < draws; ++d) {
      copy_places(place, drawn[d].edge, static_cast<std::int32_t>(drawn[d].count));
      place += drawn[d].count;
    }
  }
}

void SliceWriter::copy_places(const std::int64_t* places, std::int64_t edge, std::int32_t count) const {
  const VertexId* neighbours = pool_.neighbours(0);
  const EdgeId* ids = pool_.ids(0);
  std::int64_t* src = made_.src.data() + edge;
  std::int64_t* out_ids = made_.edge_ids.data() + edge;
  std::int64_t* out_times = made_.times.data() + edge;
  for (std::int32_t k = 0; k < count; ++k) src[k] = neighbours[places[k]];
  for (std::int32_t k = 0; k < count; ++k) out_ids[k] = ids[places[k]];
  if (!pool_.has_times()) return;
  const EdgeTime* times = pool_.times(0);
  for (std::int32_t k = 0; k < count; ++k) out_times[k] = times[places[k]];
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
