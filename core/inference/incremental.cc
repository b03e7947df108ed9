// One batch, layer by layer: old messages leave and enter along changed edges, changed rows are transformed once, and
// only rows whose bits changed go on.
//
// Invariant before and after: every aggregate row is the sum, over the graph's present edges, of the messages that are
// stored now. During a batch the sum is kept true step by step: changed edges move OLD messages; then every changed
// message is replaced along all present edges by its delta.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <utility>

#include "inference/terms.h"

namespace livegnn {

namespace {

constexpr double kParallelSeconds = 15e-6;  // of work; below this, waking a thread costs more than it saves
constexpr std::size_t kParallelSources = 64, kSourcesAhead = 4, kDegreesAhead = 12;
constexpr float kFactorFall = 16.0f;     // of a source's factor in one batch, well inside the headroom of messages
constexpr std::size_t kAnticipated = 8;  // updates; more would push each other out of the cache

bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

}  // namespace

template <typename Acc>
double EngineImpl<Acc>::times_range(int k, const float* message, double scale, int first, int width) const {
  const float* up = scales_[at(k)].up.data() + first;
  double largest = 0.0;
  for (int c = 0; c < width; ++c) {
    const double size = std::fabs(scale * static_cast<double>(message[c]) * static_cast<double>(up[c]));
    if (!(size <= largest)) largest = size;  // NaN, too
  }
  return largest / static_cast<double>(limit_);
}

template <typename Acc>
void EngineImpl<Acc>::not_finite(int k, VertexId v) const {
  throw Error(ErrorKind::RangeOverflow, "[Engine] expected finite messages in " + aggregation(k).name +
                                            ", got NaN or infinity at vertex " + std::to_string(v) +
                                            "; check weights and features");
}

template <typename Acc>
void EngineImpl<Acc>::out_of_range(int k, VertexId v, double times) const {
  if (!std::isfinite(times)) not_finite(k, v);
  char size[32];
  std::snprintf(size, sizeof(size), "%.3g", times);
  throw Error(ErrorKind::RangeOverflow, "[apply] expected a message of vertex " + std::to_string(v) + " in " +
                                            aggregation(k).name +
                                            " within the fixed-point range (by default 512 times the largest at "
                                            "creation), got one of " +
                                            size +
                                            " times that range; a batch at work is rolled back: call "
                                            "engine.rescale(headroom=...) first, with more than so many times the "
                                            "headroom");
}

template <typename Acc>
void EngineImpl<Acc>::check_score(int k, float score, VertexId v) const {
  if (std::fabs(score) <= kScoreMax) return;
  throw Error(ErrorKind::RangeOverflow, "[apply] expected attention scores of at most 10^6 in " + aggregation(k).name +
                                            ", got " + std::to_string(score) + " at vertex " + std::to_string(v) +
                                            "; a batch at work is rolled back: scale the features");
}

template <typename Acc>
void EngineImpl<Acc>::check_degrees(const BatchDelta& delta) const {
  if constexpr (std::is_same_v<Acc, float>) return;
  const std::int64_t capacity = std::int64_t{1} << capacity_bits_;
  for (const EdgeRecord& edge : delta.added) {
    if (graph_.in_degree(edge.dst) < capacity) continue;
    throw Error(ErrorKind::RangeOverflow, "[apply] expected in-degrees below " + std::to_string(capacity) + ", got " +
                                              std::to_string(graph_.in_degree(edge.dst)) + " at vertex " +
                                              std::to_string(edge.dst) +
                                              "; the batch was rolled back: call engine.rescale()");
  }
}

template <typename Acc>
void EngineImpl<Acc>::grow() {
  const std::int64_t slots = graph_.slot_count();
  slots_ = static_cast<VertexId>(slots);
  if (++epoch_ == 0) {
    for (VertexSet& set : dirty_) set.forget();
    retyped_.forget();
    for (Touched& touched : touched_) touched.set.forget();
    for (VertexSet& set : moved_sources_) set.forget();
    for (RowsBefore& rows : rows_before_) rows.forget();
    std::fill(input_mark_.begin(), input_mark_.end(), 0);
    epoch_ = 1;
  }
  if (incremental()) {
    for (auto& table : state_.aggregates) table.reserve(slots);
    for (auto& table : state_.stored) table.reserve(slots);
  }
  dirty_.resize(source().stages.size());
  for (VertexSet& set : dirty_) set.prepare(slots, pool_.threads(), epoch_);
  if (source().typed) retyped_.prepare(slots, 1, epoch_);
  if (input_mark_.size() < at(slots)) {
    input_mark_.resize(at(slots + slots / 2 + 16), 0);
    input_slot_.resize(input_mark_.size(), 0);
  }
  if (journal_.on()) journal_.grow(slots);
  publication_.prepare(slots_before_, slots_);
  stats_.assign(source().stages.size(), StageStats{});
  for (int k = 0; k < static_cast<int>(plans_.size()); ++k) {
    if (!aggregation(k).extreme() && !aggregation(k).on_edges()) continue;
    Touched& touched = touched_[at(k)];
    touched.set.prepare(slots, pool_.threads(), epoch_);
    if (touched.flags.size() < at(slots)) touched.flags.resize(at(slots + slots / 2 + 16), 0);
    moved_sources_[at(k)].prepare(slots, pool_.threads(), epoch_);
    prepare_windows(k);
  }
  for (std::size_t t = 0; t < rows_before_.size(); ++t) {
    if (keeps_before(source().stored[t]))
      rows_before_[t].prepare(slots, pool_.threads(), epoch_, source().stored[t].width);
  }
  result_rows_.resize(source().stages.size());
  for (int stage = 0; incremental() && stage < static_cast<int>(result_rows_.size()); ++stage) find_result_rows(stage);
}

// What may refuse a batch before any row has changed.
template <typename Acc>
void EngineImpl<Acc>::admit(const BatchDelta& delta) {
  const double begun = seconds_now();
  slots_before_ = slots_;
  refuse_unsound_files();
  if (broken_ || defers()) {  // degrees follow when the state does
    check_deferred(delta);
  } else {
    take_degrees(delta);
  }
  admit_seconds_ = seconds_now() - begun;
}

template <typename Acc>
void EngineImpl<Acc>::withdraw() {
  admit_seconds_ = 0.0;
  if (!admitted_) return;
  for (DegreeContext& context : state_.contexts) context.restore();
  admitted_ = false;
}

template <typename Acc>
void EngineImpl<Acc>::take_degrees(const BatchDelta& delta) {
  check_degrees(delta);
  for (DegreeContext& context : state_.contexts) context.forget();  // so that stepping back is right at any moment
  admitted_ = true;
  for (DegreeContext& context : state_.contexts) context.update(graph_, delta, slots_before_);
}

template <typename Acc>
void EngineImpl<Acc>::propagate(const BatchDelta& delta) {
  started_ = seconds_now() - std::exchange(admit_seconds_, 0.0);
  refuse_unsound_files();
  added_ = delta.vertices_added;
  removed_ = delta.vertices_removed;
  if (source().typed) {  // a slot that has gone from one type to another within the batch is a new vertex, too
    added_ = delta.vertices_retyped;
    std::erase_if(added_, [&](VertexId v) { return !graph_.is_live(v); });
  }
  slots_before_ = slots_;
  if (defers()) return defer(delta);
  propagate_now(delta);
}

template <typename Acc>
void EngineImpl<Acc>::propagate_now(const BatchDelta& delta) {
  slots_before_ = slots_;
  delta_ = &delta;
  if (broken_) {  // what this batch brings is in the graph already
    stats_.assign(source().stages.size(), StageStats{});
    build_state(true);
    outputs_stale_ = false;
    return;
  }
  if (journal_armed_ || compact()) journal_.begin(source().aggregations.size(), graph_.slot_count(), pool_.threads());
  grow();
  if (!admitted_) take_degrees(delta);
  admitted_ = false;
  for (std::size_t i = 0; i < delta.features_changed.size(); ++i) {
    const std::size_t v = at(delta.features_changed[i]);
    input_mark_[v] = epoch_;
    input_slot_[v] = static_cast<std::uint32_t>(i);
  }
  if (options_.strategy == Strategy::Full) return propagate_full();
  if (!incremental()) return propagate_neighbourhoods(delta);
  mark_new_vertices();
  for (const VertexId v : demanded_) dirty_.back().add(v);
  if (compact()) {
    note_degrees(delta);
    derive_sources(delta);
  }
  for (int k = 0; k < static_cast<int>(plans_.size()); ++k) {
    plans_[at(k)].resum = options_.strategy == Strategy::Affected || must_resum(k);
    mark_refinished(k);
  }
  apply_edge_terms(delta);
  for (const int stage : source().input_consumers) {
    for (const VertexId v : delta.features_changed) dirty_[at(stage)].add(v);
  }
  topology_seconds_ = seconds_now() - started_;
  finished_ = false;
  const auto stages = static_cast<int>(source().stages.size());
  for (int stage = 0; stage < stages && !finished_; ++stage) run_stage_incrementally(stage);
  stats_.back().affected = dirty_.back().size();
}

// The store looks its edges up while these rows are on their way.
template <typename Acc>
void EngineImpl<Acc>::anticipate(const UpdateBuffer& batch) const {
  refuse_unsound_files();  // before the graph has changed
  if (batch.size() > kAnticipated || !incremental() || result_rows_.empty()) return;
  const auto known = [&](std::int64_t v) { return v >= 0 && v < result_rows_.front().limit; };
  for (const Update& update : batch.updates()) {
    if (update.kind == UpdateKind::SetFeatures && known(update.u)) {
      result_rows_.front().prefetch(static_cast<VertexId>(update.u));
    } else if ((update.kind == UpdateKind::AddEdge || update.kind == UpdateKind::RemoveEdge) && known(update.u) &&
               known(update.v)) {
      for (std::size_t k = 0; k < plans_.size(); ++k) {
        const RowTable<Acc>& sums = state_.aggregates[k];
        prefetch_row(sums.row(update.v), sums.row_bytes());
        const int messages = aggregation(static_cast<int>(k)).message_table;
        if (messages >= 0) state_.stored[at(messages)].prefetch(static_cast<VertexId>(update.u));
      }
    }
  }
}

template <typename Acc>
void EngineImpl<Acc>::mark_new_vertices() {
  for (VertexId v = slots_before_; v < slots_; ++v) {
    for (VertexSet& set : dirty_) set.add(v);
  }
  if (!source().typed) return;
  for (const VertexId v : delta_->vertices_retyped) {
    retyped_.add(v);
    for (VertexSet& set : dirty_) set.add(v);
  }
}

template <typename Acc>
const float* EngineImpl<Acc>::input_before(VertexId v, float* buffer) const {
  if (input_mark_[at(v)] != epoch_) return graph_.feature_row(v, buffer);
  return delta_->features_before.data() + at(input_slot_[at(v)]) * at(graph_.feature_stride());
}

template <typename Acc>
void EngineImpl<Acc>::mark_consumers(const std::vector<int>& consumers, VertexId v, int thread) {
  for (const int stage : consumers) dirty_[at(stage)].add(v, thread);
}

// Rows that are finished by another factor than before. A factor of in-edges moves with an in-edge, which has marked
// the row; one of out-edges moves alone.
template <typename Acc>
void EngineImpl<Acc>::mark_refinished(int k) {
  const AggregationSpec& spec = aggregation(k);
  if (spec.norm != Norm::Gcn || !state_.contexts[at(spec.context)].outgoing()) return;
  for (const VertexId v : state_.contexts[at(spec.context)].changed()) mark_consumers(spec.consumers, v, 0);
}

// Along a new edge the old message travels first. Where the edge outweighs all that its source sent before, that
// message is far larger than what takes its place, and may be out of range.
template <typename Acc>
bool EngineImpl<Acc>::must_resum(int k) const {
  const AggregationSpec& spec = aggregation(k);
  if (!spec.scaled() || !spec.weighted || !state_.contexts[at(spec.context)].outgoing()) return false;
  const DegreeContext& context = state_.contexts[at(spec.context)];
  return std::any_of(context.changed().begin(), context.changed().end(), [&](VertexId v) {
    return context.scale(v) > 0.0f && context.scale_before(v) > kFactorFall * context.scale(v);
  });
}

template <typename Acc>
void EngineImpl<Acc>::apply_edge_term(int k, const EdgeRecord& edge, float weight, int sign) {
  const AggregationSpec& spec = aggregation(k);
  if (!spec.counts(edge.type) || !wants(k, edge.dst)) return;
  if (spec.attention >= 0) return attend_edge(k, edge, sign);
  if (spec.gather >= 0) {
    touched_[at(k)].set.add(edge.dst);
    return;
  }
  const bool marked_later = spec.extreme() && spec.norm == Norm::Sum && options_.strategy != Strategy::Affected;
  if (!marked_later) mark_consumers(spec.consumers, edge.dst, 0);
  if (spec.self_loops && edge.src == edge.dst) return;
  if (plans_[at(k)].resum) return;  // the whole row is summed again later
  const float* x = spec.message_table < 0 ? input_before(edge.src, input_buffer(graph_, 0))
                                          : state_.stored[at(spec.message_table)].row(edge.src);
  const float factor = source_factor_before(k, edge.src);
  if (spec.extreme()) {
    return sign > 0 ? insert_extreme(k, edge.dst, x, factor, weight, 0)
                    : remove_extreme(k, edge.dst, x, factor, weight, 0);
  }
  if (journal_.on()) journal_.save_aggregate(state_, k, edge.dst, 0);
  Acc* acc = state_.aggregates[at(k)].row(edge.dst);
  if (sign > 0) {
    add_term(k, acc, x, factor, weight, edge.src);
  } else {
    subtract_term(k, acc, x, factor, weight);
  }
}

template <typename Acc>
void EngineImpl<Acc>::apply_edge_terms(const BatchDelta& delta) {
  const auto fetch = [&](int k, const EdgeRecord& edge) {
    const RowTable<Acc>& table = state_.aggregates[at(k)];
    prefetch_row(table.row(edge.dst), table.row_bytes());
    const int messages = aggregation(k).message_table;
    if (messages >= 0) state_.stored[at(messages)].prefetch(edge.src);
    if (aggregation(k).scaled()) state_.contexts[at(aggregation(k).context)].prefetch(edge.src);
  };
  const auto aggregations = static_cast<int>(source().aggregations.size());
  for (int k = 0; k < aggregations; ++k) {
    for (std::size_t i = 0; i < std::min<std::size_t>(delta.removed.size(), 3); ++i) fetch(k, delta.removed[i]);
    for (std::size_t i = 0; i < std::min<std::size_t>(delta.added.size(), 3); ++i) fetch(k, delta.added[i]);
  }
  for (int k = 0; k < aggregations; ++k) {
    const bool gathered = aggregation(k).gather >= 0;
    const bool weighted = gathered ? gather_spec(k).weights : aggregation(k).weighted;
    if (gathered && gather_spec(k).attributes) {
      for (const EdgeRecord& edge : delta.reattributed) apply_edge_term(k, edge, 0.0f, 0);
    }
    const auto run = [&](const std::vector<EdgeRecord>& edges, int sign) {
      for (std::size_t i = 0; i < edges.size(); ++i) {
        if (i + 3 < edges.size()) fetch(k, edges[i + 3]);
        apply_edge_term(k, edges[i], weighted ? edges[i].weight : 1.0f, sign);
      }
    };
    run(delta.removed, -1);
    run(delta.added, +1);
    for (std::size_t i = 0; weighted && i < delta.reweighted.size(); ++i) {
      apply_edge_term(k, delta.reweighted[i].before, delta.reweighted[i].before.weight, -1);
      apply_edge_term(k, delta.reweighted[i].before, delta.reweighted[i].weight_after, +1);
    }
  }
}

template <typename Acc>
std::int64_t EngineImpl<Acc>::out_edges(const std::vector<VertexId>& vertices) const {
  std::int64_t edges = 0;
  for (std::size_t i = 0; i < vertices.size(); ++i) {
    if (i + kDegreesAhead < vertices.size()) graph_.prefetch_out(vertices[i + kDegreesAhead]);
    edges += graph_.out_degree(vertices[i]);
  }
  return edges;
}

template <typename Acc>
std::int64_t EngineImpl<Acc>::all_in_edges() const {
  return graph_.edge_count() * (graph_.options().undirected ? 2 : 1);
}

// The messages of these in-edges are summed again.
template <typename Acc>
void EngineImpl<Acc>::count_reread(int stage, std::int64_t edges) {
  stats_[at(stage)].reread += edges;
  stats_[at(stage)].edges += edges;
}

// Whether u's message of aggregate k reaches a row that the batch at work is to bring up to date. One that does not
// must not be looked at: where it is stale and not computed, its old row and its new factor are of no version.
template <typename Acc>
bool EngineImpl<Acc>::wants_source(int k, VertexId u) const {
  if (!restricted_ || wants(k, u)) return true;
  bool found = false;
  graph_.visit_out(u, [&](const EdgeSpan& span) {
    for (std::int32_t e = 0; e < span.count && !found; ++e) found = wants(k, span.neighbours[e]);
  });
  return found;
}

// How the messages of a plan's sources travel along their `edges`. A pushed delta costs a read and a write of a wide
// row, a swept edge a read of a narrow one. Where few rows are wanted, deltas go to these alone.
template <typename Acc>
Path EngineImpl<Acc>::push_or_sweep(const Plan& plan, std::int64_t edges) const {
  if (options_.force_path != Path::None) return options_.force_path;
  const bool many = !restricted_ && edges * 10 > all_in_edges() * 6;
  return many || !fits_scratch(plan, edges) ? Path::Sweep : Path::Push;
}

template <typename Acc>
void EngineImpl<Acc>::choose_path(int k, const std::vector<VertexId>& rows) {
  Plan& plan = plans_[at(k)];
  const AggregationSpec& spec = aggregation(k);
  if (spec.message_table >= 0) {
    plan.sources = rows;
  } else {
    plan.sources.assign(delta_->features_changed.begin(), delta_->features_changed.end());
    if (restricted_) std::erase_if(plan.sources, [&](VertexId v) { return !wants_source(k, v); });
  }
  plan.listed = plan.sources.size();
  if (spec.scaled()) {
    for (const VertexId v : state_.contexts[at(spec.context)].changed()) {
      const bool listed = spec.message_table >= 0 ? dirty_[at(spec.stage)].contains(v) : input_mark_[at(v)] == epoch_;
      if (!listed && wants_source(k, v)) plan.sources.push_back(v);
    }
  }
  plan.changed.assign(plan.sources.size(), 0);
  plan.stride = round_up(spec.width, 16);
  const std::int64_t edges = out_edges(plan.sources);
  plan.path = push_or_sweep(plan, edges);
  if (plan.resum) plan.path = Path::Pull;
  if (plan.path == Path::Push && !restricted_) stats_[at(spec.stage)].edges += edges;
  if (plan.path == Path::Push) plan.deltas.need(plan.sources.size() * at(plan.stride));
  stats_[at(spec.stage)].path = plan.path;
}

template <typename Acc>
void EngineImpl<Acc>::run_stage_incrementally(int stage) {
  if (restricted_) dirty_[at(stage)].keep([&](VertexId v) { return needed_[at(stage)].contains(v); });
  const std::vector<VertexId>& rows =
      source().typed ? dirty_[at(stage)].collect_by([&](VertexId v) { return graph_.vertex_type(v); })
                     : dirty_[at(stage)].collect();
  StageStats& stats = stats_[at(stage)];
  stats.affected = static_cast<std::int64_t>(rows.size());
  const double begun = seconds_now();
  if (compact()) derive_rows(stage, rows);
  for (int k = 0; k < static_cast<int>(plans_.size()); ++k) {
    if (aggregation(k).stage != stage) continue;
    if (aggregation(k).on_edges()) continue;
    choose_path(k, rows);
    if (compact() && aggregation(k).message_table >= 0) derive_rows(stage, plans_[at(k)].sources);
  }
  if (!rows.empty()) transform_rows(stage, rows);
  for (int k = 0; k < static_cast<int>(plans_.size()); ++k) {
    if (aggregation(k).stage != stage || aggregation(k).on_edges()) continue;
    if (aggregation(k).message_table < 0) input_sources(k);
    rescaled_sources(k);
  }
  const double transformed = seconds_now();
  stats.transform_seconds = transformed - begun;
  int last_here = -1;
  for (int k = 0; k < static_cast<int>(plans_.size()); ++k) {
    if (aggregation(k).stage == stage && !aggregation(k).on_edges()) last_here = k;
  }
  for (int k = 0; k < static_cast<int>(plans_.size()); ++k) {  // before a push that may finish the last stage
    if (aggregation(k).stage == stage && aggregation(k).gather >= 0) gather_moved(k);
    if (aggregation(k).stage == stage && aggregation(k).attention >= 0) attend(k);
  }
  // Rows that are finished while they are in the cache come in no order of types, so there would be no blocks of them.
  const bool before_last = stage + 2 == static_cast<int>(source().stages.size()) && !source().typed && !restricted_;
  for (int k = 0; k < static_cast<int>(plans_.size()); ++k) {
    if (aggregation(k).stage == stage && !aggregation(k).on_edges()) aggregate(k, before_last && k == last_here);
  }
  stats.aggregate_seconds = seconds_now() - transformed;
}

template <typename Acc>
void EngineImpl<Acc>::transform_rows(int stage, const std::vector<VertexId>& rows) {
  const auto total = static_cast<std::int64_t>(rows.size());
  std::int64_t chunk = program_.chunk_rows();
  const bool parallel =
      pool_.threads() > 1 && static_cast<double>(total) * program_.row_seconds(stage) > kParallelSeconds;
  if (parallel) {
    const std::int64_t share = (total + 2 * pool_.threads() - 1) / (2 * pool_.threads());
    chunk = std::clamp<std::int64_t>((share + 11) / 12 * 12, 12, chunk);
  }
  const auto run = [&](std::int64_t index, int thread) {
    const std::int64_t first = index * chunk;
    const int count = static_cast<int>(std::min(chunk, total - first));
    const std::int64_t ahead = parallel ? pool_.threads() : 1;  // the chunk after this one, while this one is worked on
    const auto ask = [&](std::int64_t from) {
      for (std::int64_t i = from; i < std::min(total, from + chunk); ++i) result_rows_[at(stage)].prefetch(rows[at(i)]);
    };
    if (index < ahead) ask(first);
    ask(first + ahead * chunk);
    evaluate_rows(stage, rows.data() + first, count, at(first), thread);
  };
  const std::int64_t chunks = (total + chunk - 1) / chunk;
  if (parallel) {
    pool_.run(chunks, run);
  } else {
    for (std::int64_t index = 0; index < chunks; ++index) run(index, 0);
  }
}

// Rows of one chunk through a stage; `first` is the place of the chunk among the stage's rows.
template <typename Acc>
void EngineImpl<Acc>::evaluate_rows(int stage, const VertexId* rows, int count, std::size_t first, int thread) {
  Registers& registers = registers_[at(thread)];
  registers.prepare(program_, std::min<int>(program_.chunk_rows(), std::max(count, 8)));
  run_stage(program_, stage, current(), scales_, rows, count, registers,
            [&](const Instruction& step, Registers& r, int from, int run) {
              for (int i = 0; i < run; ++i) {
                float* row = r.row(step.a, i);
                if (step.op == Op::Output) {
                  publication_.stage(rows[from + i], row, thread);
                } else {
                  std::fill(row + step.width, row + round_up(step.width, 16), 0.0f);
                  keep_result(step, rows[from + i], row, first + at(from + i), thread);
                }
              }
            });
  if (retyped_.size() > 0) clear_other_types(stage, rows, count, first, thread);
}

// A row that a Store instruction has made, padding included; `index` is the vertex's place among the stage's rows.
template <typename Acc>
void EngineImpl<Acc>::keep_result(const Instruction& step, VertexId v, const float* row, std::size_t index,
                                  int thread) {
  if (step.op == Op::StoreRow) return store_row(step.index, v, row, thread);
  const float* before = state_.stored[at(aggregation(step.index).message_table)].row(v);
  const bool differ = std::memcmp(before, row, at(step.width) * sizeof(float)) != 0;
  update_source(step.index, {v, before, row, differ}, index, thread);
}

// Rows that are not of a vertex's type are zero: where the type has changed, what the old one left is cleared.
template <typename Acc>
void EngineImpl<Acc>::clear_other_types(int stage, const VertexId* rows, int count, std::size_t first, int thread) {
  for (const Instruction& step : source().stages[at(stage)]) {
    if (step.type < 0 || (step.op != Op::StoreMessage && step.op != Op::StoreRow)) continue;
    const std::vector<float> zeros(at(round_up(step.width, 16)), 0.0f);
    for (int i = 0; i < count; ++i) {
      if (!retyped_.contains(rows[i]) || graph_.vertex_type(rows[i]) == step.type) continue;
      keep_result(step, rows[i], zeros.data(), first + at(i), thread);
    }
  }
}

// The rows that a stage's results will be compared with or added to, so that they can be asked for early.
template <typename Acc>
void EngineImpl<Acc>::find_result_rows(int stage) {
  ResultRows& rows = result_rows_[at(stage)];
  rows.tables.clear();
  rows.outputs = nullptr;
  rows.stored.clear();
  rows.contexts.clear();
  for (const Instruction& step : source().stages[at(stage)]) {
    if (step.op == Op::StoreMessage) {
      if (aggregation(step.index).root == Root::Message) rows.tables.push_back(&state_.aggregates[at(step.index)]);
      rows.stored.push_back(&state_.stored[at(aggregation(step.index).message_table)]);
      if (aggregation(step.index).scaled())
        rows.contexts.push_back(&state_.contexts[at(aggregation(step.index).context)]);
    } else if (step.op == Op::StoreRow) {
      const int root_of = source().stored[at(step.index)].root_of;
      if (root_of >= 0) rows.tables.push_back(&state_.aggregates[at(root_of)]);
      rows.stored.push_back(&state_.stored[at(step.index)]);
    } else if (step.op == Op::Output) {
      rows.outputs = &publication_;
    } else if (step.op == Op::LoadStored) {
      rows.stored.push_back(&state_.stored[at(step.index)]);
    }
  }
  rows.limit = std::min<VertexId>(slots_before_, slots_);
}

template <typename Acc>
void EngineImpl<Acc>::store_row(int index, VertexId v, const float* row, int thread) {
  const StoredSpec& spec = source().stored[at(index)];
  StoredRows& table = state_.stored[at(index)];
  float* kept = table.row(v);
  if (std::memcmp(kept, row, at(spec.width) * sizeof(float)) == 0) return;
  if (!spec.attention_source_of.empty()) check_finite(spec.attention_source_of.front(), v, row, spec.width);
  if (spec.root_of >= 0) {
    const int k = spec.root_of;
    mark_consumers(aggregation(k).consumers, v, thread);
    if (plans_[at(k)].path == Path::Push) {
      if (journal_.on()) journal_.save_aggregate(state_, k, v, thread);
      Acc* acc = state_.aggregates[at(k)].row(v);
      subtract_term(k, acc, kept, 1.0f, 1.0f);
      add_term(k, acc, row, 1.0f, 1.0f, v);
    }
  }
  note_row_change(index, v, thread);
  if (journal_.on() && !compact()) journal_.save_stored(state_, index, v, thread);
  if (keeps_before(spec)) rows_before_[at(index)].save(v, kept, thread);
  std::memcpy(kept, row, table.row_bytes());
}

// Who has to look at a stored row that changes.
template <typename Acc>
void EngineImpl<Acc>::note_row_change(int index, VertexId v, int thread) {
  const StoredSpec& spec = source().stored[at(index)];
  mark_consumers(spec.consumers, v, thread);
  for (const int k : spec.source_of) moved_sources_[at(k)].add(v, thread);
  for (const int k : spec.target_of) touched_[at(k)].set.add(v, thread);
  for (const int k : spec.attention_source_of) {
    moved_sources_[at(k)].add(v, thread);
    if (attention(k).own_loop) touched_[at(k)].set.add(v, thread);
  }
  for (const int k : spec.attention_target_of) touched_[at(k)].set.add(v, thread);
}

template <typename Acc>
void EngineImpl<Acc>::update_root_from_message(int k, const SourceChange& change, int thread) {
  const VertexId v = change.vertex;
  mark_consumers(aggregation(k).consumers, v, thread);
  if (plans_[at(k)].path != Path::Push) return;
  if (aggregation(k).extreme()) {
    if (v < slots_before_)
      remove_extreme(k, v, change.before, source_factor_before(k, v), root_factor_before(k, v), thread);
    return insert_extreme(k, v, change.now, source_factor(k, state_, v), root_factor(k, state_, v), thread);
  }
  if (journal_.on()) journal_.save_aggregate(state_, k, v, thread);
  Acc* acc = state_.aggregates[at(k)].row(v);
  subtract_term(k, acc, change.before, source_factor_before(k, v), root_factor_before(k, v));
  add_term(k, acc, change.now, source_factor(k, state_, v), root_factor(k, state_, v), v);
}

// Writes the delta row of a changed message, moves the vertex's own term, and stores the new message.
template <typename Acc>
void EngineImpl<Acc>::update_source(int k, const SourceChange& change, std::size_t index, int thread) {
  const AggregationSpec& spec = aggregation(k);
  const VertexId v = change.vertex;
  const float before = source_factor_before(k, v), now = source_factor(k, state_, v);
  const bool factor_same = same_bits(before, now);
  const bool root_same = spec.root != Root::Message || same_bits(root_factor_before(k, v), root_factor(k, state_, v));
  if (!change.bits_differ && factor_same && root_same) return;
  Plan& plan = plans_[at(k)];
  bool changed = change.bits_differ || !factor_same, looked_at = false;
  if (changed && plan.path == Path::Push) {
    std::int64_t* delta = plan.deltas.data() + index * at(plan.stride);
    const int width = spec.extreme() ? plan.stride : state_.aggregates[at(k)].stride();
    if (spec.weighted || spec.extreme()) {  // both rows, scaled: the edge's weight comes in later
      float* rows = reinterpret_cast<float*>(delta);
      kernels_.scale(rows, change.before, before, width);
      kernels_.scale(rows + plan.stride, change.now, now, width);
    } else if constexpr (std::is_same_v<Acc, float>) {
      kernels_.delta_terms_f32(reinterpret_cast<float*>(delta), change.before, before, change.now, now, width);
    } else {
      const float* up = scales_[at(k)].up.data();
      looked_at = true;
      if (!kernels_.delta_terms(delta, change.before, before, change.now, now, up, limit_, width, &changed)) {
        out_of_range(k, v, std::max(times_range(k, change.before, before), times_range(k, change.now, now)));
      }
    }
  }
  plan.changed[index] = changed ? 1 : 0;
  if (spec.root == Root::Message) update_root_from_message(k, change, thread);
  if (spec.message_table < 0 || !change.bits_differ) return;
  if (!looked_at) check_finite(k, v, change.now, spec.width);  // perhaps no edge carries it yet
  note_row_change(spec.message_table, v, thread);
  if (journal_.on() && !compact()) journal_.save_stored(state_, spec.message_table, v, thread);
  StoredRows& table = state_.stored[at(spec.message_table)];
  if (keeps_before(source().stored[at(spec.message_table)]))
    rows_before_[at(spec.message_table)].save(v, table.row(v), thread);
  std::memcpy(table.row(v), change.now, table.row_bytes());
}

// Sources first <= i < last of a plan, one by one or, where they are many, by all threads.
template <typename Acc>
template <typename Body>
void EngineImpl<Acc>::each_source(int k, std::size_t first, std::size_t last, Body&& change) {
  const Plan& plan = plans_[at(k)];
  const RowTable<Acc>& sums = state_.aggregates[at(k)];
  const int ahead = static_cast<int>(sums.row_bytes() / 2 / sizeof(float));
  const auto run = [&](std::size_t from, std::size_t to, int thread) {
    const MessageRows sent = messages(k, state_);
    for (std::size_t i = from; i < to; ++i) {
      if (i + kSourcesAhead < to) {
        const VertexId next = plan.sources[i + kSourcesAhead];
        if (aggregation(k).root == Root::Message) prefetch_row(sums.row(next), sums.row_bytes());
        sent.prefetch(next, 0, ahead);
      }
      update_source(k, change(plan.sources[i]), i, thread);
    }
  };
  if (last - first < kParallelSources || pool_.threads() == 1) return run(first, last, 0);
  const auto count = static_cast<std::int64_t>(last - first), tasks = std::int64_t{4} * pool_.threads();
  pool_.run(tasks, [&](std::int64_t task, int thread) {
    run(first + at(count * task / tasks), first + at(count * (task + 1) / tasks), thread);
  });
}

template <typename Acc>
void EngineImpl<Acc>::input_sources(int k) {
  each_source(k, 0, plans_[at(k)].listed, [&](VertexId v) {
    const float* before = input_before(v, input_buffer(graph_, 0));
    return SourceChange{v, before, graph_.feature_row(v, input_buffer(graph_, 1)), true};
  });
}

template <typename Acc>
void EngineImpl<Acc>::rescaled_sources(int k) {
  const Plan& plan = plans_[at(k)];
  each_source(k, plan.listed, plan.sources.size(), [&](VertexId v) {
    const float* row = messages(k, state_).row(v);
    return SourceChange{v, row, row, false};
  });
}

template <typename Acc>
Changes EngineImpl<Acc>::publish() {
  const double begun = seconds_now();
  if (compact()) {
    journal_.end();
    state_.release_rows();
  }
  Changes changes;
  changes.vertices = publication_.publish(graph_, added_, removed_);
  changes.stages = stats_;
  changes.topology_seconds = topology_seconds_;
  const double now = seconds_now();
  changes.publish_seconds = now - begun;
  changes.total_seconds = now - started_;
  return changes;
}

template <typename Acc>
void EngineImpl<Acc>::begin_journal() {
  journal_armed_ = true;
  for (DegreeContext& context : state_.contexts) context.forget();
}

template <typename Acc>
void EngineImpl<Acc>::restore_journal() {
  if (journal_.on()) journal_.restore(state_);
  for (std::size_t k = 0; k < touched_.size(); ++k) {
    if (aggregation(static_cast<int>(k)).attention < 0) continue;
    for (const VertexId v : touched_[k].set.collect()) borders_[k].drop(v);
  }
  state_.release_rows();
  for (DegreeContext& context : state_.contexts) context.restore();
  publication_.drop_staged();
  slots_ = slots_before_;
  journal_armed_ = admitted_ = false;
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
