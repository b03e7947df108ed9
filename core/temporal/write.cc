// Most edges go through EdgesToCome: some dozens are named and their lines asked for while those named before, which
// have arrived, are copied column by column in loops that do not know about targets.
#include "temporal/write.h"

#include <cstring>
#include <utility>

#include "livegnn/detail/prefetch.h"
#include "temporal/draw.h"

namespace livegnn {

namespace {
constexpr std::int32_t kLong = 64;  // edges of a run from which on it is copied by itself

// Where ascending ranks of a chain stand. Blocks are about equally full, so a rank's block is guessed and then looked
// for nearby.
class PlacesInChain {
 public:
  explicit PlacesInChain(const BlockTable& table)
      : table_(table),
        last_(table.blocks - 1),
        blocks_per_edge_(last_ > 0 ? static_cast<double>(last_) / static_cast<double>(table.before[last_]) : 0.0) {}
  std::int64_t of(std::int64_t rank) const {
    auto block = std::min(static_cast<std::int64_t>(static_cast<double>(rank) * blocks_per_edge_), last_);
    if (table_.before[block] > rank || (block < last_ && table_.before[block + 1] <= rank)) block = near(block, rank);
    return table_.place[block] + rank - table_.before[block];
  }

 private:
  std::int64_t near(std::int64_t block, std::int64_t rank) const {
    constexpr std::int64_t kNear = 8;
    const std::int64_t first = std::max<std::int64_t>(block - kNear, 0), end = std::min(block + kNear, last_ + 1);
    if (table_.before[first] > rank || (end <= last_ && table_.before[end] <= rank)) return block_of(table_, rank);
    const BlockTable part{end - first, nullptr, table_.before + first, nullptr};
    return first + block_of(part, rank);
  }
  const BlockTable& table_;
  std::int64_t last_;
  double blocks_per_edge_;
};
}  // namespace

void SliceWriter::put(std::int64_t edge, const EdgeEntry& entry) const {
  made_.src[static_cast<std::size_t>(edge)] = entry.neighbour;
  made_.edge_ids[static_cast<std::size_t>(edge)] = entry.id;
  made_.times[static_cast<std::size_t>(edge)] = entry.time;
  if (pool_.has_types()) made_.edge_types[static_cast<std::size_t>(edge)] = entry.type;
  if (pool_.has_weights()) made_.weights[static_cast<std::size_t>(edge)] = entry.weight;
}

void SliceWriter::prefetch(std::int64_t place) const {
  pool_.prefetch(place);
  if (pool_.has_times()) prefetch_line(pool_.times(place));
}

// ---- edges to come

void SliceWriter::begin() {
  for (EdgesToCome* edges : {next_, coming_}) {
    edges->first = edge_;
    edges->count = 0;
  }
}

void SliceWriter::end() {
  copy(*coming_);
  copy(*next_);
}

// From now on edges are named that stand at `edge` in the answer.
void SliceWriter::turn(std::int64_t edge) {
  copy(*coming_);
  std::swap(next_, coming_);
  next_->first = edge;
  next_->count = 0;
}

void SliceWriter::make_room(std::int64_t edge, std::int32_t take) {
  if (next_->count + take > EdgesToCome::kCount) turn(edge);
}

void SliceWriter::add_rows(std::int64_t row, std::int32_t take) {
  std::int64_t* rows = next_->rows.data() + next_->count;
  if (take <= EdgesToCome::kFew) {
    for (std::int32_t k = 0; k < EdgesToCome::kFew; ++k) rows[k] = row;
  } else {
    std::fill_n(rows, take, row);
  }
  next_->count += take;
}

void SliceWriter::copy(const EdgesToCome& edges) const {
  if (edges.count == 0) return;  // the pool may be empty
  const VertexId* neighbours = pool_.neighbours(0);
  const EdgeId* ids = pool_.ids(0);
  const std::int64_t* places = edges.places.data();
  std::int64_t* src = made_.src.data() + edges.first;
  std::int64_t* out_ids = made_.edge_ids.data() + edges.first;
  std::int64_t* out_times = made_.times.data() + edges.first;
  for (std::int32_t k = 0; k < edges.count; ++k) src[k] = neighbours[places[k]];
  for (std::int32_t k = 0; k < edges.count; ++k) out_ids[k] = ids[places[k]];
  if (pool_.has_times()) {
    const EdgeTime* times = pool_.times(0);
    for (std::int32_t k = 0; k < edges.count; ++k) out_times[k] = times[places[k]];
  }
  if (pool_.has_types()) {
    const std::int32_t* types = pool_.types(0);
    std::int64_t* out_types = made_.edge_types.data() + edges.first;
    for (std::int32_t k = 0; k < edges.count; ++k) out_types[k] = types[places[k]];
  }
  if (pool_.has_weights()) {
    const float* weights = pool_.weights(0);
    float* out_weights = made_.weights.data() + edges.first;
    for (std::int32_t k = 0; k < edges.count; ++k) out_weights[k] = weights[places[k]];
  }
  std::copy_n(edges.rows.data(), edges.count, made_.edge_index.data() + made_.src.size() + edges.first);
}

// ---- one target

void SliceWriter::add_newest(const Past& past, std::int64_t row, std::int64_t edge, std::int32_t take) {
  if (past.place < 0 || take > kLong) {
    turn(edge + take);
    return copy_newest(past, row, edge, take);
  }
  make_room(edge, take);
  const std::int64_t place = past.place + past.count - take;
  std::int64_t* places = next_->places.data() + next_->count;
  if (take <= EdgesToCome::kFew) {
    for (std::int32_t k = 0; k < EdgesToCome::kFew; ++k) places[k] = place + k;
  } else {
    for (std::int32_t k = 0; k < take; ++k) places[k] = place + k;
  }
  prefetch(place);
  prefetch(place + take - (take > 0));
  for (std::int32_t k = 8; k < take; k += 8) prefetch(place + k);
  add_rows(row, take);
}

void SliceWriter::add_drawn(const Past& past, std::int64_t row, std::int64_t edge, std::int32_t take) {
  const std::uint32_t* ranks = ranks_.data();
  const LongPast* found = past.place >= 0 ? nullptr : &slice_.longs[static_cast<std::size_t>(~past.place)];
  if (found != nullptr && found->gone != nullptr) {  // a list that edges have gone from
    turn(edge + take);
    for (std::int32_t k = 0; k < take; ++k) put(edge + k, edge_at(pool_, slice_, past, ranks[k]));
    std::fill_n(made_.edge_index.data() + made_.src.size() + edge, take, row);
    return;
  }
  for (std::int32_t done = 0; done < take;) {
    make_room(edge + done, std::min(take - done, kLong));
    const std::int32_t count = std::min(take - done, kLong);
    std::int64_t* places = next_->places.data() + next_->count;
    if (found == nullptr) {
      for (std::int32_t k = 0; k < count; ++k) places[k] = past.place + ranks[done + k];
    } else {
      const PlacesInChain chain(found->table);
      for (std::int32_t k = 0; k < count; ++k) places[k] = chain.of(found->first + ranks[done + k]);
    }
    for (std::int32_t k = 0; k < count; ++k) pool_.prefetch(places[k]);
    if (pool_.has_times()) {
      for (std::int32_t k = 0; k < count; ++k) prefetch_line(pool_.times(places[k]));
    }
    add_rows(row, count);
    done += count;
  }
}

// ---- what edges do not go through EdgesToCome

void SliceWriter::copy_run(std::int64_t place, std::int64_t edge, std::int32_t count) const {
  if (count == 0) return;
  const VertexId* neighbours = pool_.neighbours(place);
  std::int64_t* src = made_.src.data() + edge;
  for (std::int32_t k = 0; k < count; ++k) src[k] = neighbours[k];
  std::copy_n(pool_.ids(place), count, made_.edge_ids.data() + edge);
  if (pool_.has_times()) std::copy_n(pool_.times(place), count, made_.times.data() + edge);
  if (pool_.has_types()) std::copy_n(pool_.types(place), count, made_.edge_types.data() + edge);
  if (pool_.has_weights()) std::copy_n(pool_.weights(place), count, made_.weights.data() + edge);
}

void SliceWriter::copy_newest(const Past& past, std::int64_t row, std::int64_t edge, std::int32_t take) const {
  std::fill_n(made_.edge_index.data() + made_.src.size() + edge, take, row);
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

// ---- all targets of the slice

void SliceWriter::recent() {
  begin();
  std::int64_t edge = edge_, row = row_;
  for (const Past& past : pasts_) {
    const std::int32_t take = taken_.of(past.count);
    made_.ptr[static_cast<std::size_t>(row)] = edge;
    add_newest(past, row, edge, take);
    edge += take;
    ++row;
  }
  end();
}

void SliceWriter::uniform(std::uint64_t part_key, std::span<const std::int64_t> rows) {
  begin();
  std::int64_t edge = edge_, row = row_;
  for (const Past& past : pasts_) {
    const std::int32_t take = taken_.of(past.count);
    made_.ptr[static_cast<std::size_t>(row)] = edge;
    if (take == 0 || taken_.fan_out < 0 || (!taken_.replace && take == past.count)) {
      add_newest(past, row, edge, take);
    } else {
      ranks_.resize(static_cast<std::size_t>(take));
      const Draw draw(part_key, static_cast<std::uint64_t>(rows.empty() ? row : rows[static_cast<std::size_t>(row)]));
      const auto n = static_cast<std::uint32_t>(past.count), k = static_cast<std::uint32_t>(take);
      if (taken_.replace) {
        draw_with_replacement(draw, n, k, ranks_.data());
      } else {
        draw_distinct(draw, n, k, ranks_.data(), left_);
      }
      add_drawn(past, row, edge, take);
    }
    edge += take;
    ++row;
  }
  end();
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
