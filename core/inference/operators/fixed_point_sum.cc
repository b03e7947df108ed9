// Sums, means and degree-normalised sums of stored messages: int64 in fixed point, so exact in any order.
//
// Invariant before and after a batch: a row is the sum, over the graph's present edges, of the messages that are stored
// now. During a batch the sum is kept true step by step: changed edges move OLD messages; then every changed message is
// replaced along all present edges by its delta.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "inference/column_maxima.h"
#include "inference/operators/message_operator.h"

namespace livegnn {

namespace {

constexpr std::int64_t kRowsPerTask = 512;

class FixedPointSum final : public MessageOperator<FixedPointSum> {
 public:
  FixedPointSum(Workspace& work, int k);

  void choose_scales(const State& state) override;
  void compute_all(State& state) const override;
  void take_root(VertexId v, const float* before, const float* now, int thread) override;
  void settle(bool finish) override { move_rows(finish); }
  bool terms(const TermOperands& given, std::int64_t* out) const override;
  bool sums_again() const override { return true; }
  // Rows that may have to be summed again want no stale source.
  bool mails() const override { return spec_.message_table >= 0 && spec_.stage > 0 && !may_recompute(); }
  void take_mail(VertexId v, const std::int64_t* sums) override;
  void mail_sources(const std::vector<std::uint64_t>& parts, MailRows& mail) const override;

 private:
  friend class MessageOperator<FixedPointSum>;
  const float* up() const { return work_.scales[at(k_)].up.data(); }
  static float share(float admitted) { return admitted; }
  static bool marks_edges() { return true; }
  static bool is_sum() { return true; }
  void accumulate(std::int64_t* row, const float* x, float factor, float edge, VertexId v) const;
  void retract(std::int64_t* row, const float* x, float factor, float edge) const {  // what was accumulated
    work_.kernels.sub_terms(row, x, factor, edge, up(), work_.limit, stride());
  }
  void change_edge(VertexId v, VertexId u, const float* x, float factor, float edge, int sign);
  void change_root(const SourceChange& change, float before, float now, int thread);
  void need_deltas(std::size_t count);
  void keep_deltas(std::size_t used, std::size_t count);
  void mail_edges();
  DeltaShape fill_delta(const SourceChange& change, std::size_t index, float before, float now, bool* looked_at);
  std::int64_t* delta(std::size_t i) { return deltas_.data() + i * at(delta_stride_); }
  const std::int64_t* delta(std::size_t i) const { return deltas_.data() + i * at(delta_stride_); }
  void push(bool finish);
  void sweep();
  bool sums_in_blocks() const;
  template <typename Begin, typename Sum, typename Done>
  void sum_in_blocks(const State& state, Begin&& begin, Sum&& sum, Done&& done) const;

  const int delta_stride_;
  Scratch<std::int64_t> deltas_;  // of the plan's sources, where edges have no weights
  MessagePairs pairs_;            // and where they have
};

FixedPointSum::FixedPointSum(Workspace& work, int k)
    : MessageOperator(work, k,
                      {.stride = round_up(work.aggregation(k).width, 8),
                       .value_bytes = at(work.aggregation(k).width) * sizeof(std::int64_t),
                       .mean = work.aggregation(k).norm == Norm::Mean,
                       .may_finish = true}),
      delta_stride_(round_up(spec_.width, 16)),
      pairs_(spec_.width) {
  row_type_ = spec_.target;
  if (spec_.root == Root::Table) work.row_users[at(spec_.root_table)].root_of = k;
}

void FixedPointSum::choose_scales(const State& state) {
  float weight_max = 1.0f;
  for (VertexId v = 0; spec_.weighted && v < work_.graph.slot_count(); ++v) {
    work_.graph.visit_in(v, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < span.count && span.weights != nullptr; ++i)
        weight_max = std::max(weight_max, std::fabs(span.weights[i]));
    });
  }
  if (spec_.weighted && work_.trade != nullptr) work_.trade->halo().reduce_max({&weight_max, 1});
  ColumnMaxima maxima(spec_.width);
  const MessageRows sent = messages(state);
  const bool outgoing = spec_.scaled() && norm(state).outgoing();
  const auto take = [&](VertexId v) {
    if (!work_.graph.is_live(v)) return;  // parts of a graph have other free slots
    const float factor = source_factor(state, v);
    const float* row = sent.row(v);
    maxima.take(row, outgoing ? norm(state).share_max(weight_max) : factor * weight_max);
    if (spec_.root == Root::Message) maxima.take(row, factor * root_factor(state, v));
    if (spec_.root == Root::Table) maxima.take(state.stored[at(spec_.root_table)].row(v), 1.0f);
  };
  work_.pass(
      [&](std::int64_t first, std::int64_t last) {
        if (spec_.message_table >= 0) state.stored[at(spec_.message_table)].fetch(first, last);
        if (spec_.root == Root::Table) state.stored[at(spec_.root_table)].fetch(first, last);
      },
      [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t v = first; v < last; ++v) take(static_cast<VertexId>(v));
      });
  work_.set_scales(k_, maxima.values(), 0);
}

void FixedPointSum::accumulate(std::int64_t* row, const float* x, float factor, float edge, VertexId v) const {
  if (!work_.kernels.add_terms(row, x, factor, edge, up(), work_.limit, stride())) {
    work_.out_of_range(k_, v, work_.times_range(k_, x, static_cast<double>(factor) * edge));
  }
}

void FixedPointSum::change_edge(VertexId v, VertexId u, const float* x, float factor, float edge, int sign) {
  std::int64_t* row = opened(v, 0);
  if (sign > 0) {
    accumulate(row, x, factor, edge, u);
  } else {
    retract(row, x, factor, edge);
  }
}

void FixedPointSum::change_root(const SourceChange& change, float before, float now, int thread) {
  std::int64_t* row = opened(change.vertex, thread);
  retract(row, change.before, before, root_factor_before(change.vertex));
  accumulate(row, change.now, now, root_factor(work_.state, change.vertex), change.vertex);
}

void FixedPointSum::take_root(VertexId v, const float* before, const float* now, int thread) {
  work_.mark_consumers(spec_.consumers, v, thread);
  if (plan_.path != Path::Push) return;
  std::int64_t* row = opened(v, thread);
  retract(row, before, 1.0f, 1.0f);
  accumulate(row, now, 1.0f, 1.0f, v);
}

void FixedPointSum::need_deltas(std::size_t count) {
  if (spec_.weighted) {
    pairs_.need(count);
  } else {
    deltas_.need(count * at(delta_stride_));
  }
}

void FixedPointSum::keep_deltas(std::size_t used, std::size_t count) {
  if (spec_.weighted) {
    pairs_.keep(used, count);
  } else {
    deltas_.keep(used * at(delta_stride_), count * at(delta_stride_));
  }
}

// A source's delta into a row.
inline void add_delta(const Kernels& kernels, std::int64_t* row, const std::int64_t* delta, bool narrow, int width) {
  if (narrow) return kernels.add_narrow_row(row, reinterpret_cast<const std::int32_t*>(delta), width);
  kernels.add_row(row, delta, width);
}

DeltaShape FixedPointSum::fill_delta(const SourceChange& change, std::size_t index, float before, float now,
                                     bool* looked_at) {
  if (spec_.weighted) {  // the edge's weight comes in later
    work_.kernels.scale(pairs_.before(index), change.before, before, stride());
    work_.kernels.scale(pairs_.now(index), change.now, now, stride());
    return DeltaShape::Wide;
  }
  *looked_at = true;
  DeltaShape shape = DeltaShape::Wide;
  if (!work_.kernels.delta_terms(delta(index), change.before, before, change.now, now, up(), work_.limit, stride(),
                                 &shape)) {
    work_.out_of_range(k_, change.vertex,
                       std::max(work_.times_range(k_, change.before, before), work_.times_range(k_, change.now, now)));
  }
  return shape;
}

// ---- parts: changes that reach ghosts as sums

void FixedPointSum::mail_edges() {
  const auto wanted = [&](const EdgeRecord& edge) { return work_.trade->mails(k_, edge.src, edge.dst); };
  const auto send = [&](const EdgeRecord& edge, float weight, int sign) {
    if (filter_.skips_loops && edge.src == edge.dst) return;
    const float* x = work_.state.stored[at(spec_.message_table)].row(edge.src);
    const float factor = source_factor_before(edge.src);
    std::int64_t* row = work_.trade->mail(k_).open(edge.dst);
    sign > 0 ? accumulate(row, x, factor, weight, edge.src) : retract(row, x, factor, weight);
  };
  each_changed_edge_of(work_, k_, *this, filter_, spec_.weighted, wanted, send);
}

void FixedPointSum::mail_sources(const std::vector<std::uint64_t>& parts, MailRows& mail) const {
  for (std::size_t i = 0; i < plan_.sources.size(); ++i) {
    const std::uint64_t bits = parts[at(plan_.sources[i])];
    if (plan_.moves[i] == DeltaShape::Zero || bits == 0) continue;
    visit_counted_out(flow_, filter_, plan_.sources[i], [&](const EdgeSpan& span, std::int32_t e) {
      const VertexId v = span.neighbours[e];
      if (!work_.is_ghost(v) || (bits >> work_.trade->owner(v) & 1) == 0) return;
      std::int64_t* row = mail.open(v);
      if (!spec_.weighted)
        return add_delta(work_.kernels, row, delta(i), plan_.moves[i] == DeltaShape::Narrow, stride());
      const float *before = pairs_.before(i), *now = pairs_.now(i), weight = weight_of(span, e);
      if (!work_.kernels.add_edge_delta(row, before, now, weight, up(), work_.limit, stride())) {
        work_.out_of_range(k_, plan_.sources[i],
                           std::max(work_.times_range(k_, before, weight), work_.times_range(k_, now, weight)));
      }
    });
  }
}

void FixedPointSum::take_mail(VertexId v, const std::int64_t* sums) {
  work_.kernels.add_row(opened(v, 0), sums, stride());
  work_.mark_consumers(spec_.consumers, v, 0);
}

// What does not depend on the edge is looked up once.
void FixedPointSum::push(bool finish) {
  RowTable<std::int64_t>& table = this->table();
  VertexSet& first = work_.dirty[at(spec_.consumers.front())];
  const std::int64_t* deltas = deltas_.data();
  const auto delta = [deltas, step = delta_stride_](std::int32_t source) {
    return deltas + std::int64_t{source & ~kNarrow} * step;
  };
  const bool saves = work_.journal.saves(k_);
  const auto prefetch = [this, &table, &first, saves](VertexId v) {
    prefetch_row(table.row(v), table.row_bytes());
    prefetch_line(first.mark_address(v));
    if (saves) [[unlikely]]
      work_.journal.prefetch_aggregate(k_, v);
  };
  const auto prefetch_source = [this, delta](std::int32_t source) {
    if (spec_.weighted) return pairs_.prefetch(at(source));
    const std::size_t bytes = (source & kNarrow) != 0 ? sizeof(std::int32_t) : sizeof(std::int64_t);
    prefetch_row(delta(source), at(delta_stride_) * bytes);
  };
  const auto write = [this, &table, &first, &spec = spec_, &work = work_, &kernels = work_.kernels, delta,
                      width = stride(), up = up(), saves](VertexId v, std::int32_t i, float edge, int thread) {
    const bool fresh = first.add(v, thread);
    for (std::size_t c = 1; c < spec.consumers.size(); ++c) work.dirty[at(spec.consumers[c])].add(v, thread);
    std::int64_t* row = table.row(v);
    if (saves) [[unlikely]]
      work.journal.save_aggregate(k_, v, row, thread);
    if (!spec.weighted) {
      add_delta(kernels, row, delta(i), (i & kNarrow) != 0, width);
      return fresh;
    }
    const float *before = pairs_.before(at(i)), *now = pairs_.now(at(i));
    if (!kernels.add_edge_delta(row, before, now, edge, up, work.limit, width)) {
      work.out_of_range(k_, plan_.sources[at(i)],
                        std::max(work.times_range(k_, before, edge), work.times_range(k_, now, edge)));
    }
    return fresh;
  };
  DeltaPush(work_, k_, plan_, filter_, PushWriter{prefetch, prefetch_source, write}).run(finish);
}

bool FixedPointSum::terms(const TermOperands& given, std::int64_t* out) const {
  Scratch<float> padded;
  Scratch<std::int64_t> sum;
  float* x = padded.need(at(delta_stride_));
  std::int64_t* row = sum.need(at(delta_stride_));
  std::fill_n(x, delta_stride_, 0.0f);
  for (std::size_t i = 0; i < given.count; ++i) {
    std::memcpy(x, given.messages.data() + i * at(spec_.width), at(spec_.width) * sizeof(float));
    std::fill_n(row, delta_stride_, 0);
    accumulate(row, x, given.factors[i], given.weights[i], kNoVertex);
    std::copy_n(row, stride(), out + i * at(stride()));
  }
  return true;
}

// ---- a limit of memory

// Whether the messages are too many to be in memory at once, so that going from target to target would bring a page
// for every edge.
bool FixedPointSum::sums_in_blocks() const {
  if (work_.pager == nullptr || spec_.message_table < 0) return false;
  const std::size_t row_bytes = at(round_up(spec_.width, 16)) * sizeof(float);
  return at(work_.graph.slot_count()) * row_bytes > work_.options.memory_limit / 4;
}

// Whole sums, a block of targets at a time, and for each the sources block by block. begin(first, count): a block of
// targets; sum(v): where the sum of v goes, null where it has none; done(v, thread): it is whole.
template <typename Begin, typename Sum, typename Done>
void FixedPointSum::sum_in_blocks(const State& state, Begin&& begin, Sum&& sum, Done&& done) const {
  const std::size_t share = work_.options.memory_limit / 4;
  const std::int64_t slots = work_.graph.slot_count();
  const auto targets = std::max<std::int64_t>(1, static_cast<std::int64_t>(share / table().row_bytes()));
  const auto sources =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(share / (at(round_up(spec_.width, 16)) * sizeof(float))));
  const auto each = [&](std::int64_t first, std::int64_t last, const auto& body) {
    work_.in_shares(last - first, kRowsPerTask, [&](std::int64_t from, std::int64_t to, int thread) {
      for (std::int64_t v = first + from; v < first + to; ++v) body(static_cast<VertexId>(v), thread);
    });
  };
  for (std::int64_t first = 0; first < slots; first += targets) {
    const std::int64_t last = std::min(slots, first + targets);
    begin(first, last - first);
    for (std::int64_t from = 0; from < slots; from += sources) {
      for (std::int64_t part = from; part < std::min(slots, from + sources); part += work_.block_rows) {
        state.stored[at(spec_.message_table)].fetch(part, std::min(slots, part + work_.block_rows));
      }
      each(first, last, [&](VertexId v, int) {
        std::int64_t* row = sum(v);
        if (row == nullptr) return;
        if (from == 0) {
          std::memset(static_cast<void*>(row), 0, table().row_bytes());
          accumulate_root(state, v, row);
        }
        accumulate_in_edges(state, v, row,
                            [&](EdgeId, VertexId u) { return u >= from && u < from + sources ? 1.0f : 0.0f; });
      });
    }
    each(first, last, done);
  }
}

void FixedPointSum::compute_all(State& state) const {
  if (!sums_in_blocks()) return Operator::compute_all(state);
  sum_in_blocks(
      state, [](std::int64_t, std::int64_t) {},
      [&](VertexId v) { return has_row(v) ? state.aggregates[at(k_)].row(v) : nullptr; }, [](VertexId, int) {});
}

void FixedPointSum::sweep() {
  if (!sums_in_blocks()) return sweep_rows();
  count_swept();
  Scratch<std::int64_t> sums;
  std::int64_t first = 0;
  const auto sum_of = [&](VertexId v) { return sweeps(v) ? sums.data() + (v - first) * stride() : nullptr; };
  sum_in_blocks(
      work_.state,
      [&](std::int64_t begin, std::int64_t count) {
        first = begin;
        sums.need(at(count * stride()));
      },
      sum_of,
      [&](VertexId v, int thread) {
        if (const std::int64_t* sum = sum_of(v); sum != nullptr) work_.keep_row(k_, v, sum, thread);
      });
}

}  // namespace

OperatorKind fixed_point_sum() {
  return {[](const Program&, const AggregationSpec&) { return true; }, make<FixedPointSum>};
}

}  // namespace livegnn
