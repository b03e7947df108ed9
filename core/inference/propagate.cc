// Changed messages to aggregates, three ways with the same bits: push deltas along out-edges, pull the affected rows
// again from their in-edges, or sweep the whole layer in storage order.
#include <algorithm>

#include "inference/terms.h"

namespace livegnn {

namespace {

constexpr std::int64_t kBinnedEdges = 4000;    // from here on, binning by destination and threads pay
constexpr std::size_t kBinBytes = 256 * 1024;  // aggregate rows of one bin stay in a core's own cache
constexpr std::int64_t kEarlyEdges = 512;
constexpr std::int64_t kRowsPerTask = 512;
constexpr int kDistance = 8;  // edges between the prefetch of a row and its use

}  // namespace

template <typename Acc>
void EngineImpl<Acc>::aggregate(int k) {
  switch (plans_[at(k)].path) {
    case Path::Push:
      return push(k);
    case Path::Pull:
      return pull(k);
    case Path::Sweep:
      return sweep(k);
    case Path::None:
      break;
  }
  invariant(false, "an aggregation without a path");
}

// What one pushed edge does; everything that does not depend on the edge is looked up once.
template <typename Acc>
class EngineImpl<Acc>::DeltaWriter {
 public:
  // early: few enough rows that what is asked for now is still in the cache when the next stage runs
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
    __builtin_prefetch(first_.mark_address(v), 1);
  }
  void write(VertexId v, const std::int64_t* delta, float edge, int thread) const {
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
      if (!kernels.add_edge_delta(acc, rows, rows + half_, edge, up_, engine_.limit_, width))
        engine_.out_of_range(k_, source_of(delta));
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

template <typename Acc>
void EngineImpl<Acc>::push(int k) {
  const Plan& plan = plans_[at(k)];
  std::int64_t edges = 0;
  for (std::size_t i = 0; i < plan.sources.size(); ++i) {
    if (plan.changed[i] != 0) edges += graph_.out_degree(plan.sources[i]);
  }
  if (edges == 0) return;
  if (edges >= kBinnedEdges && pool_.threads() > 1) {
    push_binned(k, edges);
  } else {
    push_serial(k, edges);
  }
}

template <typename Acc>
void EngineImpl<Acc>::push_serial(int k, std::int64_t edges) {
  const Plan& plan = plans_[at(k)];
  const bool weighted = aggregation(k).weighted, skip_loops = aggregation(k).self_loops;
  if (edge_dst_.size() < at(edges)) {
    edge_dst_.resize(at(edges));
    edge_source_.resize(at(edges));
    edge_weight_.resize(at(edges));
  }
  std::int64_t count = 0;
  for (std::size_t i = 0; i < plan.sources.size(); ++i) {
    if (i + 4 < plan.sources.size()) graph_.prefetch_out(plan.sources[i + 4]);
    if (plan.changed[i] == 0) continue;
    const VertexId u = plan.sources[i];
    graph_.visit_out(u, [&](const EdgeSpan& span) {
      for (std::int32_t e = 0; e < span.count; ++e) {
        if (skip_loops && span.neighbours[e] == u) continue;
        edge_dst_[at(count)] = span.neighbours[e];
        edge_source_[at(count)] = static_cast<std::int32_t>(i);
        if (weighted) edge_weight_[at(count)] = span.weights != nullptr ? span.weights[e] : 1.0f;
        ++count;
      }
    });
  }
  const DeltaWriter writer(*this, k, edges < kEarlyEdges);
  for (std::int64_t e = 0; e < std::min<std::int64_t>(kDistance, count); ++e) writer.prefetch(edge_dst_[at(e)]);
  for (std::int64_t e = 0; e < count; ++e) {
    if (e + kDistance < count) writer.prefetch(edge_dst_[at(e + kDistance)]);
    writer.write(edge_dst_[at(e)], plan.deltas_row(edge_source_[at(e)]), weighted ? edge_weight_[at(e)] : 1.0f, 0);
  }
}

// First source of each part, so that all parts have about the same number of edges; one more at the end.
template <typename Acc>
std::vector<std::size_t> EngineImpl<Acc>::share_sources(int k, std::int64_t parts) const {
  const Plan& plan = plans_[at(k)];
  std::vector<std::size_t> begins(at(parts + 1), 0);
  std::vector<std::int64_t> before(plan.sources.size() + 1, 0);
  for (std::size_t i = 0; i < plan.sources.size(); ++i) {
    before[i + 1] = before[i] + (plan.changed[i] != 0 ? graph_.out_degree(plan.sources[i]) : 0);
  }
  for (std::int64_t p = 1; p <= parts; ++p) {
    const std::int64_t target = before.back() * p / parts;
    begins[at(p)] = static_cast<std::size_t>(std::lower_bound(before.begin(), before.end(), target) - before.begin());
  }
  begins[at(parts)] = plan.sources.size();
  return begins;
}

// Two passes over the adjacency of the changed sources put every edge into the bin of its destination; then each bin is
// worked off by one thread, so that no two threads touch the same row.
template <typename Acc>
void EngineImpl<Acc>::push_binned(int k, std::int64_t edges) {
  const Plan& plan = plans_[at(k)];
  const bool weighted = aggregation(k).weighted, skip_loops = aggregation(k).self_loops;
  const RowTable<Acc>& table = state_.aggregates[at(k)];
  int shift = 4;  // rows of a bin: few enough for a core's cache, and enough edges in it to be worth handing out
  const auto bins_of = [&](int bits) { return (static_cast<std::int64_t>(slots_) >> bits) + 1; };
  while ((table.row_bytes() << (shift + 1)) <= kBinBytes) ++shift;
  while (bins_of(shift) > std::max<std::int64_t>(16, edges / 64)) ++shift;
  const std::int64_t bins = bins_of(shift);
  const std::int64_t parts = pool_.threads();

  const std::vector<std::size_t> begins = share_sources(k, parts);
  std::vector<std::int64_t> places(at(parts * bins), 0);
  const auto visit = [&](std::int64_t part, auto&& body) {
    for (std::size_t i = begins[at(part)]; i < begins[at(part + 1)]; ++i) {
      if (i + 4 < begins[at(part + 1)]) graph_.prefetch_out(plan.sources[i + 4]);
      if (plan.changed[i] == 0) continue;
      const VertexId u = plan.sources[i];
      graph_.visit_out(u, [&](const EdgeSpan& span) {
        for (std::int32_t e = 0; e < span.count; ++e) {
          if (skip_loops && span.neighbours[e] == u) continue;
          body(i, span.neighbours[e], weighted && span.weights != nullptr ? span.weights[e] : 1.0f);
        }
      });
    }
  };
  pool_.run(parts, [&](std::int64_t part, int) {
    std::int64_t* counts = places.data() + part * bins;
    visit(part, [&](std::size_t, VertexId dst, float) { ++counts[dst >> shift]; });
  });
  std::vector<std::int64_t> bin_begin(at(bins + 1), 0);
  std::int64_t total = 0;
  for (std::int64_t bin = 0; bin < bins; ++bin) {
    bin_begin[at(bin)] = total;
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t size = places[at(part * bins + bin)];
      places[at(part * bins + bin)] = total;
      total += size;
    }
  }
  bin_begin[at(bins)] = total;
  if (edge_dst_.size() < at(total)) {
    edge_dst_.resize(at(total));
    edge_source_.resize(at(total));
    edge_weight_.resize(at(total));
  }
  pool_.run(parts, [&](std::int64_t part, int) {
    std::int64_t* place = places.data() + part * bins;
    visit(part, [&](std::size_t i, VertexId dst, float weight) {
      const std::size_t slot = at(place[dst >> shift]++);
      edge_dst_[slot] = dst;
      edge_source_[slot] = static_cast<std::int32_t>(i);
      if (weighted) edge_weight_[slot] = weight;
    });
  });
  const DeltaWriter writer(*this, k, false);
  const std::size_t delta_bytes = at(table.stride()) * sizeof(std::int64_t);
  pool_.run(bins, [&](std::int64_t bin, int thread) {
    const std::int64_t last = bin_begin[at(bin + 1)];
    for (std::int64_t e = bin_begin[at(bin)]; e < last; ++e) {
      if (e + kDistance < last) {
        prefetch_row(plan.deltas_row(edge_source_[at(e + kDistance)]), delta_bytes);
        writer.prefetch(edge_dst_[at(e + kDistance)]);
      }
      writer.write(edge_dst_[at(e)], plan.deltas_row(edge_source_[at(e)]), weighted ? edge_weight_[at(e)] : 1.0f,
                   thread);
    }
  });
}

// Sums row v again and keeps it where it differs.
template <typename Acc>
void EngineImpl<Acc>::refresh_row(int k, VertexId v, Acc* scratch, int thread) {
  sum_row_all(k, state_, v, scratch);
  RowTable<Acc>& table = state_.aggregates[at(k)];
  if (std::memcmp(table.row(v), scratch, table.row_bytes()) == 0) return;
  if (journal_.on()) journal_.save_aggregate(state_, k, v, thread);
  std::memcpy(table.row(v), scratch, table.row_bytes());
  mark_consumers(aggregation(k).consumers, v, thread);
}

template <typename Acc>
void EngineImpl<Acc>::pull(int k) {
  const Plan& plan = plans_[at(k)];
  for (std::size_t i = 0; i < plan.sources.size(); ++i) {
    if (plan.changed[i] == 0) continue;
    graph_.visit_out(plan.sources[i], [&](const EdgeSpan& span) {
      for (std::int32_t e = 0; e < span.count; ++e) mark_consumers(aggregation(k).consumers, span.neighbours[e], 0);
    });
  }
  const std::vector<VertexId> rows = dirty_[at(aggregation(k).consumers.front())].collect();
  const auto total = static_cast<std::int64_t>(rows.size());
  const std::int64_t share = total > 64 ? 32 : total;
  if (total == 0) return;
  pool_.run((total + share - 1) / share, [&](std::int64_t task, int thread) {
    Acc* scratch = row_scratch_[at(thread)].need(at(state_.aggregates[at(k)].stride()));
    for (std::int64_t i = task * share; i < std::min(total, (task + 1) * share); ++i)
      refresh_row(k, rows[at(i)], scratch, thread);
  });
}

template <typename Acc>
void EngineImpl<Acc>::sweep(int k) {
  const std::int64_t slots = slots_;
  pool_.run((slots + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int thread) {
    Acc* scratch = row_scratch_[at(thread)].need(at(state_.aggregates[at(k)].stride()));
    const std::int64_t last = std::min(slots, (task + 1) * kRowsPerTask);
    for (std::int64_t v = task * kRowsPerTask; v < last; ++v) refresh_row(k, static_cast<VertexId>(v), scratch, thread);
  });
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
