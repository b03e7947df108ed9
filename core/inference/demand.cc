// On demand (NeutronRT, ODEC): batches are taken into the store and noted; what a query asks for is computed when it
// asks, inside the intersection of what the batches can have reached and what the query reads.
//
// State stays what it was when it was last complete. A query propagates the pending batches as an eager engine would,
// but into the rows that it needs only, publishes its outputs and takes the rest back by the journal. These rows hold
// what an eager engine's would, bit for bit, since all that they read and that can have changed is among them. A query
// that needs much of what is affected brings all of it up to date instead.
#include <algorithm>

#include "inference/engine_impl.h"

namespace livegnn {

namespace {

// In-edges looked at for each edge that propagating all would push along, at most. A look costs a mark; a push a row of
// a sum, and several times as much where messages are computed on edges or selected.
constexpr double kLooks = 3.0, kLooksDear = 12.0;
constexpr std::int64_t kWalksForAll = 4;  // walks of what is stale that cost about as much as propagating it

}  // namespace

void EngineImpl::defer(const BatchDelta& delta) {
  work_.stats.assign(source().stages.size(), StageStats{});
  work_.publication.prepare(std::min(work_.slots_before, work_.graph.slot_count()), work_.graph.slot_count());
  if (broken_) {  // built from the graph when it is asked for
    outputs_stale_ = true;
    return;
  }
  pending_.add(delta, work_.graph.feature_stride());
  stale_known_ = false;
}

// A degree without a value is refused now, not when somebody asks.
void EngineImpl::check_deferred(const BatchDelta& delta) const {
  work_.check_degrees(delta);
  for (const DegreeNorm& norm : work_.state.norms) {
    if (!norm.weighted()) continue;
    for (const EdgeRecord& edge : delta.removed) norm.check(work_.graph, norm.owner(edge));
    for (const EdgeRecord& edge : delta.added) norm.check(work_.graph, norm.owner(edge));
    for (const EdgeReweighted& edge : delta.reweighted) norm.check(work_.graph, norm.owner(edge.before));
  }
}

// What the pending batches can have reached, by structure.
void EngineImpl::find_stale() {
  if (stale_known_) return;
  stale_.resize(source().stages.size());
  const VertexSets sets = affected_sets(pending_.delta());
  stale_edges_ = 0;
  for (std::size_t stage = 0; stage < sets.size(); ++stage) {
    stale_[stage].prepare(work_.slots, 1);
    for (const VertexId v : sets[stage]) stale_[stage].add(v);
    if (stage + 1 == sets.size()) continue;
    if (work_.goes_forward) stale_edges_ += work_.out_edges({work_.graph, false}, sets[stage]);
    if (work_.goes_back) stale_edges_ += work_.out_edges({work_.graph, true}, sets[stage]);
  }
  spent_edges_ += stale_edges_ / kWalksForAll;
  edges_per_change_ =
      static_cast<double>(stale_edges_) / static_cast<double>(std::max<std::size_t>(1, pending_.changes()));
  for (const VertexId v : demanded_) stale_.back().add(v);  // a later batch may have undone what was published
  fresh_.prepare(work_.slots, 1);
  stale_known_ = true;
}

double EngineImpl::looks_for_an_edge() const {
  const auto dear = [](const auto& op) { return op->facts.dear; };
  return std::any_of(work_.operators.begin(), work_.operators.end(), dear) ? kLooksDear : kLooks;
}

// Whether so much is asked for that what the batches have reached need not be found first: if all of it were stale, a
// look at its in-edges would be too much already, going by what changes have cost so far.
bool EngineImpl::asks_for_much(std::span<const std::int64_t> ids) const {
  if (stale_known_ || edges_per_change_ == 0.0) return false;
  double looks = edges_per_change_ * static_cast<double>(pending_.changes()) * looks_for_an_edge();
  for (const std::int64_t id : ids) {
    if (looks < 0.0) return true;
    if (id >= 0 && id < work_.graph.slot_count()) looks -= work_.messages_max(static_cast<VertexId>(id));
  }
  return looks < 0.0;
}

// Fills work_.needed with the stale rows that these outputs need. False: finding them would cost too much of what they
// can save, or they are most of what is stale, or queries have done the work of propagating all of it already: it had
// better be propagated for good.
bool EngineImpl::find_needed(const std::vector<VertexId>& outputs) {
  work_.needed.resize(source().stages.size());
  for (VertexSet& set : work_.needed) set.prepare(work_.slots, 1);
  for (const VertexId v : outputs) work_.needed.back().add(v);
  double looks = static_cast<double>(stale_edges_) * looks_for_an_edge();
  for (std::size_t stage = source().stages.size(); stage-- > 0;) {
    const std::vector<VertexId> rows = work_.needed[stage].collect();
    const auto need = [&](int earlier, VertexId v) {
      if (stale_[at(earlier)].contains(v)) work_.needed[at(earlier)].add(v);
    };
    for (const Instruction& step : source().stages[stage]) {
      if (step.op == Op::LoadStored) {
        for (const VertexId v : rows) need(source().stored[at(step.index)].stage, v);
      }
      if (step.op != Op::LoadAggregate) continue;
      const Operands& operands = work_.operators[at(step.index)]->operands();
      for (const int t : operands.targets) {
        for (const VertexId v : rows) need(source().stored[at(t)].stage, v);
      }
      if (operands.sources.empty()) continue;
      const Flow flow = work_.flow(step.index);
      for (const VertexId v : rows) looks -= flow.in_degree(v);
      if (looks < 0) return false;
      for (const VertexId v : rows) {
        flow.visit_in(v, [&](const EdgeSpan& span) {
          for (std::int32_t i = 0; i < span.count; ++i) {
            for (const int t : operands.sources) need(source().stored[at(t)].stage, span.neighbours[i]);
          }
        });
      }
    }
  }
  std::int64_t needed = 0, stale = 0;
  for (const VertexSet& set : work_.needed) needed += set.size();
  for (const VertexSet& set : stale_) stale += set.size();
  return 2 * needed <= stale && spent_edges_ <= stale_edges_;
}

// Propagates what is pending as far as the needed rows go, publishes what that gives, and takes it back in the state.
// False: a message was out of range on the way, which all of the batches together need not be.
bool EngineImpl::propagate_needed() {
  begin_journal();
  work_.restricted = true;
  const AtEnd step_back([&] {
    work_.restricted = false;
    restore_journal();
  });
  try {
    propagate_now(pending_.delta());
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::RangeOverflow) return false;
    throw;
  }
  for (const StageStats& stats : work_.stats) {
    demand_stats_.rows += stats.affected;
    demand_stats_.edges += stats.edges;
  }
  spent_edges_ += demand_stats_.edges;
  work_.publication.publish(work_.graph, {}, {});
  return true;
}

// The stale outputs among these; none where all is to be propagated, since they and what they need are nearly all that
// is stale.
std::optional<std::vector<VertexId>> EngineImpl::find_asked(std::span<const std::int64_t> ids) {
  const auto stale_among = [&] {
    std::vector<VertexId> outputs;
    for (const std::int64_t id : ids) {
      if (id < 0 || id >= work_.graph.slot_count()) continue;  // reading it will refuse
      const auto v = static_cast<VertexId>(id);
      if (work_.graph.is_live(v) && stale_.back().contains(v) && !fresh_.contains(v)) outputs.push_back(v);
    }
    return outputs;
  };
  std::optional<std::vector<VertexId>> asked{std::in_place};
  if (stale_known_ && stale_among().empty()) return asked;
  work_.slots_before = work_.slots;
  for (DegreeNorm& norm : work_.state.norms) norm.forget();  // so that stepping back is right at any moment
  const AtEnd step_back([&, slots_kept = work_.slots] {
    for (DegreeNorm& norm : work_.state.norms) norm.restore();
    work_.slots = slots_kept;
  });
  work_.begin_rows_before();
  grow();
  for (DegreeNorm& norm : work_.state.norms) norm.update(work_.graph, pending_.delta(), work_.slots_before);
  find_stale();
  asked = stale_among();
  if (!asked->empty() && !find_needed(*asked)) asked.reset();
  return asked;
}

DemandStats EngineImpl::demand(std::span<const std::int64_t> ids) {
  demand_stats_ = {};
  refuse_unsound_files();
  if (broken_) rebuild();
  if (!pending_.any()) return demand_stats_;
  std::optional<std::vector<VertexId>> asked;
  if (!asks_for_much(ids)) asked = find_asked(ids);
  if (asked && !asked->empty() && !propagate_needed()) asked.reset();
  if (!asked) {
    flush();
    demand_stats_.whole = true;
  } else if (!asked->empty()) {
    for (const VertexId v : *asked) fresh_.add(v);
    demanded_.insert(demanded_.end(), asked->begin(), asked->end());
    if (demanded_.size() > demanded_limit_) {
      sort_unique(demanded_);
      demanded_limit_ = std::max<std::size_t>(4096, 2 * demanded_.size());
    }
  } else {
    work_.publication.publish(work_.graph, {}, {});
  }
  return demand_stats_;
}

// Propagates all that is pending.
void EngineImpl::flush() {
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
    work_.publication.drop_staged();
    if (error.kind() != ErrorKind::RangeOverflow) throw;
    return rebuild();  // an old message was along a new edge: from scratch, only those of the graph as it is count
  } catch (...) {
    broken_ = outputs_stale_ = true;
    work_.publication.drop_staged();
    throw;
  }
  demanded_.clear();
  spent_edges_ = 0;
  std::int64_t edges = 0;
  for (const StageStats& stats : work_.stats) edges += stats.edges;
  if (changes > 0) edges_per_change_ = static_cast<double>(edges) / static_cast<double>(changes);
  work_.publication.publish(work_.graph, {}, {});
}

}  // namespace livegnn
