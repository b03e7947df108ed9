// Rows of a batch through a stage: evaluated a chunk at a time, and what they store handed on.
#include <algorithm>
#include <cstring>

#include "inference/view.h"

namespace livegnn {

namespace {

constexpr double kParallelSeconds = 50e-6;  // of work; below this, sharing costs more than it saves

}  // namespace

void Workspace::transform_rows(int stage, const std::vector<VertexId>& rows) {
  const auto total = static_cast<std::int64_t>(rows.size());
  std::int64_t chunk = program.chunk_rows();
  const bool parallel =
      pool.threads() > 1 && static_cast<double>(total) * program.row_seconds(stage) > kParallelSeconds;
  if (parallel) {
    const std::int64_t share = (total + 2 * pool.threads() - 1) / (2 * pool.threads());
    chunk = std::clamp<std::int64_t>((share + 11) / 12 * 12, 12, chunk);
  }
  const std::int64_t ahead = parallel ? pool.threads() : 1;  // chunks: that one, while this one is worked on
  const auto ask = [&](std::int64_t from) {
    for (std::int64_t i = from; i < std::min(total, from + chunk); ++i) result_rows[at(stage)].prefetch(rows[at(i)]);
  };
  in_chunks(total, chunk, parallel, [&](std::int64_t first, std::int64_t last, int thread) {
    if (first < ahead * chunk) ask(first);
    ask(first + ahead * chunk);
    evaluate_rows(stage, rows.data() + first, static_cast<int>(last - first), at(first), thread);
  });
}

// Rows of one chunk through a stage; `first` is the place of the chunk among the stage's rows.
void Workspace::evaluate_rows(int stage, const VertexId* rows, int count, std::size_t first, int thread) {
  run_stage(stage, StageView{*this, state}, rows, count, thread, [&](const Instruction& step, int i, float* row) {
    if (step.op == Op::Output) return publication.stage(rows[i], row, thread);
    std::fill(row + step.width, row + round_up(step.width, 16), 0.0f);
    keep_result(step, rows[i], row, first + at(i), thread);
  });
  if (retyped.size() > 0) clear_other_types(stage, rows, count, first, thread);
}

// A row that a Store instruction has made, padding included; `index` is the vertex's place among the stage's rows.
void Workspace::keep_result(const Instruction& step, VertexId v, const float* row, std::size_t index, int thread) {
  if (step.op == Op::StoreRow) return store_row(step.index, v, row, thread);
  const float* before = state.stored[at(aggregation(step.index).message_table)].row(v);
  const bool differ = std::memcmp(before, row, at(step.width) * sizeof(float)) != 0;
  operators[at(step.index)]->take_message({v, before, row, differ}, index, thread);
}

// Rows that are not of a vertex's type are zero: where the type has changed, what the old one left is cleared.
void Workspace::clear_other_types(int stage, const VertexId* rows, int count, std::size_t first, int thread) {
  for (const Instruction& step : source().stages[at(stage)]) {
    if (step.type < 0 || (step.op != Op::StoreMessage && step.op != Op::StoreRow)) continue;
    const std::vector<float> zeros(at(round_up(step.width, 16)), 0.0f);
    for (int i = 0; i < count; ++i) {
      if (!retyped.contains(rows[i]) || graph.vertex_type(rows[i]) == step.type) continue;
      keep_result(step, rows[i], zeros.data(), first + at(i), thread);
    }
  }
}

// The rows that a stage's results will be compared with or added to, so that they can be asked for early. The lists
// keep their memory from batch to batch.
void Workspace::find_result_rows(int stage) {
  ResultRows& rows = result_rows[at(stage)];
  rows.tables.clear();
  rows.stored.clear();
  rows.norms.clear();
  rows.changed.clear();
  rows.before.clear();
  rows.outputs = nullptr;
  const auto add_stored = [&](int t) {
    const RowUsers& users = row_users[at(t)];
    rows.stored.push_back(&state.stored[at(t)]);
    rows.changed.insert(rows.changed.end(), users.changed.begin(), users.changed.end());
    if (users.keeps()) rows.before.push_back(&rows_before[at(t)]);
  };
  for (const Instruction& step : source().stages[at(stage)]) {
    if (step.op == Op::StoreMessage) {
      const AggregationSpec& spec = aggregation(step.index);
      if (spec.root == Root::Message) rows.tables.push_back(&state.aggregates[at(step.index)]);
      add_stored(spec.message_table);
      if (spec.scaled()) rows.norms.push_back(&state.norms[at(spec.context)]);
    } else if (step.op == Op::StoreRow) {
      const int root_of = row_users[at(step.index)].root_of;
      if (root_of >= 0) rows.tables.push_back(&state.aggregates[at(root_of)]);
      add_stored(step.index);
    } else if (step.op == Op::Output) {
      rows.outputs = &publication;
    } else if (step.op == Op::LoadStored) {
      rows.stored.push_back(&state.stored[at(step.index)]);
    }
  }
  rows.limit = std::min<VertexId>(slots_before, slots);
}

void Workspace::store_row(int index, VertexId v, const float* row, int thread) {
  const StoredSpec& spec = source().stored[at(index)];
  const RowUsers& users = row_users[at(index)];
  const float* kept = state.stored[at(index)].row(v);
  if (std::memcmp(kept, row, at(spec.width) * sizeof(float)) == 0) return;
  if (users.finite_for >= 0) check_finite(users.finite_for, v, row, spec.width);
  if (users.root_of >= 0 && !is_ghost(v)) operators[at(users.root_of)]->take_root(v, kept, row, thread);
  replace_stored(index, v, row, thread);
}

void Workspace::begin_rows_before() {
  for (std::size_t t = 0; t < rows_before.size(); ++t) {
    if (row_users[t].keeps()) rows_before[t].begin(graph.slot_count(), pool.threads(), state.stored[t].row_bytes());
  }
}

// Puts a row that differs in its place, and marks what reads it.
void Workspace::replace_stored(int index, VertexId v, const float* row, int thread) {
  const RowUsers& users = row_users[at(index)];
  StoredRows& table = state.stored[at(index)];
  mark_consumers(source().stored[at(index)].consumers, v, thread);
  for (VertexSet* set : users.changed) set->add(v, thread);
  if (users.keeps()) {
    rows_before[at(index)].save(v, table.row(v), thread);
  } else if (journal.on() && !compact()) {
    journal.save_stored(index, v, table.row(v), thread);
  }
  std::memcpy(table.row(v), row, table.row_bytes());
}

}  // namespace livegnn
