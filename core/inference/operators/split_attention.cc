// Separable attention by split sums: the weight of u for v is exp(LeakyReLU(t_u + s_v)), which on either side of zero
// is a factor of u times a factor of v. A row keeps both sides' sums free of s_v's factor, in fixed point relative to
// the highest bin of t among its in-edges, so it is a function of the graph alone. A source that moves replaces its own
// term. When s_v moves, scores are scanned and only the sources that change sides are read (docs/attention.md).
#include <algorithm>
#include <cmath>

#include "inference/column_maxima.h"
#include "inference/operators/changed_edges.h"
#include "inference/operators/score_windows.h"
#include "inference/operators/split_sums.h"
#include "inference/operators/whole_rows.h"
#include "inference/push.h"
#include "inference/view.h"

namespace livegnn {

namespace {

constexpr std::int64_t kRowsPerTask = 8, kSourcesPerTask = 32;
constexpr std::size_t kEarlyRows = 512;
constexpr std::size_t kWindowShare = 4;     // windows take at most a quarter of the bytes of the rows
constexpr std::int32_t kWindowDegree = 48;  // in-edges from which on a window costs less than looking at all of them
constexpr int kAtOnce = SourceScore::kAtOnce;

// A moved source on its way along its out-edges: scores before and now, head by head, then messages before and now.
struct MovedSource {
  SourceScore* before;
  SourceScore* now;
  std::uint32_t* moved;  // whether the head's score or message differs
  float* message_before;
  float* message;

  static int stride(int width, int heads) {  // in int64
    const std::size_t scores = 2 * sizeof(SourceScore) * at(heads) + sizeof(std::uint32_t) * at(heads);
    const std::size_t bytes = (scores + kCacheLine - 1) / kCacheLine * kCacheLine;
    return static_cast<int>((bytes + 2 * sizeof(float) * at(round_up(width, 16))) / sizeof(std::int64_t));
  }
  static MovedSource of(std::int64_t* memory, int width, int heads) {
    auto* before = reinterpret_cast<SourceScore*>(memory);
    auto* moved = reinterpret_cast<std::uint32_t*>(before + 2 * heads);
    auto* rows = reinterpret_cast<float*>(memory + stride(width, heads)) - 2 * round_up(width, 16);
    return {before, before + heads, moved, rows, rows + round_up(width, 16)};
  }
};

struct MovedThreshold {
  int head, crossed;  // crossed: in-edges that changed sides
  float before, now;  // s of the target
};

class SplitAttention final : public Operator {
 public:
  SplitAttention(Workspace& work, int k);

  void choose_scales(const State& state) override;
  void compute(const State& state, const VertexRange& range, bool sampled, int thread, RowSink& sink) const override;
  void load(const StageView& view, const VertexId* vertices, int count, float* out, int stride) const override;

  void begin() override;
  void apply_edges() override;
  void settle(bool finish) override;
  void mark_reached(const VertexSets& sets, const BatchDelta&) override { mark_operands(work_, *this, spec_, sets); }

  void undo() override {
    for (const VertexId v : touched_.collect()) windows_.drop(v);
  }
  void clear() override { windows_.clear(); }
  bool terms(const TermOperands& given, std::int64_t* out) const override;
  std::size_t bytes() const override { return Operator::bytes() + windows_.bytes(); }

 private:
  const StoredRows& scores(const State& state) const { return state.stored[at(attention_.source_table)]; }
  const StoredRows& messages(const State& state) const { return state.stored[at(attention_.message_table)]; }
  // Where there is a limit of memory, or every moved target is summed again, windows have no place.
  bool keeps_windows() const { return work_.pager == nullptr && !work_.options.constrained; }
  int total_bits() const { return kSumBits - work_.capacity_bits - kBinBits - 1; }
  std::int64_t weight_bits(float weight) const {
    return std::llrint(static_cast<double>(weight) * power_of_two(total_bits()));
  }
  AttentionRow row_at(void* memory) const { return AttentionRow::of(memory, spec_.width); }
  AttentionRow open(VertexId v, int thread);
  template <bool kAdd>
  void move_head(const AttentionRow& row, int head, const SourceScore& source, const float* message, VertexId v) const;
  template <bool kAdd>
  void add_share(const AttentionRow& row, int head, const SourceScore& source, const float* message, VertexId v) const;
  template <bool kAdd>
  void add_weighted(const AttentionRow& row, int head, bool above, float weight, const float* message,
                    VertexId v) const;
  void add_shares(const AttentionRow& row, const std::vector<int>& heads, const float* t, const float* message,
                  VertexId v) const;
  float share_of(const AttentionRow& row, int head, std::int32_t bin, float power, bool above) const;
  // visit(u, ahead) for every in-edge of v that counts; ahead: the source of a later one, or kNoVertex.
  template <typename Visit>
  void visit_sources(VertexId v, Visit&& visit) const {
    visit_counted_in(flow_, filter_, v, [&](const EdgeSpan& span, std::int32_t i) {
      visit(span.neighbours[i], i + 8 < span.count ? span.neighbours[i + 8] : kNoVertex);
    });
  }
  void check_score(float score, VertexId v) const;
  std::int64_t sum_stale_heads(const State& state, VertexId v, const AttentionRow& row) const;
  void replace_source(VertexId v, VertexId u, const MovedSource& source, int thread);
  void choose_path();
  void plan_moved_sources();
  bool plan_source(VertexId u, const MovedSource& source) const;
  void sweep();
  bool cross(const AttentionRow& row, const MovedThreshold& threshold, float t, VertexId u, VertexId v) const;
  std::int64_t move_target(VertexId v, const AttentionRow& row, int thread);
  std::int64_t cross_in_edges(VertexId v, const AttentionRow& row, int thread);
  void forget_stale_windows(VertexId v, const AttentionRow& row);
  void derive_touched(const std::vector<VertexId>& rows) const;
  void settle_touched();
  void prefetch_settled(VertexId v, bool early) const;
  void load_row(const AttentionRow& row, const float* t, const float* message, float* out) const;
  MovedSource moved_source(std::int64_t i) const {
    return MovedSource::of(const_cast<std::int64_t*>(moved_rows_.data()) + i * moved_stride_, spec_.width, heads_);
  }

  const AttentionSpec& attention_;
  const int heads_, wide_;  // columns of a head
  const CountedEdges filter_;
  AttentionTables tables_;
  VertexSet touched_;  // rows that this batch has reached
  VertexSet moved_;    // vertices whose score or message has changed
  PushPlan plan_;
  const int moved_stride_;
  Scratch<std::int64_t> moved_rows_;      // of plan_'s sources
  std::vector<SourceScore> edge_scores_;  // of one source
  ScoreWindowTable windows_;
  std::vector<std::vector<MovedThreshold>> thresholds_;  // per thread
  std::vector<std::vector<WindowFinder>> finders_;       // per thread
};

AttentionTables attention_tables(const AttentionSpec& spec) {
  AttentionTables tables;
  for (int n = 0; n < kBinsKept; ++n) {
    const double distance = -static_cast<double>(kBinWidth) * n;
    tables.powers[true][at(n)] = static_cast<float>(exact_exp(distance));
    tables.powers[false][at(n)] = static_cast<float>(exact_exp(static_cast<double>(spec.slope) * distance));
  }
  tables.slopes[true] = 1.0;
  tables.slopes[false] = static_cast<double>(spec.slope);
  return tables;
}

Operator::Facts facts_of(const AggregationSpec& spec) {
  const std::size_t bytes = AttentionRow::bytes(spec.width, spec.heads);
  return {.stride = static_cast<int>(bytes / sizeof(std::int64_t)), .value_bytes = bytes, .dear = true};
}

SplitAttention::SplitAttention(Workspace& work, int k)
    : Operator(work, k, facts_of(work.aggregation(k))),
      attention_(work.source().attentions[at(spec_.attention)]),
      heads_(spec_.heads),
      wide_(spec_.width / heads_),
      filter_(counted_edges(spec_, attention_.skip_loops || attention_.own_loop)),
      tables_(attention_tables(attention_)),
      moved_stride_(MovedSource::stride(spec_.width, heads_)),
      thresholds_(at(work.options.threads)),
      finders_(at(work.options.threads)) {
  sets_ = {&touched_, &moved_};
  operands_.sources = {attention_.source_table, attention_.message_table};
  if (attention_.own_loop) operands_.targets = operands_.loaded = operands_.sources;
  operands_.targets.push_back(attention_.target_table);
  for (const int t : operands_.sources) {
    RowUsers& users = work.row_users[at(t)];
    users.changed.push_back(&moved_);
    if (attention_.own_loop) users.changed.push_back(&touched_);
    users.finite_for = k;
    users.keep_before = true;
  }
  work.row_users[at(attention_.target_table)].changed.push_back(&touched_);
}

void SplitAttention::choose_scales(const State& state) {
  ColumnMaxima maxima(spec_.width);
  const StoredRows& rows = messages(state);
  const auto fetch = [&](std::int64_t first, std::int64_t last) { rows.fetch(first, last); };
  work_.pass(fetch, [&](std::int64_t first, std::int64_t last) {
    for (auto v = static_cast<VertexId>(first); v < last; ++v) {
      if (work_.graph.is_live(v)) maxima.take(rows.row(v), 1.0f);
    }
  });
  work_.set_scales(k_, maxima.values(), kBinBits);
}

// ---- sums of one row

void SplitAttention::check_score(float score, VertexId v) const {
  if (std::fabs(score) <= kScoreMax) return;
  throw Error(ErrorKind::RangeOverflow, {.where = "apply",
                                         .expected = "attention scores of at most 10^6 in " + spec_.name,
                                         .got = std::to_string(score) + " at vertex " + std::to_string(v),
                                         .advice = "a batch at work is rolled back: scale the features",
                                         .vertex = v});
}

// The row of v, about to change.
AttentionRow SplitAttention::open(VertexId v, int thread) {
  touched_.add(v, thread);
  return row_at(opened(v, thread));
}

// Adds (or takes out) one head of one source. A head whose reference would have to change becomes stale.
template <bool kAdd>
void SplitAttention::move_head(const AttentionRow& row, int head, const SourceScore& source, const float* message,
                               VertexId v) const {
  std::int32_t& holders = row.heads[head].holders;
  if (holders == kStale) return;
  if (kAdd) {
    if (holders == 0) {
      row.heads[head].top = source.bin;
      row.heads[head].low = std::min(source.bin, bin_of(-row.heads[head].shift));
    }
    if (source.bin > row.heads[head].top) {
      holders = kStale;
      return;
    }
    holders += source.bin == row.heads[head].top ? 1 : 0;
  } else if (source.bin == row.heads[head].top && --holders == 0) {
    holders = kStale;
    return;
  }
  add_share<kAdd>(row, head, source, message, v);
}

// The sums alone; references are right.
template <bool kAdd>
void SplitAttention::add_share(const AttentionRow& row, int head, const SourceScore& source, const float* message,
                               VertexId v) const {
  const bool above = is_above(source.t, row.heads[head].shift);
  const float weight = share_of(row, head, source.bin, above ? source.above : source.below, above);
  add_weighted<kAdd>(row, head, above, weight, message, v);
}

template <bool kAdd>
void SplitAttention::add_weighted(const AttentionRow& row, int head, bool above, float weight, const float* message,
                                  VertexId v) const {
  const int from = head * wide_;
  std::int64_t* sums = (above ? row.above : row.below) + from;
  std::int64_t& total = above ? row.heads[head].above_total : row.heads[head].below_total;
  const auto accumulate = kAdd ? work_.kernels.add_head : work_.kernels.sub_head;
  if (!accumulate(sums, message + from, weight, work_.scales[at(k_)].up.data() + from, work_.limit, wide_)) {
    work_.out_of_range(k_, v, work_.times_range(k_, message + from, weight, from, wide_));
  }
  total += kAdd ? weight_bits(weight) : -weight_bits(weight);
}

// The weight of a source of this bin in the row's units; power: its weight within the bin, on its side.
float SplitAttention::share_of(const AttentionRow& row, int head, std::int32_t bin, float power, bool above) const {
  const std::int32_t distance = (above ? row.heads[head].top : row.heads[head].low) - bin;
  if (distance < kBinsKept) return power * tables_.powers[above][at(distance)];
  if (above) return 0.0f;
  const double far = -static_cast<double>(attention_.slope) * static_cast<double>(kBinWidth) * distance;
  return power * static_cast<float>(exact_exp(far));
}

// One source into some heads; t and message are its rows.
void SplitAttention::add_shares(const AttentionRow& row, const std::vector<int>& heads, const float* t,
                                const float* message, VertexId v) const {
  for (std::size_t first = 0; first < heads.size(); first += kAtOnce) {
    const std::size_t count = std::min<std::size_t>(kAtOnce, heads.size() - first);
    double powers[kAtOnce];
    bool above[kAtOnce];
    for (std::size_t i = 0; i < count; ++i) {
      const int head = heads[first + i];
      above[i] = is_above(t[head], row.heads[head].shift);
      powers[i] = tables_.slopes[above[i]] * rest_in_bin(t[head], bin_of(t[head]));
    }
    work_.kernels.exps(powers, powers, static_cast<int>(count));
    for (std::size_t i = 0; i < count; ++i) {
      const int head = heads[first + i];
      const float weight = share_of(row, head, bin_of(t[head]), static_cast<float>(powers[i]), above[i]);
      add_weighted<true>(row, head, above[i], weight, message, v);
    }
  }
}

// Sums the stale heads of v again, from the scores and messages of `state`. Returns the in-edges whose messages it
// read.
std::int64_t SplitAttention::sum_stale_heads(const State& state, VertexId v, const AttentionRow& row) const {
  const StoredRows &t_rows = scores(state), &sent = messages(state);
  thread_local std::vector<int> heads;
  heads.clear();
  for (int head = 0; head < heads_; ++head) {
    AttentionHead& kept = row.heads[head];
    if (kept.holders != kStale) continue;
    heads.push_back(head);
    kept = {0, 0, 0, 0, 0, kept.shift};
    std::fill_n(row.above + head * wide_, wide_, 0);
    std::fill_n(row.below + head * wide_, wide_, 0);
  }
  if (heads.empty()) return 0;
  visit_sources(v, [&](VertexId u, VertexId ahead) {
    if (ahead != kNoVertex) t_rows.prefetch(ahead);
    const float* t = t_rows.row(u);
    for (const int head : heads) {
      check_score(t[head], u);
      const std::int32_t bin = bin_of(t[head]);
      AttentionHead& kept = row.heads[head];
      if (kept.holders == 0 || bin > kept.top) {
        kept.top = bin;
        kept.holders = 1;
      } else if (bin == kept.top) {
        ++kept.holders;
      }
    }
  });
  for (const int head : heads) {
    AttentionHead& kept = row.heads[head];
    if (kept.holders > 0) kept.low = std::min(kept.top, bin_of(-kept.shift));
  }
  std::int64_t read = 0;
  visit_sources(v, [&](VertexId u, VertexId ahead) {
    if (ahead != kNoVertex) sent.prefetch(ahead);
    add_shares(row, heads, t_rows.row(u), sent.row(u), v);
    ++read;
  });
  return read;
}

void SplitAttention::compute(const State& state, const VertexRange& range, bool sampled, int, RowSink& sink) const {
  invariant(!sampled, "an attention of all in-edges");
  const auto fetch = [&](VertexId v) {
    fetch_first(flow_, v, [&](VertexId u) {
      scores(state).prefetch(u);
      messages(state).prefetch(u);
    });
  };
  sum_rows(work_, flow_, range, fetch, [&](VertexId v) {
    std::int64_t* memory = sink.open(v);
    if (memory == nullptr) return;
    const AttentionRow row = row_at(memory);
    std::memset(static_cast<void*>(memory), 0, at(stride()) * sizeof(std::int64_t));
    const float* s = state.stored[at(attention_.target_table)].row(v);
    for (int head = 0; head < heads_; ++head) {
      check_score(s[head], v);
      check_score(scores(state).row(v)[head], v);
      row.heads[head].shift = s[head];
      row.heads[head].holders = kStale;
    }
    sum_stale_heads(state, v, row);
    sink.close(v, memory);
  });
}

// Relative to the references that all of these sources together have.
bool SplitAttention::terms(const TermOperands& given, std::int64_t* out) const {
  std::vector<AttentionHead> references(at(heads_), AttentionHead{});
  std::vector<int> heads(at(heads_));
  for (int head = 0; head < heads_; ++head) {
    AttentionHead& kept = references[at(head)];
    heads[at(head)] = head;
    kept.shift = given.shift[at(head)];
    for (std::size_t i = 0; i < given.count; ++i) {
      const std::int32_t bin = bin_of(given.scores[i * at(heads_) + at(head)]);
      kept.top = kept.holders == 0 ? bin : std::max(kept.top, bin);
      kept.holders = 1;
    }
    if (kept.holders > 0) kept.low = std::min(kept.top, bin_of(-kept.shift));
  }
  Scratch<std::int64_t> memory;
  std::int64_t* words = memory.need(at(stride()));
  const AttentionRow row = row_at(words);
  for (std::size_t i = 0; i < given.count; ++i) {
    std::fill_n(words, stride(), 0);
    std::copy(references.begin(), references.end(), row.heads);
    add_shares(row, heads, given.scores.data() + i * at(heads_), given.messages.data() + i * at(spec_.width),
               kNoVertex);
    std::copy_n(words, stride(), out + i * at(stride()));
  }
  return true;
}

// ---- what a stage reads: the softmax's mean of the messages

void SplitAttention::load(const StageView& view, const VertexId* vertices, int count, float* out, int stride) const {
  const bool own = attention_.own_loop;
  const StoredRows &t_rows = view.stored(attention_.source_table), &sent = view.stored(attention_.message_table);
  for (int i = 0; i < count; ++i) {
    if (i + kRowsAhead < count) {
      view.prefetch_aggregate(k_, vertices[i + kRowsAhead]);
      if (own) t_rows.prefetch(vertices[i + kRowsAhead]);
      if (own) sent.prefetch(vertices[i + kRowsAhead]);
    }
    const VertexId v = vertices[i];
    const AttentionRow row = row_at(const_cast<std::int64_t*>(view.aggregate(k_, v)));
    load_row(row, own ? view.stored_row(attention_.source_table, v) : nullptr,
             own ? view.stored_row(attention_.message_table, v) : nullptr, out + std::int64_t{i} * stride);
  }
}

// t, message: of the vertex's own loop, or null.
void SplitAttention::load_row(const AttentionRow& row, const float* t, const float* message, float* out) const {
  constexpr int kParts = 3;  // above, below, the own loop
  const double slope = static_cast<double>(attention_.slope), bin = static_cast<double>(kBinWidth);
  const double unit_of_totals = power_of_two(-total_bits());
  for (int first = 0; first < heads_; first += kAtOnce) {
    const int count = std::min(kAtOnce, heads_ - first);
    double powers[kParts * kAtOnce];  // each part's unit, relative to the head's largest
    for (int i = 0; i < count; ++i) {
      const int head = first + i;
      const double s = static_cast<double>(row.heads[head].shift);
      const double own = t == nullptr ? 0.0 : static_cast<double>(t[head]) + s;
      double* logs = powers + kParts * i;
      logs[0] = row.heads[head].above_total > 0 ? s + bin * row.heads[head].top : -HUGE_VAL;
      logs[1] = row.heads[head].below_total > 0 ? slope * (s + bin * row.heads[head].low) : -HUGE_VAL;
      logs[2] = t == nullptr ? -HUGE_VAL : own > 0.0 ? own : slope * own;
      const double top = std::max(std::max(logs[0], logs[1]), logs[2]);
      for (int part = 0; part < kParts && top > -HUGE_VAL; ++part) logs[part] -= top;
    }
    work_.kernels.exps(powers, powers, kParts * count);
    for (int i = 0; i < count; ++i) {
      const int head = first + i, from = head * wide_;
      const double* power = powers + kParts * i;
      const double total = power[0] * (static_cast<double>(row.heads[head].above_total) * unit_of_totals) +
                           power[1] * (static_cast<double>(row.heads[head].below_total) * unit_of_totals) + power[2];
      const double unit = total > 0.0 ? 1.0 / total : 0.0;
      work_.kernels.load_head(out + from, row.above + from, static_cast<float>(power[0] * unit), row.below + from,
                              static_cast<float>(power[1] * unit), work_.scales[at(k_)].down.data() + from, wide_);
      const auto share = static_cast<float>(power[2] * unit);
      for (int c = from; message != nullptr && c < from + wide_; ++c) out[c] += share * message[c];
    }
  }
}

// ---- one batch

void SplitAttention::begin() {
  Operator::begin();
  if (keeps_windows()) windows_.prepare(work_.slots, heads_, table().bytes() / kWindowShare);
}

void SplitAttention::apply_edges() {
  edge_scores_.resize(at(heads_));
  each_changed_edge(work_, k_, *this, filter_, false, [&](const EdgeRecord& edge, float, int sign) {
    if (edge.src == edge.dst && filter_.skips_loops) return;
    const AttentionRow row = open(edge.dst, 0);
    ScoreWindow* windows = windows_.find(edge.dst);
    const float* message = messages(work_.state).row(edge.src);
    SourceScore::fill(scores(work_.state).row(edge.src), attention_.slope, heads_, edge_scores_.data());
    for (int head = 0; head < heads_; ++head) {
      const SourceScore& source = edge_scores_[at(head)];
      const bool listed = windows != nullptr && row.heads[head].holders != kStale;
      if (sign > 0) {
        if (listed) windows[head].insert(source.t, edge.src, -row.heads[head].shift);
        move_head<true>(row, head, source, message, edge.dst);
      } else {
        if (listed) windows[head].remove(source.t, edge.src);
        move_head<false>(row, head, source, message, edge.dst);
      }
    }
  });
}

// A target's share of a moved source.
void SplitAttention::replace_source(VertexId v, VertexId u, const MovedSource& source, int thread) {
  const AttentionRow row = open(v, thread);
  ScoreWindow* windows = windows_.find(v);
  for (int head = 0; head < heads_; ++head) {
    if (source.moved[head] == 0 || row.heads[head].holders == kStale) continue;
    const SourceScore &before = source.before[head], &now = source.now[head];
    if (windows != nullptr) windows[head].replace(before.t, now.t, u, -row.heads[head].shift);
    const bool above = is_above(now.t, row.heads[head].shift);
    const bool plain = before.bin == now.bin && above == is_above(before.t, row.heads[head].shift);
    if (!plain) {
      move_head<false>(row, head, before, source.message_before, v);
      move_head<true>(row, head, now, source.message, v);
      continue;
    }
    const auto share = [&](const SourceScore& score) {
      return share_of(row, head, score.bin, above ? score.above : score.below, above);
    };
    const float weight_before = share(before), weight = share(now);
    const int from = head * wide_;
    std::int64_t* sums = (above ? row.above : row.below) + from;
    if (!work_.kernels.replace_head(sums, source.message_before + from, weight_before, source.message + from, weight,
                                    work_.scales[at(k_)].up.data() + from, work_.limit, wide_)) {
      work_.out_of_range(k_, v,
                         std::max(work_.times_range(k_, source.message_before + from, weight_before, from, wide_),
                                  work_.times_range(k_, source.message + from, weight, from, wide_)));
    }
    (above ? row.heads[head].above_total : row.heads[head].below_total) +=
        weight_bits(weight) - weight_bits(weight_before);
  }
}

// Whether the terms of moved sources are replaced edge by edge, or all rows are summed again.
void SplitAttention::choose_path() {
  StageStats& stats = work_.stats[at(spec_.stage)];
  plan_.sources = moved_.collect();
  const std::int64_t edges = work_.out_edges(flow_, plan_.sources);
  plan_.path = work_.push_or_sweep(plan_.sources.size(), at(moved_stride_) * sizeof(std::int64_t), edges, false);
  if (plan_.path == Path::Pull) plan_.path = Path::Sweep;
  if (plan_.path == Path::Push && !work_.restricted) stats.edges += edges;
  stats.path = plan_.path;
}

// The plan of a push: what each moved source was and is.
void SplitAttention::plan_moved_sources() {
  plan_.moves.assign(plan_.sources.size(), DeltaShape::Zero);
  work_.derive(operands_.sources, plan_.sources);
  moved_rows_.need(plan_.sources.size() * at(moved_stride_));
  const StoredRows &t_rows = scores(work_.state), &sent = messages(work_.state);
  work_.in_shares(static_cast<std::int64_t>(plan_.sources.size()), kSourcesPerTask,
                  [&](std::int64_t first, std::int64_t last, int) {
                    for (std::int64_t i = first; i < last; ++i) {
                      if (i + 2 < last) {
                        t_rows.prefetch(plan_.sources[at(i + 2)]);
                        sent.prefetch(plan_.sources[at(i + 2)]);
                      }
                      const bool moved = plan_source(plan_.sources[at(i)], moved_source(i));
                      plan_.moves[at(i)] = moved ? DeltaShape::Wide : DeltaShape::Zero;
                    }
                  });
}

// Whether u has changed in any head.
bool SplitAttention::plan_source(VertexId u, const MovedSource& source) const {
  const float *t = scores(work_.state).row(u), *message = messages(work_.state).row(u);
  const float* t_before = work_.rows_before[at(attention_.source_table)].find(u, t);
  const float* before = work_.rows_before[at(attention_.message_table)].find(u, message);
  std::memcpy(source.message_before, before, at(spec_.width) * sizeof(float));
  std::memcpy(source.message, message, at(spec_.width) * sizeof(float));
  bool changed = false;
  for (int head = 0; head < heads_; ++head) {
    check_score(t[head], u);
    const bool same = std::memcmp(&t[head], &t_before[head], sizeof(float)) == 0 &&
                      std::memcmp(before + head * wide_, message + head * wide_, at(wide_) * sizeof(float)) == 0;
    source.moved[head] = same ? 0 : 1;
    changed |= !same;
  }
  if (!changed) return false;
  SourceScore::fill(t_before, attention_.slope, heads_, source.before);
  SourceScore::fill(t, attention_.slope, heads_, source.now);
  return true;
}

// Rows that differ are marked, and so are those whose own score or loop has changed.
void SplitAttention::sweep() {
  if (!work_.restricted) {
    windows_.clear();
    if (keeps_windows()) windows_.prepare(work_.slots, heads_, table().bytes() / kWindowShare);
  }
  derive_all();
  sweep_rows();
  for (const VertexId v : touched_.collect()) {
    if (work_.wants(k_, v)) work_.mark_consumers(spec_.consumers, v, 0);
  }
}

// s_v has moved from `before` to `now` in one head, and one of the in-edges has score t: where that changes sides, its
// term does. Returns whether it did.
bool SplitAttention::cross(const AttentionRow& row, const MovedThreshold& threshold, float t, VertexId u,
                           VertexId v) const {
  if (is_above(t, threshold.before) == is_above(t, threshold.now)) return false;
  const float* message = messages(work_.state).row(u);
  const SourceScore source = SourceScore::of(t, attention_.slope);
  row.heads[threshold.head].shift = threshold.before;
  add_share<false>(row, threshold.head, source, message, v);
  row.heads[threshold.head].shift = threshold.now;
  add_share<true>(row, threshold.head, source, message, v);
  return true;
}

// s_v has moved: sources between the old and the new threshold change sides. Where the lower side's reference moves
// along, or the constrained strategy asks for it, the head is summed again. Returns how many scores it looked at.
std::int64_t SplitAttention::move_target(VertexId v, const AttentionRow& row, int thread) {
  const float* s = work_.state.stored[at(attention_.target_table)].row(v);
  ScoreWindow* windows = windows_.find(v);
  std::vector<MovedThreshold>& thresholds = thresholds_[at(thread)];
  thresholds.clear();
  std::int64_t looked_at = 0;
  for (int head = 0; head < heads_; ++head) {
    const float before = row.heads[head].shift;
    if (std::memcmp(&before, &s[head], sizeof(float)) == 0) continue;
    check_score(s[head], v);
    row.heads[head].shift = s[head];
    if (row.heads[head].holders == kStale || row.heads[head].holders == 0) continue;
    const bool reference_moves = std::min(row.heads[head].top, bin_of(-s[head])) != row.heads[head].low;
    if (work_.options.constrained || reference_moves) {
      row.heads[head].holders = kStale;
    } else if (windows != nullptr && windows[head].spans(-before) && windows[head].spans(-s[head])) {
      const ScoreWindow& window = windows[head];
      for (int i = 0; i < window.count; ++i)
        cross(row, {head, 0, before, s[head]}, window.listed[i].t, window.listed[i].u, v);
      looked_at += window.count;
    } else {
      thresholds.push_back({head, 0, before, s[head]});
    }
  }
  if (!thresholds.empty()) looked_at += cross_in_edges(v, row, thread);
  return looked_at;
}

// Looks at the scores of all in-edges for the heads in thresholds_. Where few of them change sides, the next move may
// be as small, and gets a window around the threshold.
std::int64_t SplitAttention::cross_in_edges(VertexId v, const AttentionRow& row, int thread) {
  std::vector<MovedThreshold>& thresholds = thresholds_[at(thread)];
  std::vector<WindowFinder>& finders = finders_[at(thread)];
  const StoredRows& t_rows = scores(work_.state);
  const bool may_keep = keeps_windows() && flow_.in_degree(v) >= kWindowDegree;
  if (may_keep) {
    if (finders.size() < thresholds.size()) finders.resize(thresholds.size());
    for (std::size_t i = 0; i < thresholds.size(); ++i) finders[i].begin(-thresholds[i].now);
  }
  std::int64_t looked_at = 0;
  visit_sources(v, [&](VertexId u, VertexId ahead) {
    if (ahead != kNoVertex) t_rows.prefetch(ahead);
    ++looked_at;
    const float* t = t_rows.row(u);
    for (std::size_t i = 0; i < thresholds.size(); ++i) {
      thresholds[i].crossed += cross(row, thresholds[i], t[thresholds[i].head], u, v) ? 1 : 0;
      if (may_keep) finders[i].offer(t[thresholds[i].head], u);
    }
  });
  ScoreWindow* windows = windows_.find(v);
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    const bool small = may_keep && thresholds[i].crossed <= WindowFinder::kPerSide;
    if (small && windows == nullptr) windows = windows_.make(v);
    if (windows == nullptr) continue;
    if (small) {
      finders[i].finish(windows[thresholds[i].head]);
    } else {
      windows[thresholds[i].head].forget();
    }
  }
  windows_.drop_unknown(v);
  return looked_at;
}

// Windows of a stale head have missed what came and went.
void SplitAttention::forget_stale_windows(VertexId v, const AttentionRow& row) {
  ScoreWindow* windows = windows_.find(v);
  for (int head = 0; windows != nullptr && head < heads_; ++head) {
    if (row.heads[head].holders == kStale) windows[head].forget();
  }
  windows_.drop_unknown(v);
}

void SplitAttention::prefetch_settled(VertexId v, bool early) const {
  prefetch_row(row_at(table().row(v)).heads, AttentionRow::head_bytes(heads_));
  work_.state.stored[at(attention_.target_table)].prefetch(v);
  windows_.prefetch(v);
  for (const int stage : spec_.consumers) prefetch_line(work_.dirty[at(stage)].mark_address(v));
  if (!early) return;
  if (attention_.own_loop) {
    scores(work_.state).prefetch(v);
    messages(work_.state).prefetch(v);
  }
  for (const int stage : spec_.consumers) work_.result_rows[at(stage)].prefetch(v);
}

void SplitAttention::settle(bool) {
  choose_path();
  if (plan_.path == Path::Sweep) return sweep();
  plan_moved_sources();
  RowTable<std::int64_t>& rows = table();
  const PushWriter writer{[this, &rows](VertexId v) {
                            prefetch_row(rows.row(v), rows.row_bytes());
                            windows_.prefetch(v);
                            prefetch_line(touched_.mark_address(v));
                          },
                          [this](std::int32_t i) {
                            prefetch_row(moved_rows_.data() + std::int64_t{i} * moved_stride_,
                                         at(moved_stride_) * sizeof(std::int64_t));
                          },
                          [this](VertexId v, std::int32_t i, float, int thread) {
                            replace_source(v, plan_.sources[at(i)], moved_source(i), thread);
                            return false;  // rows are marked when they are settled
                          }};
  DeltaPush(work_, k_, plan_, filter_, writer).run(false);
  settle_touched();
}

// Rows of a compact state: of targets, and of all in-edges where a head's own score has moved or its reference has.
void SplitAttention::derive_touched(const std::vector<VertexId>& rows) const {
  work_.derive({attention_.target_table}, rows);
  derive_operands(rows, [&](VertexId v) {
    const AttentionHead* heads = row_at(table().row(v)).heads;
    const float* s = work_.state.stored[at(attention_.target_table)].row(v);
    bool read = false;
    for (int head = 0; head < heads_; ++head)
      read |= heads[head].holders == kStale || std::memcmp(&heads[head].shift, &s[head], sizeof(float)) != 0;
    return read;
  });
}

void SplitAttention::settle_touched() {
  if (work_.is_picky()) touched_.keep([&](VertexId v) { return work_.wants(k_, v); });
  const std::vector<VertexId>& rows = touched_.collect();
  derive_touched(rows);
  const bool early = rows.size() < kEarlyRows;  // what is asked for now is still in the cache when the next stage runs
  std::vector<std::int64_t> scanned(at(work_.pool.threads()), 0), reread(at(work_.pool.threads()), 0);
  const auto settle_row = [&](VertexId v, int thread) {
    const AttentionRow row = open(v, thread);
    scanned[at(thread)] += move_target(v, row, thread);
    forget_stale_windows(v, row);
    reread[at(thread)] += sum_stale_heads(work_.state, v, row);
    work_.mark_consumers(spec_.consumers, v, thread);
  };
  work_.in_shares(static_cast<std::int64_t>(rows.size()), kRowsPerTask,
                  [&](std::int64_t first, std::int64_t last, int thread) {
                    for (std::int64_t i = first; i < std::min(last, first + kRowsAhead); ++i)
                      prefetch_settled(rows[at(i)], early);
                    for (std::int64_t i = first; i < last; ++i) {
                      if (i + kRowsAhead < last) prefetch_settled(rows[at(i + kRowsAhead)], early);
                      settle_row(rows[at(i)], thread);
                    }
                  });
  StageStats& stats = work_.stats[at(spec_.stage)];
  for (std::size_t thread = 0; thread < scanned.size(); ++thread) {
    stats.scanned += scanned[thread];
    stats.reread += reread[thread];
    stats.edges += scanned[thread] + reread[thread];
  }
}

}  // namespace

OperatorKind split_attention() {
  return {[](const Program&, const AggregationSpec& spec) { return spec.attention >= 0; }, make<SplitAttention>};
}

}  // namespace livegnn
