// Medians, column by column; of an even number of messages the lower one (torch_geometric.nn.aggr.MedianAggregation).
// A column keeps a window of neighbouring messages in sorted order around the median, and how many lie below it. A
// message that comes or leaves moves the window's place or is put into it; only when the median has left the window
// are the in-edges read again. A hub's column is so read once in several crossings, not with every one.
//
// The median is a function of the graph. The window is a cache: where it ends depends on what came before.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "inference/operators/select_operator.h"

namespace livegnn {

namespace {

struct Window {
  static constexpr int kPlaces = 6;
  std::int32_t below, held;  // messages in front of the window, and in it; none in it of some: not known
  float sorted[kPlaces];

  // Whether the median of n messages is in the window.
  bool has_median(std::int64_t n) const {
    const std::int64_t place = (n - 1) / 2 - below;
    return held > 0 && place >= 0 && place < held;
  }
  float median(std::int64_t n) const { return sorted[(n - 1) / 2 - below]; }

  void insert(float x, std::int64_t n) {  // to n messages
    if (held == 0 && n > 0) return;
    if (held == 0) below = 0;
    const bool under = held > 0 && x < sorted[0], over = held > 0 && x >= sorted[held - 1];
    const bool full = held == kPlaces;
    if (under && (below > 0 || full)) {
      ++below;
      return;
    }
    if (over && (below + held < n || full)) return;
    const int at_place = static_cast<int>(std::upper_bound(sorted, sorted + held, x) - sorted);
    if (full && n / 2 - below > kPlaces / 2) {  // the smallest makes room
      std::copy(sorted + 1, sorted + at_place, sorted);
      sorted[at_place - 1] = x;
      ++below;
      return;
    }
    std::copy_backward(sorted + at_place, sorted + held - (full ? 1 : 0), sorted + held + (full ? 0 : 1));
    sorted[at_place] = x;
    held += full ? 0 : 1;
  }

  void remove(float x) {
    if (held == 0 || x > sorted[held - 1]) return;
    if (x < sorted[0]) {
      --below;
      return;
    }
    float* found = std::lower_bound(sorted, sorted + held, x);
    invariant(*found == x, "a message left a median that it was not part of");
    std::copy(found + 1, sorted + held, found);
    --held;
  }

  void select(std::vector<float>& all) {  // of all messages; their order is lost
    const auto n = static_cast<std::int64_t>(all.size());
    const std::int64_t middle = (n - 1) / 2 - (kPlaces - 1) / 2;
    below = static_cast<std::int32_t>(std::clamp<std::int64_t>(middle, 0, std::max<std::int64_t>(0, n - kPlaces)));
    held = static_cast<std::int32_t>(std::min<std::int64_t>(n, kPlaces));
    std::nth_element(all.begin(), all.begin() + below, all.end());
    std::partial_sort(all.begin() + below, all.begin() + below + held, all.end());
    std::copy_n(all.begin() + below, held, sorted);
  }
};

// Medians, which the next stage reads; the number of messages; the windows.
struct MedianRow {
  float* value;
  std::int64_t* count;
  Window* windows;

  static std::size_t bytes(int width) {
    const std::size_t bytes =
        at(round_up(width, 16)) * sizeof(float) + sizeof(std::int64_t) + at(width) * sizeof(Window);
    return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  }
  static MedianRow of(std::int64_t* memory, int width) {
    auto* value = reinterpret_cast<float*>(memory);
    auto* count = reinterpret_cast<std::int64_t*>(value + round_up(width, 16));
    return {value, count, reinterpret_cast<Window*>(count + 1)};
  }
};

class Median final : public SelectOperator<Median> {
 public:
  Median(Workspace& work, int k) : SelectOperator(work, k, facts_of(work.aggregation(k).width)) {}

  bool agrees(const std::int64_t* live, const std::int64_t* fresh) const override;

 private:
  friend class MessageOperator<Median>;
  friend class SelectOperator<Median>;
  static Facts facts_of(int width) {
    return {.stride = static_cast<int>(MedianRow::bytes(width) / sizeof(std::int64_t)),
            .value_bytes = at(width) * sizeof(float),
            .floats = true,
            .dear = true};
  }
  MedianRow row_at(const std::int64_t* memory) const {
    return MedianRow::of(const_cast<std::int64_t*>(memory), spec_.width);
  }
  float term(const float* x, int c, float factor, float edge, VertexId v) const {
    const float term = x[c] * factor * edge + 0.0f;  // one zero
    if (!std::isfinite(term)) work_.not_finite(k_, v);
    return term;
  }

  void accumulate(std::int64_t* memory, const float* x, float factor, float edge, VertexId v) const;
  void finish_row(std::int64_t* memory) const;
  void insert(VertexId v, const float* x, float factor, float edge, int thread);
  void remove(VertexId v, const float* x, float factor, float edge, int thread);
  void replace(VertexId v, const float* before, const float* now, float edge, int thread) {
    remove(v, before, 1.0f, edge, thread);
    insert(v, now, 1.0f, edge, thread);
  }
  bool rereads(VertexId v) const;
  std::int64_t settle_row(VertexId v, int thread);
  static void begun() {}
  static void settled() {}

  static thread_local std::vector<float> terms_, column_;  // of a row that is made from scratch
};

thread_local std::vector<float> Median::terms_, Median::column_;

void Median::accumulate(std::int64_t* memory, const float* x, float factor, float edge, VertexId v) const {
  if ((*row_at(memory).count)++ == 0) terms_.clear();
  for (int c = 0; c < spec_.width; ++c) terms_.push_back(term(x, c, factor, edge, v));
}

// Selects the medians that are not in their windows yet.
void Median::finish_row(std::int64_t* memory) const {
  const MedianRow row = row_at(memory);
  const auto width = at(spec_.width);
  for (int c = 0; *row.count > 0 && c < spec_.width; ++c) {
    if (row.windows[c].has_median(*row.count)) continue;
    column_.clear();
    for (std::size_t i = at(c); i < terms_.size(); i += width) column_.push_back(terms_[i]);
    row.windows[c].select(column_);
  }
  for (int c = 0; c < spec_.width; ++c) row.value[c] = *row.count > 0 ? row.windows[c].median(*row.count) : 0.0f;
}

void Median::insert(VertexId v, const float* x, float factor, float edge, int thread) {
  const MedianRow row = row_at(open(v, thread));
  for (int c = 0; c < spec_.width; ++c) row.windows[c].insert(term(x, c, factor, edge, v), *row.count);
  ++*row.count;
}

void Median::remove(VertexId v, const float* x, float factor, float edge, int thread) {
  const MedianRow row = row_at(open(v, thread));
  for (int c = 0; c < spec_.width; ++c) row.windows[c].remove(term(x, c, factor, edge, v));
  --*row.count;
}

// It has lost a median.
bool Median::rereads(VertexId v) const {
  const MedianRow row = row_at(table().row(v));
  const auto known = [&](const Window& window) { return window.has_median(*row.count); };
  return *row.count > 0 && !std::all_of(row.windows, row.windows + spec_.width, known);
}

std::int64_t Median::settle_row(VertexId v, int thread) {
  std::int64_t* memory = table().row(v);
  const MedianRow row = row_at(memory);
  thread_local std::vector<float> before;
  before.assign(row.value, row.value + spec_.width);
  std::int64_t reread = 0;
  if (rereads(v)) {
    reread = std::exchange(*row.count, 0);
    accumulate_in_edges(work_.state, v, memory, [](EdgeId, VertexId) { return 1.0f; });
    accumulate_root(work_.state, v, memory);
  }
  finish_row(memory);
  if (std::memcmp(before.data(), row.value, facts.value_bytes) != 0) work_.mark_consumers(spec_.consumers, v, thread);
  return reread;
}

// Whether a row agrees with one from scratch: the same medians, and the same message at each place of both windows.
bool Median::agrees(const std::int64_t* live, const std::int64_t* fresh) const {
  const MedianRow a = row_at(live), b = row_at(fresh);
  if (std::memcmp(a.value, b.value, facts.value_bytes) != 0 || *a.count != *b.count) return false;
  for (int c = 0; *a.count > 0 && c < spec_.width; ++c) {
    const Window &x = a.windows[c], &y = b.windows[c];
    if (!x.has_median(*a.count)) return false;
    for (std::int32_t i = std::max(x.below, y.below); i < std::min(x.below + x.held, y.below + y.held); ++i) {
      if (x.sorted[i - x.below] != y.sorted[i - y.below]) return false;
    }
  }
  return true;
}

}  // namespace

OperatorKind median() {
  return {[](const Program&, const AggregationSpec& spec) { return spec.reduce == Reduce::Median; }, make<Median>};
}

}  // namespace livegnn
