// The run from scratch: bootstrap, recompute, rebuild, and the yardstick of verify().
#include <algorithm>
#include <cstring>

#include "inference/engine_impl.h"

namespace livegnn {

namespace {

// Rows of a chunk, one after the other; zero where a vertex has none.
class TransientRows final : public RowSink {
 public:
  TransientRows(const Operator& op, VertexId first, std::int64_t* rows) : op_(op), first_(first), rows_(rows) {}
  std::int64_t* open(VertexId v) override {
    std::int64_t* row = rows_ + std::int64_t{v - first_} * op_.stride();
    if (op_.has_row(v)) return row;
    std::memset(static_cast<void*>(row), 0, at(op_.stride()) * sizeof(std::int64_t));
    return nullptr;
  }
  void close(VertexId, std::int64_t*) override {}

 private:
  const Operator& op_;
  const VertexId first_;
  std::int64_t* rows_;
};

}  // namespace

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
    TransientRows rows(op, first, to);
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
  const std::int64_t rows = work_.program.chunk_rows();
  std::vector<Scratch<std::int64_t>> scratch(at(threads()));
  const auto run_chunk = [&](std::int64_t first, std::int64_t last, int thread) {
    const int count = static_cast<int>(last - first);
    std::vector<VertexId> vertices(at(count));
    for (int i = 0; i < count; ++i) vertices[at(i)] = static_cast<VertexId>(first + i);
    StageView view{work_, state};
    TransientSums transient;
    if (sums == Sums::Transient) {
      transient =
          sum_transient(stage, state, vertices.front(), static_cast<VertexId>(last), thread, scratch[at(thread)]);
      view.transient = &transient;
    }
    Registers& registers = work_.registers[at(thread)];
    registers.prepare(work_.program, static_cast<int>(rows));
    livegnn::run_stage(
        stage, view, vertices.data(), count, registers, [&](const Instruction& step, Registers& r, int from, int run) {
          for (int i = 0; i < run; ++i) {
            const VertexId v = vertices[at(from + i)];
            if (step.op != Op::Output) work_.check_stored(step, v, r.row(step.a, i));
            float* to = step.op == Op::Output ? out(v) : state.stored[at(work_.stored_table(step))].row(v);
            std::memcpy(to, r.row(step.a, i), at(step.width) * sizeof(float));
          }
        });
  };
  work_.pass([&](std::int64_t first, std::int64_t last) { fetch_stage(stage, state, first, last); },
             [&](std::int64_t first, std::int64_t last) {
               work_.pool.run((last - first + rows - 1) / rows, [&](std::int64_t chunk, int thread) {
                 run_chunk(first + chunk * rows, std::min(last, first + (chunk + 1) * rows), thread);
               });
             });
}

void EngineImpl::forward(State& state, bool choose_scales, Sums sums, const OutputRow& out) const {
  const std::int64_t slots = work_.graph.slot_count();
  state.reserve(slots);
  for (DegreeNorm& norm : state.norms) norm.rebuild(work_.graph, 0, static_cast<VertexId>(slots));
  for (int stage = 0; stage < stages(); ++stage) {
    for (std::size_t t = 0; t < state.stored.size(); ++t) {
      if (source().stored[t].stage == stage) state.stored[t].hold_all(slots);
    }
    forward_stage(stage, state, sums, out);
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

Mismatch EngineImpl::differs(VertexId v, const State& fresh, const float* output) const {
  const State& live = work_.state;
  for (std::size_t c = 0; c < fresh.norms.size(); ++c) {
    if (!live.norms[c].equal_row(fresh.norms[c], v)) return {true, describe("degree context", static_cast<int>(c), v)};
  }
  for (std::size_t k = 0; work_.incremental() && k < fresh.aggregates.size(); ++k) {
    if (!work_.operators[k]->agrees(live.aggregates[k].row(v), fresh.aggregates[k].row(v)))
      return {true, describe("aggregate of", static_cast<int>(k), v)};
  }
  const bool kept = work_.incremental() && !work_.compact();
  for (std::size_t t = 0; kept && t < fresh.stored.size(); ++t) {
    if (std::memcmp(live.stored[t].row(v), fresh.stored[t].row(v), at(source().stored[t].width) * sizeof(float)) != 0)
      return {true, describe("stored row", static_cast<int>(t), v)};
  }
  const bool same = work_.options.strategy == Strategy::Sampled || !work_.publication.differs(v, output);
  if (!same) return {true, describe("output", 0, v)};
  return {};
}

Mismatch EngineImpl::verify() const {
  refuse_unsound_files();
  State fresh = work_.new_state(work_.compact(), false);
  const RowTable<float> out = run_from_scratch(fresh);
  Mismatch found;
  work_.pass(
      [&](std::int64_t first, std::int64_t last) {
        for (const State* state : {&work_.state, static_cast<const State*>(&fresh)}) state->fetch(first, last);
        work_.publication.fetch(first, last);
        out.fetch(first, last);
      },
      [&](std::int64_t first, std::int64_t last) {
        for (auto v = static_cast<VertexId>(first); v < last && !found.found; ++v) {
          if (work_.graph.is_live(v)) found = differs(v, fresh, out.row(v));
        }
      });
  return found;
}

std::string EngineImpl::describe(const char* what, int index, VertexId v) const {
  std::string text = std::string(what) + " ";
  if (std::string(what) == "aggregate of") text += work_.aggregation(index).name;
  if (std::string(what) == "stored row") text += source().stored[at(index)].name;
  if (std::string(what) == "degree context") text += std::to_string(index);
  return text + " at vertex " + std::to_string(v);
}

}  // namespace livegnn
