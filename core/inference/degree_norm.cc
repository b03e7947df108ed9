#include "inference/degree_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "inference/counted_edges.h"
#include "util/hash.h"

namespace livegnn {

namespace {

constexpr double kUnit = 0x1p64;
constexpr float kWeightMax = 0x1p40f;  // with fewer than 2^22 edges a degree stays inside 126 bits

}  // namespace

DegreeNorm::Fixed DegreeNorm::fixed(float weight) {
  if (!(std::fabs(weight) <= kWeightMax)) {
    throw Error(ErrorKind::RangeOverflow, {.where = "apply",
                                           .expected = "edge weights of at most 2^40 in a degree-normalised layer",
                                           .got = std::to_string(weight),
                                           .advice = "scale the weights"});
  }
  return static_cast<Fixed>(static_cast<double>(weight) * kUnit);
}

DegreeNorm::Fixed DegreeNorm::share(float weight, VertexId v) const {
  const float counted = spec_.weighted ? weight : 1.0f;
  if (spec_.outgoing && spec_.scaling != Scaling::One && counted < 0.0f) {
    throw Error(ErrorKind::DegreeNegative,
                {.where = "apply",
                 .expected = "edge weights of at least 0 in a layer normalised by out-degrees",
                 .got = std::to_string(counted) + " on an edge " + (spec_.reversed ? "to" : "from") + " vertex " +
                        std::to_string(v),
                 .advice = "with one below, PyG's scale of the Laplacian would depend on all edges of the graph",
                 .vertex = v});
  }
  return fixed(counted);
}

void DegreeNorm::reserve(std::int64_t slots) {
  reserve_places(sum_, slots);
  reserve_places(factors_, slots);
}

float DegreeNorm::loop_weight(const GraphStore& graph, VertexId v) const {
  if (!spec_.self_loops) return 0.0f;
  if (!spec_.weighted) return spec_.fill;
  const EdgeEntry loop = graph.newest_edge(v, v);
  if (loop.id == kNoEdge) return spec_.fill;
  if (spec_.relation < 0) return loop.weight;
  EdgeId newest = kNoEdge;
  float weight = spec_.fill;
  graph.visit_in(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) {
      if (span.neighbours[i] != v || span.types[i] != spec_.relation || span.ids[i] < newest) continue;
      newest = span.ids[i];
      weight = span.weights != nullptr ? span.weights[i] : 1.0f;
    }
  });
  return weight;
}

void DegreeNorm::refuse_negative(Fixed degree, VertexId v) const {
  if (degree < 0) {
    throw Error(ErrorKind::DegreeNegative, {.where = "apply",
                                            .expected = std::string("a weighted ") + (spec_.reversed ? "out" : "in") +
                                                        "-degree of at least 0 at vertex " + std::to_string(v),
                                            .got = std::to_string(static_cast<double>(degree) / kUnit),
                                            .advice = "degree normalisation has no value there",
                                            .vertex = v});
  }
}

DegreeNorm::Fixed DegreeNorm::sum_of(const GraphStore& graph, VertexId v) const {
  Fixed sum = 0;
  const auto add = [&](const EdgeSpan& span, std::int32_t i) { sum += share(weight_of(span, i), v); };
  const CountedEdges filter{skips_loops(), spec_.relation};
  visit_counted_in(Flow(graph, counts_out_lists()), filter, v, add);
  return sum;
}

void DegreeNorm::check(const GraphStore& graph, VertexId v) const {
  if (spec_.scaling == Scaling::One || spec_.scaling == Scaling::Unit) {
    sum_of(graph, v);
    return;
  }
  refuse_negative(sum_of(graph, v) + fixed(loop_weight(graph, v)), v);
}

void DegreeNorm::finish(const GraphStore& graph, VertexId v) {
  Factors& factors = factors_[at(v)];
  if (spec_.scaling == Scaling::One) {
    factors.scale = 1.0f;
    factors.loop = static_cast<float>(static_cast<double>(-sum_[at(v)]) / kUnit);
    return;
  }
  factors.loop = loop_weight(graph, v);
  if (spec_.scaling == Scaling::Unit) {
    factors.scale = 1.0f;
    return;
  }
  const Fixed degree = sum_[at(v)] + fixed(factors.loop);
  refuse_negative(degree, v);
  const double d = static_cast<double>(degree) / kUnit;
  factors.scale = degree == 0 ? 0.0f : static_cast<float>(1.0 / (spec_.scaling == Scaling::Inverse ? d : std::sqrt(d)));
}

float DegreeNorm::share_max(float weight_max) const {
  if (spec_.scaling == Scaling::Inverse) return 1.0f;  // a weight is at most the degree that it is in
  return spec_.scaling == Scaling::Root ? std::sqrt(weight_max) : weight_max;
}

void DegreeNorm::rebuild(const GraphStore& graph, VertexId first, VertexId last) {
  for (VertexId v = first; v < last; ++v) {
    if (is_ghost(v)) continue;
    sum_[at(v)] = sum_of(graph, v);
    finish(graph, v);
  }
}

void DegreeNorm::next_epoch() {
  if (++epoch_ != 0) return;
  for (Factors& factors : factors_) factors.mark = 0;  // marks of old epochs would count again
  epoch_ = 1;
}

void DegreeNorm::touch(VertexId v) {
  if (touched(v)) return;
  Factors& factors = factors_[at(v)];
  factors.mark = epoch_;
  factors.slot = static_cast<std::uint32_t>(before_.size());
  before_.push_back({v, sum_[at(v)], factors.scale, factors.loop});
}

void DegreeNorm::count(const EdgeRecord& edge, float weight, int sign) {
  if (spec_.relation >= 0 && edge.type != spec_.relation) return;
  const VertexId v = owner(edge);
  if (is_ghost(v)) return;
  touch(v);
  if (skips_loops() && edge.src == edge.dst) return;  // finish() reads the loop's weight
  const Fixed amount = share(weight, v);
  sum_[at(v)] += sign > 0 ? amount : -amount;
}

void DegreeNorm::update(const GraphStore& graph, const BatchDelta& delta, VertexId slots_before) {
  next_epoch();
  before_.clear();
  changed_.clear();
  reserve(graph.slot_count());
  for (VertexId v = slots_before; v < graph.slot_count(); ++v) {
    if (!is_ghost(v)) touch(v);
  }
  for (const EdgeRecord& edge : delta.removed) count(edge, edge.weight, -1);
  for (const EdgeRecord& edge : delta.added) count(edge, edge.weight, +1);
  if (spec_.weighted) {
    for (const EdgeReweighted& edge : delta.reweighted) {
      count(edge.before, edge.before.weight, -1);
      count(edge.before, edge.weight_after, +1);
    }
  }
  for (const Before& before : before_) {
    finish(graph, before.vertex);
    const Factors& now = factors_[at(before.vertex)];
    if (!same_bits(before.scale, now.scale) || !same_bits(before.loop, now.loop)) changed_.push_back(before.vertex);
  }
}

void DegreeNorm::adopt(VertexId v, float scale) {
  touch(v);
  Factors& now = factors_[at(v)];
  if (same_bits(now.scale, scale)) return;
  now.scale = scale;
  changed_.push_back(v);
}

void DegreeNorm::restore() {
  for (const Before& before : before_) {
    sum_[at(before.vertex)] = before.degree;
    factors_[at(before.vertex)].scale = before.scale;
    factors_[at(before.vertex)].loop = before.loop;
  }
  forget();
}

void DegreeNorm::forget() {
  before_.clear();
  changed_.clear();
  next_epoch();
}

std::size_t DegreeNorm::bytes() const {
  return sum_.capacity() * sizeof(Fixed) + factors_.capacity() * sizeof(Factors);
}

std::uint64_t DegreeNorm::digest_row(VertexId v) const {
  const std::size_t i = at(v);
  std::uint64_t hash = mix(static_cast<std::uint64_t>(sum_[i]));
  hash = mix(hash ^ static_cast<std::uint64_t>(sum_[i] >> 64));
  hash = mix(hash ^ std::bit_cast<std::uint32_t>(factors_[i].scale));
  return mix(hash ^ std::bit_cast<std::uint32_t>(factors_[i].loop));
}

bool DegreeNorm::equal_row(const DegreeNorm& other, VertexId v) const {
  const std::size_t i = at(v);
  return sum_[i] == other.sum_[i] && same_bits(factors_[i].scale, other.factors_[i].scale) &&
         same_bits(factors_[i].loop, other.factors_[i].loop);
}

}  // namespace livegnn
