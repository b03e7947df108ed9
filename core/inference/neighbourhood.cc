// The strategies that keep no aggregates, to compare with: full (the whole graph), khop (RTEC-Full: the L-hop
// in-neighbourhoods of all affected outputs, nothing reused, true global degrees) and sampled (RTEC-NS).
#include <algorithm>
#include <cstring>

#include "inference/engine_impl.h"
#include "inference/operators/whole_rows.h"

namespace livegnn {

void EngineImpl::propagate_full() {
  if (!scratch_state_) scratch_state_ = std::make_unique<State>(work_.new_state(false, false));
  const RowTable<float> out = run_from_scratch(*scratch_state_);
  for (VertexId v = 0; v < work_.slots; ++v) work_.publication.stage(v, out.row(v), 0);
  for (StageStats& stats : work_.stats) stats.affected = work_.slots;
  for (const auto& op : work_.operators) {
    work_.count_reread(op->stage(), work_.all_in_edges());
    work_.stats[at(op->stage())].path = Path::Sweep;
  }
}

// Per stage, the vertices that a batch can reach, by the graph's structure alone (no look at values).
VertexSets EngineImpl::affected_sets(const BatchDelta& delta) {
  mark_new_vertices(delta);
  for (const int stage : source().input_consumers) {
    for (const VertexId v : delta.features_changed) work_.dirty[at(stage)].add(v);
  }
  const auto mark_edges = [&](const AggregationSpec& spec) {
    const auto mark = [&](const EdgeRecord& edge) {
      work_.mark_consumers(spec.consumers, spec.reversed ? edge.src : edge.dst, 0);
    };
    for (const auto* edges : {&delta.removed, &delta.added, &delta.reattributed}) {
      for (const EdgeRecord& edge : *edges) mark(edge);
    }
    for (const EdgeReweighted& edge : delta.reweighted) mark(edge.before);
  };
  VertexSets sets;
  for (int stage = 0; stage < stages(); ++stage) {
    sets.push_back(work_.dirty[at(stage)].collect());
    for (const StoredSpec& spec : source().stored) {
      if (spec.stage != stage) continue;
      for (const VertexId v : sets.back()) work_.mark_consumers(spec.consumers, v, 0);
    }
    for (std::size_t k = 0; k < work_.operators.size(); ++k) {
      if (work_.operators[k]->stage() != stage) continue;
      mark_edges(source().aggregations[k]);
      work_.operators[k]->mark_reached(sets, delta);
    }
  }
  return sets;
}

// Rows to evaluate per stage so that the outputs of `outputs` come out.
VertexSets EngineImpl::needed_sets(const std::vector<VertexId>& outputs) const {
  const auto count = source().stages.size();
  VertexSets needed(count);
  needed[count - 1] = outputs;
  VertexSet set;
  for (std::size_t stage = count - 1; stage-- > 0;) {
    set.prepare(work_.slots, 1);
    for (const VertexId v : needed[stage + 1]) set.add(v);
    for (int k = 0; k < static_cast<int>(work_.operators.size()); ++k) {
      if (work_.aggregation(k).stage != static_cast<int>(stage)) continue;
      for (const VertexId v : needed[stage + 1]) {
        const InSample sample = work_.sample_in_edges(k, v);
        work_.flow(k).visit_in(v, [&](const EdgeSpan& span) {
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

// The rows of one stage, from aggregates of the one before.
void EngineImpl::run_needed(int stage, const std::vector<VertexId>& rows, State& state) {
  constexpr std::int64_t kRowsPerTask = 32;
  Workspace& w = work_;
  const auto total = static_cast<std::int64_t>(rows.size());
  const bool sampled = w.options.strategy == Strategy::Sampled;
  for (std::size_t k = 0; k < w.operators.size(); ++k) {
    const Operator& op = *w.operators[k];
    if (op.stage() + 1 != stage) continue;
    const std::int64_t most = sampled ? w.options.fanout : w.all_in_edges();
    std::int64_t read = 0;
    const Flow flow = w.flow(static_cast<int>(k));
    for (const VertexId v : rows) read += std::min<std::int64_t>(flow.in_degree(v), most);
    w.count_reread(op.stage(), read);
    w.in_shares(total, kRowsPerTask, [&](std::int64_t first, std::int64_t last, int thread) {
      PlacedRows table(op, true, [&](VertexId v) { return state.aggregates[k].row(v); });
      op.compute(state, {rows.data(), first, last}, sampled, thread, table);
    });
  }
  w.stats[at(stage)].affected = total;
  w.stats[at(stage)].path = Path::Pull;
  w.in_chunks(total, w.program.chunk_rows(), true, [&](std::int64_t first, std::int64_t last, int thread) {
    const VertexId* vertices = rows.data() + first;
    livegnn::run_stage(stage, StageView{w, state}, vertices, static_cast<int>(last - first), thread,
                       [&](const Instruction& step, int i, const float* row) {
                         if (step.op == Op::Output) return w.publication.stage(vertices[i], row, thread);
                         w.check_stored(step, vertices[i], row);
                         float* to = state.stored[at(w.stored_table(step))].row(vertices[i]);
                         std::memcpy(to, row, at(step.width) * sizeof(float));
                       });
  });
}

void EngineImpl::propagate_neighbourhoods() {
  const VertexSets needed = needed_sets(affected_sets(*work_.delta).back());
  if (!scratch_state_) scratch_state_ = std::make_unique<State>(work_.new_state(false, false));
  State& state = *scratch_state_;
  state.reserve(work_.slots);
  std::swap(state.norms, work_.state.norms);  // the true global degrees
  const AtEnd give_back([&] { std::swap(state.norms, work_.state.norms); });
  for (int stage = 0; stage < stages(); ++stage) run_needed(stage, needed[at(stage)], state);
}

}  // namespace livegnn
