// The samples of one one-hop query: a row per vertex, in shards that threads work on apart.
//
// A batch is taken in three steps. stage(): every shard copies the rows that the batch touches and changes the copies.
// switch_rows(): readers see the copies from here on; the caller holds them off meanwhile. retire(): old rows go back
// to the pool, unless changes are tracked; then they stay until the next stage().
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "livegnn/graph.h"
#include "livegnn/sampling.h"
#include "sampling/keys.h"
#include "sampling/row.h"

namespace livegnn {

using OwnedBuckets = std::vector<std::uint8_t>;  // kBuckets flags, or empty: all
inline bool owns_vertex(const OwnedBuckets& owned, VertexId v) { return owned.empty() || owned[bucket_of(v)] != 0; }

class ReservoirTable {
 public:
  ReservoirTable(const GraphStore& graph, const OneHop& query, const SamplingOptions& options);

  const OneHop& query() const { return query_; }
  std::int32_t capacity() const { return capacity_; }
  int shards() const { return static_cast<int>(shards_.size()); }

  void check(const BatchDelta& delta, const OwnedBuckets& owned) const;  // throws Error: a negative weight
  void back_fill(int shard, const OwnedBuckets& owned, EdgeTime now);    // of a new table; throws Error likewise

  void grow_stage();  // room for the store's slots; before the shards' stage()
  void stage(int shard, const BatchDelta& delta, const OwnedBuckets& owned, EdgeTime now);
  void grow(VertexId slot_count);  // rows of new slots; readers are held off
  void switch_rows();
  void retire();

  const Row* row(VertexId v) const { return v < slot_count_ ? rows_[v] : nullptr; }
  void prefetch_row_pointer(VertexId v) const {
    if (v < slot_count_) prefetch_line(rows_.data() + v);
  }
  SampleView view(const Row* row) const;
  std::vector<SampleChange> changes() const;

  std::size_t live_bytes() const;
  std::size_t reserved_bytes() const;
  std::size_t pointer_bytes() const;
  std::size_t expiry_bytes() const;
  std::int64_t refills() const;
  std::uint64_t digest(const OwnedBuckets& owned) const;
  void check_invariants(const OwnedBuckets& owned, EdgeTime now) const;

 private:
  struct Staged {
    VertexId vertex;
    const Row* before;  // may be nullptr; owned by the shard's pool
    Row* after;         // likewise
  };
  struct Shard {
    explicit Shard(std::int32_t capacity, bool timed) : pool(capacity, timed) {}
    RowPool pool;
    std::vector<Staged> staged;
    std::vector<std::pair<EdgeTime, VertexId>>
        calendar;                 // heap, earliest first: for every row at least its first expiry
    std::vector<RowEntry> found;  // of a scan
    std::int64_t refills = 0;
  };

  int shard_of(VertexId v) const { return static_cast<int>((static_cast<std::uint32_t>(v) >> 4) % shards_.size()); }
  bool timed() const { return query_.ttl > 0; }
  EdgeTime horizon(EdgeTime now) const;  // edges up to this time have expired
  bool matches(const EdgeRecord& edge, EdgeTime horizon) const;
  RowEntry entry_of(const EdgeRecord& edge, VertexId neighbour) const;
  bool before(const RowEntry& a, const Row& row, std::int32_t at) const {
    return order_.before(a.rank, a.id, row.ranks()[at], row.ids()[at]);
  }

  template <typename Visitor>
  void visit_ends(const EdgeRecord& edge, int shard, const OwnedBuckets& owned, Visitor&& visitor) const;
  template <typename Records, typename RecordOf>
  void prefetch_record(const Records& records, std::size_t at, RecordOf&& record_of) const;
  template <typename Records, typename RecordOf, typename Visitor>
  void visit_records(const Records& records, RecordOf&& record_of, EdgeTime horizon, int shard,
                     const OwnedBuckets& owned, Visitor&& visitor) const;

  Staged& touch(Shard& shard, VertexId v);
  const Row* current(const Shard& shard, VertexId v) const;
  void add(Shard& shard, VertexId v, const RowEntry& entry);
  void remove(Shard& shard, VertexId v, const RowEntry& entry);
  void expire(Shard& shard, EdgeTime horizon);
  void settle(Shard& shard, Staged& staged, EdgeTime horizon);
  void write_row(Row& row, std::span<const RowEntry> entries) const;
  Row* with_room(Shard& shard, const Row* row, std::int32_t count) const;

  // The first capacity_ candidates of v into found, sorted; true if they are known to be all.
  bool scan(VertexId v, EdgeTime horizon, std::vector<RowEntry>& found) const;
  void scan_all(VertexId v, EdgeTime horizon, std::vector<RowEntry>& found, bool& all) const;
  void scan_latest(VertexId v, EdgeTime horizon, std::vector<RowEntry>& found, bool& all) const;
  void trim(std::vector<RowEntry>& found, std::size_t count) const;  // to the first `count`, in any order
  template <typename Visitor>
  void visit_lists(VertexId v, Visitor&& visitor) const;  // visitor(span, incoming)
  void note_expiry(Shard& shard, VertexId v, const Row* row) const;

  const GraphStore& graph_;
  OneHop query_;
  EdgeOrder order_;
  std::int32_t capacity_;
  bool track_changes_;
  std::vector<Shard> shards_;
  Column<Row*> rows_;
  VertexId slot_count_ = 0;
  Column<std::uint32_t> stage_of_;  // by vertex: place in its shard's staged, valid if that names the vertex
  VertexId stage_slots_ = 0;
};

}  // namespace livegnn
