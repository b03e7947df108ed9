// What a stage reads, and the run of its instructions on a chunk of rows.
#pragma once

#include <algorithm>
#include <cstring>

#include "inference/operators/operator.h"
#include "inference/workspace.h"

namespace livegnn {

// Sums of the rows at work, one after the other, that are read once and kept in no table.
struct TransientSums {
  VertexId first = 0;                         // of the rows at work
  std::vector<const std::int64_t*> of_first;  // per aggregation; null where a table keeps its sums
};

// A state as it is now, or the engine's own as it was before the batch (derive.cc).
struct StageView {
  const Workspace& work;
  const State& state;
  bool before = false;
  const TransientSums* transient = nullptr;

  void read_input(VertexId v, float* out, std::int32_t width) const;
  const std::int64_t* aggregate(int k, VertexId v) const {
    if (before) [[unlikely]]
      return work.journal.aggregate(k).find(v, table(k).row(v));
    if (const std::int64_t* sum = transient_sum(k); sum != nullptr)
      return sum + std::int64_t{v - transient->first} * table(k).stride();
    return table(k).row(v);
  }
  void prefetch_aggregate(int k, VertexId v) const {
    if (transient_sum(k) == nullptr) prefetch_row(table(k).row(v), table(k).row_bytes());
  }
  // In-edges of v that count for a mean.
  std::int32_t in_edges(const AggregationSpec& spec, VertexId v) const {
    if (before) [[unlikely]]
      return in_edges_before(spec, v);
    return spec.relation < 0 ? Flow(work.graph, spec).in_degree(v) : state.norms[at(spec.context)].edges(v);
  }
  float scale(int norm, VertexId v) const {
    return before ? state.norms[at(norm)].scale_before(v) : state.norms[at(norm)].scale(v);
  }
  std::int32_t type(VertexId v) const { return before ? type_before(v) : work.graph.vertex_type(v); }
  const StoredRows& stored(int t) const { return state.stored[at(t)]; }
  const float* stored_row(int t, VertexId v) const {  // of a kind with keep_before
    return before ? work.rows_before[at(t)].find(v, stored(t).row(v)) : stored(t).row(v);
  }

 private:
  const RowTable<std::int64_t>& table(int k) const { return state.aggregates[at(k)]; }
  const std::int64_t* transient_sum(int k) const { return transient == nullptr ? nullptr : transient->of_first[at(k)]; }
  std::int32_t in_edges_before(const AggregationSpec& spec, VertexId v) const;
  std::int32_t type_before(VertexId v) const;
};

// Rows first <= i < last of vertices of one type through a stage; run_stage says the rest.
template <typename Sink>
void run_rows(int stage, std::int32_t type, const StageView& view, const VertexId* vertices, int first, int last,
              Registers& registers, Sink&& sink) {
  const Workspace& work = view.work;
  const int count = last - first;
  const VertexId* const here = vertices + first;
  for (const Instruction& step : work.source().stages[at(stage)]) {
    if (step.type >= 0 && step.type != type) continue;
    switch (step.op) {
      case Op::LoadInput:
        for (int i = 0; i < count; ++i) view.read_input(here[i], registers.row(step.out, i), step.width);
        break;
      case Op::LoadAggregate:
        work.operators[at(step.index)]->load(view, here, count, registers.row(step.out, 0), registers.stride(step.out));
        break;
      case Op::LoadStored: {
        const StoredRows& table = view.stored(step.index);
        for (int i = 0; i < count; ++i) {
          if (i + kRowsAhead < count) table.prefetch(here[i + kRowsAhead]);
          std::memcpy(registers.row(step.out, i), table.row(here[i]), at(step.width) * sizeof(float));
        }
        break;
      }
      case Op::StoreMessage:
      case Op::StoreRow:
      case Op::Output:
        for (int i = 0; i < count; ++i) sink(step, first + i, registers.row(step.a, i));
        break;
      default:
        execute(work.program, step, registers, count);
    }
  }
}

// Runs stage `stage` on `count` rows (at most chunk_rows). Where an instruction stores or puts out the row of
// vertices[i], calls sink(instruction, i, row), after everything before it has run.
template <typename Sink>
void run_stage(int stage, const StageView& view, const VertexId* vertices, int count, int thread, Sink&& sink) {
  const Workspace& work = view.work;
  Registers& registers = work.registers[at(thread)];
  registers.prepare(work.program, std::min(work.program.chunk_rows(), std::max(count, 8)));
  const bool typed = work.source().typed;
  int last = 0;
  for (int first = 0; first < count; first = last) {  // a run of vertices of one type
    const std::int32_t type = typed ? view.type(vertices[first]) : kNoVertexType;
    last = first + 1;
    while (last < count && (!typed || view.type(vertices[last]) == type)) ++last;
    run_rows(stage, type, view, vertices, first, last, registers, sink);
  }
}

}  // namespace livegnn
