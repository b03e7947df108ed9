#include "sampling/reservoir_table.h"

#include <algorithm>
#include <cstring>

namespace livegnn {

namespace {
constexpr std::size_t kAhead = 8;
std::int32_t capacity_of(const OneHop& query) { return query.fanout + std::max(4, query.fanout / 2); }

// Free places before the first of so many entries. A stream in order of time brings every row of the latest edges a new
// first one: with a third to spare a row is copied once for so many of them.
std::int32_t slack_of(const OneHop& query, std::int32_t count) {
  return query.by == SampleBy::TopK ? std::max(1, count / 3) : 0;
}

std::int32_t places_max(const OneHop& query) { return capacity_of(query) + slack_of(query, capacity_of(query)); }
}  // namespace

ReservoirTable::ReservoirTable(const GraphStore& graph, const OneHop& query, const SamplingOptions& options)
    : graph_(graph),
      candidates_(graph, query, options.seed),
      capacity_(capacity_of(query)),
      track_changes_(options.track_changes) {
  shards_.reserve(static_cast<std::size_t>(options.threads));
  for (int i = 0; i < options.threads; ++i) shards_.emplace_back(places_max(query), timed());
}

// Records ahead: first the pointer to the row, then its header, then, if the edge looks like going in, the rest.
void ReservoirTable::prefetch_record(std::span<const EdgeRecord> records, std::size_t at) const {
  const auto owner = [&](const EdgeRecord& edge) {
    return query().direction == HopDirection::In ? edge.dst : edge.src;
  };
  if (at + 3 * kAhead < records.size() && candidates_.of_type(records[at + 3 * kAhead])) {
    const VertexId v = owner(records[at + 3 * kAhead]);
    prefetch_row(v);
    prefetch_line(stage_of_.data() + v);
  }
  if (at + 2 * kAhead < records.size() && candidates_.of_type(records[at + 2 * kAhead])) {
    if (const Row* row = this->row(owner(records[at + 2 * kAhead]))) prefetch_line(row);
  }
  if (at + kAhead < records.size() && candidates_.of_type(records[at + kAhead])) {
    const Row* row = this->row(owner(records[at + kAhead]));
    if (row == nullptr) return;
    const RowEntry entry = candidates_.entry_of(records[at + kAhead], kNoVertex);
    if (row->complete == 0 && !candidates_.before_last(entry, *row)) return;
    if (row->first > 0) {
      prefetch_line(row->neighbours() - 1);
      prefetch_line(row->ids() - 1);
      prefetch_line(row->ranks() - 1);
      if (timed()) prefetch_line(row->times() - 1);
      return;
    }
    const char* end = reinterpret_cast<const char*>(row->ranks() + row->count);
    for (const char* line = reinterpret_cast<const char*>(row) + 64; line < end; line += 64) prefetch_line(line);
  }
}

// visitor(v, entry) for every end of every record that is a candidate there, where v is owned and of this shard.
template <typename Visitor>
void ReservoirTable::visit_records(std::span<const EdgeRecord> records, EdgeTime horizon, int shard,
                                   const OwnedBuckets& owned, Visitor&& visitor) const {
  for (std::size_t i = 0; i < records.size(); ++i) {
    prefetch_record(records, i);
    const EdgeRecord& edge = records[i];
    if (!candidates_.matches(edge, horizon)) continue;
    candidates_.visit_ends(edge, [&](VertexId v, VertexId neighbour) {
      if (shard_of(v) == shard && owns_vertex(owned, v)) visitor(v, candidates_.entry_of(edge, neighbour));
    });
  }
}

void ReservoirTable::check(const BatchDelta& delta, const OwnedBuckets& owned) const {
  const auto check_edge = [&](const EdgeRecord& edge, float weight, WeightOf of) {
    if (owns_vertex(owned, edge.src) || owns_vertex(owned, edge.dst)) candidates_.check_weight(edge, weight, of);
  };
  if (query().by != SampleBy::Weighted) return;
  for (const EdgeRecord& edge : delta.added) check_edge(edge, edge.weight, WeightOf::Added);
  for (const EdgeReweighted& edge : delta.reweighted) check_edge(edge.before, edge.weight_after, WeightOf::Reweighted);
}

// ---- a batch

template <typename T>
void ReservoirTable::grow(Column<T>& column, VertexId& slots) const {
  if (graph_.slot_count() <= slots) return;
  column.reserve(graph_.slot_count());
  std::fill(column.data() + slots, column.data() + graph_.slot_count(), T{});
  slots = graph_.slot_count();
}

void ReservoirTable::grow_stage() { grow(stage_of_, stage_slots_); }
void ReservoirTable::grow_rows() { grow(rows_, slot_count_); }

ReservoirTable::StagedRow* ReservoirTable::find_staged(Shard& shard, VertexId v) const {
  const std::uint32_t place = stage_of_[v];
  return place < shard.staged.size() && shard.staged[place].vertex == v ? &shard.staged[place] : nullptr;
}

ReservoirTable::StagedRow& ReservoirTable::stage_row(Shard& shard, const StagedRow& staged) {
  stage_of_[staged.vertex] = static_cast<std::uint32_t>(shard.staged.size());
  return shard.staged.emplace_back(staged);
}

// The vertex's row as it is by now in this batch; one that got entries in front is copied first.
const Row* ReservoirTable::current(Shard& shard, VertexId v) const {
  StagedRow* staged = find_staged(shard, v);
  if (staged == nullptr) return row(v);
  if (staged->in_front > 0) {
    staged->after = wider_copy(shard, *staged->before, staged->in_front);
    staged->in_front = 0;
  }
  return staged->after;
}

// With places for so many entries, which go to the end of the row where the front is to have room.
Row* ReservoirTable::empty_row(Shard& shard, std::int32_t count, std::int32_t room) const {
  const std::int32_t slack = slack_of(query(), count);
  Row* row = shard.pool.allocate(std::max(room + slack, 1));
  if (slack > 0) row->first = row->capacity - count;
  return row;
}

// A copy with room for one entry more; of a row that holds more than capacity_, the first of them.
Row* ReservoirTable::wider_copy(Shard& shard, const Row& row, std::int32_t in_front) const {
  const std::int32_t entries = row.count + in_front, kept = std::min(entries, capacity_);
  Row* fresh = empty_row(shard, kept, std::min(kept + 1, capacity_));
  const auto copy = [&](auto* to, const auto* from) {
    std::memcpy(to, from - in_front, static_cast<std::size_t>(kept) * sizeof(*to));
  };
  fresh->count = kept;
  fresh->complete = kept == entries ? row.complete : 0;
  fresh->noted = row.noted;
  copy(fresh->neighbours(), row.neighbours());
  copy(fresh->ids(), row.ids());
  copy(fresh->ranks(), row.ranks());
  if (timed()) copy(fresh->times(), row.times());
  fresh->seal();
  return fresh;
}

// The vertex's copy of this batch, made if there is none yet, with room for one entry more.
ReservoirTable::StagedRow& ReservoirTable::touch(Shard& shard, VertexId v) {
  const Row* seen = current(shard, v);
  if (StagedRow* staged = find_staged(shard, v)) {
    if (seen->count == seen->capacity && seen->count < capacity_) {
      Row* wider = wider_copy(shard, *seen, 0);
      shard.pool.free(staged->after);
      staged->after = wider;
    }
    return *staged;
  }
  Row* after = seen == nullptr ? empty_row(shard, 0, 1) : wider_copy(shard, *seen, 0);
  return stage_row(shard, {v, 0, seen, after});
}

namespace {
// Moves the entries [first, last) of every column by `by` places.
void shift(Row& row, std::int32_t first, std::int32_t last, std::int32_t by, bool timed) {
  const auto move = [&](auto* column) {
    std::memmove(column + first + by, column + first, static_cast<std::size_t>(last - first) * sizeof(*column));
  };
  move(row.neighbours());
  move(row.ids());
  move(row.ranks());
  if (timed) move(row.times());
}

void write(Row& row, std::int32_t at, const RowEntry& entry, bool timed) {
  row.neighbours()[at] = entry.neighbour;
  row.ids()[at] = entry.id;
  row.ranks()[at] = entry.rank;
  if (timed) row.times()[at] = entry.time;
}

// Into a row with room, where the front is free by moving what is before it, else by moving what is behind.
void insert(Row& row, std::int32_t at, const RowEntry& entry, bool timed) {
  if (row.first > 0) {
    shift(row, 0, at, -1, timed);
    --row.first;
  } else {
    shift(row, at, row.count, 1, timed);
  }
  ++row.count;
  write(row, at, entry, timed);
  row.seal();
}

// Place of the first entry that is not before `entry`.
std::int32_t place_of(const Row& row, const RowEntry& entry, const Candidates& candidates) {
  std::int32_t first = 0, count = row.count;
  while (count > 0) {
    const std::int32_t half = count / 2;
    if (candidates.before(row, first + half, entry)) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

void cut(Row& row, std::int32_t count) {
  if (row.count <= count) return;
  row.count = count;
  row.complete = 0;
  row.seal();
}
}  // namespace

// False where the entry is not its vertex's first, or nothing is free before the first: add() then does it otherwise.
bool ReservoirTable::add_in_front(Shard& shard, VertexId v, const RowEntry& entry) {
  StagedRow* staged = find_staged(shard, v);
  Row* row = staged != nullptr ? staged->after : v < slot_count_ ? rows_[v] : nullptr;
  if (row == nullptr || row->count == 0) return false;
  const std::int32_t in_front = staged == nullptr ? 0 : staged->in_front;
  if (row->first == in_front || candidates_.before(*row, -in_front, entry)) return false;
  write(*row, -in_front - 1, entry, timed());
  if (staged == nullptr) {
    stage_row(shard, {v, 1, row, row});
  } else if (in_front > 0) {
    ++staged->in_front;
  } else {
    --row->first;
    ++row->count;
  }
  return true;
}

void ReservoirTable::add(Shard& shard, VertexId v, const RowEntry& entry) {
  if (query().by == SampleBy::TopK && add_in_front(shard, v, entry)) return;
  const Row* seen = current(shard, v);
  const bool all = seen == nullptr || seen->complete != 0;
  if (!all && (seen->count == 0 || !candidates_.before_last(entry, *seen))) return;  // behind what the row knows
  if (all && seen != nullptr && seen->count >= capacity_ && !candidates_.before_last(entry, *seen)) {
    touch(shard, v).after->complete = 0;
    return;
  }
  Row& row = *touch(shard, v).after;
  cut(row, capacity_);
  if (row.complete == 0 && !candidates_.before_last(entry, row)) return;  // behind what was cut off
  cut(row, capacity_ - 1);
  insert(row, place_of(row, entry, candidates_), entry, timed());
}

void ReservoirTable::remove(Shard& shard, VertexId v, const RowEntry& entry) {
  const Row* seen = current(shard, v);
  invariant(seen != nullptr, "an edge left a vertex that has no row of samples");
  if (seen->complete == 0) {
    const bool last = seen->last_rank == entry.rank && seen->last_id == entry.id;
    if (seen->count == 0 || (!last && !candidates_.before_last(entry, *seen))) return;  // behind what the row knows
  }
  const std::int32_t at = place_of(*seen, entry, candidates_);
  invariant(at < seen->count && seen->ids()[at] == entry.id, "an edge left that its row of samples does not hold");
  Row& row = *touch(shard, v).after;
  if (at >= row.count) return;  // the copy knows less
  shift(row, at + 1, row.count, -1, timed());
  --row.count;
  row.seal();
}

// Takes out the entries whose time has come. Rows are as published: this is the first step of a batch.
void ReservoirTable::expire(Shard& shard, EdgeTime horizon) {
  while (!shard.calendar.empty() && shard.calendar.front().first <= horizon) {
    const auto [time, v] = shard.calendar.front();
    std::pop_heap(shard.calendar.begin(), shard.calendar.end(), std::greater<>());
    shard.calendar.pop_back();
    const Row* seen = current(shard, v);
    if (seen == nullptr || seen->noted != time) continue;  // gone, or noted anew for an earlier time
    Row& row = *touch(shard, v).after;
    for (std::int32_t at = row.count - 1; at >= 0; --at) {
      if (row.times()[at] > horizon) continue;
      shift(row, at + 1, row.count, -1, true);
      --row.count;
    }
    row.seal();
    row.noted = kNotNoted;  // settle() looks when to ask again
  }
}

// Every row is noted for a time at or before its first expiry; a later entry of the calendar for it is stale.
void ReservoirTable::note_expiry(Shard& shard, VertexId v, Row* row) const {
  if (!timed() || row == nullptr || row->count == 0) return;
  const EdgeTime first = *std::min_element(row->times(), row->times() + row->count);
  if (row->noted != kNotNoted && row->noted <= first) return;
  row->noted = first;
  shard.calendar.emplace_back(first, v);
  std::push_heap(shard.calendar.begin(), shard.calendar.end(), std::greater<>());
}

// Once most entries of the calendar are stale, only the others are kept.
void ReservoirTable::tidy_calendar(Shard& shard) const {
  if (shard.calendar.size() < 64 + 4 * shard.rows) return;
  std::erase_if(shard.calendar, [&](const auto& entry) {
    const StagedRow* staged = find_staged(shard, entry.second);
    const Row* row = staged != nullptr ? staged->after : this->row(entry.second);
    return row == nullptr || row->noted != entry.first;
  });
  std::sort(shard.calendar.begin(), shard.calendar.end());  // ascending: also a heap with the earliest first
  shard.calendar.erase(std::unique(shard.calendar.begin(), shard.calendar.end()), shard.calendar.end());
}

// The end of a staged row's batch: refilled if it became too short, dropped if it is empty.
void ReservoirTable::settle(Shard& shard, StagedRow& staged, EdgeTime horizon) {
  if (staged.in_front > 0) return;  // longer than before, and what it is noted for stays its first expiry
  if (staged.after->complete == 0 && staged.after->count < fanout()) {
    const bool all = candidates_.scan(staged.vertex, horizon, capacity_, shard.found);
    const EdgeTime noted = staged.after->noted;
    shard.pool.free(staged.after);
    staged.after = new_row(shard, all);
    staged.after->noted = noted;
    ++shard.refills;
  }
  if (staged.after->count == 0) {
    shard.pool.free(staged.after);
    staged.after = nullptr;
  }
  note_expiry(shard, staged.vertex, staged.after);
  shard.rows += (staged.after != nullptr) - (staged.before != nullptr);
}

void ReservoirTable::stage(int at, const BatchDelta& delta, const OwnedBuckets& owned, EdgeTime now) {
  Shard& shard = shards_[at];
  drop_staged(shard);  // of the batch before, kept for changes()
  const EdgeTime horizon = candidates_.horizon(now);
  if (timed()) expire(shard, horizon);
  const auto leaves = [&](VertexId v, const RowEntry& entry) { remove(shard, v, entry); };
  const auto arrives = [&](VertexId v, const RowEntry& entry) { add(shard, v, entry); };
  visit_records(delta.removed, horizon, at, owned, leaves);
  if (query().by == SampleBy::Weighted) {
    for (const EdgeReweighted& edge : delta.reweighted) {
      EdgeRecord after = edge.before;
      after.weight = edge.weight_after;
      visit_records({&edge.before, 1}, horizon, at, owned, leaves);
      visit_records({&after, 1}, horizon, at, owned, arrives);
    }
  }
  visit_records(delta.added, horizon, at, owned, arrives);
  for (StagedRow& staged : shard.staged) settle(shard, staged, horizon);
  if (timed()) tidy_calendar(shard);
}

void ReservoirTable::switch_rows() {
  for (Shard& shard : shards_) {
    for (std::size_t i = 0; i < shard.staged.size(); ++i) {
      const StagedRow& staged = shard.staged[i];
      if (i + kAhead < shard.staged.size()) {
        const StagedRow& coming = shard.staged[i + kAhead];
        prefetch_line(coming.in_front > 0 ? static_cast<const void*>(coming.after) : rows_.data() + coming.vertex);
      }
      if (staged.in_front == 0) {
        rows_[staged.vertex] = staged.after;
      } else {
        staged.after->first -= staged.in_front;
        staged.after->count += staged.in_front;
      }
    }
  }
}

void ReservoirTable::drop_staged(Shard& shard) {
  for (const StagedRow& staged : shard.staged) {
    if (staged.in_front == 0 && staged.before != nullptr) shard.pool.free(const_cast<Row*>(staged.before));
  }
  shard.staged.clear();
}

void ReservoirTable::retire() {
  if (!track_changes_) std::ranges::for_each(shards_, drop_staged);
}

Row* ReservoirTable::new_row(Shard& shard, bool complete) const {
  const auto count = static_cast<std::int32_t>(shard.found.size());
  Row* row = empty_row(shard, count, count);
  row->count = count;
  row->complete = complete ? 1 : 0;
  for (std::int32_t i = 0; i < count; ++i) write(*row, i, shard.found[i], timed());
  row->seal();
  return row;
}

void ReservoirTable::back_fill(int at, const OwnedBuckets& owned, EdgeTime now) {
  Shard& shard = shards_[at];
  for (VertexId v = 0; v < slot_count_; ++v) {
    if (shard_of(v) != at || !owns_vertex(owned, v)) continue;
    const bool all = candidates_.scan(v, candidates_.horizon(now), capacity_, shard.found);
    if (shard.found.empty()) continue;
    rows_[v] = new_row(shard, all);
    note_expiry(shard, v, rows_[v]);
    ++shard.rows;
  }
}

// ---- reading

SampleView ReservoirTable::view(const Row* row, std::int32_t skipped) const {
  if (row == nullptr) return {};
  const auto count = static_cast<std::size_t>(std::min(row->count - skipped, fanout()));
  return {{row->neighbours() + skipped, count}, {row->ids() + skipped, count}};
}

std::vector<SampleChange> ReservoirTable::changes() const {
  std::vector<SampleChange> found;
  for (const Shard& shard : shards_) {
    for (const StagedRow& staged : shard.staged) {
      const SampleView before = view(staged.before, staged.in_front), after = view(staged.after);
      if (!std::equal(before.edge_ids.begin(), before.edge_ids.end(), after.edge_ids.begin(), after.edge_ids.end())) {
        found.push_back({staged.vertex, before, after});
      }
    }
  }
  return found;
}

void ReservoirTable::add_holders(std::span<const EdgeRecord> edges, std::vector<SampleChange>& found) const {
  for (const EdgeRecord& edge : edges) {
    if (!candidates_.of_type(edge)) continue;
    candidates_.visit_ends(edge, [&](VertexId v, VertexId) {
      const SampleView sample = view(row(v));
      const auto end = sample.edge_ids.end();
      if (std::find(sample.edge_ids.begin(), end, edge.id) != end) found.push_back({v, sample, sample});
    });
  }
}

void ReservoirTable::add_to(SamplingStats& stats) const {
  for (const Shard& shard : shards_) {
    stats.rows_live += shard.pool.live_bytes();
    stats.rows_reserved += shard.pool.reserved_bytes();
    stats.expiry += shard.calendar.capacity() * sizeof(shard.calendar[0]);
    stats.refills += shard.refills;
  }
  stats.pointers += rows_.bytes() + stage_of_.bytes();
}

std::uint64_t ReservoirTable::digest(const OwnedBuckets& owned) const {
  std::uint64_t sum = 0;
  for (VertexId v = 0; v < slot_count_; ++v) {
    if (rows_[v] == nullptr || !owns_vertex(owned, v)) continue;
    const SampleView sample = view(rows_[v]);
    std::uint64_t h = mix(static_cast<std::uint64_t>(v));
    h = mix_bytes(h, sample.edge_ids.data(), sample.edge_ids.size_bytes());
    sum += mix_bytes(h, sample.neighbours.data(), sample.neighbours.size_bytes());
  }
  return sum;
}

void ReservoirTable::check_invariants(const OwnedBuckets& owned, EdgeTime now) const {
  std::vector<RowEntry> all;
  for (VertexId v = 0; v < graph_.slot_count(); ++v) {
    const Row* row = this->row(v);
    all.clear();
    if (owns_vertex(owned, v)) candidates_.sort_all(v, candidates_.horizon(now), all);
    const std::size_t count = row == nullptr ? 0 : static_cast<std::size_t>(row->count);
    invariant(count <= all.size() && count <= static_cast<std::size_t>(places_max(query())),
              "a row of samples is too long");
    invariant(row == nullptr || (row->first >= 0 && row->first + row->count <= row->capacity),
              "a row of samples lies outside its memory");
    if (row == nullptr || row->complete != 0) {
      invariant(count == all.size(), "a complete row of samples lacks candidates");
    } else {
      invariant(row->count >= fanout(), "a row of samples is too short");
    }
    for (std::size_t i = 0; i < count; ++i) {
      invariant(row->ids()[i] == all[i].id && row->neighbours()[i] == all[i].neighbour &&
                    row->ranks()[i] == all[i].rank && (!timed() || row->times()[i] == all[i].time),
                "a row of samples differs from a scan");
    }
  }
}

}  // namespace livegnn
