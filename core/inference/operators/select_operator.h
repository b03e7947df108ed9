// What operators that select among messages have in common: a message comes to a row or leaves it, a moved one does
// both, and the rows that a batch has reached are settled after its last change.
//
// Rows, the operator, gives besides what message_operator.h asks for
//   insert(v, x, factor, edge, thread), remove(...)    one message
//   replace(v, before, now, edge, thread)              one that has moved, scaled by its source's factor
//   rereads(v)               whether the row of v, of touched_, needs its in-edges
//   settle_row(v, thread)    brings it up to date and marks what reads it; returns the in-edges that it has read
//   begun(), settled()       a batch begins, and that was the last row of it
#pragma once

#include <vector>

#include "inference/operators/message_operator.h"

namespace livegnn {

template <typename Rows>
class SelectOperator : public MessageOperator<Rows> {
  using Base = MessageOperator<Rows>;

 public:
  SelectOperator(Workspace& work, int k, Operator::Facts facts_of_it)
      : Base(work, k, facts_of_it), pairs_(work.aggregation(k).width) {
    this->sets_ = {&touched_};
  }

  void begin() final {
    Base::begin();
    reserve_places(flags_, work_.slots);
    this->rows().begun();
  }
  void settle(bool finish) final {
    this->move_rows(finish);
    const std::vector<VertexId>& touched = touched_.collect();
    this->derive_operands(touched, [&](VertexId v) { return this->rows().rereads(v); });
    std::vector<std::int64_t> reread(at(work_.pool.threads()), 0);
    const auto total = static_cast<std::int64_t>(touched.size());
    work_.in_shares(total, kRowsPerTask, [&](std::int64_t first, std::int64_t last, int thread) {
      for (std::int64_t i = first; i < last; ++i) reread[at(thread)] += this->rows().settle_row(touched[at(i)], thread);
    });
    this->rows().settled();
    for (const std::int64_t edges : reread) work_.count_reread(spec_.stage, edges);
  }
  std::size_t bytes() const final { return Base::bytes() + flags_.capacity(); }

  // ---- for MessageOperator
  static float share(float) { return 1.0f; }  // of a sample, what it takes is selected from
  // Whether the next stage has work is known when all messages have come, but a factor moves with its in-edges.
  bool marks_edges() const { return spec_.norm != Norm::Sum || work_.options.strategy == Strategy::Affected; }
  void change_edge(VertexId v, VertexId, const float* x, float factor, float edge, int sign) {
    sign > 0 ? this->rows().insert(v, x, factor, edge, 0) : this->rows().remove(v, x, factor, edge, 0);
  }
  void change_root(const SourceChange& change, float before, float now, int thread) {
    const VertexId v = change.vertex;
    if (v < work_.slots_before) this->rows().remove(v, change.before, before, this->root_factor_before(v), thread);
    this->rows().insert(v, change.now, now, this->root_factor(work_.state, v), thread);
  }
  static bool is_sum() { return false; }
  void need_deltas(std::size_t count) { pairs_.need(count); }
  void keep_deltas(std::size_t used, std::size_t count) { pairs_.keep(used, count); }
  DeltaShape fill_delta(const SourceChange& change, std::size_t index, float before, float now, bool*) {
    const int padded = round_up(spec_.width, 16);
    work_.kernels.scale(pairs_.before(index), change.before, before, padded);
    work_.kernels.scale(pairs_.now(index), change.now, now, padded);
    return DeltaShape::Wide;
  }
  void push(bool) {
    RowTable<std::int64_t>& table = this->table();
    const PushWriter writer{[this, &table](VertexId v) {
                              prefetch_row(table.row(v), table.row_bytes());
                              prefetch_line(touched_.mark_address(v));
                            },
                            [this](std::int32_t i) { pairs_.prefetch(at(i)); },
                            [this](VertexId v, std::int32_t i, float edge, int thread) {
                              this->rows().replace(v, pairs_.before(at(i)), pairs_.now(at(i)), edge, thread);
                              return false;  // whether the next stage has work is known when all have come
                            }};
    DeltaPush(work_, k_, this->plan_, this->filter_, writer).run(false);
  }
  void sweep() { this->sweep_rows(); }

 protected:
  using Base::k_;
  using Base::spec_;
  using Base::work_;

  // The row of v, about to change.
  std::int64_t* open(VertexId v, int thread) {
    if (touched_.add(v, thread)) flags_[at(v)] = 0;
    return this->opened(v, thread);
  }
  VertexSet touched_;                // rows that this batch has reached
  std::vector<std::uint8_t> flags_;  // what happened to them

 private:
  static constexpr std::int64_t kRowsPerTask = 16;

  MessagePairs pairs_;  // of the plan's sources
};

}  // namespace livegnn
