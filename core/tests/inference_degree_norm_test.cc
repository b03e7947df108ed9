// Degree norms by example: which edges count at which end, what a batch changes, and the way back.
#include <algorithm>
#include <cmath>
#include <memory>

#include "inference/degree_norm.h"
#include "tests/check.h"

using namespace livegnn;

namespace {

constexpr DegreeNormSpec kInLoops{true, true, 1.0f, -1, false, Scaling::Root};
constexpr DegreeNormSpec kOut{true, false, 1.0f, -1, true, Scaling::Root};
constexpr DegreeNormSpec kOutInverse{true, false, 1.0f, -1, true, Scaling::Inverse};
constexpr DegreeNormSpec kOutTaken{true, false, 1.0f, -1, true, Scaling::One};

// Vertices 0 .. 3; edges 0 -> 1 (weight 1), 0 -> 2 (3), 1 -> 2 (0.25), 2 -> 2 (9).
std::unique_ptr<GraphStore> small_graph(bool undirected = false) {
  GraphOptions options;
  options.feature_width = 1;
  options.has_weight = true;
  options.undirected = undirected;
  auto store = std::make_unique<GraphStore>(options);
  const std::vector<float> x = {0, 0, 0, 0}, weight = {1, 3, 0.25f, 9};
  const std::vector<std::int64_t> src = {0, 0, 1, 2}, dst = {1, 2, 2, 2};
  store->load({4, x, {}, {src, dst, {}, weight}}, 1);
  return store;
}

DegreeNorm context_of(const DegreeNormSpec& spec, const GraphStore& graph) {
  DegreeNorm made(spec);
  made.reserve(graph.slot_count());
  made.rebuild(graph, 0, graph.slot_count());
  return made;
}

Update edge(UpdateKind kind, std::int64_t u, std::int64_t v, float weight = 1.0f) {
  Update update{};
  update.kind = kind;
  update.u = u;
  update.v = v;
  update.has_weight = kind != UpdateKind::RemoveEdge;
  update.weight = weight;
  return update;
}

}  // namespace

TEST(in_degrees_count_the_loop_and_out_degrees_leave_it_out) {
  const auto store = small_graph();
  const GraphStore& graph = *store;
  const DegreeNorm in = context_of(kInLoops, graph), out = context_of(kOut, graph);
  CHECK(in.loop(2) == 9.0f && in.loop(0) == 1.0f);
  CHECK(in.scale(2) == static_cast<float>(1.0 / std::sqrt(3.25 + 9.0)));
  CHECK(out.scale(0) == 0.5f && out.scale(1) == 2.0f);
  CHECK(out.scale(2) == 0.0f && out.scale(3) == 0.0f);  // no out-edge but a loop, none at all
  CHECK(out.loop(0) == 0.0f && out.loop(2) == 0.0f);
  CHECK(context_of(kOutInverse, graph).scale(0) == 0.25f && context_of(kOutInverse, graph).scale(3) == 0.0f);
  const DegreeNorm taken = context_of(kOutTaken, graph);
  CHECK(taken.scale(0) == 1.0f && taken.loop(0) == -4.0f && taken.loop(3) == 0.0f);
  const DegreeNorm both = context_of(kOutTaken, *small_graph(true));
  CHECK(both.loop(2) == -3.25f);  // an undirected edge leaves both of its ends, a loop neither
}

TEST(a_batch_changes_the_sources_of_its_edges_and_is_taken_back_bit_for_bit) {
  for (const DegreeNormSpec& spec : {kOut, kOutInverse, kOutTaken}) {
    const auto store = small_graph();
    GraphStore& graph = *store;
    DegreeNorm context = context_of(spec, graph);
    const DegreeNorm before = context_of(spec, graph);
    UpdateBuffer batch;
    batch.add(edge(UpdateKind::AddEdge, 3, 0, 2.0f));
    batch.add(edge(UpdateKind::RemoveEdge, 0, 2));
    batch.add(edge(UpdateKind::SetWeight, 1, 2, 4.0f));
    batch.add(edge(UpdateKind::SetWeight, 2, 2, 1.0f));
    const BatchDelta delta = graph.apply(batch);
    context.update(graph, delta, 4);
    std::vector<VertexId> changed = context.changed();
    std::sort(changed.begin(), changed.end());
    CHECK(changed == (std::vector<VertexId>{0, 1, 3}));
    CHECK(context.scale_before(0) == before.scale(0) && context.loop_before(0) == before.loop(0));
    const DegreeNorm fresh = context_of(spec, graph);
    for (VertexId v = 0; v < 4; ++v) CHECK(context.equal_row(fresh, v));
    CHECK(context.digest_row(0) != before.digest_row(0));
    context.restore();
    for (VertexId v = 0; v < 4; ++v) CHECK(context.equal_row(before, v));
  }
}

TEST(weights_below_0_are_refused_where_a_degree_divides) {
  const auto store = small_graph();
  GraphStore& graph = *store;
  DegreeNorm out = context_of(kOut, graph), taken = context_of(kOutTaken, graph);
  UpdateBuffer loop;
  loop.add(edge(UpdateKind::AddEdge, 3, 3, -1.0f));
  out.update(graph, graph.apply(loop), 4);
  CHECK(out.changed().empty());
  UpdateBuffer batch;
  batch.add(edge(UpdateKind::AddEdge, 3, 0, -1.0f));
  const BatchDelta delta = graph.apply(batch);
  CHECK_THROWS((out.update(graph, delta, 4), 0), ErrorKind::DegreeNegative);
  CHECK_THROWS((out.check(graph, 3), 0), ErrorKind::DegreeNegative);
  taken.update(graph, delta, 4);
  taken.check(graph, 3);
  CHECK(taken.loop(3) == 1.0f);
}

int main() { return livegnn::testing::run_all(); }
