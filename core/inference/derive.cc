// Rows of a compact state (NeutronRT, section V.B: aggregates are kept, what follows from them is computed again).
// Before a batch uses a vertex's old rows, or replaces them, they are derived from the state before the batch:
// aggregates that have changed meanwhile are in the journal, old features and degrees in the batch's record. From then
// on the rows are where they would be if they were kept, until the batch is published.
#include "inference/terms.h"

namespace livegnn {

namespace {

constexpr std::int64_t kParallelRows = 64;

}  // namespace

template <typename Acc>
struct EngineImpl<Acc>::ViewBefore {
  const EngineImpl& engine;

  void read_input(VertexId v, float* out, std::int32_t width) const {
    std::memcpy(out, engine.input_before(v, input_buffer(engine.graph_, 0)), at(width) * sizeof(float));
  }
  const RowTable<Acc>& table(int k) const { return engine.state_.aggregates[at(k)]; }
  const Acc* aggregate(int k, VertexId v) const {
    const Acc* before = engine.journal_.aggregate_before(k, v);
    return before != nullptr ? before : table(k).row(v);
  }
  void prefetch_sum(int k, VertexId v) const { prefetch_row(table(k).row(v), table(k).row_bytes()); }
  std::int32_t in_edges(const AggregationSpec& spec, VertexId v) const {
    if (spec.relation >= 0) return engine.state_.contexts[at(spec.context)].edges_before(v);
    const auto gained = engine.in_edges_gained_.find(v);
    return engine.graph_.in_degree(v) - (gained == engine.in_edges_gained_.end() ? 0 : gained->second);
  }
  float scale(int context, VertexId v) const { return engine.state_.contexts[at(context)].scale_before(v); }
  const StoredRows& stored(int t) const { return engine.state_.stored[at(t)]; }
  void prefetch_factor(const AggregationSpec&, VertexId) const {}
  std::int32_t type(VertexId v) const { return engine.graph_.vertex_type(v); }  // compact states have no types
};

template <typename Acc>
bool EngineImpl<Acc>::makes_rows(int stage) const {
  for (const StoredSpec& spec : source().stored) {
    if (spec.stage == stage) return true;
  }
  return false;
}

template <typename Acc>
void EngineImpl<Acc>::note_degrees(const BatchDelta& delta) {
  in_edges_gained_.clear();
  for (const EdgeRecord& edge : delta.added) ++in_edges_gained_[edge.dst];
  for (const EdgeRecord& edge : delta.removed) --in_edges_gained_[edge.dst];
}

// Vertices that this batch has brought had no rows before: theirs are zero, as in tables that are kept.
template <typename Acc>
void EngineImpl<Acc>::derive_rows(int stage, const std::vector<VertexId>& vertices) {
  std::vector<int> tables;
  for (std::size_t t = 0; t < source().stored.size(); ++t) {
    if (source().stored[t].stage == stage) tables.push_back(static_cast<int>(t));
  }
  if (tables.empty()) return;
  for (const int t : tables) state_.stored[at(t)].reserve_held(static_cast<std::int64_t>(vertices.size()));
  std::vector<VertexId> wanted;
  for (const VertexId v : vertices) {
    if (state_.stored[at(tables.front())].has(v)) continue;
    for (const int t : tables) state_.stored[at(t)].hold(v);
    if (v < slots_before_) wanted.push_back(v);
  }
  const auto total = static_cast<std::int64_t>(wanted.size());
  const std::int64_t chunk = std::clamp<std::int64_t>(total / (2 * pool_.threads()), 12, program_.chunk_rows());
  const auto run = [&](std::int64_t index, int thread) {
    const std::int64_t first = index * chunk;
    const int count = static_cast<int>(std::min(chunk, total - first));
    Registers& registers = registers_[at(thread)];
    registers.prepare(program_, std::min(program_.chunk_rows(), std::max(count, 8)));
    run_stage(program_, stage, ViewBefore{*this}, scales_, wanted.data() + first, count, registers,
              [&](const Instruction& step, Registers& r, int from, int rows) {
                const int t = step.op == Op::StoreMessage ? aggregation(step.index).message_table : step.index;
                for (int i = 0; i < rows; ++i) {
                  std::memcpy(state_.stored[at(t)].row(wanted[at(first + from + i)]), r.row(step.a, i),
                              at(step.width) * sizeof(float));
                }
              });
  };
  const std::int64_t chunks = (total + chunk - 1) / chunk;
  if (total > kParallelRows) return pool_.run(chunks, run);
  for (std::int64_t index = 0; index < chunks; ++index) run(index, 0);
}

// The old messages that move along changed edges.
template <typename Acc>
void EngineImpl<Acc>::derive_sources(const BatchDelta& delta) {
  std::vector<VertexId> sources;
  for (const EdgeRecord& edge : delta.added) sources.push_back(edge.src);
  for (const EdgeRecord& edge : delta.removed) sources.push_back(edge.src);
  for (const EdgeReweighted& edge : delta.reweighted) sources.push_back(edge.before.src);
  for (int stage = 0; stage < static_cast<int>(source().stages.size()); ++stage) {
    if (makes_rows(stage)) derive_rows(stage, sources);
  }
}

template <typename Acc>
void EngineImpl<Acc>::derive_all(int stage) {
  if (!makes_rows(stage)) return;
  std::vector<VertexId> all(at(slots_));
  for (VertexId v = 0; v < slots_; ++v) all[at(v)] = v;
  derive_rows(stage, all);
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
