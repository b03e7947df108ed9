// Minima and maxima (InkStream, section 2.5, column by column). A row keeps the best message of each column and the
// next best, or a bound on either where it has left (docs/extremes.md). So a column is exposed only when both have
// left, and ties cost nothing. Removals and insertions of a batch may come in any order: an exposed column keeps a
// bound, a later message that reaches the bound covers it, and what is exposed in the end is read again, in blocks of
// one cache line.
//
// The best message is a function of the graph. The next best is a cache: it may be known or only bounded, depending on
// what came before, and neither digest() nor any output looks at it.
#include <algorithm>
#include <cstring>

#include "inference/operators/select_operator.h"

namespace livegnn {

namespace {

constexpr int kBlock = 16;  // columns of a cache line, and of one MinMaxMasks
constexpr std::int32_t kTermsAhead = 8;
constexpr std::uint8_t kDeletion = 64;  // joins the MinMaxFlags

struct Run {  // neighbouring blocks of columns
  int first, width;
  int blocks() const { return (width + kBlock - 1) / kBlock; }
};

class MinMax final : public SelectOperator<MinMax> {
 public:
  MinMax(Workspace& work, int k)
      : SelectOperator(work, k, facts_of(work.aggregation(k).width)),
        row_kernels_(spec_.reduce == Reduce::Max ? work.kernels.max : work.kernels.min),
        counts_(at(work.options.threads)) {}

  bool agrees(const std::int64_t* live, const std::int64_t* fresh) const override;

 private:
  friend class MessageOperator<MinMax>;
  friend class SelectOperator<MinMax>;
  // Best and next, then the masks.
  static Facts facts_of(int width) {
    const int padded = round_up(width, kBlock);
    const std::size_t masks = at(padded / kBlock) * sizeof(MinMaxMasks);
    const std::size_t bytes = 2 * at(padded) * sizeof(float) + (masks + kCacheLine - 1) / kCacheLine * kCacheLine;
    return {.stride = static_cast<int>(bytes / sizeof(std::int64_t)),
            .value_bytes = at(width) * sizeof(float),
            .floats = true,
            .dear = true};
  }
  MinMaxRow row_at(std::int64_t* memory) const {
    const int padded = round_up(spec_.width, kBlock);
    auto* best = reinterpret_cast<float*>(memory);
    return {best, best + padded, reinterpret_cast<MinMaxMasks*>(best + 2 * padded)};
  }
  static MinMaxRow part_of(const MinMaxRow& row, const Run& run) {
    return {row.best + run.first, row.next + run.first, row.masks + run.first / kBlock};
  }
  void note(VertexId v, int flags);
  void accumulate(std::int64_t* row, const float* x, float factor, float edge, VertexId v) const {
    const int flags = row_kernels_.insert(row_at(row), x, factor, edge, spec_.width);
    if ((flags & MinMaxFlag::kNotFinite) != 0) work_.not_finite(k_, v);
  }
  void insert(VertexId v, const float* x, float factor, float edge, int thread) {
    note(v, row_kernels_.insert(row_at(open(v, thread)), x, factor, edge, spec_.width));
  }
  void remove(VertexId v, const float* x, float factor, float edge, int thread) {
    note(v, row_kernels_.remove(row_at(open(v, thread)), x, factor, edge, spec_.width) | kDeletion);
  }
  void replace(VertexId v, const float* before, const float* now, float edge, int thread) {
    note(v, row_kernels_.replace(row_at(open(v, thread)), before, now, edge, spec_.width) | kDeletion);
  }
  std::vector<Run> exposed(const MinMaxRow& row) const;
  std::int64_t reread_exposed(VertexId v, bool* value_changed, int thread);
  bool rereads(VertexId v) const { return (flags_[at(v)] & MinMaxFlag::kExposed) != 0; }
  std::int64_t settle_row(VertexId v, int thread);
  void begun() { std::fill(counts_.begin(), counts_.end(), MinMaxStats{}); }  // of a batch that failed
  void settled();

  const MinMaxKernels& row_kernels_;
  std::vector<MinMaxStats> counts_;  // per thread
};

void MinMax::note(VertexId v, int flags) {
  if ((flags & MinMaxFlag::kNotFinite) != 0) work_.not_finite(k_, v);
  flags_[at(v)] |= static_cast<std::uint8_t>(flags);
}

// The blocks of a row that have an exposed column.
std::vector<Run> MinMax::exposed(const MinMaxRow& row) const {
  std::vector<Run> runs;
  for (int block = 0; block < round_up(spec_.width, kBlock) / kBlock; ++block) {
    if (row.masks[block].open_best == 0) continue;
    const int width = std::min(kBlock, spec_.width - block * kBlock);
    if (!runs.empty() && runs.back().first + runs.back().width == block * kBlock) {
      runs.back().width += width;
    } else {
      runs.push_back({block * kBlock, width});
    }
  }
  return runs;
}

// Reads the exposed blocks of v's row again. Returns the bytes of messages read.
std::int64_t MinMax::reread_exposed(VertexId v, bool* value_changed, int thread) {
  const MinMaxRow row = row_at(table().row(v)), fresh = row_at(work_.row_scratch[at(thread)].need(at(stride())));
  const std::vector<Run> runs = exposed(row);
  if (runs.empty()) return 0;
  int blocks = 0;
  for (const Run& run : runs) {
    const MinMaxRow part = part_of(fresh, run);
    std::fill_n(part.best, round_up(run.width, kBlock), 0.0f);
    std::fill_n(part.next, round_up(run.width, kBlock), 0.0f);
    std::fill_n(part.masks, run.blocks(), MinMaxMasks{});
    blocks += run.blocks();
  }
  std::int64_t sources = 0;
  const auto take = [&](const float* x, float factor, float edge) {
    for (const Run& run : runs) row_kernels_.insert(part_of(fresh, run), x + run.first, factor, edge, run.width);
    ++sources;
  };
  const MessageRows sent = messages(work_.state);
  const auto ask = [&](VertexId u) {
    for (const Run& run : runs) sent.prefetch(u, run.first, run.width);
  };
  fetch_first(flow_, v, ask);
  visit_counted_in(flow_, filter_, v, [&](const EdgeSpan& span, std::int32_t i) {
    if (i + kTermsAhead < span.count) ask(span.neighbours[i + kTermsAhead]);
    const VertexId u = span.neighbours[i];
    take(sent.row(u), source_factor(work_.state, u), spec_.weighted ? weight_of(span, i) : 1.0f);
  });
  if (spec_.root == Root::Message) take(sent.row(v), source_factor(work_.state, v), root_factor(work_.state, v));
  for (const Run& run : runs) {
    const MinMaxRow to = part_of(row, run), from = part_of(fresh, run);
    const std::size_t bytes = at(round_up(run.width, kBlock)) * sizeof(float);
    *value_changed |= std::memcmp(to.best, from.best, bytes) != 0;
    std::memcpy(to.best, from.best, bytes);
    std::memcpy(to.next, from.next, bytes);
    std::copy_n(from.masks, run.blocks(), to.masks);
  }
  return sources * blocks * kBlock * static_cast<std::int64_t>(sizeof(float));
}

// Rows whose values differ go on. The others, InkStream's resilient vertices, end here.
std::int64_t MinMax::settle_row(VertexId v, int thread) {
  const std::uint8_t flags = flags_[at(v)];
  bool changed = (flags & MinMaxFlag::kValueChanged) != 0;
  const std::int64_t bytes = rereads(v) ? reread_exposed(v, &changed, thread) : 0;
  counts_[at(thread)].count((flags & kDeletion) != 0, (flags & MinMaxFlag::kHolderLeft) != 0, changed, bytes);
  if (changed) work_.mark_consumers(spec_.consumers, v, thread);
  return bytes > 0 ? flow_.in_degree(v) : 0;
}

void MinMax::settled() {
  MinMaxStats& sum = work_.stats[at(spec_.stage)].extremes;
  sum.present = true;
  for (MinMaxStats& count : counts_) sum.add(std::exchange(count, {}));
}

// Whether a row agrees with one from scratch: the same best messages, and nothing false about the next ones.
bool MinMax::agrees(const std::int64_t* live, const std::int64_t* fresh) const {
  const MinMaxRow a = row_at(const_cast<std::int64_t*>(live)), b = row_at(const_cast<std::int64_t*>(fresh));
  if (std::memcmp(a.best, b.best, facts.value_bytes) != 0) return false;
  for (int c = 0; c < spec_.width; ++c) {
    const MinMaxMasks &x = a.masks[c / kBlock], &y = b.masks[c / kBlock];
    const auto bit = [&](std::uint16_t mask) { return ((mask >> (c % kBlock)) & 1) != 0; };
    const bool tied = bit(x.has_next) && bit(x.open_next), fresh_tied = bit(y.has_next) && bit(y.open_next);
    if (bit(x.open_best) || bit(x.has_best) != bit(y.has_best)) return false;
    if (tied) {
      if (!fresh_tied || a.next[c] > b.next[c]) return false;
      continue;
    }
    const bool fresh_second = bit(y.has_next);  // whether there is a second message, and which
    const float second = fresh_tied ? b.best[c] : b.next[c];
    const bool beyond = spec_.reduce == Reduce::Max ? second > a.next[c] : second < a.next[c];
    if (bit(x.has_next) && !(fresh_second && a.next[c] == second)) return false;
    if (bit(x.open_next) && fresh_second && beyond) return false;
    if (!bit(x.has_next) && !bit(x.open_next) && fresh_second) return false;
  }
  return true;
}

}  // namespace

OperatorKind min_max() {
  return {[](const Program&, const AggregationSpec& spec) {
            return spec.reduce == Reduce::Max || spec.reduce == Reduce::Min;
          },
          make<MinMax>};
}

}  // namespace livegnn
