#include "inference/workspace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "inference/operators/operator.h"

namespace livegnn {

namespace {

// From one stage to the next of a batch of ten or so: to wake a sleeper for each costs more than it helps with.
constexpr ThreadPool::Spin kSpin{300};
constexpr std::size_t kDegreesAhead = 12;
constexpr std::size_t kEntryBytes = 20;  // of a pushed edge, with its weight, twice

bool any_reversed(const Program& program, bool reversed) {
  return std::any_of(program.aggregations.begin(), program.aggregations.end(),
                     [&](const AggregationSpec& spec) { return spec.reversed == reversed; });
}

std::vector<std::unique_ptr<Operator>> make_operators(Workspace& work) {
  std::vector<std::unique_ptr<Operator>> made;
  for (std::size_t k = 0; k < work.source().aggregations.size(); ++k)
    made.push_back(make_operator(work, static_cast<int>(k)));
  return made;
}

}  // namespace

Workspace::Workspace(const GraphStore& store, Program model, const EngineOptions& chosen)
    : graph(store),
      program(std::move(model)),
      goes_back(any_reversed(source(), true)),
      goes_forward(!goes_back || any_reversed(source(), false)),
      options(chosen),
      pool(chosen.threads, kSpin),
      registers(at(chosen.threads)),
      row_scratch(at(chosen.threads)),
      row_users(source().stored.size()),
      operators(make_operators(*this)),
      pager(make_pager()),
      state(new_state(chosen.compact, true)),
      scales(source().aggregations.size()),
      publication(source().output_width, chosen.threads, pager.get()),
      rows_before(source().stored.size()) {
  program.estimate_rows(strides());
  if (options.halo == nullptr) return;
  invariant(options.strategy == Strategy::Incremental && !options.compact && !options.on_demand && pager == nullptr,
            "a part whose engine is not plain");
  if (options.halo->parts() == 1) return;  // a part that is alone has no ghosts, and goes back as any engine does
  trade = std::make_unique<HaloTrade>(*this, *options.halo);
}

Workspace::~Workspace() = default;

std::vector<int> Workspace::strides() const {
  std::vector<int> found;
  for (const auto& op : operators) found.push_back(op->stride());
  return found;
}

State Workspace::new_state(bool compact_rows, bool pin) const {
  State made(source(), strides(), compact_rows, pager.get(), pin);
  for (DegreeNorm& norm : made.norms) norm.leave_out(options.halo);
  return made;
}

// ---- ranges

double Workspace::times_range(int k, const float* message, double scale, int first, int width) const {
  const float* up = scales[at(k)].up.data() + first;
  double largest = 0.0;
  for (int c = 0; c < width; ++c) {
    const double size = std::fabs(scale * static_cast<double>(message[c]) * static_cast<double>(up[c]));
    if (!(size <= largest)) largest = size;  // NaN, too
  }
  return largest / static_cast<double>(limit);
}

void Workspace::not_finite(int k, VertexId v) const {
  throw Error(ErrorKind::RangeOverflow, {.where = "Engine",
                                         .expected = "finite messages in " + aggregation(k).name,
                                         .got = "NaN or infinity at vertex " + std::to_string(v),
                                         .advice = "check weights and features",
                                         .vertex = v});
}

void Workspace::out_of_range(int k, VertexId v, double times) const {
  if (!std::isfinite(times)) not_finite(k, v);
  char size[32];
  std::snprintf(size, sizeof(size), "%.3g", times);
  throw Error(ErrorKind::RangeOverflow,
              {.where = "apply",
               .expected = "a message of vertex " + std::to_string(v) + " in " + aggregation(k).name +
                           " within the fixed-point range (by default 512 times the largest at creation)",
               .got = std::string("one of ") + size + " times that range",
               .advice = "a batch at work is rolled back: call engine.rescale(headroom=...) first, with more than so "
                         "many times the headroom",
               .vertex = v});
}

// Refuses a message that no sum can take, whether an edge carries it or not.
void Workspace::check_finite(int k, VertexId v, const float* row, int width) const {
  constexpr std::uint32_t kExponent = 0x7f800000;
  bool fine = true;
  for (int c = 0; c < width; ++c) fine &= (std::bit_cast<std::uint32_t>(row[c]) & kExponent) != kExponent;
  if (!fine) not_finite(k, v);
}

// The same of a row that a run from scratch stores, where it is a message.
void Workspace::check_stored(const Instruction& step, VertexId v, const float* row) const {
  if (step.op == Op::StoreMessage) return check_finite(step.index, v, row, step.width);
  const int k = row_users[at(step.index)].finite_for;
  if (k >= 0) check_finite(k, v, row, step.width);
}

void Workspace::check_degree(VertexId v, const char* where, const char* advice) const {
  const std::int64_t capacity = std::int64_t{1} << capacity_bits;
  if (messages_max(v) < capacity) return;
  const bool in = goes_forward && graph.in_degree(v) >= capacity;
  throw Error(ErrorKind::RangeOverflow,
              {.where = where,
               .expected = std::string(in ? "in" : "out") + "-degrees below " + std::to_string(capacity) +
                           ", for which the scales are",
               .got = std::to_string(in ? graph.in_degree(v) : graph.out_degree(v)) + " at vertex " + std::to_string(v),
               .advice = advice,
               .vertex = v});
}

void Workspace::check_degrees(const BatchDelta& changes) const {
  for (const EdgeRecord& edge : changes.added) {
    for (const VertexId v : {edge.dst, edge.src}) {
      if (v == edge.dst || goes_back) check_degree(v, "apply", "the batch was rolled back: call engine.rescale()");
    }
  }
}

// Capacity that was given, or chosen for another version of the graph.
void Workspace::check_capacity() const {
  for (VertexId v = 0; v < graph.slot_count(); ++v)
    check_degree(v, "Engine", "choose scales anew: leave them out, or rescale()");
}

void Workspace::choose_capacity() {
  std::int64_t degree_max = 1;
  for (VertexId v = 0; v < graph.slot_count(); ++v) degree_max = std::max<std::int64_t>(degree_max, messages_max(v));
  if (trade != nullptr) {  // in two floats that are exact
    float halves[2] = {static_cast<float>(degree_max >> 16), 0.0f};
    trade->halo().reduce_max({halves, 1});
    const auto high = static_cast<std::int64_t>(halves[0]);
    halves[1] = degree_max >> 16 == high ? static_cast<float>(degree_max & 0xffff) : 0.0f;
    trade->halo().reduce_max({halves + 1, 1});
    degree_max = (high << 16) + static_cast<std::int64_t>(halves[1]);
  }
  capacity_bits = 16;
  while ((std::int64_t{1} << capacity_bits) < 16 * degree_max + 2) ++capacity_bits;
}

void Workspace::use_exponents(int k, const std::vector<int>& exponents) {
  Scales& chosen = scales[at(k)];
  const auto padded = at(round_up(static_cast<int>(exponents.size()), 16));
  chosen.exponents = exponents;
  chosen.up.assign(padded, 1.0f);
  chosen.down.assign(padded, 1.0f);
  for (std::size_t c = 0; c < exponents.size(); ++c) {
    chosen.up[c] = std::ldexp(1.0f, exponents[c]);
    chosen.down[c] = std::ldexp(1.0f, -exponents[c]);
  }
}

void Workspace::set_scales(int k, std::vector<float> magnitudes, int spare_bits) {
  const AggregationSpec& spec = aggregation(k);
  if (trade != nullptr) trade->halo().reduce_max(magnitudes);
  const float top = *std::max_element(magnitudes.begin(), magnitudes.end());
  if (!std::isfinite(top)) {
    throw Error(ErrorKind::ValueInvalid, {.where = "Engine",
                                          .expected = "finite messages in " + spec.name,
                                          .got = "NaN or infinity",
                                          .advice = "check weights and features"});
  }
  const int message_bits = kSumBits - capacity_bits - kHeadroomBits - spare_bits;
  std::vector<int> exponents;
  for (const float column : magnitudes) {
    const float floor = std::ldexp(top, -kFloorBits);
    const float largest = std::max(column, floor);
    const int magnitude = largest > 0.0f ? std::ilogb(largest) + 1 : 0;
    exponents.push_back(std::clamp(message_bits - magnitude, -80, 100));
  }
  use_exponents(k, exponents);
}

// ---- the batch at work

// Whether u's message of aggregate k reaches a row that the batch at work is to bring up to date. One that does not
// must not be looked at: where it is stale and not computed, its old row and new factor belong to different versions.
bool Workspace::wants_source(int k, VertexId u) const {
  if (!restricted || wants(k, u)) return true;
  bool found = false;
  flow(k).visit_out(u, [&](const EdgeSpan& span) {
    for (std::int32_t e = 0; e < span.count && !found; ++e) found = wants(k, span.neighbours[e]);
  });
  return found;
}

const float* Workspace::input_before(VertexId v, float* buffer) const {
  if (!input_changed.contains(v)) return graph.feature_row(v, buffer);
  return delta->features_before.data() + at(input_slot[at(v)]) * at(graph.feature_stride());
}

std::int64_t Workspace::out_edges(const Flow& flow, const std::vector<VertexId>& vertices) const {
  std::int64_t edges = 0;
  for (std::size_t i = 0; i < vertices.size(); ++i) {
    if (i + kDegreesAhead < vertices.size()) flow.prefetch_out(vertices[i + kDegreesAhead]);
    edges += flow.out_degree(vertices[i]);
  }
  return edges;
}

// A pushed delta costs a read and a write of a wide row, a swept edge a read of a narrow one. A push of sums gathers
// where it is large, and costs no more. Where few rows are wanted, deltas go to these alone. With a limit of memory,
// deltas and edges have a share of it.
Path Workspace::push_or_sweep(std::size_t sources, std::size_t row_bytes, std::int64_t edges, bool sums) const {
  if (trade != nullptr) return Path::Push;  // of a stale ghost there is no row to sum again
  if (options.force_path != Path::None) return options.force_path;
  const bool sweeps = !sums || pager != nullptr || compact();  // deltas of all sources are as much as rows of a state
  const bool many = sweeps && !restricted && edges * 10 > all_in_edges() * 6;
  const bool fits = pager == nullptr || sources * row_bytes + at(edges) * kEntryBytes <= options.memory_limit / 4;
  return many || !fits ? Path::Sweep : Path::Push;
}

void Workspace::keep_row(int k, VertexId v, const std::int64_t* row, int thread) {
  RowTable<std::int64_t>& table = state.aggregates[at(k)];
  if (std::memcmp(table.row(v), row, table.row_bytes()) == 0) return;
  const bool value_same = std::memcmp(table.row(v), row, operators[at(k)]->facts.value_bytes) == 0;
  if (journal.on()) journal.save_aggregate(k, v, table.row(v), thread);
  std::memcpy(table.row(v), row, table.row_bytes());
  if (!value_same) mark_consumers(aggregation(k).consumers, v, thread);
}

// A function of (seed, version, aggregation, edge id). Sums are scaled up to the whole in-degree, so that they are
// unbiased.
InSample Workspace::sample_in_edges(int k, VertexId v) const {
  const Flow flow = this->flow(k);
  const std::int32_t degree = flow.in_degree(v);
  if (options.strategy != Strategy::Sampled || degree <= options.fanout) return {};
  InSample sample;
  sample.salt =
      mix(options.seed ^ mix(static_cast<std::uint64_t>(graph.version()) * 64 + static_cast<std::uint64_t>(k)));
  std::vector<std::uint64_t> keys;
  keys.reserve(at(degree));
  flow.visit_in(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) keys.push_back(sample.key(span.ids[i]));
  });
  std::nth_element(keys.begin(), keys.begin() + options.fanout, keys.end());
  sample.bound = keys[at(options.fanout)];
  sample.factor = static_cast<float>(degree) / static_cast<float>(options.fanout);
  return sample;
}

}  // namespace livegnn
