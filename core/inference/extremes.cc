// Minima and maxima (InkStream, section 2.5, column by column). A row keeps the best message of each column and the
// next best, so a column is exposed only when both have left, and ties cost nothing. Removals and insertions of a batch
// may come in any order: an exposed column keeps a bound, a later message that reaches the bound covers it, and what is
// exposed in the end is read again, in blocks of one cache line.
//
// The best message is a function of the graph. The next best is a cache: it may be known or only bounded, depending on
// what came before, and neither digest() nor any output looks at it.
#include <algorithm>
#include <cstring>

#include "inference/terms.h"

namespace livegnn {

namespace {

constexpr int kBlock = 16;  // columns of a cache line, and of one ExtremeMasks
constexpr std::int64_t kRowsPerTask = 16;
constexpr int kSourcesAhead = 8;
constexpr std::uint8_t kDeletion = 64;  // beside the ExtremeFlags

}  // namespace

// The row of v, about to change.
template <typename Acc>
ExtremeRow EngineImpl<Acc>::open_extreme(int k, VertexId v, int thread) {
  if (journal_.on()) [[unlikely]]
    journal_.save_aggregate(state_, k, v, thread);
  Touched& touched = touched_[at(k)];
  if (touched.set.add(v, thread)) touched.flags[at(v)] = 0;
  return extreme_row(state_.aggregates[at(k)].row(v), aggregation(k));
}

template <typename Acc>
void EngineImpl<Acc>::note_extreme(int k, VertexId v, int flags) {
  if ((flags & ExtremeFlag::kNotFinite) != 0) not_finite(k, v);
  touched_[at(k)].flags[at(v)] |= static_cast<std::uint8_t>(flags);
}

template <typename Acc>
void EngineImpl<Acc>::insert_extreme(int k, VertexId v, const float* x, float factor, float edge, int thread) {
  const AggregationSpec& spec = aggregation(k);
  note_extreme(k, v, extremes(spec).insert(open_extreme(k, v, thread), x, factor, edge, spec.width));
}

template <typename Acc>
void EngineImpl<Acc>::remove_extreme(int k, VertexId v, const float* x, float factor, float edge, int thread) {
  const AggregationSpec& spec = aggregation(k);
  note_extreme(k, v, extremes(spec).remove(open_extreme(k, v, thread), x, factor, edge, spec.width) | kDeletion);
}

template <typename Acc>
void EngineImpl<Acc>::replace_extreme(int k, VertexId v, const float* before, const float* now, float edge,
                                      int thread) {
  const AggregationSpec& spec = aggregation(k);
  note_extreme(k, v, extremes(spec).replace(open_extreme(k, v, thread), before, now, edge, spec.width) | kDeletion);
}

// Reads the blocks of v's row that have an exposed column again. Returns the bytes of messages read.
template <typename Acc>
std::int64_t EngineImpl<Acc>::reread_exposed(int k, VertexId v, bool* value_changed, int thread) {
  const AggregationSpec& spec = aggregation(k);
  const int padded = round_up(spec.width, kBlock);
  const ExtremeRow row = extreme_row(state_.aggregates[at(k)].row(v), spec);
  const ExtremeRow fresh = extreme_row(row_scratch_[at(thread)].need(at(state_.aggregates[at(k)].stride())), spec);
  struct Run {  // neighbouring blocks
    int first, width;
  };
  std::vector<Run> runs;
  int blocks = 0;
  for (int block = 0; block < padded / kBlock; ++block) {
    if (row.masks[block].open_best == 0) continue;
    const int width = std::min(kBlock, spec.width - block * kBlock);
    ++blocks;
    if (!runs.empty() && runs.back().first + runs.back().width == block * kBlock) {
      runs.back().width += width;
    } else {
      runs.push_back({block * kBlock, width});
    }
  }
  if (runs.empty()) return 0;
  for (const Run& run : runs) {
    std::fill_n(fresh.best + run.first, round_up(run.width, kBlock), 0.0f);
    std::fill_n(fresh.next + run.first, round_up(run.width, kBlock), 0.0f);
    std::fill_n(fresh.masks + run.first / kBlock, (run.width + kBlock - 1) / kBlock, ExtremeMasks{});
  }
  std::int64_t sources = 0;
  const auto insert = extremes(spec).insert;
  const auto take = [&](const float* x, float factor, float edge) {
    for (const Run& run : runs) {
      const ExtremeRow part{fresh.best + run.first, fresh.next + run.first, fresh.masks + run.first / kBlock};
      insert(part, x + run.first, factor, edge, run.width);
    }
    ++sources;
  };
  const MessageRows sent = messages(k, state_);
  const auto ask = [&](VertexId u) {
    for (const Run& run : runs) sent.prefetch(u, run.first, run.width);
  };
  graph_.visit_in(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < std::min(kSourcesAhead, span.count); ++i) ask(span.neighbours[i]);
    for (std::int32_t i = 0; i < span.count; ++i) {
      if (i + kSourcesAhead < span.count) ask(span.neighbours[i + kSourcesAhead]);
      const VertexId u = span.neighbours[i];
      if (spec.self_loops && u == v) continue;
      if (spec.relation >= 0 && span.types[i] != spec.relation) continue;
      const float edge = spec.weighted && span.weights != nullptr ? span.weights[i] : 1.0f;
      take(sent.row(u), source_factor(k, state_, u), edge);
    }
  });
  if (spec.root == Root::Message) take(sent.row(v), source_factor(k, state_, v), root_factor(k, state_, v));
  for (const Run& run : runs) {
    const std::size_t bytes = at(round_up(run.width, kBlock)) * sizeof(float);
    *value_changed |= std::memcmp(row.best + run.first, fresh.best + run.first, bytes) != 0;
    std::memcpy(row.best + run.first, fresh.best + run.first, bytes);
    std::memcpy(row.next + run.first, fresh.next + run.first, bytes);
    std::copy_n(fresh.masks + run.first / kBlock, (run.width + kBlock - 1) / kBlock, row.masks + run.first / kBlock);
  }
  return sources * blocks * kBlock * static_cast<std::int64_t>(sizeof(float));
}

// Rows that will be read again, in a compact state.
template <typename Acc>
void EngineImpl<Acc>::derive_exposed(int k, const std::vector<VertexId>& rows) {
  std::vector<VertexId> sources;
  for (const VertexId v : rows) {
    if ((touched_[at(k)].flags[at(v)] & ExtremeFlag::kExposed) == 0) continue;
    sources.push_back(v);
    graph_.visit_in(
        v, [&](const EdgeSpan& span) { sources.insert(sources.end(), span.neighbours, span.neighbours + span.count); });
  }
  derive_rows(aggregation(k).stage, sources);
}

// After the last change of the batch: exposed columns are read again, and rows whose values differ go on. The others,
// InkStream's resilient vertices, end here.
template <typename Acc>
void EngineImpl<Acc>::settle_extremes(int k) {
  const AggregationSpec& spec = aggregation(k);
  Touched& touched = touched_[at(k)];
  const std::vector<VertexId>& rows = touched.set.collect();
  if (compact() && spec.message_table >= 0) derive_exposed(k, rows);
  std::vector<ExtremeStats> counts(at(pool_.threads()));
  std::vector<std::int64_t> reread(at(pool_.threads()), 0);
  const auto settle = [&](VertexId v, int thread) {
    const std::uint8_t flags = touched.flags[at(v)];
    bool changed = (flags & ExtremeFlag::kValueChanged) != 0;
    const std::int64_t bytes = (flags & ExtremeFlag::kExposed) != 0 ? reread_exposed(k, v, &changed, thread) : 0;
    if (bytes > 0) reread[at(thread)] += graph_.in_degree(v);
    counts[at(thread)].count((flags & kDeletion) != 0, (flags & ExtremeFlag::kHolderLeft) != 0, changed, bytes);
    if (changed) mark_consumers(spec.consumers, v, thread);
  };
  in_shares(static_cast<std::int64_t>(rows.size()), kRowsPerTask,
            [&](std::int64_t first, std::int64_t last, int thread) {
              for (std::int64_t i = first; i < last; ++i) settle(rows[at(i)], thread);
            });
  ExtremeStats& sum = stats_[at(spec.stage)].extremes;
  sum.present = true;
  for (const ExtremeStats& count : counts) sum.add(count);
  for (const std::int64_t edges : reread) count_reread(spec.stage, edges);
}

// Whether a row agrees with one from scratch: the same best messages, and nothing false about the next ones.
template <typename Acc>
bool EngineImpl<Acc>::extreme_agrees(int k, const Acc* live, const Acc* fresh) const {
  const AggregationSpec& spec = aggregation(k);
  const ExtremeRow a = extreme_row(const_cast<Acc*>(live), spec), b = extreme_row(const_cast<Acc*>(fresh), spec);
  if (std::memcmp(a.best, b.best, at(spec.width) * sizeof(float)) != 0) return false;
  for (int c = 0; c < spec.width; ++c) {
    const ExtremeMasks &x = a.masks[c / kBlock], &y = b.masks[c / kBlock];
    const auto bit = [&](std::uint16_t mask) { return ((mask >> (c % kBlock)) & 1) != 0; };
    const bool tied = bit(x.has_next) && bit(x.open_next), fresh_tied = bit(y.has_next) && bit(y.open_next);
    if (bit(x.open_best) || bit(x.has_best) != bit(y.has_best)) return false;
    if (tied) {
      if (!fresh_tied || a.next[c] > b.next[c]) return false;
      continue;
    }
    const bool fresh_second = bit(y.has_next);  // whether there is a second message, and which
    const float second = fresh_tied ? b.best[c] : b.next[c];
    const bool beyond = spec.reduce == Reduce::Max ? second > a.next[c] : second < a.next[c];
    if (bit(x.has_next) && !(fresh_second && a.next[c] == second)) return false;
    if (bit(x.open_next) && fresh_second && beyond) return false;
    if (!bit(x.has_next) && !bit(x.open_next) && fresh_second) return false;
  }
  return true;
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
