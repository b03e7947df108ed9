// Separable attention by split sums: the weight of u for v is exp(LeakyReLU(t_u + s_v)), which on either side of zero
// is a factor of u times a factor of v. A row keeps both sides' sums free of s_v's factor, in fixed point relative to
// the highest bin of t among its in-edges, so it is a function of the graph alone. A source that moves replaces its own
// term. When s_v moves, scores are scanned and only the sources that change sides are read (docs/attention.md).
#include <algorithm>
#include <cmath>

#include "inference/terms.h"

namespace livegnn {

namespace {

constexpr std::int64_t kRowsPerTask = 8, kSourcesPerTask = 32;
constexpr std::size_t kEarlyRows = 512;
constexpr std::size_t kWindowShare = 4;     // windows take at most a quarter of the bytes of the rows
constexpr std::int32_t kWindowDegree = 48;  // in-edges from which on a window costs less than looking at all of them

}  // namespace

template <typename Acc>
AttentionTables EngineImpl<Acc>::attention_tables(const AttentionSpec& spec) {
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

template <typename Acc>
AttentionRow EngineImpl<Acc>::attention_row(int k, void* memory) const {
  return AttentionRow::of(memory, aggregation(k).width);
}

// The row of v, about to change.
template <typename Acc>
AttentionRow EngineImpl<Acc>::open_attention(int k, VertexId v, int thread) {
  if (journal_.on()) [[unlikely]]
    journal_.save_aggregate(state_, k, v, thread);
  touched_[at(k)].set.add(v, thread);
  return attention_row(k, state_.aggregates[at(k)].row(v));
}

// Adds (or takes out) one head of one source. A head whose reference would have to change becomes stale.
template <typename Acc>
template <bool kAdd>
void EngineImpl<Acc>::move_head(int k, const AttentionRow& row, int head, const SourceScore& source,
                                const float* message, VertexId v) const {
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
  add_share<kAdd>(k, row, head, source, message, v);
}

// The sums alone; references are right.
template <typename Acc>
template <bool kAdd>
void EngineImpl<Acc>::add_share(int k, const AttentionRow& row, int head, const SourceScore& source,
                                const float* message, VertexId v) const {
  const bool above = is_above(source.t, row.heads[head].shift);
  const float weight = share_of(k, row, head, source.bin, above ? source.above : source.below, above);
  add_weighted<kAdd>(k, row, head, above, weight, message, v);
}

template <typename Acc>
template <bool kAdd>
void EngineImpl<Acc>::add_weighted(int k, const AttentionRow& row, int head, bool above, float weight,
                                   const float* message, VertexId v) const {
  const int wide = aggregation(k).width / aggregation(k).heads, from = head * wide;
  std::int64_t* sums = (above ? row.above : row.below) + from;
  std::int64_t& total = above ? row.heads[head].above_total : row.heads[head].below_total;
  const auto accumulate = kAdd ? kernels_.add_head : kernels_.sub_head;
  if (!accumulate(sums, message + from, weight, scales_[at(k)].up.data() + from, limit_, wide)) {
    out_of_range(k, v, times_range(k, message + from, weight, from, wide));
  }
  total += kAdd ? weight_bits(weight) : -weight_bits(weight);
}

// The weight of a source of this bin in the row's units; power: its weight within the bin, on its side.
template <typename Acc>
float EngineImpl<Acc>::share_of(int k, const AttentionRow& row, int head, std::int32_t bin, float power,
                                bool above) const {
  const AttentionTables& tables = attention_factors_[at(aggregation(k).attention)];
  const std::int32_t distance = (above ? row.heads[head].top : row.heads[head].low) - bin;
  if (distance < kBinsKept) return power * tables.powers[above][at(distance)];
  if (above) return 0.0f;
  const double far = -static_cast<double>(attention(k).slope) * static_cast<double>(kBinWidth) * distance;
  return power * static_cast<float>(exact_exp(far));
}

// visit(u) for every in-edge of v that counts.
template <typename Acc>
template <typename Visit>
void EngineImpl<Acc>::visit_heard(int k, VertexId v, Visit&& visit) const {
  const AggregationSpec& spec = aggregation(k);
  const AttentionSpec& attend = attention(k);
  graph_.visit_in(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) {
      if ((attend.skip_loops || attend.own_loop) && span.neighbours[i] == v) continue;
      if (spec.relation >= 0 && span.types[i] != spec.relation) continue;
      visit(span.neighbours[i], i + 8 < span.count ? span.neighbours[i + 8] : kNoVertex);
    }
  });
}

// Sums the stale heads of v again, from the scores and messages of `state`. Returns the in-edges whose messages it
// read.
template <typename Acc>
std::int64_t EngineImpl<Acc>::sum_stale_heads(int k, const State<Acc>& state, VertexId v,
                                              const AttentionRow& row) const {
  const StoredRows& scores = state.stored[at(attention(k).source_table)];
  const StoredRows& messages = state.stored[at(attention(k).message_table)];
  const int wide = aggregation(k).width / aggregation(k).heads;
  thread_local std::vector<int> heads;
  heads.clear();
  for (int head = 0; head < aggregation(k).heads; ++head) {
    AttentionHead& kept = row.heads[head];
    if (kept.holders != kStale) continue;
    heads.push_back(head);
    kept = {0, 0, 0, 0, 0, kept.shift};
    std::fill_n(row.above + head * wide, wide, 0);
    std::fill_n(row.below + head * wide, wide, 0);
  }
  if (heads.empty()) return 0;
  visit_heard(k, v, [&](VertexId u, VertexId ahead) {
    if (ahead != kNoVertex) scores.prefetch(ahead);
    const float* t = scores.row(u);
    for (const int head : heads) {
      check_score(k, t[head], u);
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
  visit_heard(k, v, [&](VertexId u, VertexId ahead) {
    if (ahead != kNoVertex) messages.prefetch(ahead);
    add_shares(k, row, heads, scores.row(u), messages.row(u), v);
    ++read;
  });
  return read;
}

// One source into some heads; t and message are its rows.
template <typename Acc>
void EngineImpl<Acc>::add_shares(int k, const AttentionRow& row, const std::vector<int>& heads, const float* t,
                                 const float* message, VertexId v) const {
  constexpr std::size_t kAtOnce = SourceScore::kAtOnce;
  const AttentionTables& tables = attention_factors_[at(aggregation(k).attention)];
  for (std::size_t first = 0; first < heads.size(); first += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, heads.size() - first);
    double powers[kAtOnce];
    bool above[kAtOnce];
    for (std::size_t i = 0; i < count; ++i) {
      const int head = heads[first + i];
      above[i] = is_above(t[head], row.heads[head].shift);
      powers[i] = tables.slopes[above[i]] * rest_in_bin(t[head], bin_of(t[head]));
    }
    kernels_.exps(powers, powers, static_cast<int>(count));
    for (std::size_t i = 0; i < count; ++i) {
      const int head = heads[first + i];
      const float weight = share_of(k, row, head, bin_of(t[head]), static_cast<float>(powers[i]), above[i]);
      add_weighted<true>(k, row, head, above[i], weight, message, v);
    }
  }
}

// The whole row of v from `state`.
template <typename Acc>
void EngineImpl<Acc>::attend_from_scratch(int k, const State<Acc>& state, VertexId v, Acc* acc) const {
  const AttentionSpec& attend = attention(k);
  const AttentionRow row = attention_row(k, acc);
  std::memset(static_cast<void*>(acc), 0, state.aggregates[at(k)].row_bytes());
  const float* s = state.stored[at(attend.target_table)].row(v);
  for (int head = 0; head < aggregation(k).heads; ++head) {
    check_score(k, s[head], v);
    check_score(k, state.stored[at(attend.source_table)].row(v)[head], v);
    row.heads[head].shift = s[head];
    row.heads[head].holders = kStale;
  }
  sum_stale_heads(k, state, v, row);
}

template <typename Acc>
void EngineImpl<Acc>::attend_edge(int k, const EdgeRecord& edge, int sign) {
  const AttentionSpec& attend = attention(k);
  if (edge.src == edge.dst && (attend.skip_loops || attend.own_loop)) return;
  const AttentionRow row = open_attention(k, edge.dst, 0);
  BorderWindow* windows = borders_[at(k)].find(edge.dst);
  const float* message = state_.stored[at(attend.message_table)].row(edge.src);
  std::vector<SourceScore>& scores = source_scores_;
  scores.resize(at(aggregation(k).heads));
  SourceScore::fill(state_.stored[at(attend.source_table)].row(edge.src), attend.slope, aggregation(k).heads,
                    scores.data());
  for (int head = 0; head < aggregation(k).heads; ++head) {
    const SourceScore& source = scores[at(head)];
    if (windows != nullptr && row.heads[head].holders != kStale) {
      if (sign > 0) {
        windows[head].insert(source.t, edge.src, -row.heads[head].shift);
      } else {
        windows[head].remove(source.t, edge.src);
      }
    }
    if (sign > 0) {
      move_head<true>(k, row, head, source, message, edge.dst);
    } else {
      move_head<false>(k, row, head, source, message, edge.dst);
    }
  }
}

// A moved source on its way along its out-edges: scores before and now, head by head, then messages before and now.
template <typename Acc>
struct EngineImpl<Acc>::MovedSource {
  SourceScore* before;
  SourceScore* now;
  std::uint32_t* moved;  // whether the head's score or message differs
  VertexId* vertex;
  float* message_before;
  float* message;

  static int stride(int width, int heads) {  // in int64, as deltas of a plan are
    const std::size_t scores = 2 * sizeof(SourceScore) * at(heads) + sizeof(std::uint32_t) * at(heads + 1);
    const std::size_t bytes = (scores + kCacheLine - 1) / kCacheLine * kCacheLine;
    return static_cast<int>((bytes + 2 * sizeof(float) * at(round_up(width, 16))) / sizeof(std::int64_t));
  }
  static MovedSource of(std::int64_t* memory, int width, int heads) {
    auto* before = reinterpret_cast<SourceScore*>(memory);
    auto* moved = reinterpret_cast<std::uint32_t*>(before + 2 * heads);
    auto* rows = reinterpret_cast<float*>(memory + stride(width, heads)) - 2 * round_up(width, 16);
    return {
        before, before + heads, moved, reinterpret_cast<VertexId*>(moved + heads), rows, rows + round_up(width, 16)};
  }
};

// A target's share of a moved source.
template <typename Acc>
void EngineImpl<Acc>::replace_source(int k, VertexId v, const std::int64_t* delta, int thread) {
  const int width = aggregation(k).width, heads = aggregation(k).heads, wide = width / heads;
  const MovedSource source = MovedSource::of(const_cast<std::int64_t*>(delta), width, heads);
  const AttentionRow row = open_attention(k, v, thread);
  BorderWindow* windows = borders_[at(k)].find(v);
  for (int head = 0; head < heads; ++head) {
    if (source.moved[head] == 0 || row.heads[head].holders == kStale) continue;
    const SourceScore &before = source.before[head], &now = source.now[head];
    if (windows != nullptr) windows[head].replace(before.t, now.t, *source.vertex, -row.heads[head].shift);
    const bool above = is_above(now.t, row.heads[head].shift);
    const bool plain = before.bin == now.bin && above == is_above(before.t, row.heads[head].shift);
    if (!plain) {
      move_head<false>(k, row, head, before, source.message_before, v);
      move_head<true>(k, row, head, now, source.message, v);
      continue;
    }
    const auto share = [&](const SourceScore& score) {
      return share_of(k, row, head, score.bin, above ? score.above : score.below, above);
    };
    const float weight_before = share(before), weight = share(now);
    const int from = head * wide;
    std::int64_t* sums = (above ? row.above : row.below) + from;
    if (!kernels_.replace_head(sums, source.message_before + from, weight_before, source.message + from, weight,
                               scales_[at(k)].up.data() + from, limit_, wide)) {
      out_of_range(k, v,
                   std::max(times_range(k, source.message_before + from, weight_before, from, wide),
                            times_range(k, source.message + from, weight, from, wide)));
    }
    (above ? row.heads[head].above_total : row.heads[head].below_total) +=
        weight_bits(weight) - weight_bits(weight_before);
  }
}

// Whether the terms of moved sources are replaced edge by edge, or all rows are summed again.
template <typename Acc>
void EngineImpl<Acc>::choose_attention_path(int k) {
  Plan& plan = plans_[at(k)];
  StageStats& stats = stats_[at(aggregation(k).stage)];
  plan.sources = moved_sources_[at(k)].collect();
  plan.stride = MovedSource::stride(aggregation(k).width, aggregation(k).heads);
  const std::int64_t edges = out_edges(plan.sources);
  plan.path = push_or_sweep(plan, edges);
  if (plan.path == Path::Pull) plan.path = Path::Sweep;
  if (plan.path == Path::Push && !restricted_) stats.edges += edges;
  stats.path = plan.path;
}

// The plan of a push: what each moved source was and is.
template <typename Acc>
void EngineImpl<Acc>::plan_moved_sources(int k) {
  const AttentionSpec& attend = attention(k);
  const int width = aggregation(k).width, wide = width / aggregation(k).heads;
  Plan& plan = plans_[at(k)];
  plan.changed.assign(plan.sources.size(), 0);
  plan.deltas.need(plan.sources.size() * at(plan.stride));
  const StoredRows& scores = state_.stored[at(attend.source_table)];
  const StoredRows& messages = state_.stored[at(attend.message_table)];
  const auto run = [&](std::int64_t i) {
    const VertexId u = plan.sources[at(i)];
    const MovedSource source =
        MovedSource::of(plan.deltas.data() + i * std::int64_t{plan.stride}, width, aggregation(k).heads);
    *source.vertex = u;
    const float* t_before = rows_before_[at(attend.source_table)].find(u, scores.row(u));
    const float* before = rows_before_[at(attend.message_table)].find(u, messages.row(u));
    std::memcpy(source.message_before, before, at(width) * sizeof(float));
    std::memcpy(source.message, messages.row(u), at(width) * sizeof(float));
    for (int head = 0; head < aggregation(k).heads; ++head) {
      const float t = scores.row(u)[head];
      check_score(k, t, u);
      const bool same = std::memcmp(&t, &t_before[head], sizeof(float)) == 0 &&
                        std::memcmp(before + head * wide, messages.row(u) + head * wide, at(wide) * sizeof(float)) == 0;
      source.moved[head] = same ? 0 : 1;
      if (same) continue;
      plan.changed[at(i)] = 1;
    }
    if (plan.changed[at(i)] == 0) return;
    SourceScore::fill(t_before, attend.slope, aggregation(k).heads, source.before);
    SourceScore::fill(scores.row(u), attend.slope, aggregation(k).heads, source.now);
  };
  in_shares(static_cast<std::int64_t>(plan.sources.size()), kSourcesPerTask,
            [&](std::int64_t first, std::int64_t last, int) {
              for (std::int64_t i = first; i < last; ++i) {
                if (i + 2 < last) {
                  scores.prefetch(plan.sources[at(i + 2)]);
                  messages.prefetch(plan.sources[at(i + 2)]);
                }
                run(i);
              }
            });
}

// Rows that differ go on, and so do those that have something new to hear of themselves.
template <typename Acc>
void EngineImpl<Acc>::sweep_attention(int k) {
  if (!restricted_) {
    borders_[at(k)].clear();
    prepare_windows(k);
  }
  sweep(k);
  for (const VertexId v : touched_[at(k)].set.collect()) {
    if (wants(k, v)) mark_consumers(aggregation(k).consumers, v, 0);
  }
}

// Where there is a limit of memory, or every moved target is summed again, windows have no place.
template <typename Acc>
void EngineImpl<Acc>::prepare_windows(int k) {
  if (aggregation(k).attention < 0 || !keeps_windows()) return;
  borders_[at(k)].prepare(slots_, aggregation(k).heads, state_.aggregates[at(k)].bytes() / kWindowShare);
}

// s_v has moved from `before` to `now` in one head, and one of the in-edges has score t: where that changes sides, its
// term does. Returns whether it did.
template <typename Acc>
bool EngineImpl<Acc>::cross(int k, const AttentionRow& row, const MovedBorder& border, float t, VertexId u,
                            VertexId v) const {
  if (is_above(t, border.before) == is_above(t, border.now)) return false;
  const float* message = state_.stored[at(attention(k).message_table)].row(u);
  const SourceScore source = SourceScore::of(t, attention(k).slope);
  row.heads[border.head].shift = border.before;
  add_share<false>(k, row, border.head, source, message, v);
  row.heads[border.head].shift = border.now;
  add_share<true>(k, row, border.head, source, message, v);
  return true;
}

// s_v has moved: sources between the old and the new border change sides. Where the lower side's reference moves along,
// or the constrained strategy asks for it, the head is summed again. Returns how many scores it looked at.
template <typename Acc>
std::int64_t EngineImpl<Acc>::move_target(int k, VertexId v, const AttentionRow& row, int thread) {
  const float* s = state_.stored[at(attention(k).target_table)].row(v);
  BorderWindow* windows = borders_[at(k)].find(v);
  std::vector<MovedBorder>& borders = moved_borders_[at(thread)];
  borders.clear();
  std::int64_t looked_at = 0;
  for (int head = 0; head < aggregation(k).heads; ++head) {
    const float before = row.heads[head].shift;
    if (std::memcmp(&before, &s[head], sizeof(float)) == 0) continue;
    check_score(k, s[head], v);
    row.heads[head].shift = s[head];
    if (row.heads[head].holders == kStale || row.heads[head].holders == 0) continue;
    const bool reference_moves = std::min(row.heads[head].top, bin_of(-s[head])) != row.heads[head].low;
    if (options_.constrained || reference_moves) {
      row.heads[head].holders = kStale;
    } else if (windows != nullptr && windows[head].spans(-before) && windows[head].spans(-s[head])) {
      const BorderWindow& window = windows[head];
      for (int i = 0; i < window.count; ++i)
        cross(k, row, {head, 0, before, s[head]}, window.listed[i].t, window.listed[i].u, v);
      looked_at += window.count;
    } else {
      borders.push_back({head, 0, before, s[head]});
    }
  }
  if (!borders.empty()) looked_at += cross_in_edges(k, v, row, thread);
  return looked_at;
}

// Looks at the scores of all in-edges for the heads in moved_borders_. Where few of them change sides, the next move
// may be as small, and is told what is around the border.
template <typename Acc>
std::int64_t EngineImpl<Acc>::cross_in_edges(int k, VertexId v, const AttentionRow& row, int thread) {
  std::vector<MovedBorder>& borders = moved_borders_[at(thread)];
  std::vector<WindowFinder>& finders = window_finders_[at(thread)];
  const StoredRows& scores = state_.stored[at(attention(k).source_table)];
  const bool may_keep = keeps_windows() && graph_.in_degree(v) >= kWindowDegree;
  if (may_keep) {
    if (finders.size() < borders.size()) finders.resize(borders.size());
    for (std::size_t i = 0; i < borders.size(); ++i) finders[i].begin(-borders[i].now);
  }
  std::int64_t looked_at = 0;
  visit_heard(k, v, [&](VertexId u, VertexId ahead) {
    if (ahead != kNoVertex) scores.prefetch(ahead);
    ++looked_at;
    const float* t = scores.row(u);
    for (std::size_t i = 0; i < borders.size(); ++i) {
      borders[i].crossed += cross(k, row, borders[i], t[borders[i].head], u, v) ? 1 : 0;
      if (may_keep) finders[i].offer(t[borders[i].head], u);
    }
  });
  BorderWindow* windows = borders_[at(k)].find(v);
  for (std::size_t i = 0; i < borders.size(); ++i) {
    const bool small = may_keep && borders[i].crossed <= WindowFinder::kPerSide;
    if (small && windows == nullptr) windows = borders_[at(k)].make(v);
    if (windows == nullptr) continue;
    if (small) {
      finders[i].finish(windows[borders[i].head]);
    } else {
      windows[borders[i].head].forget();
    }
  }
  borders_[at(k)].drop_unknown(v);
  return looked_at;
}

// Windows of a stale head have missed what came and went.
template <typename Acc>
void EngineImpl<Acc>::forget_stale_windows(int k, VertexId v, const AttentionRow& row) {
  BorderWindow* windows = borders_[at(k)].find(v);
  for (int head = 0; windows != nullptr && head < aggregation(k).heads; ++head) {
    if (row.heads[head].holders == kStale) windows[head].forget();
  }
  borders_[at(k)].drop_unknown(v);
}

template <typename Acc>
void EngineImpl<Acc>::attend(int k) {
  const AggregationSpec& spec = aggregation(k);
  VertexSet& touched = touched_[at(k)].set;
  choose_attention_path(k);
  if (plans_[at(k)].path == Path::Sweep) return sweep_attention(k);
  plan_moved_sources(k);
  push(k, false);
  if (restricted_) touched.keep([&](VertexId v) { return wants(k, v); });
  const std::vector<VertexId>& rows = touched.collect();
  std::vector<std::int64_t> scanned(at(pool_.threads()), 0), reread(at(pool_.threads()), 0);
  const AttentionSpec& attend = attention(k);
  const StoredRows& shifts = state_.stored[at(attend.target_table)];
  const bool few = rows.size() < kEarlyRows;  // what is asked for now is still in the cache when the next stage runs
  const auto fetch = [&](VertexId v) {
    const AttentionRow row = attention_row(k, state_.aggregates[at(k)].row(v));
    prefetch_row(row.heads, AttentionRow::head_bytes(spec.heads));
    shifts.prefetch(v);
    borders_[at(k)].prefetch(v);
    for (const int stage : spec.consumers) prefetch_line(dirty_[at(stage)].mark_address(v));
    if (!few) return;
    if (attend.own_loop) {
      state_.stored[at(attend.source_table)].prefetch(v);
      state_.stored[at(attend.message_table)].prefetch(v);
    }
    for (const int stage : spec.consumers) result_rows_[at(stage)].prefetch(v);
  };
  const auto settle = [&](VertexId v, int thread) {
    const AttentionRow row = open_attention(k, v, thread);
    scanned[at(thread)] += move_target(k, v, row, thread);
    forget_stale_windows(k, v, row);
    reread[at(thread)] += sum_stale_heads(k, state_, v, row);
    mark_consumers(spec.consumers, v, thread);
  };
  in_shares(static_cast<std::int64_t>(rows.size()), kRowsPerTask,
            [&](std::int64_t first, std::int64_t last, int thread) {
              for (std::int64_t i = first; i < std::min(last, first + kRowsAhead); ++i) fetch(rows[at(i)]);
              for (std::int64_t i = first; i < last; ++i) {
                if (i + kRowsAhead < last) fetch(rows[at(i + kRowsAhead)]);
                settle(rows[at(i)], thread);
              }
            });
  StageStats& stats = stats_[at(spec.stage)];
  for (std::size_t thread = 0; thread < scanned.size(); ++thread) {
    stats.scanned += scanned[thread];
    stats.reread += reread[thread];
    stats.edges += scanned[thread] + reread[thread];
  }
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
