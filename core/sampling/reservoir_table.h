// The samples of one one-hop query: a row per vertex, in shards that threads work on apart.
//
// A batch is taken in three steps. stage(): every shard copies the rows that the batch touches and changes the copies;
// a vertex's latest edge is written before the first entry of its row instead, where there is room and readers do not
// look yet. switch_rows(): readers see the copies, and what is in front, from here on; the caller holds them off
// meanwhile. retire(): old rows go back to the pool, unless changes are tracked; then they stay until the next stage().
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "livegnn/graph.h"
#include "livegnn/sampling.h"
#include "sampling/candidates.h"
#include "sampling/row.h"

namespace livegnn {

using OwnedBuckets = std::vector<std::uint8_t>;  // kBuckets flags, or empty: all
inline bool owns_vertex(const OwnedBuckets& owned, VertexId v) { return owned.empty() || owned[bucket_of(v)] != 0; }

class ReservoirTable {
 public:
  ReservoirTable(const GraphStore& graph, const OneHop& query, const SamplingOptions& options);

  const OneHop& query() const { return candidates_.query(); }
  std::int32_t fanout() const { return query().fanout; }
  int shards() const { return static_cast<int>(shards_.size()); }

  void check(const BatchDelta& delta, const OwnedBuckets& owned) const;  // throws Error: a negative weight
  void back_fill(int shard, const OwnedBuckets& owned, EdgeTime now);    // of a new table; throws Error likewise

  void grow_stage();  // room for the store's slots; before the shards' stage()
  void stage(int shard, const BatchDelta& delta, const OwnedBuckets& owned, EdgeTime now);
  void grow_rows();  // of new slots; readers are held off
  void switch_rows();
  void retire();

  const Row* row(VertexId v) const { return v < slot_count_ ? rows_[v] : nullptr; }
  void prefetch_row(VertexId v) const {
    if (v < slot_count_) prefetch_line(rows_.data() + v);
  }
  // skipped: the row as it was before so many entries came in front
  SampleView view(const Row* row, std::int32_t skipped = 0) const;
  std::vector<SampleChange> changes() const;
  // Samples with one of these edges, as changes from themselves; a vertex perhaps twice.
  void add_holders(std::span<const EdgeRecord> edges, std::vector<SampleChange>& found) const;

  void add_to(SamplingStats& stats) const;
  std::uint64_t digest(const OwnedBuckets& owned) const;
  void check_invariants(const OwnedBuckets& owned, EdgeTime now) const;

 private:
  struct StagedRow {
    VertexId vertex;
    std::int32_t in_front;  // entries written before the first of a row that readers see: before == after
    const Row* before;      // may be nullptr; owned by the shard's pool
    Row* after;             // likewise
  };
  struct Shard {
    explicit Shard(std::int32_t capacity, bool timed) : pool(capacity, timed ? RowColumns::Times : RowColumns::Ranks) {}
    RowPool pool;
    std::vector<StagedRow> staged;
    // Heap, earliest first: (row.noted, vertex) for every row with entries, and stale ones.
    std::vector<std::pair<EdgeTime, VertexId>> calendar;
    std::size_t rows = 0;
    std::vector<RowEntry> found;  // of a scan
    std::int64_t refills = 0;
  };

  // Zeros for the store's new slots.
  template <typename T>
  void grow(Column<T>& column, VertexId& slots) const;
  static void drop_staged(Shard& shard);
  int shard_of(VertexId v) const { return static_cast<int>((static_cast<std::uint32_t>(v) >> 4) % shards_.size()); }
  bool timed() const { return candidates_.timed(); }
  void prefetch_record(std::span<const EdgeRecord> records, std::size_t at) const;
  template <typename Visitor>
  void visit_records(std::span<const EdgeRecord> records, EdgeTime horizon, int shard, const OwnedBuckets& owned,
                     Visitor&& visitor) const;

  StagedRow* find_staged(Shard& shard, VertexId v) const;
  StagedRow& stage_row(Shard& shard, const StagedRow& staged);
  StagedRow& touch(Shard& shard, VertexId v);
  const Row* current(Shard& shard, VertexId v) const;
  bool add_in_front(Shard& shard, VertexId v, const RowEntry& entry);
  void add(Shard& shard, VertexId v, const RowEntry& entry);
  void remove(Shard& shard, VertexId v, const RowEntry& entry);
  void expire(Shard& shard, EdgeTime horizon);
  void settle(Shard& shard, StagedRow& staged, EdgeTime horizon);
  Row* new_row(Shard& shard, bool complete) const;  // of shard.found
  Row* empty_row(Shard& shard, std::int32_t count, std::int32_t room) const;
  Row* wider_copy(Shard& shard, const Row& row, std::int32_t in_front) const;

  void note_expiry(Shard& shard, VertexId v, Row* row) const;
  void tidy_calendar(Shard& shard) const;

  const GraphStore& graph_;
  Candidates candidates_;
  std::int32_t capacity_;  // of entries; rows whose front is free may hold more until they are copied
  bool track_changes_;
  std::vector<Shard> shards_;
  Column<Row*> rows_;
  VertexId slot_count_ = 0;
  Column<std::uint32_t> stage_of_;  // by vertex: place in its shard's staged, valid if that names the vertex
  VertexId stage_slots_ = 0;
};

}  // namespace livegnn
