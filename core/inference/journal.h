// Old rows of one batch, kept while a what_if is open, and during every batch where the state is compact. Every row is
// saved at most once, before its first change, so the order of putting back does not matter.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "inference/state.h"
#include "livegnn/types.h"

namespace livegnn {

class Journal {
 public:
  bool on() const { return on_; }
  void begin(std::size_t aggregations, std::int64_t slots, int threads) {
    on_ = true;
    if (++epoch_ == 0) {
      marks_.clear();
      epoch_ = 1;
    }
    marks_.resize(aggregations);
    grow(slots);
    logs_.resize(static_cast<std::size_t>(threads));
  }
  void end() {  // what was saved is not needed any more; the memory of a large batch is given back
    for (Log& log : logs_) {
      if (log.bytes.capacity() > kKeptForReuse) log = Log{};
      log.entries.clear();
      log.bytes.clear();
    }
    on_ = false;
  }
  void grow(std::int64_t slots) {
    for (auto& marks : marks_) {
      if (marks.size() < static_cast<std::size_t>(slots))
        marks.resize(static_cast<std::size_t>(marks.empty() ? slots : slots + slots / 2));
    }
  }
  std::size_t bytes() const {
    std::size_t bytes = 0;
    for (const auto& marks : marks_) bytes += marks.capacity() * sizeof(Mark);
    for (const Log& log : logs_) bytes += log.bytes.capacity() + log.entries.capacity() * sizeof(Entry);
    return bytes;
  }
  // The row as it was before the batch, or null where the batch has not changed it.
  const std::int64_t* aggregate_before(int index, VertexId v) const {
    const Mark& mark = marks_[static_cast<std::size_t>(index)][static_cast<std::size_t>(v)];
    if (mark.epoch != epoch_) return nullptr;
    return reinterpret_cast<const std::int64_t*>(logs_[mark.thread].bytes.data() + mark.offset);
  }
  void save_aggregate(const State& state, int index, VertexId v, int thread) {
    Mark& mark = marks_[static_cast<std::size_t>(index)][static_cast<std::size_t>(v)];
    if (mark.epoch == epoch_) return;
    const auto log = static_cast<std::size_t>(thread);
    mark = {epoch_, static_cast<std::uint32_t>(thread), logs_[log].bytes.size()};
    const RowTable<std::int64_t>& table = state.aggregates[static_cast<std::size_t>(index)];
    save(index, v, table.row(v), table.row_bytes(), thread);
  }
  void save_stored(const State& state, int index, VertexId v, int thread) {  // called once per row and batch
    const StoredRows& table = state.stored[static_cast<std::size_t>(index)];
    save(-1 - index, v, table.row(v), table.row_bytes(), thread);
  }
  void restore(State& state) {
    for (Log& log : logs_) {
      const char* from = log.bytes.data();
      for (const Entry& entry : log.entries) {
        const bool aggregate = entry.table >= 0;
        auto& aggregates = state.aggregates;
        auto& stored = state.stored;
        const std::size_t index = static_cast<std::size_t>(aggregate ? entry.table : -1 - entry.table);
        const std::size_t bytes = aggregate ? aggregates[index].row_bytes() : stored[index].row_bytes();
        void* to = aggregate ? static_cast<void*>(aggregates[index].row(entry.row))
                             : static_cast<void*>(stored[index].row(entry.row));
        std::memcpy(to, from, bytes);
        from += bytes;
      }
    }
    end();
  }

 private:
  static constexpr std::size_t kKeptForReuse = std::size_t{1} << 20;
  struct Mark {
    std::uint32_t epoch = 0, thread = 0;
    std::size_t offset = 0;  // of the row among what the thread has saved
  };
  struct Entry {
    int table;  // >= 0: aggregate; below: stored row kind -1 - table
    VertexId row;
  };
  struct Log {
    std::vector<Entry> entries;
    std::vector<char> bytes;
  };
  void save(int table, VertexId v, const void* row, std::size_t bytes, int thread) {
    Log& log = logs_[static_cast<std::size_t>(thread)];
    log.entries.push_back({table, v});
    const char* from = static_cast<const char*>(row);
    log.bytes.insert(log.bytes.end(), from, from + bytes);
  }

  bool on_ = false;
  std::uint32_t epoch_ = 0;
  std::vector<std::vector<Mark>> marks_;  // per aggregation and vertex
  std::vector<Log> logs_;
};

}  // namespace livegnn
