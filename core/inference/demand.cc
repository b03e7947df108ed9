// On demand (NeutronRT, ODEC): batches are taken into the store and noted; what a query asks for is computed when it
// asks, inside the intersection of what the batches can have reached and what the query reads.
//
// State stays what it was when it was last complete. A query writes the rows that it needs into the state, row by row
// from the in-edges, and takes them back when its outputs are published; sums do not depend on order, so the outputs
// are those of an eager engine, bit for bit. A query that needs much of what is affected brings all of it up to date
// instead.
#include <algorithm>

#include "inference/terms.h"

namespace livegnn {

namespace {

constexpr std::int64_t kRowsPerTask = 16;
constexpr double kPullCost = 0.5;  // of an in-edge read against an out-edge pushed: above this share, all is propagated

}  // namespace

template <typename Acc>
void EngineImpl<Acc>::defer(const BatchDelta& delta) {
  stats_.assign(source().stages.size(), StageStats{});
  publication_.prepare(std::min(slots_before_, graph_.slot_count()), graph_.slot_count());
  if (broken_) {  // built from the graph when it is asked for
    outputs_stale_ = true;
    return;
  }
  pending_.add(delta, graph_.feature_stride());
  stale_known_ = false;
  check_degrees(delta);
  for (const DegreeContext& context : state_.contexts) {  // a degree without a value is refused now
    if (!context.weighted()) continue;
    for (const EdgeRecord& edge : delta.removed) context.check(graph_, context.owner(edge));
    for (const EdgeRecord& edge : delta.added) context.check(graph_, context.owner(edge));
    for (const EdgeReweighted& edge : delta.reweighted) context.check(graph_, context.owner(edge.before));
  }
}

// What the pending batches can have reached, by structure.
template <typename Acc>
void EngineImpl<Acc>::find_stale() {
  if (stale_known_) return;
  ++stale_epoch_;
  stale_.resize(source().stages.size());
  const std::vector<std::vector<VertexId>> sets = affected_sets(pending_.delta());
  stale_edges_ = 0;
  for (std::size_t stage = 0; stage < sets.size(); ++stage) {
    stale_[stage].prepare(slots_, 1, stale_epoch_);
    for (const VertexId v : sets[stage]) stale_[stage].add(v);
    if (stage + 1 < sets.size()) stale_edges_ += out_edges(sets[stage]);
  }
  for (const VertexId v : demanded_) stale_.back().add(v);  // a later batch may have undone what was published
  fresh_.prepare(slots_, 1, stale_epoch_);
  stale_known_ = true;
}

// Stages whose rows aggregate k reads at an edge's source, and at its target.
template <typename Acc>
void EngineImpl<Acc>::find_operands(int k, std::vector<int>* sources, std::vector<int>* targets) const {
  const AggregationSpec& spec = aggregation(k);
  const auto stage_of = [&](int table) { return source().stored[at(table)].stage; };
  if (!spec.on_edges()) {
    if (spec.message_table >= 0) sources->push_back(stage_of(spec.message_table));
    if (spec.root == Root::Message && spec.message_table >= 0) targets->push_back(stage_of(spec.message_table));
    if (spec.root == Root::Table) targets->push_back(stage_of(spec.root_table));
    return;
  }
  for (const StoredSpec& stored : source().stored) {
    const auto reads = [&](const std::vector<int>& list) { return std::count(list.begin(), list.end(), k) > 0; };
    const bool at_source = reads(stored.source_of) || reads(stored.attention_source_of);
    if (at_source) sources->push_back(stored.stage);
    if ((at_source && has_own_loop(k)) || reads(stored.target_of) || reads(stored.attention_target_of))
      targets->push_back(stored.stage);
  }
}

// Fills dirty_ with the stale rows that the outputs in its last set need. False: they are not worth it.
template <typename Acc>
bool EngineImpl<Acc>::find_needed() {
  std::int64_t read = 0;
  for (std::size_t stage = source().stages.size(); stage-- > 0;) {
    const std::vector<VertexId> rows = dirty_[stage].collect();
    const auto need = [&](int earlier, VertexId v) {
      if (stale_[at(earlier)].contains(v)) dirty_[at(earlier)].add(v);
    };
    for (const Instruction& step : source().stages[stage]) {
      if (step.op == Op::LoadStored) {
        for (const VertexId v : rows) need(source().stored[at(step.index)].stage, v);
      }
      if (step.op != Op::LoadAggregate) continue;
      std::vector<int> sources, targets;
      find_operands(step.index, &sources, &targets);
      for (const VertexId v : rows) {
        read += graph_.in_degree(v);
        for (const int earlier : targets) need(earlier, v);
        if (sources.empty()) continue;
        graph_.visit_in(v, [&](const EdgeSpan& span) {
          for (std::int32_t i = 0; i < span.count; ++i) {
            for (const int earlier : sources) need(earlier, span.neighbours[i]);
          }
        });
      }
      if (static_cast<double>(read) > kPullCost * static_cast<double>(stale_edges_)) return false;
    }
  }
  demand_stats_.edges = read;
  return true;
}

// The aggregates that a stage loads, for these rows, from what is stored now.
template <typename Acc>
void EngineImpl<Acc>::pull_needed(int stage, const std::vector<VertexId>& rows) {
  const auto total = static_cast<std::int64_t>(rows.size());
  for (const Instruction& step : source().stages[at(stage)]) {
    if (step.op != Op::LoadAggregate) continue;
    const int k = step.index;
    RowTable<Acc>& table = state_.aggregates[at(k)];
    in_shares(total, kRowsPerTask, [&](std::int64_t first, std::int64_t last, int thread) {
      if (aggregation(k).gather >= 0) {
        for (std::int64_t i = first; i < last; ++i) journal_.save_aggregate(state_, k, rows[at(i)], thread);
        gather_into(k, state_, rows.data() + first, last - first, thread);
        return;
      }
      for (std::int64_t i = first; i < last; ++i) {
        journal_.save_aggregate(state_, k, rows[at(i)], thread);
        sum_row_all(k, state_, rows[at(i)], table.row(rows[at(i)]));
      }
    });
  }
}

template <typename Acc>
void EngineImpl<Acc>::evaluate_needed(int stage, const std::vector<VertexId>& rows) {
  const auto total = static_cast<std::int64_t>(rows.size());
  const std::int64_t chunk = std::clamp<std::int64_t>(total / (2 * pool_.threads()), 12, program_.chunk_rows());
  pool_.run((total + chunk - 1) / chunk, [&](std::int64_t task, int thread) {
    const std::int64_t first = task * chunk;
    const int count = static_cast<int>(std::min(chunk, total - first));
    Registers& registers = registers_[at(thread)];
    registers.prepare(program_, program_.chunk_rows());
    run_stage(program_, stage, current(), scales_, rows.data() + first, count, registers,
              [&](const Instruction& step, Registers& r, int from, int run) {
                for (int i = 0; i < run; ++i) {
                  const VertexId v = rows[at(first + from + i)];
                  float* row = r.row(step.a, i);
                  if (step.op == Op::Output) {
                    publication_.stage(v, row, thread);
                    continue;
                  }
                  const int t = step.op == Op::StoreMessage ? aggregation(step.index).message_table : step.index;
                  journal_.save_stored(state_, t, v, thread);
                  std::memcpy(state_.stored[at(t)].row(v), row, at(step.width) * sizeof(float));
                }
              });
  });
}

// The rows in dirty_, computed in the state and taken back; what they give is published.
template <typename Acc>
void EngineImpl<Acc>::compute_needed() {
  journal_.begin(source().aggregations.size(), slots_, pool_.threads());
  try {
    for (int stage = 0; stage < static_cast<int>(source().stages.size()); ++stage) {
      const std::vector<VertexId> rows = dirty_[at(stage)].collect();
      demand_stats_.rows += static_cast<std::int64_t>(rows.size());
      if (rows.empty()) continue;
      pull_needed(stage, rows);
      evaluate_needed(stage, rows);
    }
  } catch (...) {
    journal_.restore(state_);
    publication_.drop_staged();
    throw;
  }
  journal_.restore(state_);
}

template <typename Acc>
DemandStats EngineImpl<Acc>::demand(std::span<const std::int64_t> ids) {
  demand_stats_ = {};
  if (broken_) rebuild();
  if (!pending_.any()) return demand_stats_;
  slots_before_ = slots_;
  const VertexId slots_kept = slots_;
  grow();
  for (DegreeContext& context : state_.contexts) context.update(graph_, pending_.delta(), slots_before_);
  const auto step_back = [&] {
    for (DegreeContext& context : state_.contexts) context.restore();
    slots_ = slots_kept;
  };
  bool worth = true;
  try {
    if (!stale_known_) {
      find_stale();
      slots_ = slots_kept;
      grow();  // the sets anew
    }
    VertexSet& outputs = dirty_.back();
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= slots_ || !graph_.is_live(static_cast<VertexId>(id))) continue;  // reading it will refuse
      const auto v = static_cast<VertexId>(id);
      if (stale_.back().contains(v) && !fresh_.contains(v)) outputs.add(v);
    }
    const std::vector<VertexId> asked = outputs.collect();
    worth = asked.empty() || find_needed();
    if (worth && !asked.empty()) {
      compute_needed();
      for (const VertexId v : asked) fresh_.add(v);
      demanded_.insert(demanded_.end(), asked.begin(), asked.end());
      if (demanded_.size() > demanded_limit_) {
        std::sort(demanded_.begin(), demanded_.end());
        demanded_.erase(std::unique(demanded_.begin(), demanded_.end()), demanded_.end());
        demanded_limit_ = std::max<std::size_t>(4096, 2 * demanded_.size());
      }
    }
  } catch (...) {
    step_back();
    throw;
  }
  step_back();
  if (!worth) {
    settle();
    demand_stats_.whole = true;
  } else {
    publication_.publish(graph_, {}, {});
  }
  return demand_stats_;
}

// Propagates all that is pending.
template <typename Acc>
void EngineImpl<Acc>::settle() {
  if (broken_) rebuild();
  if (!pending_.any()) return;
  const BatchDelta delta = pending_.take();
  stale_known_ = false;
  try {
    propagate_now(delta);
  } catch (...) {
    broken_ = outputs_stale_ = true;
    publication_.drop_staged();
    throw;
  }
  demanded_.clear();
  publication_.publish(graph_, {}, {});
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
