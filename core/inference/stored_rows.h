// Rows of one kind (messages, own terms, rows for later stages): one per vertex at all times, or, where the state is
// compact, only for the vertices that the batch at work has asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "inference/vertex_lists.h"
#include "livegnn/detail/prefetch.h"
#include "util/aligned.h"

namespace livegnn {

class StoredRows {
 public:
  StoredRows(int stride, bool kept, Pager* pager, bool pin)
      : kept_(kept),
        whole_(kept),
        rows_(stride, pager,
              !kept ? Rows::ByPlace
              : pin ? Rows::KeptByVertex
                    : Rows::ByVertex) {}

  int stride() const { return rows_.stride(); }
  std::size_t row_bytes() const { return rows_.row_bytes(); }
  bool has(VertexId v) const { return whole_ || marks_[at(v)] == epoch_; }
  float* row(VertexId v) { return rows_.row(whole_ ? v : places_[at(v)]); }
  const float* row(VertexId v) const { return rows_.row(whole_ ? v : places_[at(v)]); }
  void prefetch(VertexId v) const {
    if (whole_) prefetch_row(rows_.row(v), rows_.row_bytes());
  }

  void fetch(std::int64_t first, std::int64_t last) const {
    if (whole_) rows_.fetch(first, last);
  }

  void reserve(std::int64_t slots) {
    if (whole_) return rows_.reserve(slots);
    reserve_places(marks_, slots);
    reserve_places(places_, slots);
  }
  // Until release(): a zero row for every vertex, or for v (earlier pointers to rows end).
  void hold_all(std::int64_t slots) {
    if (kept_) return;
    whole_ = true;
    rows_.clear();
    rows_.reserve(slots);
  }
  void reserve_held(std::int64_t more) { rows_.reserve(held_ + more); }
  void hold(VertexId v) {
    marks_[at(v)] = epoch_;
    places_[at(v)] = static_cast<std::int32_t>(held_++);
    rows_.reserve(held_);
    std::memset(rows_.row(held_ - 1), 0, rows_.row_bytes());
  }
  void release() {
    if (kept_) return;
    if (whole_ || held_ > kKeptForReuse) rows_.clear();
    whole_ = false;
    held_ = 0;
    if (++epoch_ == 0) {
      std::fill(marks_.begin(), marks_.end(), 0);
      epoch_ = 1;
    }
  }
  std::size_t bytes() const { return rows_.bytes() + marks_.capacity() * 2 * sizeof(std::uint32_t); }

 private:
  static constexpr std::int64_t kKeptForReuse = 4096;

  bool kept_;
  bool whole_;  // row v is vertex v's
  RowTable<float> rows_;
  std::vector<std::uint32_t> marks_;  // the epoch in which the vertex has a row
  std::vector<std::int32_t> places_;
  std::uint32_t epoch_ = 1;
  std::int64_t held_ = 0;
};

}  // namespace livegnn
