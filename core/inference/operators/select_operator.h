// What operators that select among messages have in common: a message comes to a row or leaves it, a moved one does
// both, and the rows that a batch has reached are settled after its last change.
//
// Rows, the operator, gives besides what message_operator.h asks for
//   insert(v, x, factor, edge, thread), remove(...)    one message
//   replace(v, before, now, edge, thread)              one that has moved, scaled by its source's factor
//   settle_touched()                                   brings rows of touched_ up to date and marks what reads them
#pragma once

#include <vector>

#include "inference/operators/message_operator.h"

namespace livegnn {

template <typename Rows>
class SelectOperator : public MessageOperator<Rows> {
  using Base = MessageOperator<Rows>;

 public:
  SelectOperator(Workspace& work, int k, Operator::Facts facts_of_it)
      : Base(work, k, facts_of_it), pairs_(work.aggregation(k).width) {}

  void begin() final {
    touched_.prepare(work_.slots, work_.pool.threads(), work_.epoch);
    if (flags_.size() < at(work_.slots)) flags_.resize(at(work_.slots + work_.slots / 2 + 16), 0);
  }
  void forget() final { touched_.forget(); }
  void settle(bool finish) final {
    this->move_rows(finish);
    this->rows().settle_touched();
  }
  std::size_t bytes() const final { return touched_.bytes() + flags_.capacity(); }

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
  void need_deltas(std::size_t count) { pairs_.need(count); }
  bool fill_delta(const SourceChange& change, std::size_t index, float before, float now, bool*) {
    const int padded = round_up(spec_.width, 16);
    work_.kernels.scale(pairs_.before(index), change.before, before, padded);
    work_.kernels.scale(pairs_.now(index), change.now, now, padded);
    return true;
  }
  void push(bool) { DeltaPush(work_, k_, this->plan_, this->filter_, Writer(*this)).run(false); }
  void sweep() { sweep_rows(*this, work_, k_); }

 protected:
  using Base::k_;
  using Base::spec_;
  using Base::work_;

  // The row of v, about to change.
  std::int64_t* open(VertexId v, int thread) {
    if (work_.journal.on()) [[unlikely]]
      work_.journal.save_aggregate(work_.state, k_, v, thread);
    if (touched_.add(v, thread)) flags_[at(v)] = 0;
    return this->table().row(v);
  }
  // What the next stage reads, where it is floats at the front of a row.
  void load_values(const StageView& view, const VertexId* vertices, int count, float* out, int out_stride) const {
    const int width = round_up(spec_.width, 16);
    for (int i = 0; i < count; ++i, out += out_stride) {
      if (i + kRowsAhead < count) {
        view.prefetch_aggregate(k_, vertices[i + kRowsAhead]);
        if (spec_.context >= 0) this->norm(view.state).prefetch(vertices[i + kRowsAhead]);
      }
      std::memcpy(out, view.aggregate(k_, vertices[i]), at(width) * sizeof(float));
      if (spec_.norm == Norm::Gcn) work_.kernels.scale(out, out, view.scale(spec_.context, vertices[i]), width);
    }
  }

  VertexSet touched_;                // rows that this batch has reached
  std::vector<std::uint8_t> flags_;  // what happened to them

 private:
  class Writer {
   public:
    explicit Writer(SelectOperator& op) : op_(op), table_(op.table()) {}
    void prefetch(VertexId v) const {
      prefetch_row(table_.row(v), table_.row_bytes());
      prefetch_line(op_.touched_.mark_address(v));
    }
    void prefetch_source(std::int32_t i) const { op_.pairs_.prefetch(at(i)); }
    bool write(VertexId v, std::int32_t i, float edge, int thread) const {
      op_.rows().replace(v, op_.pairs_.before(at(i)), op_.pairs_.now(at(i)), edge, thread);
      return false;  // whether the next stage has work is known when all have come
    }

   private:
    SelectOperator& op_;
    RowTable<std::int64_t>& table_;
  };

  MessagePairs pairs_;  // of the plan's sources
};

}  // namespace livegnn
