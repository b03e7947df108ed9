// What operators of stored messages have in common: messages of vertices, times their source's factor and the edge's
// weight, and a term of the vertex itself. A batch moves deltas of changed messages to the rows (push.h), pulls the
// affected rows again from their in-edges, or sweeps them all in storage order; the bits are the same.
//
// Rows, the operator, gives
//   accumulate(row, x, factor, edge, v)     v's message x into a row that is made from scratch
//   finish_row(row)                         all of them are there
//   change_edge(v, u, x, factor, edge, sign)   u's old message into (+1) or out of (-1) v's row
//   change_root(change, ...)                its own term before and now
//   fill_delta(change, index, before, now, looked_at)   what push() takes along; returns its shape
//   push(finish), sweep()
#pragma once

#include <cstring>
#include <vector>

#include "inference/counted_edges.h"
#include "inference/message_rows.h"
#include "inference/operators/changed_edges.h"
#include "inference/operators/operator.h"
#include "inference/operators/whole_rows.h"
#include "inference/push.h"
#include "inference/view.h"

namespace livegnn {

// Messages before and now, scaled by their source: what a push takes along where edges have weights, or where rows
// select.
class MessagePairs {
 public:
  explicit MessagePairs(int width) : stride_(round_up(width, 16)) {}
  void need(std::size_t count) { rows_.need(2 * count * at(stride_)); }
  void keep(std::size_t used, std::size_t count) { rows_.keep(2 * used * at(stride_), 2 * count * at(stride_)); }
  float* before(std::size_t i) { return rows_.data() + 2 * i * at(stride_); }
  const float* before(std::size_t i) const { return rows_.data() + 2 * i * at(stride_); }
  float* now(std::size_t i) { return before(i) + stride_; }
  const float* now(std::size_t i) const { return before(i) + stride_; }
  void prefetch(std::size_t i) { prefetch_row(before(i), 2 * at(stride_) * sizeof(float)); }

 private:
  int stride_;
  Scratch<float> rows_;
};

template <typename Rows>
class MessageOperator : public Operator {
 public:
  MessageOperator(Workspace& work, int k, Facts facts_of_it)
      : Operator(work, k, facts_of_it), filter_(counted_edges(spec_, spec_.self_loops)) {
    if (spec_.message_table >= 0) operands_.sources = {spec_.message_table};
    if (spec_.root == Root::Message) operands_.targets = operands_.sources;
    if (spec_.root == Root::Table) operands_.targets = {spec_.root_table};
  }

  void compute(const State& state, const VertexRange& range, bool sampled, int, RowSink& sink) const final {
    const MessageRows sent = messages(state);
    const auto fetch = [&](VertexId v) {
      fetch_first(flow_, v, [&](VertexId u) { sent.prefetch(u, 0, spec_.width); });
    };
    sum_rows(work_, flow_, range, fetch, [&](VertexId v) {
      std::int64_t* row = sink.open(v);
      if (row == nullptr) return;
      std::memset(static_cast<void*>(row), 0, at(stride()) * sizeof(std::int64_t));
      if (sampled) {
        const InSample sample = work_.sample_in_edges(k_, v);
        accumulate_in_edges(state, v, row, [&](EdgeId id, VertexId) { return sample.admits(id); });
      } else {
        accumulate_in_edges(state, v, row, [](EdgeId, VertexId) { return 1.0f; });
      }
      accumulate_root(state, v, row);
      rows().finish_row(row);
      sink.close(v, row);
    });
  }

  void prefetch_edge(VertexId u, VertexId v) const final {
    Operator::prefetch_edge(u, v);
    if (spec_.message_table >= 0) work_.state.stored[at(spec_.message_table)].prefetch(u);
    if (spec_.scaled()) norm(work_.state).prefetch(u);
  }

  void apply_edges() final {
    recomputes_ = work_.options.strategy == Strategy::Affected || must_recompute();
    mark_refinished();
    each_changed_edge(work_, k_, rows(), filter_, spec_.weighted, [&](const EdgeRecord& edge, float weight, int sign) {
      if (rows().marks_edges()) work_.mark_consumers(spec_.consumers, edge.dst, 0);
      if (filter_.skips_loops && edge.src == edge.dst) return;
      if (recomputes_) return;         // the whole row is summed again later
      if (is_stale(edge.src)) return;  // its owner sends sums
      const float* x = spec_.message_table < 0 ? work_.input_before(edge.src, input_buffer(work_.graph, 0))
                                               : work_.state.stored[at(spec_.message_table)].row(edge.src);
      rows().change_edge(edge.dst, edge.src, x, source_factor_before(edge.src), weight, sign);
    });
    if (work_.trade != nullptr && mails()) rows().mail_edges();
  }

  // Which messages move, and how: the rows of the stage or the features that were set; then rescaled ones.
  void plan(const std::vector<VertexId>& stage_rows) final {
    if (spec_.message_table >= 0) {
      plan_.sources = stage_rows;
    } else {
      plan_.sources = work_.delta->features_changed;
      if (work_.restricted) std::erase_if(plan_.sources, [&](VertexId v) { return !work_.wants_source(k_, v); });
    }
    listed_ = plan_.sources.size();
    if (spec_.scaled()) {
      for (const VertexId v : norm(work_.state).changed()) {
        const bool listed =
            spec_.message_table >= 0 ? work_.dirty[at(spec_.stage)].contains(v) : work_.input_changed.contains(v);
        const bool arrives = spec_.message_table >= 0 && spec_.stage > 0 && work_.is_ghost(v);
        if (!listed && !arrives && work_.wants_source(k_, v)) plan_.sources.push_back(v);
      }
    }
    plan_.moves.assign(plan_.sources.size(), DeltaShape::Zero);
    const std::int64_t edges = work_.out_edges(flow_, plan_.sources);
    const std::size_t delta_bytes = at(round_up(spec_.width, 16)) * sizeof(std::int64_t);
    plan_.path = work_.push_or_sweep(plan_.sources.size(), delta_bytes, edges, rows().is_sum());
    if (recomputes_) plan_.path = Path::Pull;
    StageStats& stats = work_.stats[at(spec_.stage)];
    if (plan_.path == Path::Push && !work_.restricted) stats.edges += edges;
    if (plan_.path == Path::Push) rows().need_deltas(plan_.sources.size());
    stats.path = plan_.path;
    work_.derive(operands_.sources, plan_.sources);
  }

  // Writes the delta of a changed message, moves the vertex's own term, and stores the new message.
  void take_message(const SourceChange& change, std::size_t index, int thread) final {
    const VertexId v = change.vertex;
    const float before = source_factor_before(v), now = source_factor(work_.state, v);
    const bool factor_same = same_bits(before, now);
    const bool root_same = spec_.root != Root::Message || same_bits(root_factor_before(v), root_factor(work_.state, v));
    if (!change.bits_differ && factor_same && root_same) return;
    bool looked_at = false;
    DeltaShape move = change.bits_differ || !factor_same ? DeltaShape::Wide : DeltaShape::Zero;
    if (move != DeltaShape::Zero && plan_.path == Path::Push)
      move = rows().fill_delta(change, index, before, now, &looked_at);
    plan_.moves[index] = move;
    if (spec_.root == Root::Message && !work_.is_ghost(v)) {
      work_.mark_consumers(spec_.consumers, v, thread);
      if (plan_.path == Path::Push) rows().change_root(change, before, now, thread);
    }
    if (spec_.message_table < 0 || !change.bits_differ) return;
    if (!looked_at) work_.check_finite(k_, v, change.now, spec_.width);  // perhaps no edge carries it yet
    work_.replace_stored(spec_.message_table, v, change.now, thread);
  }

  void take_arrived(VertexId v, const float* before, const float* now) final {
    const std::size_t index = plan_.sources.size();
    plan_.sources.push_back(v);
    plan_.moves.push_back(DeltaShape::Zero);
    if (plan_.path == Path::Push) rows().keep_deltas(index, index + 1);
    const bool differ = before != now && std::memcmp(before, now, at(spec_.width) * sizeof(float)) != 0;
    take_message({v, before, now, differ}, index, 0);
    const float* kept = work_.state.stored[at(spec_.message_table)].row(v);  // an older one, of a stale ghost
    if (kept != before && std::memcmp(kept, now, at(spec_.width) * sizeof(float)) != 0)
      work_.replace_stored(spec_.message_table, v, now, 0);
    work_.stats[at(spec_.stage)].edges += flow_.out_degree(v);
  }

  void take_others() final {
    if (spec_.message_table < 0) {
      each_source(0, listed_, [&](VertexId v) {
        const float* before = work_.input_before(v, input_buffer(work_.graph, 0));
        return SourceChange{v, before, work_.graph.feature_row(v, input_buffer(work_.graph, 1)), true};
      });
    }
    each_source(listed_, plan_.sources.size(), [&](VertexId v) {
      const float* row = messages(work_.state).row(v);
      return SourceChange{v, row, row, false};
    });
  }

  void mark_reached(const VertexSets& sets, const BatchDelta& delta) final {
    const auto spread = [&](const std::vector<VertexId>& sources) {
      mark_targets(work_, spec_, sources);
      for (const VertexId u : sources) {
        if (spec_.root != Root::None) work_.mark_consumers(spec_.consumers, u, 0);
      }
    };
    spread(spec_.message_table < 0 ? delta.features_changed : sets[at(spec_.stage)]);
    if (!spec_.scaled()) return;
    mark_refinished();
    spread(norm(work_.state).changed());
  }

 protected:
  bool may_recompute() const {
    return spec_.scaled() && spec_.weighted && work_.source().contexts[at(spec_.context)].outgoing;
  }
  static void finish_row(std::int64_t*) {}
  static void mail_edges() {}
  bool is_stale(VertexId u) const {
    return work_.trade != nullptr && work_.is_ghost(u) && work_.trade->is_stale(k_, u);
  }
  Rows& rows() { return static_cast<Rows&>(*this); }
  const Rows& rows() const { return static_cast<const Rows&>(*this); }
  const DegreeNorm& norm(const State& state) const { return state.norms[at(spec_.context)]; }
  MessageRows messages(const State& state) const {
    return {work_.graph, spec_.message_table < 0 ? nullptr : &state.stored[at(spec_.message_table)]};
  }
  float source_factor(const State& state, VertexId u) const { return spec_.scaled() ? norm(state).scale(u) : 1.0f; }
  float source_factor_before(VertexId u) const { return spec_.scaled() ? norm(work_.state).scale_before(u) : 1.0f; }
  float root_factor(const State& state, VertexId v) const {
    return spec_.scaled() ? norm(state).loop(v) : spec_.root_coefficient;
  }
  float root_factor_before(VertexId v) const {
    return spec_.scaled() ? norm(work_.state).loop_before(v) : spec_.root_coefficient;
  }

  // admit(edge, source): a factor, 0 to leave the edge out.
  template <typename Admit>
  void accumulate_in_edges(const State& state, VertexId v, std::int64_t* row, Admit&& admit) const {
    const MessageRows sent = messages(state);
    const bool prefetches = work_.pager == nullptr, weighted = spec_.weighted;
    visit_counted_in(flow_, filter_, v, [&](const EdgeSpan& span, std::int32_t i) {
      if (i + 6 < span.count && prefetches) sent.prefetch(span.neighbours[i + 6], 0, spec_.width);
      const VertexId u = span.neighbours[i];
      const float admitted = admit(span.ids[i], u);
      if (admitted == 0.0f) return;
      const float edge = weighted ? weight_of(span, i) : 1.0f;
      rows().accumulate(row, sent.row(u), source_factor(state, u), edge * rows().share(admitted), u);
    });
  }
  void accumulate_root(const State& state, VertexId v, std::int64_t* row) const {
    if (spec_.root == Root::Table) {
      rows().accumulate(row, state.stored[at(spec_.root_table)].row(v), 1.0f, 1.0f, v);
    } else if (spec_.root == Root::Message) {
      rows().accumulate(row, messages(state).row(v), source_factor(state, v), root_factor(state, v), v);
    }
  }

  void move_rows(bool finish) {
    if (plan_.path != Path::Push) derive_all();
    switch (plan_.path) {
      case Path::Push:
        return rows().push(finish);
      case Path::Pull:
        return pull();
      case Path::Sweep:
        return rows().sweep();
      case Path::None:
        invariant(false, "an aggregation without a path");
    }
  }

  // Rows that are finished by another factor than before. A factor of in-edges moves with an in-edge, which has marked
  // the row; one of out-edges moves alone.
  void mark_refinished() {
    if (spec_.norm != Norm::Gcn || !norm(work_.state).outgoing()) return;
    for (const VertexId v : norm(work_.state).changed()) work_.mark_consumers(spec_.consumers, v, 0);
  }

  const CountedEdges filter_;
  PushPlan plan_;

 private:
  static constexpr std::int64_t kParallelSources = 64;
  static constexpr std::size_t kSourcesAhead = 4;
  static constexpr float kFactorFall = 16.0f;  // of a source's factor in one batch, well inside the headroom

  // Along a new edge the old message travels first. Where the edge outweighs all that its source sent before, that
  // message is far larger than what takes its place, and may be out of range.
  bool must_recompute() const {
    if (!may_recompute()) return false;
    const DegreeNorm& degrees = norm(work_.state);
    return std::any_of(degrees.changed().begin(), degrees.changed().end(), [&](VertexId v) {
      return degrees.scale(v) > 0.0f && degrees.scale_before(v) > kFactorFall * degrees.scale(v);
    });
  }

  // Sources first <= i < last of the plan, one by one or, where they are many, by all threads.
  template <typename Change>
  void each_source(std::size_t first, std::size_t last, Change&& change) {
    const int ahead = static_cast<int>(table().row_bytes() / 2 / sizeof(float));
    const auto count = static_cast<std::int64_t>(last - first), tasks = std::int64_t{4} * work_.pool.threads();
    const std::int64_t share = count < kParallelSources ? kParallelSources : (count + tasks - 1) / tasks;
    work_.in_shares(count, share, [&](std::int64_t from, std::int64_t to, int thread) {
      const MessageRows sent = messages(work_.state);
      for (std::size_t i = first + at(from); i < first + at(to); ++i) {
        if (i + kSourcesAhead < first + at(to)) {
          const VertexId next = plan_.sources[i + kSourcesAhead];
          if (spec_.root == Root::Message) prefetch_row(table().row(next), table().row_bytes());
          sent.prefetch(next, 0, ahead);
        }
        take_message(change(plan_.sources[i]), i, thread);
      }
    });
  }

  void pull() {
    for (std::size_t i = 0; i < plan_.sources.size(); ++i) {
      if (plan_.moves[i] != DeltaShape::Zero) mark_targets(work_, spec_, plan_.sources[i]);
    }
    const std::vector<VertexId> affected = work_.dirty[at(spec_.consumers.front())].collect();
    refresh_rows(affected, affected.size() > 64 ? 32 : 64);
  }

  std::size_t listed_ = 0;   // of the plan's sources: those whose rows are computed, or features set
  bool recomputes_ = false;  // no message moves in this batch: rows are summed again
};

}  // namespace livegnn
