// Construction, audits and numbers of an engine.
#include <algorithm>
#include <cmath>

#include "inference/engine_impl.h"

namespace livegnn {

EngineImpl::EngineImpl(const GraphStore& graph, Program program, const EngineOptions& options)
    : work_(graph, std::move(program), options) {
  Workspace& w = work_;
  const bool given = !options.scale_exponents.empty();
  const int count = static_cast<int>(w.scales.size());
  if (given) {
    invariant(options.scale_exponents.size() == w.scales.size() + 1,
              "one row of scale exponents per aggregation, and the capacity");
    w.capacity_bits = options.scale_exponents.back().at(0);
    w.check_capacity();
  } else {
    w.choose_capacity();
  }
  for (int k = 0; k < count; ++k)
    w.use_exponents(k, given ? options.scale_exponents[at(k)] : std::vector<int>(at(w.aggregation(k).width), 0));
  w.limit = std::ldexp(1.0f, kSumBits - w.capacity_bits);
  w.slots = w.slots_before = graph.slot_count();
  w.publication.reset(graph);
  const OutputRow out = [this](VertexId v) { return work_.publication.row(v); };
  if (w.incremental()) {
    forward(w.state, !given, Sums::Kept, out);
  } else {
    State bootstrap = w.new_state(false, false);
    forward(bootstrap, !given, Sums::Transient, out);
    w.state.norms = std::move(bootstrap.norms);
  }
}

std::uint64_t EngineImpl::digest() const {
  refuse_unsound_files();
  const State& state = work_.state;
  const Halo* halo = work_.options.halo;
  std::uint64_t sum = 0;
  const auto take = [&](VertexId v) {
    if (!work_.graph.is_live(v) || work_.is_ghost(v)) return;
    std::uint64_t row = mix(static_cast<std::uint64_t>(halo == nullptr ? v : halo->global_of(v)));
    for (const DegreeNorm& norm : state.norms) row = mix(row ^ norm.digest_row(v));
    for (std::size_t k = 0; work_.incremental() && k < state.aggregates.size(); ++k)
      row = mix_bytes(row, state.aggregates[k].row(v), work_.operators[k]->facts.value_bytes);
    sum += mix(row);
  };
  work_.pass(
      [&](std::int64_t first, std::int64_t last) {
        for (const auto& table : state.aggregates) table.fetch(first, last);
      },
      [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t v = first; v < last; ++v) take(static_cast<VertexId>(v));
      });
  for (std::size_t k = 0; k < work_.scales.size() && (halo == nullptr || halo->part() == 0); ++k) {
    const std::vector<int>& exponents = work_.scales[k].exponents;
    sum += mix_bytes(mix(0x5ca1e + k), exponents.data(), exponents.size() * sizeof(int));
  }
  return sum;
}

StateBytes EngineImpl::bytes() const {
  const State& state = work_.state;
  StateBytes bytes;
  for (const auto& table : state.aggregates) bytes.aggregates += table.bytes();
  for (const AggregationSpec& spec : source().aggregations) {
    if (spec.message_table >= 0) bytes.messages += state.stored[at(spec.message_table)].bytes();
  }
  for (const auto& table : state.stored) bytes.stored += table.bytes();
  bytes.stored -= bytes.messages;
  for (const DegreeNorm& norm : state.norms) bytes.contexts += norm.bytes();
  bytes.outputs = work_.publication.bytes();
  for (const auto* sets : {&work_.dirty, &stale_}) {
    for (const VertexSet& set : *sets) bytes.scratch += set.bytes();
  }
  for (const auto& op : work_.operators) bytes.scratch += op->bytes();
  for (const OldRows& rows : work_.rows_before) bytes.scratch += rows.bytes();
  bytes.scratch += fresh_.bytes() + demanded_.capacity() * sizeof(VertexId);
  bytes.scratch += work_.journal.bytes();
  return bytes;
}

std::vector<std::vector<int>> EngineImpl::scale_exponents() const {
  std::vector<std::vector<int>> all;
  for (const Scales& scales : work_.scales) all.push_back(scales.exponents);
  all.push_back({work_.capacity_bits});
  return all;
}

void EngineImpl::corrupt_for_test(int k, VertexId v, int column) { work_.operators.at(at(k))->corrupt(v, column); }

std::unique_ptr<Engine> Engine::create(const GraphStore& graph, Program program, const EngineOptions& options) {
  return std::make_unique<EngineImpl>(graph, std::move(program), options);
}

}  // namespace livegnn
