// The strategies that keep no aggregates, to compare with: full (the whole graph), khop (RTEC-Full: the L-hop
// in-neighbourhoods of all affected outputs, nothing reused, true global degrees) and sampled (RTEC-NS).
#include <algorithm>

#include "inference/terms.h"
#include "util/hash.h"

namespace livegnn {

template <typename Acc>
void EngineImpl<Acc>::propagate_full() {
  if (!scratch_state_) scratch_state_ = std::make_unique<State<Acc>>(source(), false, pager_.get(), false);
  const RowTable<float> out = run_from_scratch(*scratch_state_);
  for (VertexId v = 0; v < slots_; ++v) publication_.stage(v, out.row(v), 0);
  for (StageStats& stats : stats_) stats.affected = slots_;
  for (const AggregationSpec& spec : source().aggregations) {
    count_reread(spec.stage, all_in_edges());
    stats_[at(spec.stage)].path = Path::Sweep;
  }
}

// Marks the rows whose messages on edges the operands' affected sets can reach.
template <typename Acc>
void EngineImpl<Acc>::spread_on_edges(int k, const std::vector<std::vector<VertexId>>& sets, const BatchDelta& delta) {
  const AggregationSpec& spec = aggregation(k);
  const auto from_sources = [&](const std::vector<VertexId>& vertices) {
    for (const VertexId u : vertices) {
      graph_.visit_out(u, [&](const EdgeSpan& span) {
        for (std::int32_t e = 0; e < span.count; ++e) mark_consumers(spec.consumers, span.neighbours[e], 0);
      });
    }
  };
  const auto from_targets = [&](const std::vector<VertexId>& vertices) {
    for (const VertexId v : vertices) mark_consumers(spec.consumers, v, 0);
  };
  if (spec.gather >= 0) {
    const GatherSpec& gather = gather_spec(k);
    if (gather.source_input) from_sources(delta.features_changed);
    if (gather.target_input || (gather.source_input && has_own_loop(k))) from_targets(delta.features_changed);
  }
  std::vector<int> sources, targets;
  find_operands(k, &sources, &targets);
  for (const int stage : sources) from_sources(sets[at(stage)]);
  for (const int stage : targets) from_targets(sets[at(stage)]);
}

// Per stage, the vertices that a batch can reach, by the graph's structure alone (no look at values).
template <typename Acc>
std::vector<std::vector<VertexId>> EngineImpl<Acc>::affected_sets(const BatchDelta& delta) {
  mark_new_vertices();
  for (const int stage : source().input_consumers) {
    for (const VertexId v : delta.features_changed) dirty_[at(stage)].add(v);
  }
  const auto mark_edges = [&](int k) {
    const std::vector<int>& consumers = aggregation(k).consumers;
    for (const EdgeRecord& edge : delta.removed) mark_consumers(consumers, edge.dst, 0);
    for (const EdgeRecord& edge : delta.added) mark_consumers(consumers, edge.dst, 0);
    for (const EdgeReweighted& edge : delta.reweighted) mark_consumers(consumers, edge.before.dst, 0);
    for (const EdgeRecord& edge : delta.reattributed) mark_consumers(consumers, edge.dst, 0);
  };
  std::vector<std::vector<VertexId>> sets;
  for (int stage = 0; stage < static_cast<int>(source().stages.size()); ++stage) {
    sets.push_back(dirty_[at(stage)].collect());
    for (const StoredSpec& spec : source().stored) {
      if (spec.stage != stage) continue;
      for (const VertexId v : sets.back()) mark_consumers(spec.consumers, v, 0);
    }
    for (int k = 0; k < static_cast<int>(source().aggregations.size()); ++k) {
      const AggregationSpec& spec = aggregation(k);
      if (spec.stage != stage) continue;
      mark_edges(k);
      const auto spread = [&](VertexId u) {
        if (spec.root != Root::None) mark_consumers(spec.consumers, u, 0);
        graph_.visit_out(u, [&](const EdgeSpan& span) {
          for (std::int32_t e = 0; e < span.count; ++e) mark_consumers(spec.consumers, span.neighbours[e], 0);
        });
      };
      if (spec.on_edges()) {
        spread_on_edges(k, sets, delta);
        continue;
      }
      for (const VertexId u : spec.message_table < 0 ? delta.features_changed : sets.back()) spread(u);
      if (spec.scaled()) {
        mark_refinished(k);
        for (const VertexId u : state_.contexts[at(spec.context)].changed()) spread(u);
      }
    }
  }
  return sets;
}

// Which in-edges of v the aggregation takes, and by what factor: a function of (seed, version, aggregation, edge id).
// Sums are scaled up to the whole in-degree, so that they are unbiased.
template <typename Acc>
typename EngineImpl<Acc>::InSample EngineImpl<Acc>::sample_in_edges(int k, VertexId v) const {
  const std::int32_t degree = graph_.in_degree(v);
  if (options_.strategy != Strategy::Sampled || degree <= options_.fanout) return {};
  InSample sample;
  sample.salt =
      mix(options_.seed ^ mix(static_cast<std::uint64_t>(graph_.version()) * 64 + static_cast<std::uint64_t>(k)));
  std::vector<std::uint64_t> keys;
  keys.reserve(at(degree));
  graph_.visit_in(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) keys.push_back(sample.key(span.ids[i]));
  });
  std::nth_element(keys.begin(), keys.begin() + options_.fanout, keys.end());
  sample.bound = keys[at(options_.fanout)];
  sample.factor = static_cast<float>(degree) / static_cast<float>(options_.fanout);
  return sample;
}

// Rows to evaluate per stage so that the outputs of `outputs` come out.
template <typename Acc>
std::vector<std::vector<VertexId>> EngineImpl<Acc>::needed_sets(const std::vector<VertexId>& outputs) const {
  const auto stages = source().stages.size();
  std::vector<std::vector<VertexId>> needed(stages);
  needed[stages - 1] = outputs;
  VertexSet set;
  for (std::size_t stage = stages - 1; stage-- > 0;) {
    set.prepare(slots_, 1, static_cast<std::uint32_t>(stages - stage));
    for (const VertexId v : needed[stage + 1]) set.add(v);
    for (int k = 0; k < static_cast<int>(source().aggregations.size()); ++k) {
      if (aggregation(k).stage != static_cast<int>(stage)) continue;
      for (const VertexId v : needed[stage + 1]) {
        const InSample sample = sample_in_edges(k, v);
        graph_.visit_in(v, [&](const EdgeSpan& span) {
          for (std::int32_t i = 0; i < span.count; ++i) {
            if (sample.admits(span.ids[i]) != 0.0f) set.add(span.neighbours[i]);
          }
        });
      }
    }
    needed[stage] = set.collect();
  }
  return needed;
}

template <typename Acc>
void EngineImpl<Acc>::sum_sampled_row(int k, const State<Acc>& state, VertexId v, Acc* acc) const {
  const InSample sample = sample_in_edges(k, v);
  sum_row(k, state, v, acc, [&](EdgeId id, VertexId) { return sample.admits(id); });
}

template <typename Acc>
void EngineImpl<Acc>::propagate_neighbourhoods(const BatchDelta& delta) {
  const std::vector<std::vector<VertexId>> affected = affected_sets(delta);
  const std::vector<std::vector<VertexId>> needed = needed_sets(affected.back());
  if (!scratch_state_) scratch_state_ = std::make_unique<State<Acc>>(source(), false, pager_.get(), false);
  State<Acc>& state = *scratch_state_;
  state.reserve(slots_);
  std::swap(state.contexts, state_.contexts);  // the true global degrees
  const auto run = [&](std::size_t stage) {
    const std::vector<VertexId>& rows = needed[stage];
    const auto total = static_cast<std::int64_t>(rows.size()), chunk = static_cast<std::int64_t>(program_.chunk_rows());
    for (int k = 0; k < static_cast<int>(source().aggregations.size()); ++k) {
      const AggregationSpec& spec = aggregation(k);
      if (spec.stage + 1 != static_cast<int>(stage)) continue;
      const std::int64_t most = options_.strategy == Strategy::Sampled ? options_.fanout : all_in_edges();
      std::int64_t read = 0;
      for (const VertexId v : rows) read += std::min<std::int64_t>(graph_.in_degree(v), most);
      count_reread(spec.stage, read);
      pool_.run((total + 31) / 32, [&](std::int64_t task, int thread) {
        const std::int64_t first = task * 32, last = std::min(total, first + 32);
        if (spec.gather >= 0) return gather_sampled(k, state, rows.data() + first, last - first, thread);
        for (std::int64_t i = first; i < last; ++i) {
          Acc* acc = state.aggregates[at(k)].row(rows[at(i)]);
          sum_sampled_row(k, state, rows[at(i)], acc);
        }
      });
    }
    stats_[stage].affected = total;
    stats_[stage].path = Path::Pull;
    pool_.run((total + chunk - 1) / chunk, [&](std::int64_t task, int thread) {
      const std::int64_t first = task * chunk;
      const int count = static_cast<int>(std::min(chunk, total - first));
      Registers& registers = registers_[at(thread)];
      registers.prepare(program_, program_.chunk_rows());
      run_stage(program_, static_cast<int>(stage), CurrentView<Acc>{state, graph_}, scales_, rows.data() + first, count,
                registers, [&](const Instruction& step, Registers& r, int from, int length) {
                  for (int i = 0; i < length; ++i) {
                    const VertexId v = rows[at(first + from + i)];
                    if (step.op == Op::Output) {
                      publication_.stage(v, r.row(step.a, i), thread);
                    } else {
                      check_stored(step, v, r.row(step.a, i));
                      const int table =
                          step.op == Op::StoreMessage ? aggregation(step.index).message_table : step.index;
                      std::memcpy(state.stored[at(table)].row(v), r.row(step.a, i), at(step.width) * sizeof(float));
                    }
                  }
                });
    });
  };
  try {
    for (std::size_t stage = 0; stage < needed.size(); ++stage) run(stage);
  } catch (...) {
    std::swap(state.contexts, state_.contexts);
    throw;
  }
  std::swap(state.contexts, state_.contexts);
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
