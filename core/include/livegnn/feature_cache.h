// Feature caches: where the rows of ids lie (FeatureIndex), how rows are copied between tiers (RowCopier), and which
// rows a batch of the graph changes (ChangedRows). Rows themselves belong to the caller, on whatever device.
//
// A fetch has two halves. lookup() says where each id is and changes nothing; the caller reads the missed rows, which
// may fail; commit() then counts the hits and admits some of the missed. So a fetch that fails leaves no trace.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "livegnn/detail/graph_attributes.h"
#include "livegnn/detail/graph_memory.h"
#include "livegnn/follower.h"
#include "livegnn/types.h"

namespace livegnn {

enum class CachePolicy : std::uint8_t { Lru, Lfu, Fifo, Static };

class Replacement;  // which slot goes next; core/temporal/replacement.h
class ThreadPool;

// Ids seen once each, in order; forgets all at no cost.
class IdSet {
 public:
  void clear(std::size_t count_max);
  std::int32_t place_of(std::int64_t id, std::int32_t next);  // where it is, or `next`, where it is then put
  void prefetch(std::int64_t id) const;

 private:
  struct SeenId {
    std::int64_t id;
    std::int32_t place;
    std::uint32_t round;  // of this round or empty
  };
  std::size_t home(std::int64_t id) const;
  std::vector<SeenId> cells_;
  std::uint32_t round_ = 0;
  int shift_ = 64;
};

// Id -> slot. Dense: 4 bytes for every id below the largest seen, one look each. Else a hash table of what is cached.
class SlotMap {
 public:
  explicit SlotMap(bool dense) : dense_(dense) {}
  std::int32_t find(std::int64_t id) const;  // -1 where it is not; id >= 0
  void prefetch(std::int64_t id) const;
  void insert(std::int64_t id, std::int32_t slot);  // id is not there
  void erase(std::int64_t id);                      // id is there
  std::size_t bytes() const { return slots_.bytes() + hashed_.bytes(); }

 private:
  bool dense_;
  Column<std::int32_t> slots_;  // of ids below end_
  std::int64_t end_ = 0;
  EdgeIdMap hashed_;
};

struct Admission {
  std::vector<std::int32_t> slots;  // of the first ids of missed(), in their order
  std::int64_t evicted = 0;
};

// The ids in order, the first to go first. uses: fetches that asked for each since it came (lfu; else 1).
struct CacheContents {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> uses;
};

// Copies rows of any width, with several threads where there is enough to copy. One call at a time; others wait.
class RowCopier final {
 public:
  explicit RowCopier(int threads);
  ~RowCopier();
  RowCopier(const RowCopier&) = delete;
  RowCopier& operator=(const RowCopier&) = delete;

  // out[i] = rows[ids[i]]
  void gather(const std::uint8_t* rows, std::size_t row_bytes, std::span<const std::int64_t> ids, std::uint8_t* out);
  // out[i] = cached[places[i]], or fresh[-1 - places[i]] where places[i] < 0
  void join(const std::uint8_t* cached, const std::uint8_t* fresh, std::size_t row_bytes,
            std::span<const std::int32_t> places, std::uint8_t* out);
  // cached[slots[i]] = fresh[i]; slots are unique
  void scatter(const std::uint8_t* fresh, std::size_t row_bytes, std::span<const std::int32_t> slots,
               std::uint8_t* cached);
  // run(begin, end) for parts of [0, count) of at most `chunk`, by several threads
  void in_chunks(std::size_t count, std::size_t chunk, const std::function<void(std::size_t, std::size_t)>& run);

 private:
  template <typename From, typename To>
  void copy(std::size_t count, std::size_t row_bytes, const From& from, const To& to);

  std::mutex mutex_;
  std::unique_ptr<ThreadPool> pool_;
};

// Which ids are cached in which of `capacity` slots. Not thread-safe: the cache's lock is held.
class FeatureIndex final {
 public:
  FeatureIndex(CachePolicy policy, std::int32_t capacity, bool dense);
  ~FeatureIndex();
  FeatureIndex(const FeatureIndex&) = delete;
  FeatureIndex& operator=(const FeatureIndex&) = delete;

  // places[i]: the slot of ids[i] where cached, else -1 - r with missed()[r] == ids[i]. Returns the first i whose id is
  // not in [0, row_count), then nothing else holds; or -1.
  std::int64_t lookup(std::span<const std::int64_t> ids, std::int64_t row_count, std::span<std::int32_t> places,
                      RowCopier& threads);
  const std::vector<std::int64_t>& missed() const { return missed_; }  // once each, in the order they were asked for
  std::int64_t missed_places() const { return missed_places_; }        // asked for, repeats too
  // After lookup(), with what it gave: the hits count as used now, at most admitted_max of the missed ids come in. What
  // was hit stays.
  Admission commit(std::span<const std::int32_t> places, std::int64_t admitted_max);

  std::vector<std::int32_t> find(std::span<const std::int64_t> ids) const;  // slots, -1 where not cached
  std::int64_t drop(std::span<const std::int64_t> ids);                     // how many of them were there
  CacheContents contents() const;
  // Makes these the contents, and returns their slots; what was there before keeps its slot. ids: unique, at most
  // capacity; in order, but lfu sorts them by uses first.
  std::vector<std::int32_t> install(std::span<const std::int64_t> ids, std::span<const std::int64_t> uses);
  std::int32_t capacity() const { return capacity_; }
  std::int64_t size() const { return capacity_ - static_cast<std::int64_t>(free_.size()); }
  std::size_t bytes() const;
  void check_invariants() const;

 private:
  std::int32_t find_slots(std::span<const std::int64_t> ids, std::int64_t row_count, std::span<std::int32_t> places,
                          std::size_t begin, std::size_t end);
  void number_missed(std::span<const std::int64_t> ids, std::span<const std::int32_t> at,
                     std::span<std::int32_t> places);
  void put(std::int64_t id, std::int32_t slot);
  void clear_slot(std::int32_t slot);

  std::int32_t capacity_;
  SlotMap map_;
  Column<std::int64_t> ids_;        // by slot, -1 where free
  std::vector<std::int32_t> free_;  // a stack, the lowest slot on top at first
  std::unique_ptr<Replacement> order_;
  IdSet seen_;
  std::vector<std::int64_t> missed_;
  std::int64_t missed_places_ = 0;
  std::vector<std::int32_t> missed_at_;  // scratch: by chunk, the places that are not cached
  std::vector<std::int32_t> missed_in_;  // scratch: how many, by chunk; less than none where an id is out of range
};

// What the batches of a graph did to its rows since the last take(): the vertices' features, or the edges' attributes.
struct RowChanges {
  std::vector<std::int64_t> ids;   // ascending
  std::vector<std::uint8_t> gone;  // 1 where it is no more, 0 where its row was set
};
class ChangedRows final : public BatchFollower {
 public:
  ChangedRows(const GraphStore& graph, bool edges) : graph_(graph), edges_(edges) {}
  void check(const BatchDelta&) const override {}
  void follow(const BatchDelta& delta, const UpdateBuffer& batch) override;
  RowChanges take();  // from any thread

 private:
  void note(std::int64_t id, bool gone);

  const GraphStore& graph_;
  const bool edges_;
  std::mutex mutex_;
  EdgeIdMap pending_;  // id -> gone, as the last batch left it
};

}  // namespace livegnn
