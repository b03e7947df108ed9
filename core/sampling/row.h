// Rows of samples and the pool that they come from.
//
// A row is one run of memory: the header, then the columns neighbours, edge ids and, as far as the pool keeps them,
// ranks and times (where entries can expire), each `capacity` long; its entries are [first, first + count) of them. A
// pool with ids alone may keep words besides: a row of values for each entry, behind the ids. Then `first` is 0.
// Readers follow a pointer to it; of a row that they can reach only places before `first` are ever written, and its
// header while readers are held off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "livegnn/types.h"
#include "util/aligned.h"

namespace livegnn {

inline constexpr EdgeTime kNotNoted = INT64_MIN;

struct Row {
  std::int32_t count;
  std::int32_t capacity;
  std::int32_t complete;    // the row holds all candidates
  std::int32_t first;       // place of the first entry
  std::uint64_t last_rank;  // of the last entry, so that what comes after it is turned away by one line of memory;
  EdgeId last_id;           // anything in an empty row
  EdgeTime noted;           // the calendar will ask for this row at that time; kNotNoted: it will not

  VertexId* neighbours() { return reinterpret_cast<VertexId*>(this + 1) + first; }
  EdgeId* ids() { return wide_columns() + first; }
  std::uint64_t* ranks() { return reinterpret_cast<std::uint64_t*>(wide_columns() + capacity + first); }
  EdgeTime* times() { return wide_columns() + 2 * capacity + first; }
  void seal() {  // after every change of the entries
    if (count == 0) return;
    last_rank = ranks()[count - 1];
    last_id = ids()[count - 1];
  }
  float* words() { return reinterpret_cast<float*>(wide_columns() + capacity); }  // of a pool with ids alone
  const float* words() const { return const_cast<Row*>(this)->words(); }
  const VertexId* neighbours() const { return const_cast<Row*>(this)->neighbours(); }
  const EdgeId* ids() const { return const_cast<Row*>(this)->ids(); }
  const std::uint64_t* ranks() const { return const_cast<Row*>(this)->ranks(); }
  const EdgeTime* times() const { return const_cast<Row*>(this)->times(); }

 private:
  EdgeId* wide_columns() { return reinterpret_cast<EdgeId*>(this + 1) + (capacity + 1) / 2; }  // behind the neighbours
};
static_assert(sizeof(Row) == 40);

struct RowEntry {
  VertexId neighbour;
  float weight;
  EdgeId id;
  std::uint64_t rank;
  EdgeTime time;
};

enum class RowColumns : std::int32_t { Ids = 1, Ranks = 2, Times = 3 };  // the last column that a pool's rows have

// Rows of a few capacities, cut from chunks; freed ones wait on a list of their class. Not thread-safe.
class RowPool {
 public:
  RowPool(std::int32_t capacity_max, RowColumns columns, std::int32_t words = 0);  // words: of an entry

  Row* allocate(std::int32_t count);  // an empty row with room for so many, 1 <= count <= capacity_max
  void free(Row* row);
  std::size_t live_bytes() const { return live_bytes_; }
  std::size_t reserved_bytes() const { return chunk_total_ - live_bytes_; }

 private:
  static constexpr std::size_t kChunkBytesMax = std::size_t{1} << 20;
  std::size_t row_bytes(std::int32_t capacity) const;
  char* new_chunk(std::size_t bytes);

  RowColumns columns_;
  std::size_t words_;
  std::vector<std::int32_t> capacities_;   // by class, ascending
  std::vector<std::uint8_t> class_of_;     // by count
  std::vector<std::vector<Row*>> free_;    // by class
  std::vector<Column<std::byte>> chunks_;  // a row above a quarter of the largest has its own
  char* chunk_ = nullptr;                  // what is left of the one that rows are cut from
  std::size_t chunk_left_ = 0, chunk_total_ = 0, live_bytes_ = 0;
};

}  // namespace livegnn
