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

}  // namespace

template <typename Acc>
AttentionTables EngineImpl<Acc>::attention_tables(const AttentionSpec& spec) {
  AttentionTables tables;
  for (int n = 0; n < kBinsKept; ++n) {
    const double distance = -static_cast<double>(kBinWidth) * n;
    tables.above[at(n)] = static_cast<float>(exact_exp(distance));
    tables.below[at(n)] = static_cast<float>(exact_exp(static_cast<double>(spec.slope) * distance));
  }
  return tables;
}

template <typename Acc>
AttentionRow EngineImpl<Acc>::attention_row(int k, void* memory) const {
  return AttentionRow::of(memory, aggregation(k).width, aggregation(k).heads);
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
  std::int32_t& holders = row.holders[head];
  if (holders == kStale) return;
  if (kAdd) {
    if (holders == 0) {
      row.top[head] = source.bin;
      row.low[head] = std::min(source.bin, bin_of(-row.shift[head]));
    }
    if (source.bin > row.top[head]) {
      holders = kStale;
      return;
    }
    holders += source.bin == row.top[head] ? 1 : 0;
  } else if (source.bin == row.top[head] && --holders == 0) {
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
  const int wide = aggregation(k).width / aggregation(k).heads, from = head * wide;
  const bool above = is_above(source.t, row.shift[head]);
  const float weight = share_of(k, row, head, source, above);
  std::int64_t* sums = (above ? row.above : row.below) + from;
  std::int64_t& total = (above ? row.above_total : row.below_total)[head];
  const auto accumulate = kAdd ? kernels_.add_head : kernels_.sub_head;
  if (!accumulate(sums, message + from, weight, scales_[at(k)].up.data() + from, limit_, wide)) out_of_range(k, v);
  const std::int64_t amount = std::llrint(std::ldexp(static_cast<double>(weight), total_bits()));
  total += kAdd ? amount : -amount;
}

template <typename Acc>
float EngineImpl<Acc>::share_of(int k, const AttentionRow& row, int head, const SourceScore& source, bool above) const {
  const AttentionTables& tables = attention_factors_[at(aggregation(k).attention)];
  const std::int32_t distance = (above ? row.top[head] : row.low[head]) - source.bin;
  if (distance >= kBinsKept) {
    if (above) return 0.0f;
    const double far = -static_cast<double>(attention(k).slope) * static_cast<double>(kBinWidth) * distance;
    return source.below * static_cast<float>(exact_exp(far));
  }
  return above ? source.above * tables.above[at(distance)] : source.below * tables.below[at(distance)];
}

template <typename Acc>
SourceScore EngineImpl<Acc>::score_of(int k, const State<Acc>& state, VertexId u, int head) const {
  const float t = state.stored[at(attention(k).source_table)].row(u)[head];
  return SourceScore::of(t, attention(k).slope);
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
  const AttentionSpec& attend = attention(k);
  const StoredRows& scores = state.stored[at(attend.source_table)];
  const StoredRows& messages = state.stored[at(attend.message_table)];
  const int wide = aggregation(k).width / aggregation(k).heads;
  std::vector<int> heads;
  for (int head = 0; head < aggregation(k).heads; ++head) {
    if (row.holders[head] != kStale) continue;
    heads.push_back(head);
    row.holders[head] = 0;
    row.top[head] = row.low[head] = 0;
    std::fill_n(row.above + head * wide, wide, 0);
    std::fill_n(row.below + head * wide, wide, 0);
    row.above_total[head] = row.below_total[head] = 0;
  }
  if (heads.empty()) return 0;
  visit_heard(k, v, [&](VertexId u, VertexId ahead) {
    if (ahead != kNoVertex) scores.prefetch(ahead);
    const float* t = scores.row(u);
    for (const int head : heads) {
      check_score(k, t[head], u);
      const std::int32_t bin = bin_of(t[head]);
      if (row.holders[head] == 0 || bin > row.top[head]) {
        row.top[head] = bin;
        row.holders[head] = 1;
      } else if (bin == row.top[head]) {
        ++row.holders[head];
      }
    }
  });
  for (const int head : heads) {
    if (row.holders[head] > 0) row.low[head] = std::min(row.top[head], bin_of(-row.shift[head]));
  }
  std::int64_t read = 0;
  visit_heard(k, v, [&](VertexId u, VertexId ahead) {
    if (ahead != kNoVertex) messages.prefetch(ahead);
    for (const int head : heads) {
      const float t = scores.row(u)[head];
      const SourceScore source = SourceScore::for_side(t, attend.slope, is_above(t, row.shift[head]));
      add_share<true>(k, row, head, source, messages.row(u), v);
    }
    ++read;
  });
  return read;
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
    row.shift[head] = s[head];
    row.holders[head] = kStale;
  }
  sum_stale_heads(k, state, v, row);
}

template <typename Acc>
void EngineImpl<Acc>::attend_edge(int k, const EdgeRecord& edge, int sign) {
  const AttentionSpec& attend = attention(k);
  if (edge.src == edge.dst && (attend.skip_loops || attend.own_loop)) return;
  const AttentionRow row = open_attention(k, edge.dst, 0);
  const float* message = state_.stored[at(attend.message_table)].row(edge.src);
  for (int head = 0; head < aggregation(k).heads; ++head) {
    const SourceScore source = score_of(k, state_, edge.src, head);
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
  float* message_before;
  float* message;

  static int stride(int width, int heads) {  // in int64, as deltas of a plan are
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

// A target's share of a moved source.
template <typename Acc>
void EngineImpl<Acc>::replace_source(int k, VertexId v, const std::int64_t* delta, int thread) {
  const int width = aggregation(k).width, heads = aggregation(k).heads, wide = width / heads;
  const MovedSource source = MovedSource::of(const_cast<std::int64_t*>(delta), width, heads);
  const AttentionRow row = open_attention(k, v, thread);
  for (int head = 0; head < heads; ++head) {
    if (source.moved[head] == 0 || row.holders[head] == kStale) continue;
    const SourceScore &before = source.before[head], &now = source.now[head];
    const bool above = is_above(now.t, row.shift[head]);
    const bool plain = before.bin == now.bin && above == is_above(before.t, row.shift[head]);
    if (!plain) {
      move_head<false>(k, row, head, before, source.message_before, v);
      move_head<true>(k, row, head, now, source.message, v);
      continue;
    }
    const float weight_before = share_of(k, row, head, before, above), weight = share_of(k, row, head, now, above);
    const int from = head * wide;
    std::int64_t* sums = (above ? row.above : row.below) + from;
    if (!kernels_.replace_head(sums, source.message_before + from, weight_before, source.message + from, weight,
                               scales_[at(k)].up.data() + from, limit_, wide))
      out_of_range(k, v);
    (above ? row.above_total : row.below_total)[head] +=
        std::llrint(std::ldexp(static_cast<double>(weight), total_bits())) -
        std::llrint(std::ldexp(static_cast<double>(weight_before), total_bits()));
  }
}

// The plan of a push: what each moved source was and is.
template <typename Acc>
void EngineImpl<Acc>::plan_moved_sources(int k) {
  const AttentionSpec& attend = attention(k);
  const int width = aggregation(k).width, wide = width / aggregation(k).heads;
  Plan& plan = plans_[at(k)];
  plan.path = Path::Push;
  plan.sources = moved_sources_[at(k)].collect();
  plan.changed.assign(plan.sources.size(), 0);
  plan.stride = MovedSource::stride(width, aggregation(k).heads);
  plan.deltas.need(plan.sources.size() * at(plan.stride));
  const StoredRows& scores = state_.stored[at(attend.source_table)];
  const StoredRows& messages = state_.stored[at(attend.message_table)];
  const auto run = [&](std::int64_t i) {
    const VertexId u = plan.sources[at(i)];
    const MovedSource source =
        MovedSource::of(plan.deltas.data() + i * std::int64_t{plan.stride}, width, aggregation(k).heads);
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
      source.before[head] = SourceScore::of(t_before[head], attend.slope);
      source.now[head] = SourceScore::of(t, attend.slope);
    }
  };
  in_shares(static_cast<std::int64_t>(plan.sources.size()), kSourcesPerTask,
            [&](std::int64_t first, std::int64_t last, int) {
              for (std::int64_t i = first; i < last; ++i) run(i);
            });
  stats_[at(aggregation(k).stage)].edges += out_edges(plan.sources);
  stats_[at(aggregation(k).stage)].path = Path::Push;
}

// s_v has moved: sources between the old and the new border change sides. Where the lower side's reference moves along,
// or the constrained strategy asks for it, the head is summed again.
template <typename Acc>
std::int64_t EngineImpl<Acc>::move_target(int k, VertexId v, const AttentionRow& row) {
  const AttentionSpec& attend = attention(k);
  const StoredRows& scores = state_.stored[at(attend.source_table)];
  const StoredRows& messages = state_.stored[at(attend.message_table)];
  const float* s = state_.stored[at(attend.target_table)].row(v);
  struct Border {
    int head;
    float before, now;
  };
  std::vector<Border> borders;
  for (int head = 0; head < aggregation(k).heads; ++head) {
    const float before = row.shift[head];
    if (std::memcmp(&before, &s[head], sizeof(float)) == 0) continue;
    check_score(k, s[head], v);
    row.shift[head] = s[head];
    if (row.holders[head] == kStale || row.holders[head] == 0) continue;
    const bool reference_moves = std::min(row.top[head], bin_of(-s[head])) != row.low[head];
    if (options_.constrained || reference_moves) {
      row.holders[head] = kStale;
    } else {
      borders.push_back({head, before, s[head]});
    }
  }
  if (borders.empty()) return 0;
  std::int64_t scanned = 0;
  visit_heard(k, v, [&](VertexId u, VertexId ahead) {
    if (ahead != kNoVertex) scores.prefetch(ahead);
    ++scanned;
    const float* t = scores.row(u);
    for (const Border& border : borders) {
      if (is_above(t[border.head], border.before) == is_above(t[border.head], border.now)) continue;
      const SourceScore source = SourceScore::of(t[border.head], attend.slope);
      row.shift[border.head] = border.before;
      add_share<false>(k, row, border.head, source, messages.row(u), v);
      row.shift[border.head] = border.now;
      add_share<true>(k, row, border.head, source, messages.row(u), v);
    }
  });
  return scanned;
}

template <typename Acc>
void EngineImpl<Acc>::attend(int k) {
  const AggregationSpec& spec = aggregation(k);
  VertexSet& touched = touched_[at(k)].set;
  plan_moved_sources(k);
  push(k, false);
  if (restricted_) touched.keep([&](VertexId v) { return wants(k, v); });
  const std::vector<VertexId>& rows = touched.collect();
  std::vector<std::int64_t> scanned(at(pool_.threads()), 0), reread(at(pool_.threads()), 0);
  const auto settle = [&](VertexId v, int thread) {
    const AttentionRow row = open_attention(k, v, thread);
    scanned[at(thread)] += move_target(k, v, row);
    reread[at(thread)] += sum_stale_heads(k, state_, v, row);
    mark_consumers(spec.consumers, v, thread);
  };
  in_shares(static_cast<std::int64_t>(rows.size()), kRowsPerTask,
            [&](std::int64_t first, std::int64_t last, int thread) {
              for (std::int64_t i = first; i < last; ++i) settle(rows[at(i)], thread);
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
