// Old rows of one batch. Every row is saved at most once, before its first change, so the order of putting back does
// not matter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "inference/sets.h"
#include "inference/state.h"
#include "inference/vertex_lists.h"

namespace livegnn {

// Rows of one table as they were before the batch, in the order in which each thread has saved them.
class OldRows {
 public:
  // A new batch. slots: of the table, where find() is wanted; 0: every row will be saved once.
  void begin(std::int64_t slots, int threads, std::size_t row_bytes) {
    if (++epoch_ == 0) {
      places_.clear();
      epoch_ = 1;
    }
    reserve_places(places_, slots);
    logs_.resize(at(threads));
    for (Log& log : logs_) log.vertices.clear();
    row_bytes_ = row_bytes;
  }
  void prefetch(VertexId v) const { prefetch_line(&places_[at(v)]); }  // before save()
  void save(VertexId v, const void* row, int thread) {
    Log& log = logs_[at(thread)];
    const std::size_t count = log.vertices.size();
    if (!places_.empty()) {
      SavedPlace& place = places_[at(v)];
      if (place.epoch == epoch_) return;
      place = {epoch_, static_cast<std::uint32_t>(thread), static_cast<std::uint32_t>(count)};
    }
    log.rows.reserve(static_cast<std::int64_t>((count + 1) * row_bytes_));
    std::memcpy(log.rows.data() + count * row_bytes_, row, row_bytes_);
    log.vertices.push_back(v);
  }
  template <typename T>
  const T* find(VertexId v, const T* now) const {  // now: where the batch has not changed it
    const SavedPlace& place = places_[at(v)];
    if (place.epoch != epoch_) return now;
    return reinterpret_cast<const T*>(logs_[place.thread].rows.data() + place.place * row_bytes_);
  }
  template <typename Table>
  void restore(Table& table) const {
    visit([&](VertexId v, const char* row) { std::memcpy(table.row(v), row, row_bytes_); });
  }
  template <typename Visit>
  void visit(Visit&& visit) const {  // visit(v, row) for every row that was saved
    for (const Log& log : logs_) {
      for (std::size_t i = 0; i < log.vertices.size(); ++i) visit(log.vertices[i], log.rows.data() + i * row_bytes_);
    }
  }
  // What was saved is not needed any more. Memory of a large batch is given back, or kept where the next batch
  // reuses it: until one fills less than a quarter.
  void end(bool reuse) {
    for (Log& log : logs_) {
      const std::size_t bytes = log.rows.bytes(), kept = reuse ? 4 * log.vertices.size() * row_bytes_ : 0;
      if (bytes > std::max(kKeptForReuse, kept)) log = {};
      log.vertices.clear();
    }
  }
  std::size_t bytes() const {
    std::size_t bytes = places_.capacity() * sizeof(SavedPlace);
    for (const Log& log : logs_) bytes += log.rows.bytes() + log.vertices.capacity() * sizeof(VertexId);
    return bytes;
  }

 private:
  static constexpr std::size_t kKeptForReuse = std::size_t{1} << 20;
  struct SavedPlace {
    std::uint32_t epoch = 0, thread = 0, place = 0;
  };
  struct Log {  // of a thread
    std::vector<VertexId> vertices;
    Column<char> rows;
  };
  std::size_t row_bytes_ = 0;
  std::uint32_t epoch_ = 0;
  std::vector<SavedPlace> places_;
  std::vector<Log> logs_;
};

// Of a state: kept while a what_if is open, and during every batch of one part of several or where the state is
// compact. Stored rows that are kept for the batch anyway (Workspace::rows_before) are not in it, nor are aggregates
// that are summed again instead.
class Journal {
 public:
  bool on() const { return on_; }
  void begin(const State& state, std::int64_t slots, int threads) {
    on_ = true;
    saved_only_.assign(state.aggregates.size(), nullptr);
    aggregates_.resize(state.aggregates.size());
    stored_.resize(state.stored.size());
    for (std::size_t k = 0; k < aggregates_.size(); ++k)
      aggregates_[k].begin(slots, threads, state.aggregates[k].row_bytes());
    for (std::size_t t = 0; t < stored_.size(); ++t) stored_[t].begin(0, threads, state.stored[t].row_bytes());
  }
  void end(bool reuse = false) {
    for (auto* tables : {&aggregates_, &stored_}) {
      for (OldRows& rows : *tables) rows.end(reuse);
    }
    on_ = false;
  }
  // Of aggregate k save these rows only; null: all of them, as after begin().
  void save_only(int k, const VertexSet* rows) { saved_only_[at(k)] = rows; }
  const VertexSet* saved_only(int k) const { return saved_only_[at(k)]; }
  bool saves(int k) const { return on_ && (saved_only_[at(k)] == nullptr || saved_only_[at(k)]->size() > 0); }
  const OldRows& aggregate(int k) const { return aggregates_[at(k)]; }
  void prefetch_aggregate(int k, VertexId v) const { aggregates_[at(k)].prefetch(v); }
  void save_aggregate(int k, VertexId v, const std::int64_t* row, int thread) {
    if (const VertexSet* only = saved_only_[at(k)]; only == nullptr || only->contains(v))
      aggregates_[at(k)].save(v, row, thread);
  }
  void save_stored(int t, VertexId v, const float* row, int thread) { stored_[at(t)].save(v, row, thread); }  // once
  void restore(State& state) {
    for (std::size_t k = 0; k < aggregates_.size(); ++k) aggregates_[k].restore(state.aggregates[k]);
    for (std::size_t t = 0; t < stored_.size(); ++t) stored_[t].restore(state.stored[t]);
    end();
  }
  std::size_t bytes() const {
    std::size_t bytes = 0;
    for (const auto* tables : {&aggregates_, &stored_}) {
      for (const OldRows& rows : *tables) bytes += rows.bytes();
    }
    return bytes;
  }

 private:
  bool on_ = false;
  std::vector<OldRows> aggregates_, stored_;
  std::vector<const VertexSet*> saved_only_;
};

}  // namespace livegnn
