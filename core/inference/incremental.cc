// One batch, layer by layer: old messages leave and enter along changed edges, changed rows are transformed once, and
// only rows whose bits changed go on.
#include <algorithm>
#include <cstring>
#include <utility>

#include "inference/engine_impl.h"
#include "inference/operators/changed_edges.h"
#include "inference/operators/whole_rows.h"

namespace livegnn {

namespace {

constexpr std::size_t kPrefetched = 8;      // updates; more would push each other out of the cache
constexpr std::int64_t kMovesShare = 1024;  // rows that a thread copies at a time
constexpr std::int64_t kSummedShare = 64;   // and that it sums again

}  // namespace

void EngineImpl::grow() {
  Workspace& w = work_;
  const std::int64_t slots = w.graph.slot_count();
  w.slots = static_cast<VertexId>(slots);
  if (w.incremental()) {
    for (auto& table : w.state.aggregates) table.reserve(slots);
    for (auto& table : w.state.stored) table.reserve(slots);
  }
  w.dirty.resize(source().stages.size());
  for (VertexSet& set : w.dirty) set.prepare(slots, w.pool.threads());
  if (source().typed) w.retyped.prepare(slots, 1);
  w.input_changed.prepare(slots, 1);
  reserve_places(w.input_slot, slots);
  w.publication.prepare(w.slots_before, w.slots);
  w.stats.assign(source().stages.size(), StageStats{});
  for (const auto& op : w.operators) op->begin();
  if (w.trade != nullptr) w.trade->begin(*w.delta);
  w.result_rows.resize(source().stages.size());
  for (int stage = 0; w.incremental() && stage < stages(); ++stage) w.find_result_rows(stage);
}

// What may refuse a batch before any row has changed.
void EngineImpl::prepare(const BatchDelta& delta) {
  const double begun = seconds_now();
  if (work_.trade != nullptr && !journal_armed_) {
    begin_journal();  // a part goes back alone, without the others
    saves_less_ = true;
  }
  work_.slots_before = work_.slots;
  refuse_unsound_files();
  if (broken_ || defers()) {  // degrees follow when the state does
    check_deferred(delta);
  } else {
    in_step([&] {
      take_degrees(delta);
      if (work_.trade != nullptr) work_.trade->send_factors();
    });
  }
  prepare_seconds_ = seconds_now() - begun;
}

void EngineImpl::abort() {
  prepare_seconds_ = 0.0;
  if (work_.trade != nullptr) journal_armed_ = false;
  if (!prepared_) return;
  for (DegreeNorm& norm : work_.state.norms) norm.restore();
  prepared_ = false;
}

void EngineImpl::take_degrees(const BatchDelta& delta) {
  work_.check_degrees(delta);
  for (DegreeNorm& norm : work_.state.norms) norm.forget();  // so that stepping back is right at any moment
  prepared_ = true;
  for (DegreeNorm& norm : work_.state.norms) norm.update(work_.graph, delta, work_.slots_before);
}

void EngineImpl::propagate(const BatchDelta& delta) {
  started_ = seconds_now() - std::exchange(prepare_seconds_, 0.0);
  refuse_unsound_files();
  added_ = delta.vertices_added;
  removed_ = delta.vertices_removed;
  if (source().typed) {  // a slot that has gone from one type to another within the batch is a new vertex, too
    added_ = delta.vertices_retyped;
    std::erase_if(added_, [&](VertexId v) { return !work_.graph.is_live(v); });
  }
  work_.slots_before = work_.slots;
  if (defers()) return defer(delta);
  in_step([&] { propagate_now(delta); });
}

// What other parts wait for: where it fails, they must not wait for ever.
template <typename Work>
void EngineImpl::in_step(Work&& work) {
  try {
    work();
  } catch (...) {
    if (work_.trade != nullptr) work_.trade->halo().fail();
    throw;
  }
}

void EngineImpl::propagate_now(const BatchDelta& delta) {
  Workspace& w = work_;
  w.slots_before = w.slots;
  w.delta = &delta;
  note_batch(delta);
  if (broken_) {  // what this batch brings is in the graph already
    w.stats.assign(source().stages.size(), StageStats{});
    build_state(true);
    outputs_stale_ = false;
    return;
  }
  w.begin_rows_before();  // of an earlier batch they are no journal
  if (journal_armed_ || w.compact()) begin_saving();
  grow();
  if (!prepared_) take_degrees(delta);
  prepared_ = false;
  for (std::size_t i = 0; i < delta.features_changed.size(); ++i) {
    w.input_changed.add(delta.features_changed[i]);
    w.input_slot[at(delta.features_changed[i])] = static_cast<std::uint32_t>(i);
  }
  if (w.options.strategy == Strategy::Full) return propagate_full();
  if (!w.incremental()) return propagate_neighbourhoods();
  mark_new_vertices(delta);
  for (const VertexId v : demanded_) w.dirty.back().add(v);
  if (w.compact()) {
    w.note_before();
    w.derive_sources();
  }
  apply_edges();
  for (const int stage : source().input_consumers) {
    for (const VertexId v : delta.features_changed) w.dirty[at(stage)].add(v);
  }
  topology_seconds_ = seconds_now() - started_;
  w.finished = false;
  for (int stage = 0; stage < stages() && !w.finished; ++stage) run_stage(stage);
  w.stats.back().affected = w.dirty.back().size();
}

void EngineImpl::begin_saving() {
  Workspace& w = work_;
  w.journal.begin(w.state, w.graph.slot_count(), w.pool.threads());
  for (std::size_t k = 0; saves_less_ && k < w.operators.size(); ++k) {
    if (w.operators[k]->sums_again())
      w.journal.save_only(static_cast<int>(k), w.trade->rows_of_stale(static_cast<int>(k)));
  }
}

// The aggregates that the journal has left out, after a batch that was taken back: stored rows, degrees and the graph
// are as before it. A row that has changed has been marked dirty first. A slot that is free again has zeros, as before.
void EngineImpl::sum_again(VertexId slots_after) {
  Workspace& w = work_;
  if (w.dirty.empty()) return;  // the batch had not come so far
  for (std::size_t k = 0; k < w.operators.size(); ++k) {
    const VertexSet* saved = w.journal.saved_only(static_cast<int>(k));
    if (saved == nullptr) continue;
    const Operator& op = *w.operators[k];
    RowTable<std::int64_t>& table = w.state.aggregates[k];
    const VertexSet& dirty = w.dirty[at(w.aggregation(static_cast<int>(k)).consumers.front())];
    std::vector<VertexId> rows;
    for (VertexId v = 0; v < w.slots; ++v) {
      if (dirty.contains(v) && !saved->contains(v) && !w.is_ghost(v)) rows.push_back(v);
    }
    w.in_shares(static_cast<std::int64_t>(rows.size()), kSummedShare,
                [&](std::int64_t first, std::int64_t last, int thread) {
                  PlacedRows sink(op, true, [&](VertexId v) { return table.row(v); });
                  op.compute(w.state, {rows.data(), first, last}, false, thread, sink);
                });
    for (VertexId v = w.slots; v < std::min<std::int64_t>(slots_after, table.capacity()); ++v)
      std::memset(static_cast<void*>(table.row(v)), 0, table.row_bytes());
  }
}

// The store looks its edges up while these rows are on their way.
void EngineImpl::prefetch(const UpdateBuffer& batch) const {
  refuse_unsound_files();  // before the graph has changed
  if (batch.size() > kPrefetched || !work_.incremental() || work_.result_rows.empty()) return;
  const ResultRows& first = work_.result_rows.front();
  const auto known = [&](std::int64_t v) { return v >= 0 && v < first.limit; };
  for (const Update& update : batch.updates()) {
    if (update.kind == UpdateKind::SetFeatures && known(update.u)) {
      first.prefetch(static_cast<VertexId>(update.u));
    } else if ((update.kind == UpdateKind::AddEdge || update.kind == UpdateKind::RemoveEdge) && known(update.u) &&
               known(update.v)) {
      for (const auto& op : work_.operators)
        op->prefetch_ends(static_cast<VertexId>(update.u), static_cast<VertexId>(update.v));
    }
  }
}

void EngineImpl::mark_new_vertices(const BatchDelta& delta) {
  for (VertexId v = work_.slots_before; v < work_.slots; ++v) {
    for (VertexSet& set : work_.dirty) set.add(v);
    if (source().typed) work_.retyped.add(v);  // also a slot that the batch has made and left free
  }
  if (!source().typed) return;
  for (const VertexId v : delta.vertices_retyped) {
    work_.retyped.add(v);
    for (VertexSet& set : work_.dirty) set.add(v);
  }
}

void EngineImpl::apply_edges() {
  for (const auto& op : work_.operators) {
    for (const auto* edges : {&work_.delta->removed, &work_.delta->added}) {
      for (std::size_t i = 0; i < std::min(edges->size(), kEdgesAhead); ++i)
        op->prefetch_ends((*edges)[i].src, (*edges)[i].dst);
    }
  }
  for (const auto& op : work_.operators) op->apply_edges();
}

void EngineImpl::run_stage(int stage) {
  Workspace& w = work_;
  VertexSet& dirty = w.dirty[at(stage)];
  if (w.trade != nullptr && !w.trade->needs_ghosts(stage)) dirty.keep([&](VertexId v) { return !w.is_ghost(v); });
  if (w.restricted) dirty.keep([&](VertexId v) { return w.needed[at(stage)].contains(v); });
  const std::vector<VertexId>& rows =
      source().typed ? dirty.collect_by([&](VertexId v) { return w.graph.vertex_type(v); }) : dirty.collect();
  StageStats& stats = w.stats[at(stage)];
  stats.affected = static_cast<std::int64_t>(rows.size());
  const double begun = seconds_now();
  w.derive_loaded(stage, rows);
  w.derive_rows(stage, rows);
  for (const auto& op : w.operators) {
    if (op->stage() == stage) op->plan(rows);
  }
  if (!rows.empty()) w.transform_rows(stage, rows);
  for (const auto& op : w.operators) {
    if (op->stage() == stage) op->take_others();
  }
  if (w.trade != nullptr) w.trade->send_stage(stage);
  const double transformed = seconds_now();
  stats.transform_seconds = transformed - begun;
  settle(stage);
  stats.aggregate_seconds = seconds_now() - transformed;
}

// One operator may finish the last stage for the rows that it changes, while they are in the cache: once the others
// have settled.
void EngineImpl::settle(int stage) {
  // Rows that are finished so come in no order of types, so there would be no blocks of them, and no rows are derived
  // for them.
  const bool before_last =
      stage + 2 == stages() && !source().typed && !work_.restricted && work_.loaded_tables(stage + 1).empty();
  Operator* last = nullptr;
  for (const auto& op : work_.operators) {
    if (op->stage() == stage && op->facts.may_finish) last = op.get();
  }
  for (const auto& op : work_.operators) {
    if (op->stage() == stage && op.get() != last) op->settle(false);
  }
  if (last != nullptr) last->settle(before_last);
}

Changes EngineImpl::publish() {
  const double begun = seconds_now();
  if (work_.compact()) {
    work_.journal.end();
    work_.state.release_rows();
  }
  if (work_.trade != nullptr) {
    work_.trade->keep();
    work_.journal.end(true);
    for (std::size_t t = 0; t < work_.rows_before.size(); ++t) {  // the rest of the journal
      if (work_.row_users[t].keeps() && !work_.row_users[t].recorded) work_.rows_before[t].end(true);
    }
    journal_armed_ = false;
  }
  Changes changes;
  if (moves_max_ >= 0) {
    changes.moves =
        work_.publication.moves(work_.graph, added_, removed_, moves_max_, [&](std::int64_t count, const auto& work) {
          work_.in_shares(count, kMovesShare, [&](std::int64_t first, std::int64_t last, int) { work(first, last); });
        });
  }
  changes.vertices = work_.publication.publish(work_.graph, added_, removed_);
  changes.stages = work_.stats;
  changes.topology_seconds = topology_seconds_;
  const double now = seconds_now();
  changes.publish_seconds = now - begun;
  changes.total_seconds = now - started_;
  return changes;
}

void EngineImpl::begin_journal() {
  journal_armed_ = true;
  saves_less_ = false;
  for (DegreeNorm& norm : work_.state.norms) norm.forget();
}

void EngineImpl::restore_journal() {
  const bool saved = work_.journal.on();
  if (saved) {
    for (std::size_t t = 0; t < work_.rows_before.size(); ++t) {
      if (work_.row_users[t].keeps() && !work_.compact()) work_.rows_before[t].restore(work_.state.stored[t]);
    }
    work_.journal.restore(work_.state);
  }
  for (const auto& op : work_.operators) op->undo();
  if (work_.trade != nullptr) work_.trade->undo();
  work_.state.release_rows();
  for (DegreeNorm& norm : work_.state.norms) norm.restore();
  work_.publication.drop_staged();
  const VertexId slots_after = std::exchange(work_.slots, work_.slots_before);
  if (saved && saves_less_) sum_again(slots_after);
  journal_armed_ = prepared_ = false;
}

}  // namespace livegnn
