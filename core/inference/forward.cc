// The run from scratch: bootstrap, recompute, rebuild, and the yardstick of verify().
#include <algorithm>
#include <cstring>

#include "inference/engine_impl.h"
#include "inference/operators/whole_rows.h"

namespace livegnn {

// Whether the sums of an aggregation, where nothing reads them afterwards, can go to the one stage that reads them row
// by row: a table of them would be the largest of a run, and its pages come fresh from the system each time.
bool EngineImpl::passes(std::size_t k) const {
  return work_.pager == nullptr && !work_.compact() && work_.operators[k]->facts.passes &&
         source().aggregations[k].consumers.size() == 1;
}

TransientSums EngineImpl::sum_transient(int stage, const State& state, VertexId first, VertexId last, int thread,
                                        Scratch<std::int64_t>& scratch) const {
  TransientSums sums{first, std::vector<const std::int64_t*>(work_.operators.size(), nullptr)};
  std::vector<std::size_t> here;
  std::size_t row = 0;  // words of all sums of a vertex
  for (std::size_t k = 0; k < work_.operators.size(); ++k) {
    if (!passes(k) || source().aggregations[k].consumers.front() != stage) continue;
    here.push_back(k);
    row += at(work_.operators[k]->stride());
  }
  std::int64_t* to = scratch.need(row * at(last - first));
  for (const std::size_t k : here) {
    const Operator& op = *work_.operators[k];
    sums.of_first[k] = to;
    PlacedRows rows(op, true, [&](VertexId v) { return to + std::int64_t{v - first} * op.stride(); });
    op.compute(state, {nullptr, first, last}, false, thread, rows);
    to += std::int64_t{last - first} * op.stride();
  }
  return sums;
}

// The rows that a stage loads and stores.
void EngineImpl::fetch_stage(int stage, const State& state, std::int64_t first, std::int64_t last) const {
  for (const Instruction& step : source().stages[at(stage)]) {
    if (step.op == Op::LoadAggregate) state.aggregates[at(step.index)].fetch(first, last);
    if (step.op == Op::LoadStored || step.op == Op::StoreRow || step.op == Op::StoreMessage)
      state.stored[at(step.op == Op::LoadStored ? step.index : work_.stored_table(step))].fetch(first, last);
  }
}

void EngineImpl::forward_stage(int stage, State& state, Sums sums, const OutputRow& out) const {
  std::vector<Scratch<std::int64_t>> scratch(at(work_.pool.threads()));
  const auto run_chunk = [&](std::int64_t first, std::int64_t last, int thread) {
    std::vector<VertexId> vertices;
    vertices.reserve(at(last - first));
    for (auto v = static_cast<VertexId>(first); v < last; ++v) {
      if (stage == 0 || !work_.is_ghost(v)) vertices.push_back(v);
    }
    if (vertices.empty()) return;
    const int count = static_cast<int>(vertices.size());
    StageView view{work_, state};
    TransientSums transient;
    if (sums == Sums::Transient) {
      transient = sum_transient(stage, state, static_cast<VertexId>(first), static_cast<VertexId>(last), thread,
                                scratch[at(thread)]);
      view.transient = &transient;
    }
    livegnn::run_stage(stage, view, vertices.data(), count, thread,
                       [&](const Instruction& step, int i, const float* row) {
                         const VertexId v = vertices[at(i)];
                         if (step.op != Op::Output) work_.check_stored(step, v, row);
                         float* to = step.op == Op::Output ? out(v) : state.stored[at(work_.stored_table(step))].row(v);
                         std::memcpy(to, row, at(step.width) * sizeof(float));
                       });
  };
  work_.pass([&](std::int64_t first, std::int64_t last) { fetch_stage(stage, state, first, last); },
             [&](std::int64_t first, std::int64_t last) {
               work_.in_chunks(last - first, work_.program.chunk_rows(), true,
                               [&](std::int64_t from, std::int64_t to, int thread) {
                                 run_chunk(first + from, first + to, thread);
                               });
             });
}

void EngineImpl::forward(State& state, bool choose_scales, Sums sums, const OutputRow& out) const {
  const std::int64_t slots = work_.graph.slot_count();
  state.reserve(slots);
  for (DegreeNorm& norm : state.norms) norm.rebuild(work_.graph, 0, static_cast<VertexId>(slots));
  if (work_.trade != nullptr) work_.trade->send_all_factors(state);
  for (int stage = 0; stage < stages(); ++stage) {
    for (std::size_t t = 0; t < state.stored.size(); ++t) {
      if (source().stored[t].stage == stage) state.stored[t].hold_all(slots);
    }
    forward_stage(stage, state, sums, out);
    if (work_.trade != nullptr) work_.trade->send_all(stage, state);
    for (std::size_t k = 0; k < work_.operators.size(); ++k) {
      Operator& op = *work_.operators[k];
      if (op.stage() != stage) continue;
      if (choose_scales) op.choose_scales(state);
      if (sums == Sums::Kept || !passes(k)) op.compute_all(state);
    }
    for (std::size_t t = 0; t < state.stored.size(); ++t) {  // of a compact state: what has done its work
      if (work_.last_use(static_cast<int>(t)) <= stage) state.stored[t].release();
    }
  }
}

RowTable<float> EngineImpl::run_from_scratch(State& state) const {
  RowTable<float> outputs(round_up(output_width(), 16), work_.pager.get(), Rows::ByVertex);
  outputs.reserve(work_.graph.slot_count());
  forward(state, false, Sums::Kept, [&](VertexId v) { return outputs.row(v); });
  return outputs;
}

void EngineImpl::recompute(float* out) const {
  refuse_unsound_files();
  State fresh = work_.new_state(work_.compact(), false);
  forward(fresh, false, Sums::Transient, [&](VertexId v) { return out + std::int64_t{v} * output_width(); });
}

void EngineImpl::rebuild() {
  if (work_.trade != nullptr) {
    if (journal_armed_) restore_journal();
    work_.trade->halo().roll_back();
    return;
  }
  outputs_stale_ |= pending() || !demanded_.empty();
  work_.publication.drop_staged();
  build_state(outputs_stale_);
  if (!outputs_stale_) return;
  work_.publication.publish(work_.graph, {}, {});
  outputs_stale_ = false;
}

// State from scratch with the recorded scales. Until it is whole the engine counts as broken, and will try again.
void EngineImpl::build_state(bool stage_outputs) {
  Workspace& w = work_;
  broken_ = true;
  prepared_ = false;
  if (work_.trade != nullptr) work_.trade->forget();
  pending_.clear();
  demanded_.clear();
  spent_edges_ = 0;
  for (const auto& op : w.operators) op->clear();
  stale_known_ = false;
  w.state.aggregates.clear();  // before others take their place
  w.state.stored.clear();
  w.state = w.new_state(w.compact(), true);
  w.result_rows.clear();  // they point into the state that was
  w.journal.end();
  w.slots_before = w.slots = w.graph.slot_count();
  w.check_capacity();
  if (!w.incremental()) {
    w.state.reserve(w.slots);
    for (DegreeNorm& norm : w.state.norms) norm.rebuild(w.graph, 0, w.slots);
    broken_ = false;
    return;
  }
  const RowTable<float> out = run_from_scratch(w.state);
  broken_ = false;
  if (!stage_outputs) return;
  w.publication.prepare(w.slots, w.slots);
  for (VertexId v = 0; v < w.slots; ++v) w.publication.stage(v, out.row(v), 0);
}

// What of v differs from a run from scratch; empty: nothing.
std::string EngineImpl::difference(VertexId v, const State& fresh, const float* output) const {
  const State& live = work_.state;
  for (std::size_t c = 0; c < fresh.norms.size(); ++c) {
    if (!live.norms[c].equal_row(fresh.norms[c], v)) return "degree context " + std::to_string(c);
  }
  for (std::size_t k = 0; work_.incremental() && k < fresh.aggregates.size(); ++k) {
    if (!work_.operators[k]->agrees(live.aggregates[k].row(v), fresh.aggregates[k].row(v)))
      return "aggregate of " + source().aggregations[k].name;
  }
  const bool kept = work_.incremental() && !work_.compact();
  for (std::size_t t = 0; kept && t < fresh.stored.size(); ++t) {
    const StoredSpec& spec = source().stored[t];
    if (std::memcmp(live.stored[t].row(v), fresh.stored[t].row(v), at(spec.width) * sizeof(float)) != 0)
      return "stored row " + spec.name;
  }
  const bool same = work_.options.strategy == Strategy::Sampled || !work_.publication.differs(v, output);
  return same ? "" : "output";
}

std::optional<std::string> EngineImpl::verify() const {
  refuse_unsound_files();
  State fresh = work_.new_state(work_.compact(), false);
  const RowTable<float> out = run_from_scratch(fresh);
  std::optional<std::string> found;
  work_.pass(
      [&](std::int64_t first, std::int64_t last) {
        for (const State* state : {&work_.state, static_cast<const State*>(&fresh)}) state->fetch(first, last);
        work_.publication.fetch(first, last);
        out.fetch(first, last);
      },
      [&](std::int64_t first, std::int64_t last) {
        for (auto v = static_cast<VertexId>(first); v < last && !found; ++v) {
          const std::string what = work_.graph.is_live(v) && !work_.is_ghost(v) ? difference(v, fresh, out.row(v)) : "";
          if (!what.empty()) found = what + " at vertex " + std::to_string(v);
        }
      });
  return found;
}

}  // namespace livegnn
