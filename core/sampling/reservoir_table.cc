#include "sampling/reservoir_table.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace livegnn {

namespace {
constexpr std::size_t kAhead = 12;

const EdgeRecord& itself(const EdgeRecord& edge) { return edge; }

std::int32_t capacity_of(const OneHop& query) { return query.fan_out + std::max(4, query.fan_out / 2); }

[[noreturn]] void refuse_weight(const EdgeRecord& edge) {
  throw Error(ErrorKind::ValueInvalid, "[sample] expected weights of at least 0 for a weighted sample, got " +
                                           std::to_string(edge.weight) + " for edge " + std::to_string(edge.src) +
                                           " -> " + std::to_string(edge.dst) + " (edge id " + std::to_string(edge.id) +
                                           "); correct the weight");
}
}  // namespace

ReservoirTable::ReservoirTable(const GraphStore& graph, const OneHop& query, const SamplingOptions& options)
    : graph_(graph),
      query_(query),
      order_(query.by, options.seed, query.hop),
      capacity_(capacity_of(query)),
      track_changes_(options.track_changes) {
  shards_.reserve(static_cast<std::size_t>(options.threads));
  for (int i = 0; i < options.threads; ++i) shards_.emplace_back(capacity_, timed());
}

// ---- candidates

EdgeTime ReservoirTable::horizon(EdgeTime now) const {
  if (!timed() || now == INT64_MIN || now < INT64_MIN + query_.ttl) return INT64_MIN;
  return now - query_.ttl;
}

bool ReservoirTable::matches(const EdgeRecord& edge, EdgeTime horizon) const {
  if (query_.edge_type != kAnyType && edge.type != query_.edge_type) return false;
  if (timed() && edge.time <= horizon) return false;
  return query_.by != SampleBy::Weighted || edge.weight > 0.0f;
}

RowEntry ReservoirTable::entry_of(const EdgeRecord& edge, VertexId neighbour) const {
  return {neighbour, edge.id, order_.rank(edge.id, edge.weight, edge.time), edge.time};
}

// visitor(v, neighbour) for every end of the edge in whose list it is a candidate, of this shard and owned.
template <typename Visitor>
void ReservoirTable::visit_ends(const EdgeRecord& edge, int shard, const OwnedBuckets& owned, Visitor&& visitor) const {
  const auto end = [&](VertexId v, VertexId neighbour) {
    if (shard_of(v) == shard && owns_vertex(owned, v)) visitor(v, neighbour);
  };
  const bool one_way = graph_.options().undirected;  // such an edge has a record for each direction
  if (one_way || query_.direction != HopDirection::In) end(edge.src, edge.dst);
  if (one_way || query_.direction == HopDirection::Out) return;
  if (query_.direction == HopDirection::In || edge.src != edge.dst) end(edge.dst, edge.src);
}

template <typename Records, typename RecordOf>
void ReservoirTable::prefetch_record(const Records& records, std::size_t at, RecordOf&& record_of) const {
  if (at + 2 * kAhead < records.size()) {
    const EdgeRecord& edge = record_of(records[at + 2 * kAhead]);
    const VertexId v = query_.direction == HopDirection::In ? edge.dst : edge.src;
    prefetch_row_pointer(v);
    prefetch_line(stage_of_.data() + v);
  }
  if (at + kAhead < records.size()) {
    const EdgeRecord& edge = record_of(records[at + kAhead]);
    if (const Row* row = this->row(query_.direction == HopDirection::In ? edge.dst : edge.src)) prefetch_line(row);
  }
}

template <typename Records, typename RecordOf, typename Visitor>
void ReservoirTable::visit_records(const Records& records, RecordOf&& record_of, EdgeTime horizon, int shard,
                                   const OwnedBuckets& owned, Visitor&& visitor) const {
  for (std::size_t i = 0; i < records.size(); ++i) {
    prefetch_record(records, i, record_of);
    const EdgeRecord& edge = record_of(records[i]);
    if (!matches(edge, horizon)) continue;
    visit_ends(edge, shard, owned,
               [&](VertexId v, VertexId neighbour) { visitor(v, entry_of(edge, neighbour), records[i]); });
  }
}

void ReservoirTable::check(const BatchDelta& delta, const OwnedBuckets& owned) const {
  if (query_.by != SampleBy::Weighted) return;
  const auto check_edge = [&](const EdgeRecord& edge, float weight) {
    if (weight >= 0.0f || (query_.edge_type != kAnyType && edge.type != query_.edge_type)) return;
    if (!owns_vertex(owned, edge.src) && !owns_vertex(owned, edge.dst)) return;
    EdgeRecord bad = edge;
    bad.weight = weight;
    refuse_weight(bad);
  };
  for (const EdgeRecord& edge : delta.added) check_edge(edge, edge.weight);
  for (const EdgeReweighted& edge : delta.reweighted) check_edge(edge.before, edge.weight_after);
}

// ---- a batch

void ReservoirTable::grow_stage() {
  const VertexId slots = graph_.slot_count();
  if (slots <= stage_slots_) return;
  stage_of_.reserve(slots);
  std::memset(stage_of_.data() + stage_slots_, 0, static_cast<std::size_t>(slots - stage_slots_) * 4);
  stage_slots_ = slots;
}

const Row* ReservoirTable::current(const Shard& shard, VertexId v) const {
  const std::uint32_t place = stage_of_[v];
  if (place < shard.staged.size() && shard.staged[place].vertex == v) return shard.staged[place].after;
  return row(v);
}

// A copy of a row, if there is one, with room for `count` entries.
Row* ReservoirTable::with_room(Shard& shard, const Row* row, std::int32_t count) const {
  Row* fresh = shard.pool.allocate(std::max(count, 1));
  if (row == nullptr) return fresh;
  const auto entries = static_cast<std::size_t>(row->count);
  fresh->count = row->count;
  fresh->complete = row->complete;
  std::memcpy(fresh->neighbours(), row->neighbours(), entries * sizeof(VertexId));
  std::memcpy(fresh->ids(), row->ids(), entries * sizeof(EdgeId));
  std::memcpy(fresh->ranks(), row->ranks(), entries * sizeof(std::uint64_t));
  if (timed()) std::memcpy(fresh->times(), row->times(), entries * sizeof(EdgeTime));
  return fresh;
}

// The vertex's copy of this batch, made if there is none yet, with room for one entry more.
ReservoirTable::Staged& ReservoirTable::touch(Shard& shard, VertexId v) {
  const std::uint32_t place = stage_of_[v];
  if (place < shard.staged.size() && shard.staged[place].vertex == v) {
    Staged& staged = shard.staged[place];
    if (staged.after->count == staged.after->capacity && staged.after->capacity < capacity_) {
      Row* wider = with_room(shard, staged.after, staged.after->count + 1);
      shard.pool.free(staged.after);
      staged.after = wider;
    }
    return staged;
  }
  const Row* before = row(v);
  const std::int32_t count = before == nullptr ? 0 : before->count;
  Row* after = with_room(shard, before, std::min(count + 1, capacity_));
  stage_of_[v] = static_cast<std::uint32_t>(shard.staged.size());
  return shard.staged.emplace_back(v, before, after);
}

namespace {
// Moves the entries [at, count) of every column by `by` places.
void shift(Row& row, std::int32_t at, std::int32_t by, bool timed) {
  const auto move = [&](auto* column) {
    std::memmove(column + at + by, column + at, static_cast<std::size_t>(row.count - at) * sizeof(*column));
  };
  move(row.neighbours());
  move(row.ids());
  move(row.ranks());
  if (timed) move(row.times());
}

// Place of the first entry that is not before `entry`.
std::int32_t place_of(const Row& row, const RowEntry& entry, const EdgeOrder& order) {
  std::int32_t first = 0, count = row.count;
  while (count > 0) {
    const std::int32_t half = count / 2;
    if (order.before(row.ranks()[first + half], row.ids()[first + half], entry.rank, entry.id)) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}
}  // namespace

void ReservoirTable::add(Shard& shard, VertexId v, const RowEntry& entry) {
  const Row* seen = current(shard, v);
  const bool all = seen == nullptr || seen->complete != 0;
  if (!all && (seen->count == 0 || !before(entry, *seen, seen->count - 1))) return;  // behind what the row knows
  if (all && seen != nullptr && seen->count == capacity_ && !before(entry, *seen, seen->count - 1)) {
    touch(shard, v).after->complete = 0;
    return;
  }
  Row& row = *touch(shard, v).after;
  if (row.count == capacity_) {
    --row.count;
    row.complete = 0;
  }
  const std::int32_t at = place_of(row, entry, order_);
  shift(row, at, 1, timed());
  row.neighbours()[at] = entry.neighbour;
  row.ids()[at] = entry.id;
  row.ranks()[at] = entry.rank;
  if (timed()) row.times()[at] = entry.time;
  ++row.count;
}

void ReservoirTable::remove(Shard& shard, VertexId v, const RowEntry& entry) {
  const Row* seen = current(shard, v);
  invariant(seen != nullptr, "an edge left a vertex that has no row of samples");
  if (seen->complete == 0) {
    if (seen->count == 0) return;
    const std::int32_t last = seen->count - 1;
    if (order_.before(seen->ranks()[last], seen->ids()[last], entry.rank, entry.id)) return;
  }
  const std::int32_t at = place_of(*seen, entry, order_);
  invariant(at < seen->count && seen->ids()[at] == entry.id, "an edge left that its row of samples does not hold");
  Row& row = *touch(shard, v).after;
  shift(row, at + 1, -1, timed());
  --row.count;
}

// Takes out the entries whose time has come. Rows are as published: this is the first step of a batch.
void ReservoirTable::expire(Shard& shard, EdgeTime horizon) {
  while (!shard.calendar.empty() && shard.calendar.front().first <= horizon) {
    const auto [time, v] = shard.calendar.front();
    std::pop_heap(shard.calendar.begin(), shard.calendar.end(), std::greater<>());
    shard.calendar.pop_back();
    const Row* seen = current(shard, v);
    if (seen == nullptr) continue;
    const EdgeTime* times = seen->times();
    if (std::find(times, times + seen->count, time) == times + seen->count) continue;  // gone by other means
    Row& row = *touch(shard, v).after;
    for (std::int32_t at = row.count - 1; at >= 0; --at) {
      if (row.times()[at] > horizon) continue;
      shift(row, at + 1, -1, true);
      --row.count;
    }
  }
}

void ReservoirTable::note_expiry(Shard& shard, VertexId v, const Row* row) const {
  if (!timed() || row == nullptr || row->count == 0) return;
  shard.calendar.emplace_back(*std::min_element(row->times(), row->times() + row->count), v);
  std::push_heap(shard.calendar.begin(), shard.calendar.end(), std::greater<>());
}

// The end of a staged row's batch: refilled if it became too short, dropped if it is empty.
void ReservoirTable::settle(Shard& shard, Staged& staged, EdgeTime horizon) {
  if (staged.after->complete == 0 && staged.after->count < query_.fan_out) {
    const bool all = scan(staged.vertex, horizon, shard.found);
    shard.pool.free(staged.after);
    staged.after = shard.pool.allocate(std::max(static_cast<std::int32_t>(shard.found.size()), 1));
    write_row(*staged.after, shard.found);
    staged.after->complete = all ? 1 : 0;
    ++shard.refills;
  }
  if (staged.after->count == 0) {
    shard.pool.free(staged.after);
    staged.after = nullptr;
  }
  note_expiry(shard, staged.vertex, staged.after);
}

void ReservoirTable::stage(int at, const BatchDelta& delta, const OwnedBuckets& owned, EdgeTime now) {
  Shard& shard = shards_[static_cast<std::size_t>(at)];
  for (const Staged& old : shard.staged) {  // of the batch before, kept for changes()
    if (track_changes_ && old.before != nullptr) shard.pool.free(const_cast<Row*>(old.before));
  }
  shard.staged.clear();
  const EdgeTime horizon = this->horizon(now);
  if (timed()) expire(shard, horizon);
  const auto taken_out = [&](VertexId v, const RowEntry& entry, const auto&) { remove(shard, v, entry); };
  const auto put_in = [&](VertexId v, const RowEntry& entry, const auto&) { add(shard, v, entry); };
  visit_records(delta.removed, itself, horizon, at, owned, taken_out);
  if (query_.by == SampleBy::Weighted) {
    for (const EdgeReweighted& edge : delta.reweighted) {
      const std::span<const EdgeRecord> before(&edge.before, 1);
      visit_records(before, itself, horizon, at, owned, taken_out);
      EdgeRecord record = edge.before;
      record.weight = edge.weight_after;
      visit_records(std::span<const EdgeRecord>(&record, 1), itself, horizon, at, owned, put_in);
    }
  }
  visit_records(delta.added, itself, horizon, at, owned, put_in);
  for (Staged& staged : shard.staged) settle(shard, staged, horizon);
}

void ReservoirTable::grow(VertexId slot_count) {
  if (slot_count <= slot_count_) return;
  rows_.reserve(slot_count);
  std::memset(rows_.data() + slot_count_, 0, static_cast<std::size_t>(slot_count - slot_count_) * sizeof(Row*));
  slot_count_ = slot_count;
}

void ReservoirTable::switch_rows() {
  for (Shard& shard : shards_) {
    for (std::size_t i = 0; i < shard.staged.size(); ++i) {
      if (i + kAhead < shard.staged.size()) prefetch_line(rows_.data() + shard.staged[i + kAhead].vertex);
      rows_[shard.staged[i].vertex] = shard.staged[i].after;
    }
  }
}

void ReservoirTable::retire() {
  if (track_changes_) return;
  for (Shard& shard : shards_) {
    for (const Staged& staged : shard.staged) {
      if (staged.before != nullptr) shard.pool.free(const_cast<Row*>(staged.before));
    }
    shard.staged.clear();
  }
}

// ---- scans

template <typename Visitor>
void ReservoirTable::visit_lists(VertexId v, Visitor&& visitor) const {
  const bool one_way = graph_.options().undirected;
  if (one_way || query_.direction != HopDirection::In) {
    graph_.visit_out(v, [&](const EdgeSpan& span) { visitor(span, false); });
  }
  if (!one_way && query_.direction != HopDirection::Out) {
    graph_.visit_in(v, [&](const EdgeSpan& span) { visitor(span, true); });
  }
}

namespace {
EdgeRecord record_of(const EdgeSpan& span, std::int32_t i, VertexId v, bool incoming) {
  EdgeRecord edge{v, span.neighbours[i], 1.0f, 0, span.ids[i], 0};
  if (incoming) std::swap(edge.src, edge.dst);
  if (span.weights != nullptr) edge.weight = span.weights[i];
  if (span.types != nullptr) edge.type = span.types[i];
  if (span.times != nullptr) edge.time = span.times[i];
  return edge;
}
}  // namespace

void ReservoirTable::trim(std::vector<RowEntry>& found, std::size_t count) const {
  if (found.size() <= count) return;
  std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count) - 1, found.end(),
                   [&](const RowEntry& a, const RowEntry& b) { return order_.before(a.rank, a.id, b.rank, b.id); });
  found.resize(count);
}

void ReservoirTable::scan_all(VertexId v, EdgeTime horizon, std::vector<RowEntry>& found, bool& all) const {
  const auto keep = static_cast<std::size_t>(capacity_);
  RowEntry bar{};  // once there are enough, what is not before the largest of them is passed over
  bool barred = false;
  visit_lists(v, [&](const EdgeSpan& span, bool incoming) {
    for (std::int32_t i = 0; i < span.count; ++i) {
      const EdgeRecord edge = record_of(span, i, v, incoming);
      if (!matches(edge, horizon)) {
        if (query_.by == SampleBy::Weighted && edge.weight < 0.0f) refuse_weight(edge);
        continue;
      }
      if (incoming && query_.direction == HopDirection::Both && edge.src == edge.dst) continue;
      const RowEntry entry = entry_of(edge, span.neighbours[i]);
      if (barred && !order_.before(entry.rank, entry.id, bar.rank, bar.id)) continue;
      found.push_back(entry);
      if (found.size() < 4 * keep) continue;
      trim(found, keep);
      bar = found.back();  // the largest of those kept: nth_element puts it there
      barred = true;
    }
  });
  all = !barred && found.size() <= keep;
}

// Lists are in (time, id) order, so the latest are read from the end and the rest is left alone.
void ReservoirTable::scan_latest(VertexId v, EdgeTime horizon, std::vector<RowEntry>& found, bool& all) const {
  std::vector<std::pair<EdgeSpan, bool>> spans;
  visit_lists(v, [&](const EdgeSpan& span, bool incoming) { spans.emplace_back(span, incoming); });
  std::size_t taken[2] = {0, 0};
  for (auto at = spans.rbegin(); at != spans.rend(); ++at) {
    const auto& [span, incoming] = *at;
    for (std::int32_t i = span.count - 1; i >= 0; --i) {
      if (taken[incoming] == static_cast<std::size_t>(capacity_)) {
        all = false;
        break;
      }
      const EdgeRecord edge = record_of(span, i, v, incoming);
      if (!matches(edge, horizon)) continue;
      if (incoming && query_.direction == HopDirection::Both && edge.src == edge.dst) continue;
      found.push_back(entry_of(edge, span.neighbours[i]));
      ++taken[incoming];
    }
  }
  if (found.size() > static_cast<std::size_t>(capacity_)) all = false;
}

bool ReservoirTable::scan(VertexId v, EdgeTime horizon, std::vector<RowEntry>& found) const {
  found.clear();
  bool all = true;
  if (query_.by == SampleBy::TopK) {
    scan_latest(v, horizon, found, all);
  } else {
    scan_all(v, horizon, found, all);
  }
  trim(found, static_cast<std::size_t>(capacity_));
  std::sort(found.begin(), found.end(),
            [&](const RowEntry& a, const RowEntry& b) { return order_.before(a.rank, a.id, b.rank, b.id); });
  return all;
}

void ReservoirTable::write_row(Row& row, std::span<const RowEntry> entries) const {
  row.count = static_cast<std::int32_t>(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    row.neighbours()[i] = entries[i].neighbour;
    row.ids()[i] = entries[i].id;
    row.ranks()[i] = entries[i].rank;
    if (timed()) row.times()[i] = entries[i].time;
  }
}

void ReservoirTable::back_fill(int at, const OwnedBuckets& owned, EdgeTime now) {
  Shard& shard = shards_[static_cast<std::size_t>(at)];
  const EdgeTime horizon = this->horizon(now);
  for (VertexId v = 0; v < slot_count_; ++v) {
    if (shard_of(v) != at || !owns_vertex(owned, v)) continue;
    const bool all = scan(v, horizon, shard.found);
    if (shard.found.empty()) continue;
    Row* row = shard.pool.allocate(static_cast<std::int32_t>(shard.found.size()));
    write_row(*row, shard.found);
    row->complete = all ? 1 : 0;
    rows_[v] = row;
    note_expiry(shard, v, row);
  }
}

// ---- reading

SampleView ReservoirTable::view(const Row* row) const {
  if (row == nullptr) return {};
  const auto count = static_cast<std::size_t>(std::min(row->count, query_.fan_out));
  return {{row->neighbours(), count}, {row->ids(), count}};
}

std::vector<SampleChange> ReservoirTable::changes() const {
  std::vector<SampleChange> found;
  for (const Shard& shard : shards_) {
    for (const Staged& staged : shard.staged) {
      const SampleView before = view(staged.before), after = view(staged.after);
      if (!std::equal(before.edge_ids.begin(), before.edge_ids.end(), after.edge_ids.begin(), after.edge_ids.end())) {
        found.push_back({staged.vertex, before, after});
      }
    }
  }
  return found;
}

std::size_t ReservoirTable::live_bytes() const {
  std::size_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.pool.live_bytes();
  return sum;
}

std::size_t ReservoirTable::reserved_bytes() const {
  std::size_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.pool.reserved_bytes();
  return sum;
}

std::size_t ReservoirTable::pointer_bytes() const { return rows_.bytes() + stage_of_.bytes(); }

std::size_t ReservoirTable::expiry_bytes() const {
  std::size_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.calendar.capacity() * sizeof(shard.calendar[0]);
  return sum;
}

std::int64_t ReservoirTable::refills() const {
  std::int64_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.refills;
  return sum;
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
  const EdgeTime horizon = this->horizon(now);
  for (VertexId v = 0; v < graph_.slot_count(); ++v) {
    const Row* row = this->row(v);
    all.clear();
    if (owns_vertex(owned, v)) {
      visit_lists(v, [&](const EdgeSpan& span, bool incoming) {
        for (std::int32_t i = 0; i < span.count; ++i) {
          const EdgeRecord edge = record_of(span, i, v, incoming);
          if (!matches(edge, horizon)) continue;
          if (incoming && query_.direction == HopDirection::Both && edge.src == edge.dst) continue;
          all.push_back(entry_of(edge, span.neighbours[i]));
        }
      });
    }
    std::sort(all.begin(), all.end(),
              [&](const RowEntry& a, const RowEntry& b) { return order_.before(a.rank, a.id, b.rank, b.id); });
    const std::size_t count = row == nullptr ? 0 : static_cast<std::size_t>(row->count);
    invariant(count <= all.size() && count <= static_cast<std::size_t>(capacity_), "a row of samples is too long");
    if (row == nullptr || row->complete != 0) {
      invariant(count == all.size(), "a complete row of samples lacks candidates");
    } else {
      invariant(row->count >= query_.fan_out, "a row of samples is too short");
    }
    for (std::size_t i = 0; i < count; ++i) {
      invariant(row->ids()[i] == all[i].id && row->neighbours()[i] == all[i].neighbour &&
                    row->ranks()[i] == all[i].rank && (!timed() || row->times()[i] == all[i].time),
                "a row of samples differs from a scan");
    }
  }
}

}  // namespace livegnn
