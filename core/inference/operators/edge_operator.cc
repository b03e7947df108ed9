#include "inference/operators/edge_operator.h"

#include <algorithm>

namespace livegnn {

namespace {

constexpr std::int64_t kRowsPerTask = 16;

bool contains(const std::vector<int>& list, int k) { return std::find(list.begin(), list.end(), k) != list.end(); }

}  // namespace

EdgeOperator::EdgeOperator(Workspace& work, int k, Facts facts_of_it)
    : Operator(work, k, facts_of_it),
      edges_(work.source().gathers[at(spec_.gather)]),
      filter_(counted_edges(spec_, edges_.loops != Loops::Keep)) {
  for (std::size_t t = 0; t < work.source().stored.size(); ++t) {
    if (contains(work.source().stored[t].source_of, k)) work.row_users[t].changed.push_back(&moved_);
    if (contains(work.source().stored[t].target_of, k)) work.row_users[t].changed.push_back(&touched_);
  }
}

void EdgeOperator::operands(std::vector<int>* sources, std::vector<int>* targets) const {
  for (const StoredSpec& stored : work_.source().stored) {
    const bool at_source = contains(stored.source_of, k_);
    if (at_source) sources->push_back(stored.stage);
    if ((at_source && own_loop()) || contains(stored.target_of, k_)) targets->push_back(stored.stage);
  }
}

void EdgeOperator::begin() {
  touched_.prepare(work_.slots, work_.pool.threads(), work_.epoch);
  moved_.prepare(work_.slots, work_.pool.threads(), work_.epoch);
}

void EdgeOperator::apply_edges() {
  const auto touch = [&](const EdgeRecord& edge, float, int) { touched_.add(edge.dst); };
  each_changed_edge(work_, k_, *this, edges_.weights, touch);
  for (const EdgeRecord& edge : work_.delta->reattributed) {
    if (edges_.attributes && spec_.counts(edge.type) && work_.wants(k_, edge.dst)) touched_.add(edge.dst);
  }
}

void EdgeOperator::take_others() {
  if (!edges_.source_input) return;
  for (const VertexId v : work_.delta->features_changed) moved_.add(v);
}

const std::vector<VertexId>& EdgeOperator::recompute() {
  for (VertexId v = work_.slots_before; v < work_.slots; ++v) touched_.add(v);
  if (edges_.target_input) {
    for (const VertexId v : work_.delta->features_changed) touched_.add(v);
  }
  for (const VertexId u : moved_.collect()) {
    if (own_loop()) touched_.add(u);
    visit_counted_out(work_.graph, filter_, u,
                      [&](const EdgeSpan& span, std::int32_t i) { touched_.add(span.neighbours[i]); });
  }
  if (work_.restricted) touched_.keep([&](VertexId v) { return work_.wants(k_, v); });
  work_.stats[at(spec_.stage)].path = Path::Pull;
  refresh_rows(*this, work_, k_, touched_.collect(), kRowsPerTask);
  return touched_.collect();
}

void EdgeOperator::mark_reached(const VertexSets& sets, const BatchDelta& delta) {
  if (edges_.source_input) mark_targets(work_, spec_, delta.features_changed);
  if (edges_.target_input || (edges_.source_input && own_loop())) {
    for (const VertexId v : delta.features_changed) work_.mark_consumers(spec_.consumers, v, 0);
  }
  mark_operands(work_, *this, spec_, sets);
}

}  // namespace livegnn
