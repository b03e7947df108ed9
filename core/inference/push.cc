// Deltas of changed messages along their out-edges. Few edges: one thread, in the order of the sources. More: every
// edge goes into the bin of its destination, so that a bin's rows stay in a core's own cache and no two threads touch
// the same row. Before the last stage a bin's rows are finished at once, while they are there.
#include <algorithm>
#include <utility>

#include "inference/terms.h"

namespace livegnn {

namespace {

constexpr std::size_t kSharedBytes = 256 * 1024;  // rows to be touched from which on threads pay
constexpr std::int64_t kBinnedEdges = 4096;       // from which on a bin's locality pays on one thread, too
constexpr int kLeastShift = 6;                    // marks of 64 vertices fill whole cache lines
constexpr std::int64_t kEntriesPerBin = 128;
constexpr std::size_t kBinBytes = 256 * 1024;  // aggregate rows of one bin
constexpr std::int64_t kEarlyEdges = 512;
constexpr int kDistance = 8;  // edges between the prefetch of a row and its use
constexpr std::int32_t kNoSource = -1;

}  // namespace

// What one pushed edge does; everything that does not depend on the edge is looked up once.
template <typename Acc>
class EngineImpl<Acc>::DeltaWriter {
 public:
  // early: what is asked for now is still in the cache when the next stage runs
  DeltaWriter(EngineImpl& engine, int k, bool early)
      : engine_(engine),
        k_(k),
        spec_(engine.aggregation(k)),
        table_(engine.state_.aggregates[at(k)]),
        first_(engine.dirty_[at(spec_.consumers.front())]),
        results_(early ? engine.result_rows_[at(spec_.consumers.front())] : kNothing),
        up_(engine.scales_[at(k)].up.data()),
        half_(engine.plans_[at(k)].stride) {}

  void prefetch(VertexId v) const {
    prefetch_row(table_.row(v), table_.row_bytes());
    if (spec_.attention >= 0) engine_.borders_[at(k_)].prefetch(v);
    prefetch_line(spec_.extreme() || spec_.on_edges() ? engine_.touched_[at(k_)].set.mark_address(v)
                                                      : first_.mark_address(v));
  }
  // A vertex whose row changed before the push is listed again, among those of its part.
  void list(VertexId v, int thread) const {
    first_.relist(v, thread);
    results_.prefetch(v);
  }
  void write(VertexId v, const std::int64_t* delta, float edge, int thread) const {
    if (spec_.attention >= 0) return engine_.replace_source(k_, v, delta, thread);
    if (spec_.extreme()) {  // whether the next stage has work is known when all have come
      const float* rows = reinterpret_cast<const float*>(delta);
      return engine_.replace_extreme(k_, v, rows, rows + half_, edge, thread);
    }
    if (first_.add(v, thread)) results_.prefetch(v);
    for (std::size_t i = 1; i < spec_.consumers.size(); ++i) engine_.dirty_[at(spec_.consumers[i])].add(v, thread);
    if (engine_.journal_.on()) [[unlikely]]
      engine_.journal_.save_aggregate(engine_.state_, k_, v, thread);
    Acc* acc = table_.row(v);
    const int width = table_.stride();
    const Kernels& kernels = engine_.kernels_;
    const float* rows = reinterpret_cast<const float*>(delta);
    if constexpr (std::is_same_v<Acc, float>) {
      if (spec_.weighted) return kernels.add_edge_delta_f32(acc, rows, rows + half_, edge, width);
      kernels.add_row_f32(acc, rows, width);
    } else {
      if (!spec_.weighted) return kernels.add_row(acc, delta, width);
      if (!kernels.add_edge_delta(acc, rows, rows + half_, edge, up_, engine_.limit_, width)) {
        engine_.out_of_range(
            k_, source_of(delta),
            std::max(engine_.times_range(k_, rows, edge), engine_.times_range(k_, rows + half_, edge)));
      }
    }
  }

 private:
  VertexId source_of(const std::int64_t* delta) const {
    const Plan& plan = engine_.plans_[at(k_)];
    return plan.sources[at((delta - plan.deltas.data()) / plan.stride)];
  }

  static inline const ResultRows kNothing{};
  EngineImpl& engine_;
  int k_;
  const AggregationSpec& spec_;
  RowTable<Acc>& table_;
  VertexSet& first_;
  const ResultRows& results_;
  const float* up_;
  int half_;
};

// finish: the next stage is the last one, and nothing but this push is still to come before it; it is run, too.
template <typename Acc>
void EngineImpl<Acc>::push(int k, bool finish) {
  const Plan& plan = plans_[at(k)];
  std::int64_t edges = 0;
  for (std::size_t i = 0; i < plan.sources.size(); ++i) {
    if (plan.changed[i] != 0) edges += graph_.out_degree(plan.sources[i]);
  }
  if (edges == 0) return;
  const bool shared = pool_.threads() > 1 && at(edges) * state_.aggregates[at(k)].row_bytes() >= kSharedBytes;
  if (shared || edges >= kBinnedEdges) {
    push_binned(k, edges, finish);
  } else {
    push_serial(k, edges);
  }
}

// body(i, dst, weight) for every out-edge of the changed sources first <= i < last of a plan.
template <typename Acc>
template <typename Body>
void EngineImpl<Acc>::visit_pushed(int k, std::size_t first, std::size_t last, Body&& body) const {
  const Plan& plan = plans_[at(k)];
  const AggregationSpec& spec = aggregation(k);
  const bool weighted = spec.weighted, skip_loops = spec.self_loops, restricted = restricted_;
  for (std::size_t i = first; i < last; ++i) {
    if (i + 4 < last) graph_.prefetch_out(plan.sources[i + 4]);
    if (plan.changed[i] == 0) continue;
    const VertexId u = plan.sources[i];
    graph_.visit_out(u, [&](const EdgeSpan& span) {
      for (std::int32_t e = 0; e < span.count; ++e) {
        if (skip_loops && span.neighbours[e] == u) continue;
        if (spec.relation >= 0 && span.types[e] != spec.relation) continue;
        if (restricted && !wants(k, span.neighbours[e])) continue;
        body(static_cast<std::int32_t>(i), span.neighbours[e],
             weighted && span.weights != nullptr ? span.weights[e] : 1.0f);
      }
    });
  }
}

// Writes entries first <= e < last, with what is after them (up to `ahead`) already asked for.
template <typename Acc>
void EngineImpl<Acc>::write_entries(int k, const DeltaWriter& writer, std::int64_t first, std::int64_t last,
                                    std::int64_t ahead, int thread) {
  const Plan& plan = plans_[at(k)];
  const bool weighted = aggregation(k).weighted;
  const std::size_t delta_bytes = at(plan.stride) * sizeof(std::int64_t);
  const bool many = plan.sources.size() > 16;  // too many for the first cache
  for (std::int64_t e = first; e < last; ++e) {
    if (e + kDistance < ahead) {
      const Entry& next = entries_[at(e + kDistance)];
      if (many && next.source != kNoSource) prefetch_row(plan.deltas_row(next.source), delta_bytes);
      writer.prefetch(next.dst);
    }
    const Entry& entry = entries_[at(e)];
    if (entry.source == kNoSource) {
      writer.list(entry.dst, thread);
    } else {
      writer.write(entry.dst, plan.deltas_row(entry.source), weighted ? entry_weights_[at(e)] : 1.0f, thread);
    }
  }
}

template <typename Acc>
void EngineImpl<Acc>::put_entry(std::int64_t slot, std::int32_t source, VertexId dst, bool weighted, float weight) {
  entries_[at(slot)] = {dst, source};
  if (weighted) entry_weights_[at(slot)] = weight;
}

template <typename Acc>
void EngineImpl<Acc>::need_entries(std::int64_t count, bool weighted) {
  if (entries_.size() < at(count)) entries_.resize(at(count));
  if (weighted && entry_weights_.size() < at(count)) entry_weights_.resize(at(count));
}

template <typename Acc>
void EngineImpl<Acc>::push_serial(int k, std::int64_t edges) {
  const bool weighted = aggregation(k).weighted;
  need_entries(edges, weighted);
  std::int64_t count = 0;
  visit_pushed(k, 0, plans_[at(k)].sources.size(), [&](std::int32_t source, VertexId dst, float weight) {
    put_entry(count++, source, dst, weighted, weight);
  });
  if (restricted_) stats_[at(aggregation(k).stage)].edges += count;
  const DeltaWriter writer(*this, k, edges < kEarlyEdges);
  for (std::int64_t e = 0; e < std::min<std::int64_t>(kDistance, count); ++e) writer.prefetch(entries_[at(e)].dst);
  write_entries(k, writer, 0, count, count, 0);
}

// The rows that a thread has listed since `listed`, through the last stage.
template <typename Acc>
void EngineImpl<Acc>::finish_rows(int stage, std::size_t listed, int thread) {
  const std::vector<VertexId>& rows = dirty_[at(stage)].list(thread);
  const auto chunk = static_cast<std::size_t>(program_.chunk_rows());
  for (std::size_t first = listed; first < rows.size(); first += chunk) {
    evaluate_rows(stage, rows.data() + first, static_cast<int>(std::min(chunk, rows.size() - first)), first, thread);
  }
}

// First source of each share, so that all have about the same number of edges; one more at the end.
template <typename Acc>
std::vector<std::size_t> EngineImpl<Acc>::share_sources(int k, std::int64_t shares) const {
  const Plan& plan = plans_[at(k)];
  std::vector<std::size_t> begins(at(shares + 1), 0);
  std::vector<std::int64_t> before(plan.sources.size() + 1, 0);
  for (std::size_t i = 0; i < plan.sources.size(); ++i) {
    before[i + 1] = before[i] + (plan.changed[i] != 0 ? graph_.out_degree(plan.sources[i]) : 0);
  }
  for (std::int64_t p = 1; p <= shares; ++p) {
    const std::int64_t target = before.back() * p / shares;
    begins[at(p)] = static_cast<std::size_t>(std::lower_bound(before.begin(), before.end(), target) - before.begin());
  }
  begins[at(shares)] = plan.sources.size();
  return begins;
}

// Two passes over the adjacency of the changed sources put every edge into the bin of its destination.
template <typename Acc>
std::vector<std::int64_t> EngineImpl<Acc>::bin_entries(int k, int shift, const std::vector<VertexId>& listed) {
  const std::int64_t bins = (static_cast<std::int64_t>(slots_) >> shift) + 1, shares = pool_.threads();
  const bool weighted = aggregation(k).weighted;
  const std::vector<std::size_t> begins = share_sources(k, shares);
  std::vector<std::int64_t> places(at(shares * bins), 0);
  const auto visit = [&](std::int64_t share, auto&& body) {
    const std::size_t first = listed.size() * at(share) / at(shares), last = listed.size() * at(share + 1) / at(shares);
    for (std::size_t i = first; i < last; ++i) body(kNoSource, listed[i], 1.0f);
    visit_pushed(k, begins[at(share)], begins[at(share + 1)], body);
  };
  pool_.run(shares, [&](std::int64_t share, int) {
    std::int64_t* counts = places.data() + share * bins;
    visit(share, [&](std::int32_t, VertexId dst, float) { ++counts[dst >> shift]; });
  });
  std::vector<std::int64_t> begin(at(bins + 1), 0);
  std::int64_t total = 0;
  for (std::int64_t bin = 0; bin < bins; ++bin) {
    begin[at(bin)] = total;
    for (std::int64_t share = 0; share < shares; ++share) {
      total += std::exchange(places[at(share * bins + bin)], total);
    }
  }
  begin[at(bins)] = total;
  need_entries(total, weighted);
  pool_.run(shares, [&](std::int64_t share, int) {
    std::int64_t* place = places.data() + share * bins;
    visit(share, [&](std::int32_t source, VertexId dst, float weight) {
      put_entry(place[dst >> shift]++, source, dst, weighted, weight);
    });
  });
  return begin;
}

template <typename Acc>
void EngineImpl<Acc>::push_binned(int k, std::int64_t edges, bool finish) {
  const int stage = aggregation(k).consumers.front();
  const std::vector<VertexId> listed = finish ? dirty_[at(stage)].unlist() : std::vector<VertexId>();
  int shift = kLeastShift;  // rows of a bin: few enough for a core's cache, and enough edges in it to be worth it
  while ((state_.aggregates[at(k)].row_bytes() << (shift + 1)) <= kBinBytes) ++shift;
  while ((static_cast<std::int64_t>(slots_) >> shift) > std::max<std::int64_t>(16, edges / kEntriesPerBin)) ++shift;
  const std::vector<std::int64_t> begin = bin_entries(k, shift, listed);
  if (restricted_) stats_[at(aggregation(k).stage)].edges += begin.back();
  const auto bins = static_cast<std::int64_t>(begin.size()) - 1;
  const std::int64_t tasks = std::min<std::int64_t>(bins, 8 * pool_.threads());
  const DeltaWriter writer(*this, k, finish);
  pool_.run(tasks, [&](std::int64_t task, int thread) {  // neighbouring bins, so that prefetching runs on
    const std::int64_t from = begin.back() * task / tasks, to = begin.back() * (task + 1) / tasks;
    const auto first = std::lower_bound(begin.begin(), begin.end() - 1, from) - begin.begin();
    const auto last = std::lower_bound(begin.begin(), begin.end() - 1, to) - begin.begin();
    for (auto bin = first; bin < last; ++bin) {
      const std::size_t before = dirty_[at(stage)].list(thread).size();
      write_entries(k, writer, begin[at(bin)], begin[at(bin + 1)], begin[at(last)], thread);
      if (finish) finish_rows(stage, before, thread);
    }
  });
  finished_ = finish;
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
