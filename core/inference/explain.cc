// What explanations read: rows as they are, terms of rows, and what a batch has replaced.
#include <algorithm>
#include <cstring>

#include "inference/engine_impl.h"

namespace livegnn {

namespace {

void check_slots(const GraphStore& graph, std::span<const std::int64_t> slots) {
  for (const std::int64_t slot : slots)
    invariant(slot >= 0 && slot < graph.slot_count(), "slots of the graph in an explanation");
}

}  // namespace

void EngineImpl::stored_rows(int table, std::span<const std::int64_t> slots, float* out) const {
  refuse_unsound_files();
  check_slots(work_.graph, slots);
  const bool features = table < 0;
  const auto width = at(features ? source().input_width : source().stored.at(at(table)).width);
  std::vector<float> buffer(at(work_.graph.feature_stride()));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto v = static_cast<VertexId>(slots[i]);
    const float* row = features ? work_.graph.feature_row(v, buffer.data()) : work_.state.stored[at(table)].row(v);
    std::memcpy(out + i * width, row, width * sizeof(float));
  }
}

void EngineImpl::factors(int context, std::span<const std::int64_t> slots, float* out) const {
  check_slots(work_.graph, slots);
  const DegreeNorm& norm = work_.state.norms.at(at(context));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    out[2 * i] = norm.scale(static_cast<VertexId>(slots[i]));
    out[2 * i + 1] = norm.loop(static_cast<VertexId>(slots[i]));
  }
}

void EngineImpl::aggregate_rows(int k, std::span<const std::int64_t> slots, std::int64_t* out) const {
  refuse_unsound_files();
  check_slots(work_.graph, slots);
  const RowTable<std::int64_t>& table = work_.state.aggregates.at(at(k));
  for (std::size_t i = 0; i < slots.size(); ++i)
    std::memcpy(out + i * at(table.stride()), table.row(static_cast<VertexId>(slots[i])), table.row_bytes());
}

bool EngineImpl::terms(int k, const TermOperands& given, std::int64_t* out) const {
  return work_.operators.at(at(k))->terms(given, out);
}

EdgeTerms EngineImpl::edge_terms(int k, VertexId v) const {
  refuse_unsound_files();
  return work_.operators.at(at(k))->edge_terms(v);
}

// ---- what a batch has replaced

void EngineImpl::record(std::span<const int> tables, bool on) {
  records_ = on;
  record_ = {};
  for (std::size_t t = 0; t < work_.row_users.size(); ++t)
    work_.row_users[t].recorded = std::find(tables.begin(), tables.end(), static_cast<int>(t)) != tables.end();
}

// The edges and features of a batch that is about to be propagated.
void EngineImpl::note_batch(const BatchDelta& delta) {
  if (!records_) [[likely]]
    return;
  record_ = {};
  record_.sound = !broken_;
  record_.added = delta.added;
  record_.removed = delta.removed;
  record_.reweighted = delta.reweighted;
  const int width = work_.graph.feature_stride();
  record_.features = {-1, width, delta.features_changed, delta.features_before};
}

BatchRecord EngineImpl::recorded() const {
  BatchRecord found = record_;
  if (!found.sound) return found;
  for (std::size_t t = 0; t < work_.row_users.size(); ++t) {
    if (!work_.row_users[t].recorded) continue;
    ReplacedRows& replaced = found.tables.emplace_back();
    replaced.number = static_cast<int>(t);
    replaced.width = source().stored[t].width;
    work_.rows_before[t].visit([&](VertexId v, const char* row) {
      const auto* values = reinterpret_cast<const float*>(row);
      replaced.vertices.push_back(v);
      replaced.rows.insert(replaced.rows.end(), values, values + replaced.width);
    });
  }
  for (std::size_t c = 0; c < work_.state.norms.size(); ++c) {
    ReplacedRows& replaced = found.contexts.emplace_back();
    replaced.number = static_cast<int>(c);
    replaced.width = 2;
    work_.state.norms[c].visit_before([&](VertexId v, float scale, float loop) {
      replaced.vertices.push_back(v);
      replaced.rows.insert(replaced.rows.end(), {scale, loop});
    });
  }
  return found;
}

}  // namespace livegnn
