// Rows of a compact state (NeutronRT, section V.B: aggregates are kept, what follows from them is computed again).
// Before a batch uses a vertex's old rows, or replaces them, they are derived from the state before the batch:
// aggregates that have changed meanwhile are in the journal, old features and degrees in the batch's record. From then
// on the rows are where they would be if they were kept, until the batch is published.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "inference/message_rows.h"
#include "inference/view.h"

namespace livegnn {

namespace {

constexpr std::int64_t kParallelRows = 64;

}  // namespace

void StageView::read_input(VertexId v, float* out, std::int32_t width) const {
  if (!before) return work.graph.read_features(v, out, width);
  std::memcpy(out, work.input_before(v, input_buffer(work.graph, 0)), at(width) * sizeof(float));
}

std::int32_t StageView::in_edges_before(const AggregationSpec& spec, VertexId v) const {
  if (spec.relation >= 0) return state.norms[at(spec.context)].edges_before(v);
  const auto& edges_gained = work.edges_gained[spec.reversed ? 1 : 0];
  const auto gained = edges_gained.find(v);
  return Flow(work.graph, spec).in_degree(v) - (gained == edges_gained.end() ? 0 : gained->second);
}

std::int32_t StageView::type_before(VertexId v) const {
  const auto retyped = work.types_before.find(v);
  return retyped == work.types_before.end() ? work.graph.vertex_type(v) : retyped->second;
}

// The last stage after which a run from scratch reads rows of a table.
int Workspace::last_use(int table) const {
  int last = source().stored[at(table)].stage;
  const auto has = [&](const std::vector<int>& tables) {
    return std::find(tables.begin(), tables.end(), table) != tables.end();
  };
  for (std::size_t k = 0; k < operators.size(); ++k) {
    const Operands& read = operators[k]->operands();
    if (has(read.sources) || has(read.targets)) last = std::max(last, operators[k]->stage());
    if (has(read.loaded)) last = std::max(last, source().aggregations[k].consumers.back());
  }
  return last;
}

void Workspace::note_before() {
  for (const bool reversed : {false, true}) {
    auto& gained = edges_gained[reversed ? 1 : 0];
    gained.clear();
    if (reversed ? !goes_back : !goes_forward) continue;
    for (const EdgeRecord& edge : delta->added) ++gained[reversed ? edge.src : edge.dst];
    for (const EdgeRecord& edge : delta->removed) --gained[reversed ? edge.src : edge.dst];
  }
  types_before.clear();
  for (std::size_t i = 0; i < delta->vertices_retyped.size(); ++i) {
    types_before[delta->vertices_retyped[i]] = delta->types_before[i];
  }
}

// Rows of earlier stages that a stage of a compact state reads of its vertices themselves.
std::vector<int> Workspace::loaded_tables(int stage) const {
  std::vector<int> tables;
  for (std::size_t k = 0; compact() && k < operators.size(); ++k) {
    const std::vector<int>&consumers = source().aggregations[k].consumers, &loaded = operators[k]->operands().loaded;
    if (std::find(consumers.begin(), consumers.end(), stage) != consumers.end())
      tables.insert(tables.end(), loaded.begin(), loaded.end());
  }
  return tables;
}

void Workspace::derive(const std::vector<int>& tables, const std::vector<VertexId>& vertices) {
  for (const int t : tables) derive_rows(source().stored[at(t)].stage, vertices);
}

// Vertices that this batch has brought had no rows before: theirs are zero, as in tables that are kept.
void Workspace::derive_rows(int stage, const std::vector<VertexId>& vertices) {
  if (!compact()) return;
  std::vector<int> tables;
  for (std::size_t t = 0; t < source().stored.size(); ++t) {
    if (source().stored[t].stage == stage) tables.push_back(static_cast<int>(t));
  }
  if (tables.empty()) return;
  for (const int t : tables) state.stored[at(t)].reserve_held(static_cast<std::int64_t>(vertices.size()));
  std::vector<VertexId> wanted;
  for (const VertexId v : vertices) {
    if (state.stored[at(tables.front())].has(v)) continue;
    for (const int t : tables) state.stored[at(t)].hold(v);
    if (v < slots_before) wanted.push_back(v);
  }
  derive_loaded(stage, wanted);
  const auto total = static_cast<std::int64_t>(wanted.size());
  const std::int64_t chunk = std::clamp<std::int64_t>(total / (2 * pool.threads()), 12, program.chunk_rows());
  in_chunks(total, chunk, total > kParallelRows, [&](std::int64_t first, std::int64_t last, int thread) {
    run_stage(stage, StageView{*this, state, true}, wanted.data() + first, static_cast<int>(last - first), thread,
              [&](const Instruction& step, int i, const float* row) {
                float* to = state.stored[at(stored_table(step))].row(wanted[at(first + i)]);
                std::memcpy(to, row, at(step.width) * sizeof(float));
              });
  });
}

// The old messages that move along changed edges.
void Workspace::derive_sources() {
  std::vector<VertexId> sources;
  const auto add = [&](const EdgeRecord& edge) {
    if (goes_forward) sources.push_back(edge.src);
    if (goes_back) sources.push_back(edge.dst);
  };
  for (const auto* edges : {&delta->added, &delta->removed, &delta->reattributed}) {
    for (const EdgeRecord& edge : *edges) add(edge);
  }
  for (const EdgeReweighted& edge : delta->reweighted) add(edge.before);
  for (int stage = 0; stage < static_cast<int>(source().stages.size()); ++stage) derive_rows(stage, sources);
}

void Operator::derive_operands(const std::vector<VertexId>& rows) const {
  if (!work_.compact()) return;
  std::vector<VertexId> sources;
  for (const VertexId v : rows) {
    flow_.visit_in(
        v, [&](const EdgeSpan& span) { sources.insert(sources.end(), span.neighbours, span.neighbours + span.count); });
  }
  work_.derive(operands_.targets, rows);
  work_.derive(operands_.sources, sources);
}

void Operator::derive_all() const {
  if (!work_.compact()) return;
  std::vector<VertexId> all(at(work_.slots));
  std::iota(all.begin(), all.end(), 0);
  work_.derive(operands_.sources, all);
  work_.derive(operands_.targets, all);
}

}  // namespace livegnn
