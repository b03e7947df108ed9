#include "inference/operators/edge_operator.h"

#include <algorithm>

namespace livegnn {

namespace {

constexpr std::int64_t kRowsPerTask = 16;

void add_new(std::vector<int>& list, int t) {
  if (t >= 0 && std::find(list.begin(), list.end(), t) == list.end()) list.push_back(t);
}

}  // namespace

EdgeOperator::EdgeOperator(Workspace& work, int k, Facts facts_of_it)
    : Operator(work, k, facts_of_it),
      edges_(work.source().gathers[at(spec_.gather)]),
      filter_(counted_edges(spec_, edges_.loops == Loops::Drop || edges_.loops == Loops::Replace,
                            edges_.loops == Loops::Only)) {
  sets_ = {&touched_, &moved_};
  for (const Instruction& step : edges_.steps) {
    if (step.op == Op::LoadSource) add_new(operands_.sources, step.index);
    if (step.op == Op::LoadTarget) add_new(operands_.targets, step.index);
  }
  for (const int t : operands_.sources) work.row_users[at(t)].changed.push_back(&moved_);
  for (const int t : operands_.targets) work.row_users[at(t)].changed.push_back(&touched_);
  for (std::size_t i = 0; own_loop() && i < operands_.sources.size(); ++i)
    add_new(operands_.targets, operands_.sources[i]);
}

void EdgeOperator::apply_edges() {
  const auto touch = [&](const EdgeRecord& edge, float, int) {
    if (filter_.counts(edge.src, edge.dst, edge.type)) touched_.add(edge.dst);
  };
  each_changed_edge(work_, k_, *this, filter_, edges_.weights, touch);
  for (const EdgeRecord& as_stored : work_.delta->reattributed) {
    const EdgeRecord edge = flow_.turned(as_stored);
    if (edges_.attributes && work_.wants(k_, edge.dst)) touch(edge, edge.weight, 0);
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
    visit_counted_out(flow_, filter_, u,
                      [&](const EdgeSpan& span, std::int32_t i) { touched_.add(span.neighbours[i]); });
  }
  if (work_.is_picky()) touched_.keep([&](VertexId v) { return work_.wants(k_, v); });
  work_.stats[at(spec_.stage)].path = Path::Pull;
  derive_operands(touched_.collect());
  refresh_rows(touched_.collect(), kRowsPerTask);
  return touched_.collect();
}

EdgeTerms EdgeOperator::edge_terms(VertexId v) const {
  EdgeTerms found;
  EdgeMessages messages(work_, edges_, work_.state, 0);
  const auto take = [&](const MessageEdge&, const float* message, const float*) {
    found.messages.insert(found.messages.end(), message, message + spec_.width);
  };
  visit_counted_in(flow_, filter_, v, [&](const EdgeSpan& span, std::int32_t i) {
    const EdgeEntry entry = span.entry(i);
    found.edges.push_back({entry.neighbour, v, entry.weight, entry.type, entry.id, entry.time});
    messages.add(message_edge(work_.graph, edges_, span, i, entry.neighbour, v), take);
  });
  messages.flush(take);
  return found;
}

void EdgeOperator::mark_reached(const VertexSets& sets, const BatchDelta& delta) {
  if (edges_.source_input) mark_targets(work_, spec_, delta.features_changed);
  if (edges_.target_input || (edges_.source_input && own_loop())) {
    for (const VertexId v : delta.features_changed) work_.mark_consumers(spec_.consumers, v, 0);
  }
  mark_operands(work_, *this, spec_, sets);
}

}  // namespace livegnn
