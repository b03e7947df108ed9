// Targets with short fan-outs go to the kernels of lanes.h. Other edges go through EdgesToCome: some dozens are named
// and their lines asked for while those named before, which have arrived, are copied column by column in loops that do
// not know about targets.
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

template <typename Visitor>
void SliceWriter::visit_columns(const Visitor& visitor) const {
  visitor(made.src.data(), pool.neighbours(0));
  visitor(made.edge_ids.data(), pool.ids(0));
  if (pool.has_times()) visitor(made.times.data(), pool.times(0));
  if (pool.has_types()) visitor(made.edge_types.data(), pool.types(0));
  if (pool.has_weights()) visitor(made.weights.data(), pool.weights(0));
}

void SliceWriter::put(std::int64_t edge, const EdgeEntry& entry) const {
  made.src[edge] = entry.neighbour;
  made.edge_ids[edge] = entry.id;
  made.times[edge] = entry.time;
  if (pool.has_types()) made.edge_types[edge] = entry.type;
  if (pool.has_weights()) made.weights[edge] = entry.weight;
}

void SliceWriter::prefetch(std::int64_t place) const {
  pool.prefetch(place);
  if (pool.has_times()) prefetch_line(pool.times(place));
}

// ---- edges to come

// From now on edges are named that stand at `edge` in the answer.
void SliceWriter::turn(std::int64_t edge) {
  copy(*coming);
  std::swap(next, coming);
  next->first = edge;
  next->count = 0;
}

void SliceWriter::make_room(std::int64_t edge, std::int32_t take) {
  const bool follows = next->first + next->count == edge;  // not after edges that the kernels take
  if (!follows || next->count + take > EdgesToCome::kCount) turn(edge);
}

void SliceWriter::add_rows(std::int64_t row, std::int32_t take) {
  std::int64_t* rows = next->rows.data() + next->count;
  if (take <= EdgesToCome::kFew) {
    for (std::int32_t k = 0; k < EdgesToCome::kFew; ++k) rows[k] = row;
  } else {
    std::fill_n(rows, take, row);
  }
  next->count += take;
}

void SliceWriter::copy(const EdgesToCome& edges) const {
  if (edges.count == 0) return;  // the pool may be empty
  const std::int64_t* places = edges.places.data();
  visit_columns([&](auto* to, const auto* from) {
    to += edges.first;
    for (std::int32_t k = 0; k < edges.count; ++k) to[k] = from[places[k]];
  });
  std::copy_n(edges.rows.data(), edges.count, made.edge_index.data() + made.src.size() + edges.first);
}

// ---- one target

void SliceWriter::add_newest(const Past& past, std::int64_t row, std::int64_t edge, std::int32_t take) {
  if (past.place < 0 || take > kLong) {
    turn(edge + take);
    return copy_newest(past, row, edge, take);
  }
  make_room(edge, take);
  const std::int64_t place = past.place + past.count - take;
  std::int64_t* places = next->places.data() + next->count;
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
  const std::uint32_t* ranks = scratch.ranks.data();
  const LongPast* found = past.place >= 0 ? nullptr : &slice.long_past(past);
  if (found != nullptr && found->gone != nullptr) {  // a list that edges have gone from
    turn(edge + take);
    for (std::int32_t k = 0; k < take; ++k) put(edge + k, edge_at(pool, slice, past, ranks[k]));
    std::fill_n(made.edge_index.data() + made.src.size() + edge, take, row);
    return;
  }
  for (std::int32_t done = 0; done < take;) {
    make_room(edge + done, std::min(take - done, kLong));
    const std::int32_t count = std::min(take - done, kLong);
    std::int64_t* places = next->places.data() + next->count;
    if (found == nullptr) {
      for (std::int32_t k = 0; k < count; ++k) places[k] = past.place + ranks[done + k];
    } else {
      const PlacesInChain chain(found->table);
      for (std::int32_t k = 0; k < count; ++k) places[k] = chain.of(found->first + ranks[done + k]);
    }
    for (std::int32_t k = 0; k < count; ++k) pool.prefetch(places[k]);
    if (pool.has_times()) {
      for (std::int32_t k = 0; k < count; ++k) prefetch_line(pool.times(places[k]));
    }
    add_rows(row, count);
    done += count;
  }
}

// ---- what edges do not go through EdgesToCome

void SliceWriter::copy_run(std::int64_t place, std::int64_t edge, std::int32_t count) const {
  if (count > 0) visit_columns([&](auto* to, const auto* from) { std::copy_n(from + place, count, to + edge); });
}

void SliceWriter::copy_newest(const Past& past, std::int64_t row, std::int64_t edge, std::int32_t take) const {
  std::fill_n(made.edge_index.data() + made.src.size() + edge, take, row);
  if (past.place >= 0) return copy_run(past.place + past.count - take, edge, take);
  const LongPast& found = slice.long_past(past);
  const std::int64_t first = found.first + past.count - take;
  const BlockTable& table = found.table;
  if (take == 0) return;
  std::int64_t block = block_of(table, first), in_block = first - table.before[block];
  while (take > 0) {
    const std::int64_t there = block + 1 < table.blocks ? table.before[block + 1] - table.before[block] : INT32_MAX;
    const auto count = static_cast<std::int32_t>(std::min<std::int64_t>(take, there - in_block));
    const std::int64_t place = table.place[block] + in_block;
    if (place < kGonePlace) {
      copy_run(place, edge, count);
    } else {
      const EdgeEntry* gone = found.gone + (place - kGonePlace);
      for (std::int32_t k = 0; k < count; ++k) put(edge + k, gone[k]);
    }
    edge += count;
    take -= count;
    ++block;
    in_block = 0;
  }
}

// ---- all targets of the slice

void SliceWriter::write(bool drawn, std::uint64_t part_key, std::span<const std::int64_t> rows) {
  for (EdgesToCome* edges : {next, coming}) {
    edges->first = first_edge;
    edges->count = 0;
  }
  scratch.runs.clear();
  scratch.drawn.clear();
  scratch.drawn_in_chains.clear();
  std::int64_t edge = first_edge, row = first_row;
  for (const Past& past : slice.pasts) {
    const std::int32_t take = taken.of(past.count);
    made.ptr[row] = edge;
    const bool draws = drawn && taken.fan_out >= 0 && take > 0 && (taken.replace || take < past.count);
    const Draw draw(part_key, static_cast<std::uint64_t>(rows.empty() ? row : rows[row]));
    const RunTarget target{past.place, edge, row, draw.state(), static_cast<std::uint32_t>(past.count), take};
    if (kernels == nullptr || !add_for_kernels(past, target, draws)) {
      if (draws) draw_ranks(draw, past, take);
      draws ? add_drawn(past, row, edge, take) : add_newest(past, row, edge, take);
    }
    edge += take;
    ++row;
  }
  if (kernels != nullptr) run_kernels();
  copy(*coming);
  copy(*next);
}

// False for targets that take too many, or are not in the store as they were.
bool SliceWriter::add_for_kernels(const Past& past, const RunTarget& target, bool draws) {
  if (!draws) {
    if (past.place < 0 || target.take > kLong) return false;
    scratch.runs.push_back(target);
    scratch.runs.back().place += past.count - target.take;
    return true;
  }
  if (target.take > LaneKernels::kDrawnMax || (!taken.replace && target.take > past.count / 2)) return false;
  if (past.place >= 0) {
    scratch.drawn.push_back(target);
    return true;
  }
  const LongPast& found = slice.long_past(past);
  if (found.gone != nullptr) return false;
  scratch.drawn_in_chains.push_back({target, found.table});
  scratch.drawn_in_chains.back().target.place = found.first;
  return true;
}

void SliceWriter::run_kernels() const {
  const LaneColumns columns{.neighbours = pool.neighbours(0),
                            .types = pool.has_types() ? pool.types(0) : nullptr,
                            .ids = pool.ids(0),
                            .times = pool.has_times() ? pool.times(0) : nullptr,
                            .weights = pool.has_weights() ? pool.weights(0) : nullptr,
                            .to_src = made.src.data(),
                            .to_types = made.edge_types.data(),
                            .to_ids = made.edge_ids.data(),
                            .to_times = made.times.data(),
                            .to_weights = made.weights.data(),
                            .to_rows = made.edge_index.data() + made.src.size()};
  kernels->runs(scratch.runs, columns);
  kernels->drawn(scratch.drawn, columns, taken.replace);
  kernels->drawn_in_chains(scratch.drawn_in_chains, columns, taken.replace);
}

void SliceWriter::draw_ranks(const Draw& draw, const Past& past, std::int32_t take) const {
  scratch.ranks.resize(static_cast<std::size_t>(take));
  const auto n = static_cast<std::uint32_t>(past.count), k = static_cast<std::uint32_t>(take);
  if (taken.replace) {
    draw_with_replacement(draw, n, k, scratch.ranks.data());
  } else {
    draw_distinct(draw, n, k, scratch.ranks.data(), scratch.left);
  }
}

void SliceWriter::source_rows() const {
  std::int64_t end = first_edge;
  for (const Past& past : slice.pasts) end += taken.of(past.count);
  const auto rows = static_cast<std::int64_t>(made.targets.size());
  std::int64_t* source_row = made.edge_index.data();
  for (std::int64_t edge = first_edge; edge < end; ++edge) source_row[edge] = rows + edge;
}

void SliceWriter::root_times() const {
  std::int64_t* next_times = made.next_times.data() + made.targets.size() + first_edge;
  for (std::size_t i = 0; i < slice.pasts.size(); ++i) {
    next_times = std::fill_n(next_times, taken.of(slice.pasts[i].count), made.target_times[first_row + i]);
  }
}

}  // namespace livegnn
