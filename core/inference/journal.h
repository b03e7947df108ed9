// Old rows of one batch, kept while a what_if is open. Every row is saved at most once, before its first change, so the
// order of putting back does not matter.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "inference/state.h"
#include "livegnn/types.h"

namespace livegnn {

template <typename Acc>
class Journal {
 public:
  bool on() const { return on_; }
  void begin(std::size_t aggregations, std::int64_t slots, int threads) {
    on_ = true;
    ++epoch_;
    marks_.resize(aggregations);
    for (auto& marks : marks_) {
      if (marks.size() < static_cast<std::size_t>(slots)) marks.resize(static_cast<std::size_t>(slots), 0);
    }
    logs_.resize(static_cast<std::size_t>(threads));
  }
  void grow(std::int64_t slots) {
    for (auto& marks : marks_) {
      if (marks.size() < static_cast<std::size_t>(slots)) marks.resize(static_cast<std::size_t>(slots), 0);
    }
  }
  void save_aggregate(const State<Acc>& state, int index, VertexId v, int thread) {
    std::uint32_t& mark = marks_[static_cast<std::size_t>(index)][static_cast<std::size_t>(v)];
    if (mark == epoch_) return;
    mark = epoch_;
    const RowTable<Acc>& table = state.aggregates[static_cast<std::size_t>(index)];
    save(index, v, table.row(v), table.row_bytes(), thread);
  }
  void save_stored(const State<Acc>& state, int index, VertexId v, int thread) {  // called once per row and batch
    const RowTable<float>& table = state.stored[static_cast<std::size_t>(index)];
    save(-1 - index, v, table.row(v), table.row_bytes(), thread);
  }
  void restore(State<Acc>& state) {
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
      log.entries.clear();
      log.bytes.clear();
    }
    on_ = false;
  }

 private:
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
  std::vector<std::vector<std::uint32_t>> marks_;
  std::vector<Log> logs_;
};

}  // namespace livegnn
