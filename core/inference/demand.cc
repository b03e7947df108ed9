// On demand (NeutronRT, ODEC): batches are taken into the store and noted; what a query asks for is computed when it
// asks, inside the intersection of what the batches can have reached and what the query reads.
//
// State stays what it was when it was last complete. A query propagates the pending batches as an eager engine would,
// but into the rows that it needs only, publishes its outputs and takes the rest back by the journal. These rows hold
// what an eager engine's would, bit for bit, since all that they read and that can have changed is among them. A query
// that needs much of what is affected brings all of it up to date instead.
#include <algorithm>

#include "inference/terms.h"

namespace livegnn {

namespace {

// In-edges looked at for each edge that propagating all would push along, at most. A look costs a mark; a push a row of
// a sum, and several times as much where messages are computed on edges or selected.
constexpr double kLooks = 3.0, kLooksOnEdges = 12.0;
constexpr std::int64_t kWalksForAll = 4;  // walks of what is stale that cost about as much as propagating it

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
}

// A degree without a value is refused now, not when somebody asks.
template <typename Acc>
void EngineImpl<Acc>::check_deferred(const BatchDelta& delta) const {
  check_degrees(delta);
  for (const DegreeContext& context : state_.contexts) {
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
  spent_edges_ += stale_edges_ / kWalksForAll;
  edges_per_change_ =
      static_cast<double>(stale_edges_) / static_cast<double>(std::max<std::size_t>(1, pending_.changes()));
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

template <typename Acc>
double EngineImpl<Acc>::looks_for_an_edge() const {
  const std::vector<AggregationSpec>& specs = source().aggregations;
  const bool dear = std::any_of(specs.begin(), specs.end(), [](const auto& s) { return s.on_edges() || s.extreme(); });
  return dear ? kLooksOnEdges : kLooks;
}

// Whether so much is asked for that what the batches have reached need not be found first: if all of it were stale, a
// look at its in-edges would be too much already, going by what changes have cost so far.
template <typename Acc>
bool EngineImpl<Acc>::asks_for_much(std::span<const std::int64_t> ids) const {
  if (stale_known_ || edges_per_change_ == 0.0) return false;
  double looks = edges_per_change_ * static_cast<double>(pending_.changes()) * looks_for_an_edge();
  for (const std::int64_t id : ids) {
    if (looks < 0.0) return true;
    if (id >= 0 && id < graph_.slot_count()) looks -= graph_.in_degree(static_cast<VertexId>(id));
  }
  return looks < 0.0;
}

// Fills needed_ with the stale rows that these outputs need. False: finding them would cost too much of what they can
// save, or they are most of what is stale, or queries have done the work of propagating all of it already: it had
// better be propagated for good.
template <typename Acc>
bool EngineImpl<Acc>::find_needed(const std::vector<VertexId>& outputs) {
  needed_.resize(source().stages.size());
  if (++needed_epoch_ == 0) {
    for (VertexSet& set : needed_) set.forget();
    needed_epoch_ = 1;
  }
  for (VertexSet& set : needed_) set.prepare(slots_, 1, needed_epoch_);
  for (const VertexId v : outputs) needed_.back().add(v);
  double looks = static_cast<double>(stale_edges_) * looks_for_an_edge();
  for (std::size_t stage = source().stages.size(); stage-- > 0;) {
    const std::vector<VertexId> rows = needed_[stage].collect();
    const auto need = [&](int earlier, VertexId v) {
      if (stale_[at(earlier)].contains(v)) needed_[at(earlier)].add(v);
    };
    for (const Instruction& step : source().stages[stage]) {
      if (step.op == Op::LoadStored) {
        for (const VertexId v : rows) need(source().stored[at(step.index)].stage, v);
      }
      if (step.op != Op::LoadAggregate) continue;
      std::vector<int> sources, targets;
      find_operands(step.index, &sources, &targets);
      for (const int earlier : targets) {
        for (const VertexId v : rows) need(earlier, v);
      }
      if (sources.empty()) continue;
      for (const VertexId v : rows) looks -= graph_.in_degree(v);
      if (looks < 0) return false;
      for (const VertexId v : rows) {
        graph_.visit_in(v, [&](const EdgeSpan& span) {
          for (std::int32_t i = 0; i < span.count; ++i) {
            for (const int earlier : sources) need(earlier, span.neighbours[i]);
          }
        });
      }
    }
  }
  std::int64_t needed = 0, stale = 0;
  for (const VertexSet& set : needed_) needed += set.size();
  for (const VertexSet& set : stale_) stale += set.size();
  return 2 * needed <= stale && spent_edges_ <= stale_edges_;
}

// Propagates what is pending as far as the needed rows go, publishes what that gives, and takes it back in the state.
// False: a message was out of range on the way, which all of the batches together need not be.
template <typename Acc>
bool EngineImpl<Acc>::propagate_needed() {
  const auto step_back = [&] {
    restricted_ = false;
    restore_journal();
  };
  begin_journal();
  restricted_ = true;
  try {
    propagate_now(pending_.delta());
  } catch (const Error& error) {
    step_back();
    if (error.kind() == ErrorKind::RangeOverflow) return false;
    throw;
  } catch (...) {
    step_back();
    throw;
  }
  for (const StageStats& stats : stats_) {
    demand_stats_.rows += stats.affected;
    demand_stats_.edges += stats.edges;
  }
  spent_edges_ += demand_stats_.edges;
  publication_.publish(graph_, {}, {});
  step_back();
  return true;
}

// The stale outputs among these, or that all is to be propagated, since they and what they need are nearly all that is
// stale.
template <typename Acc>
typename EngineImpl<Acc>::Asked EngineImpl<Acc>::find_asked(std::span<const std::int64_t> ids) {
  const auto stale_among = [&] {
    std::vector<VertexId> outputs;
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= graph_.slot_count()) continue;  // reading it will refuse
      const auto v = static_cast<VertexId>(id);
      if (graph_.is_live(v) && stale_.back().contains(v) && !fresh_.contains(v)) outputs.push_back(v);
    }
    return outputs;
  };
  Asked asked;
  if (stale_known_ && stale_among().empty()) return asked;
  slots_before_ = slots_;
  const VertexId slots_kept = slots_;
  const BatchDelta& delta = pending_.delta();
  for (DegreeContext& context : state_.contexts) context.forget();  // so that stepping back is right at any moment
  const auto look = [&] {
    grow();
    for (DegreeContext& context : state_.contexts) context.update(graph_, delta, slots_before_);
    find_stale();
    asked.outputs = stale_among();
    asked.whole = !asked.outputs.empty() && !find_needed(asked.outputs);
  };
  const auto step_back = [&] {
    for (DegreeContext& context : state_.contexts) context.restore();
    slots_ = slots_kept;
  };
  try {
    look();
  } catch (...) {
    step_back();
    throw;
  }
  step_back();
  return asked;
}

template <typename Acc>
DemandStats EngineImpl<Acc>::demand(std::span<const std::int64_t> ids) {
  demand_stats_ = {};
  refuse_unsound_files();
  if (broken_) rebuild();
  if (!pending_.any()) return demand_stats_;
  Asked asked;
  asked.whole = asks_for_much(ids);
  if (!asked.whole) asked = find_asked(ids);
  if (!asked.whole && !asked.outputs.empty()) asked.whole = !propagate_needed();
  if (asked.whole) {
    settle();
    demand_stats_.whole = true;
  } else if (!asked.outputs.empty()) {
    for (const VertexId v : asked.outputs) fresh_.add(v);
    demanded_.insert(demanded_.end(), asked.outputs.begin(), asked.outputs.end());
    if (demanded_.size() > demanded_limit_) {
      std::sort(demanded_.begin(), demanded_.end());
      demanded_.erase(std::unique(demanded_.begin(), demanded_.end()), demanded_.end());
      demanded_limit_ = std::max<std::size_t>(4096, 2 * demanded_.size());
    }
  } else {
    publication_.publish(graph_, {}, {});
  }
  return demand_stats_;
}

// Propagates all that is pending.
template <typename Acc>
void EngineImpl<Acc>::settle() {
  refuse_unsound_files();
  if (broken_) rebuild();
  if (!pending_.any()) return;
  const std::size_t changes = pending_.changes();
  const BatchDelta delta = pending_.take();
  stale_known_ = false;
  try {
    propagate_now(delta);
  } catch (const Error& error) {
    broken_ = outputs_stale_ = true;
    publication_.drop_staged();
    if (error.kind() != ErrorKind::RangeOverflow) throw;
    return rebuild();  // an old message was along a new edge: from scratch, only those of the graph as it is count
  } catch (...) {
    broken_ = outputs_stale_ = true;
    publication_.drop_staged();
    throw;
  }
  demanded_.clear();
  spent_edges_ = 0;
  std::int64_t edges = 0;
  for (const StageStats& stats : stats_) edges += stats.edges;
  if (changes > 0) edges_per_change_ = static_cast<double>(edges) / static_cast<double>(changes);
  publication_.publish(graph_, {}, {});
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
