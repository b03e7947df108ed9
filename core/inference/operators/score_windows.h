// The in-edges of an attention's target whose scores are next to the threshold between its two sides. Where the
// threshold moves within what is listed, only listed sources can change sides, and no others are looked at. What is
// listed follows from the graph and from nothing else, but which part of it is cached depends on history: windows are a
// cache, not state, and no digest or output reads them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "inference/vertex_lists.h"
#include "livegnn/detail/prefetch.h"
#include "livegnn/error.h"
#include "livegnn/types.h"

namespace livegnn {

struct ScoredSource {
  float t;
  VertexId u;
};

// Of one head of one target: every in-edge with low < t < high, an entry each, in no order.
struct ScoreWindow {
  static constexpr int kPlaces = 64;

  float low = kNone, high = -kNone;
  std::int32_t count = 0;
  ScoredSource listed[kPlaces];

  bool known() const { return low < high; }
  // Whether a threshold may come here from another such place by what is listed alone.
  bool spans(float threshold) const { return low <= threshold && threshold < high; }
  void forget() {
    low = kNone;
    high = -kNone;
    count = 0;
  }
  void insert(float t, VertexId u, float threshold) {
    while (holds(t) && count == kPlaces) narrow(threshold);
    if (holds(t)) listed[count++] = {t, u};
  }
  void remove(float t, VertexId u) {
    if (!holds(t)) return;
    int place = 0;
    while (place < count && (listed[place].u != u || listed[place].t != t)) ++place;
    invariant(place < count, "an in-edge within a window is listed");
    listed[place] = listed[--count];
  }
  void replace(float before, float now, VertexId u, float threshold) {
    remove(before, u);
    insert(now, u, threshold);
  }

 private:
  static constexpr float kNone = std::numeric_limits<float>::infinity();

  bool holds(float t) const { return low < t && t < high; }
  // Gives up the outermost score of the side that has more of them.
  void narrow(float threshold) {
    const auto above = std::count_if(listed, listed + count, [&](const ScoredSource& s) { return s.t > threshold; });
    const bool from_above = 2 * above > count;
    float outermost = from_above ? -kNone : kNone;
    for (int i = 0; i < count; ++i)
      outermost = from_above ? std::max(outermost, listed[i].t) : std::min(outermost, listed[i].t);
    (from_above ? high : low) = outermost;
    count = static_cast<std::int32_t>(
        std::remove_if(listed, listed + count, [&](const ScoredSource& s) { return !holds(s.t); }) - listed);
  }
};

// Finds the window around a threshold while all in-edges go by.
class WindowFinder {
 public:
  static constexpr int kPerSide = 24;  // entries that a new window has, where there are as many: room for more

  void begin(float threshold) {
    threshold_ = threshold;
    for (Side* side : {&above_, &below_}) {
      side->bound = std::numeric_limits<float>::infinity();
      side->nearest.clear();
    }
  }
  void offer(float t, VertexId u) {
    const bool is_above = t > threshold_;
    Side& side = is_above ? above_ : below_;
    const float distance = is_above ? t : -t;  // grows away from the threshold
    if (distance >= side.bound) return;
    side.nearest.push_back({distance, u});
    if (side.nearest.size() >= 4 * kPerSide) side.cut();
  }
  void finish(ScoreWindow& window) {
    window.count = 0;
    for (Side* side : {&above_, &below_}) {
      if (side->nearest.size() > kPerSide) side->cut();
      for (const ScoredSource& s : side->nearest) window.listed[window.count++] = {side == &above_ ? s.t : -s.t, s.u};
    }
    window.high = above_.bound;
    window.low = -below_.bound;
  }

 private:
  struct Side {
    float bound;  // everything nearer is in the list
    std::vector<ScoredSource> nearest;
    void cut() {
      const auto nearer = [](const ScoredSource& a, const ScoredSource& b) { return a.t < b.t; };
      std::nth_element(nearest.begin(), nearest.begin() + kPerSide, nearest.end(), nearer);
      bound = nearest[kPerSide].t;
      std::erase_if(nearest, [&](const ScoredSource& s) { return s.t >= bound; });
    }
  };
  float threshold_ = 0.0f;
  Side above_, below_;
};

// The windows of one attention's targets, those that have any; none before prepare().
class ScoreWindowTable {
 public:
  // No windows are made beyond bytes_max.
  void prepare(std::int64_t slots, int heads, std::size_t bytes_max) {
    heads_ = at(heads);
    made_max_ = static_cast<std::int64_t>(bytes_max / window_bytes());
    reserve_places(windows_, slots);
  }
  // Windows of v's heads, or null. Threads may ask, make and drop at the same time for different vertices.
  ScoreWindow* find(VertexId v) const { return windows_.empty() ? nullptr : windows_[at(v)].get(); }
  ScoreWindow* make(VertexId v) {
    auto& windows = windows_[at(v)];
    if (windows == nullptr && made_.load(std::memory_order_relaxed) < made_max_) {
      windows = std::make_unique<ScoreWindow[]>(heads_);
      made_.fetch_add(1, std::memory_order_relaxed);
    }
    return windows.get();
  }
  void drop(VertexId v) {
    if (find(v) == nullptr) return;
    windows_[at(v)] = nullptr;
    made_.fetch_sub(1, std::memory_order_relaxed);
  }
  void drop_unknown(VertexId v) {  // where no head's window is known
    const ScoreWindow* windows = find(v);
    if (windows != nullptr && std::none_of(windows, windows + heads_, [](const auto& w) { return w.known(); })) drop(v);
  }
  void clear() {
    windows_.clear();
    made_ = 0;
  }
  void prefetch(VertexId v) const {
    if (!windows_.empty()) prefetch_line(&windows_[at(v)]);
  }
  std::size_t bytes() const { return windows_.capacity() * sizeof(windows_[0]) + at(made_) * window_bytes(); }

 private:
  std::size_t window_bytes() const { return heads_ * sizeof(ScoreWindow); }

  std::size_t heads_ = 1;
  std::atomic<std::int64_t> made_ = 0;  // vertices with windows
  std::int64_t made_max_ = 0;
  std::vector<std::unique_ptr<ScoreWindow[]>> windows_;
};

}  // namespace livegnn
