// Changed messages to aggregates, three ways with the same bits: push deltas along out-edges (push.cc), pull the
// affected rows again from their in-edges, or sweep the whole layer in storage order.
#include <algorithm>

#include "inference/terms.h"

namespace livegnn {

namespace {

constexpr std::int64_t kRowsPerTask = 512;

}  // namespace

template <typename Acc>
void EngineImpl<Acc>::aggregate(int k, bool finish) {
  const AggregationSpec& spec = aggregation(k);
  const bool reads_rows = spec.message_table >= 0 || spec.root == Root::Table;
  if (compact() && reads_rows && plans_[at(k)].path != Path::Push) derive_all(spec.stage);
  switch (plans_[at(k)].path) {
    case Path::Push:
      push(k, finish && !spec.extreme());
      break;
    case Path::Pull:
      pull(k);
      break;
    case Path::Sweep:
      sweep(k);
      break;
    case Path::None:
      invariant(false, "an aggregation without a path");
  }
  if (spec.extreme()) settle_extremes(k);
}

// Sums row v again and keeps it where it differs.
template <typename Acc>
void EngineImpl<Acc>::refresh_row(int k, VertexId v, Acc* scratch, int thread) {
  sum_row_all(k, state_, v, scratch);
  keep_row(k, v, scratch, thread);
}

template <typename Acc>
void EngineImpl<Acc>::keep_row(int k, VertexId v, const Acc* sum, int thread) {
  RowTable<Acc>& table = state_.aggregates[at(k)];
  const AggregationSpec& spec = aggregation(k);
  if (std::memcmp(table.row(v), sum, table.row_bytes()) == 0) return;
  const bool value_same = spec.extreme() && std::memcmp(table.row(v), sum, at(spec.width) * sizeof(float)) == 0;
  if (journal_.on()) journal_.save_aggregate(state_, k, v, thread);
  std::memcpy(table.row(v), sum, table.row_bytes());
  if (!value_same) mark_consumers(spec.consumers, v, thread);
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
  std::int64_t read = 0;
  for (const VertexId v : rows) read += graph_.in_degree(v);
  count_reread(aggregation(k).stage, read);
  pool_.run((total + share - 1) / share, [&](std::int64_t task, int thread) {
    Acc* scratch = row_scratch_[at(thread)].need(at(state_.aggregates[at(k)].stride()));
    sum_rows(k, state_, rows.data(), task * share, std::min(total, (task + 1) * share), [&](VertexId v) {
      if (wants(k, v)) refresh_row(k, v, scratch, thread);
    });
  });
}

template <typename Acc>
void EngineImpl<Acc>::sweep(int k) {
  const std::int64_t slots = slots_;
  std::int64_t read = restricted_ ? 0 : all_in_edges();
  for (VertexId v = 0; restricted_ && v < slots_; ++v) read += has_row_to_sweep(k, v) ? graph_.in_degree(v) : 0;
  count_reread(aggregation(k).stage, read);
  if (sums_in_blocks(k)) return sweep_in_blocks(k);
  pool_.run((slots + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int thread) {
    Acc* scratch = row_scratch_[at(thread)].need(at(state_.aggregates[at(k)].stride()));
    const std::int64_t last = std::min(slots, (task + 1) * kRowsPerTask);
    sum_rows(k, state_, nullptr, task * kRowsPerTask, last, [&](VertexId v) {
      if (has_row_to_sweep(k, v)) refresh_row(k, v, scratch, thread);
    });
  });
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
