// The rows that readers see. A batch writes its changed rows in place and keeps the old ones in a journal; until it is
// published, readers take the old row of every vertex that the batch has overwritten. Publishing is therefore one step,
// however many rows changed: the journal's epoch ends, under a lock that readers hold while they copy.
//
// A reader never waits for a batch. It copies the row, then looks whether the row was journalled meanwhile; the writer
// journals first and overwrites after, with fences between, so a torn copy is always noticed and thrown away.
//
// Snapshots: where some are open, a publication first hands them the journal's rows, which it would forget; neither
// waits for the other but for that copy. Locks are taken in the order snapshots_gate_, rows_gate_.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

#include "inference/snapshots.h"
#include "livegnn/detail/prefetch.h"
#include "livegnn/engine.h"
#include "livegnn/graph.h"
#include "livegnn/types.h"
#include "util/aligned.h"

namespace livegnn {

class Publication {
 public:
  Publication(int width, int threads, Pager* pager);

  // ---- writer
  void reset(const GraphStore& graph);  // rows for all slots, liveness as now; nothing staged
  void fetch(std::int64_t first, std::int64_t last) const { rows_.fetch(first, last); }
  float* row(VertexId v) { return rows_.row(v); }  // after reset(), to fill
  void prepare(VertexId slots_before, VertexId slots);
  // row: padded like a row of the table. Written only where bits differ or the slot is new. Not two threads at one
  // vertex.
  void stage(VertexId v, const float* row, int thread);
  bool differs(VertexId v, const float* row) const;
  void prefetch(VertexId v) const {
    prefetch_row(rows_.row(v), rows_.row_bytes());
    prefetch_line(&marks_[static_cast<std::size_t>(v)]);
  }
  std::vector<VertexId> publish(const GraphStore& graph, const std::vector<VertexId>& added,
                                const std::vector<VertexId>& removed);  // live changed vertices, in no order
  // The same vertices before publication, ascending.
  std::vector<VertexId> staged(const GraphStore& graph, const std::vector<VertexId>& added,
                               const std::vector<VertexId>& removed) const;
  // work(first, last) on all of so many rows, in whatever pieces.
  using InChunks = std::function<void(std::int64_t, const std::function<void(std::int64_t, std::int64_t)>&)>;
  // Rows before and after, of all that publication will change; null where they are more than so many.
  std::shared_ptr<OutputMoves> moves(const GraphStore& graph, const std::vector<VertexId>& added,
                                     const std::vector<VertexId>& removed, std::int64_t rows_max,
                                     const InChunks& in_chunks) const;
  void drop_staged();  // every overwritten row is put back

  // From here on publications note the vertices that they change or add. Returns the place of the next note.
  std::int64_t note_changes();
  // Vertices noted since a place, ascending; none where they are forgotten, for there were more than rows.
  std::optional<std::vector<VertexId>> changed_since(std::int64_t place) const;

  // ---- readers
  std::int64_t read(std::span<const std::int64_t> ids, float* out) const;            // the version that the rows are of
  std::int64_t version() const { return version_.load(std::memory_order_acquire); }  // of what read() gives now
  void read_staged(std::span<const std::int64_t> ids, float* out, const GraphStore& graph) const;

  // ---- snapshots (any thread)
  SnapshotFacts open_snapshot();  // of what is published now; to be closed once
  void close_snapshot(std::int64_t moment);
  void read_snapshot(std::int64_t moment, std::span<const std::int64_t> ids, float* out) const;

  int width() const { return width_; }
  std::size_t bytes() const;

 private:
  static constexpr std::int64_t kClaim = 64;  // journal rows that a thread takes at a time
  struct alignas(kCacheLine) ThreadJournal {  // of one thread
    std::vector<VertexId> vertices;
    std::int64_t next = 0, end = 0;  // places left in its claim
  };
  std::int64_t journal_place(ThreadJournal& journal);
  const float* journal_row(std::uint64_t mark) const {
    return old_rows_.row(static_cast<std::int64_t>(mark & 0xffffffffu));
  }
  bool overwritten(std::uint64_t mark) const { return mark >> 32 == epoch_; }
  void copy_committed(VertexId v, float* out) const;
  void copy_moves(OutputMoves& moves, std::int64_t live, std::int64_t first, std::int64_t last) const;
  bool was_live(VertexId v) const { return at(v) < live_.size() && live_[at(v)] != 0; }
  void keep_news(std::vector<VertexId>& changed, const GraphStore& graph, const std::vector<VertexId>& added,
                 const std::vector<VertexId>& removed) const;
  void end_epoch();
  void keep_for_snapshots(const std::vector<VertexId>& changed, const std::vector<VertexId>& added,
                          const std::vector<VertexId>& removed);
  void set_live(VertexId v, bool live);
  void note(const std::vector<VertexId>& changed);
  struct Gate {
    std::shared_mutex mutex;
    std::atomic<int> writers_waiting{0};  // readers that come later let them in first
    void lock();
    void unlock() { mutex.unlock(); }
    void lock_shared();
    void unlock_shared() { mutex.unlock_shared(); }
  };

  int width_;
  RowTable<float> rows_;
  std::vector<std::uint64_t> marks_;  // per vertex: the epoch in which it was journalled last, and the place
  std::uint32_t epoch_ = 1;
  std::vector<ThreadJournal> journals_;
  RowTable<float> old_rows_;  // the journal: address space for one row per vertex, memory as batches have needed it
  std::atomic<std::int64_t> claimed_{0};
  std::int64_t most_claimed_ = 0;
  std::vector<std::uint8_t> live_;
  VertexId slots_before_ = 0;
  std::int64_t live_count_ = 0;
  bool notes_ = false;
  std::vector<VertexId> noted_;
  std::int64_t forgotten_ = 0;  // notes before those
  std::atomic<std::int64_t> version_ = 0;
  std::int64_t moment_ = 0;  // publications so far
  Snapshots snapshots_;
  std::atomic<int> snapshots_open_{0};  // raised while rows_gate_ is held: a publication holds it and sees them all
  mutable Gate snapshots_gate_;         // of snapshots_
  mutable Gate rows_gate_;              // of the epoch, moment_ and what is sized by slots
};

}  // namespace livegnn
