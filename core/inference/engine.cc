// Construction, audits and numbers of an engine.
#include <algorithm>
#include <cmath>

#include "inference/terms.h"

namespace livegnn {

namespace {
// From one stage to the next of a batch of ten or so: to wake a sleeper for each costs more than it helps with.
constexpr ThreadPool::Spin kSpin{300};
}  // namespace

template <typename Acc>
EngineImpl<Acc>::EngineImpl(const GraphStore& graph, Program program, const EngineOptions& options)
    : graph_(graph),
      program_(std::move(program)),
      options_(options),
      pager_(make_pager()),
      pool_(options.threads, kSpin),
      registers_(at(options.threads)),
      state_(source(), options.compact, pager_.get(), true),
      scales_(source().aggregations.size()),
      publication_(source().output_width, options.threads, pager_.get()),
      plans_(source().aggregations.size()),
      touched_(source().aggregations.size()),
      moved_sources_(source().aggregations.size()),
      rows_before_(source().stored.size()),
      borders_(source().aggregations.size()),
      moved_borders_(at(options.threads)),
      window_finders_(at(options.threads)),
      row_scratch_(at(options.threads)) {
  for (const AttentionSpec& spec : source().attentions) attention_factors_.push_back(attention_tables(spec));
  for (const AggregationSpec& spec : source().aggregations) {
    const bool shared = spec.message_table >= 0 && !source().stored[at(spec.message_table)].attention_source_of.empty();
    invariant(!shared, "an attention has rows of its own");
  }
  const bool given = !options.scale_exponents.empty();
  if (given) {
    invariant(options.scale_exponents.size() == scales_.size() + 1,
              "one row of scale exponents per aggregation, and the capacity");
    capacity_bits_ = options.scale_exponents.back().at(0);
    check_capacity();
    for (int k = 0; k < static_cast<int>(scales_.size()); ++k) use_exponents(k, options.scale_exponents[at(k)]);
  } else {
    choose_capacity();
    for (int k = 0; k < static_cast<int>(scales_.size()); ++k)
      use_exponents(k, std::vector<int>(at(aggregation(k).width), 0));
  }
  limit_ = std::ldexp(1.0f, kSumBits - capacity_bits_);
  slots_ = slots_before_ = graph_.slot_count();
  publication_.reset(graph_);
  const OutputRow out = [this](VertexId v) { return publication_.row(v); };
  if (incremental()) {
    forward(state_, !given, Sums::Kept, out);
  } else {
    State<Acc> bootstrap(source(), false, pager_.get(), false);
    forward(bootstrap, !given, Sums::Passing, out);
    state_.contexts = std::move(bootstrap.contexts);
  }
}

template <typename Acc>
std::uint64_t EngineImpl<Acc>::digest() const {
  refuse_unsound_files();
  std::uint64_t sum = 0;
  const auto take = [&](VertexId v) {
    if (!graph_.is_live(v)) return;
    std::uint64_t row = mix(static_cast<std::uint64_t>(v));
    for (const DegreeContext& context : state_.contexts) row = mix(row ^ context.digest_row(v));
    for (std::size_t k = 0; incremental() && k < state_.aggregates.size(); ++k) {
      const RowTable<Acc>& table = state_.aggregates[k];
      const AggregationSpec& spec = aggregation(static_cast<int>(k));
      row = mix_bytes(row, table.row(v), value_bytes<Acc>(spec));
    }
    sum += mix(row);
  };
  pass(
      [&](std::int64_t first, std::int64_t last) {
        for (const RowTable<Acc>& table : state_.aggregates) table.fetch(first, last);
      },
      [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t v = first; v < last; ++v) take(static_cast<VertexId>(v));
      });
  for (std::size_t k = 0; k < scales_.size(); ++k) {
    sum += mix_bytes(mix(0x5ca1e + k), scales_[k].exponents.data(), scales_[k].exponents.size() * sizeof(int));
  }
  return sum;
}

template <typename Acc>
StateBytes EngineImpl<Acc>::bytes() const {
  StateBytes bytes;
  for (const auto& table : state_.aggregates) bytes.aggregates += table.bytes();
  for (const AggregationSpec& spec : source().aggregations) {
    if (spec.message_table >= 0) bytes.messages += state_.stored[at(spec.message_table)].bytes();
  }
  for (const auto& table : state_.stored) bytes.stored += table.bytes();
  bytes.stored -= bytes.messages;
  for (const DegreeContext& context : state_.contexts) bytes.contexts += context.bytes();
  bytes.outputs = publication_.bytes();
  for (const VertexSet& set : dirty_) bytes.scratch += set.bytes();
  for (const Touched& touched : touched_) bytes.scratch += touched.set.bytes() + touched.flags.capacity();
  for (const auto* sets : {&moved_sources_, &stale_}) {
    for (const VertexSet& set : *sets) bytes.scratch += set.bytes();
  }
  for (const RowsBefore& rows : rows_before_) bytes.scratch += rows.bytes();
  for (const BorderTable& borders : borders_) bytes.scratch += borders.bytes();
  bytes.scratch += fresh_.bytes() + demanded_.capacity() * sizeof(VertexId);
  bytes.scratch += journal_.bytes();
  return bytes;
}

template <typename Acc>
std::vector<std::vector<int>> EngineImpl<Acc>::scale_exponents() const {
  std::vector<std::vector<int>> all;
  for (const Scales& scales : scales_) all.push_back(scales.exponents);
  all.push_back({capacity_bits_});
  return all;
}

template <typename Acc>
void EngineImpl<Acc>::corrupt_for_test(int k, VertexId v, int column) {
  Acc* row = state_.aggregates.at(at(k)).row(v);
  if (aggregation(k).extreme() || aggregation(k).gathers_rows()) {
    reinterpret_cast<float*>(row)[column] += 1.0f;
  } else {
    row[column] += Acc{1};
  }
}

namespace {
// Messages on edges that can be summed in fixed point are.
void sum_in_fixed_point(Program& program) {
  for (AggregationSpec& spec : program.aggregations) {
    if (spec.gather < 0) continue;
    const GatherSpec& gather = program.gathers[at(spec.gather)];
    spec.summed = gather.sums_sources;
    if (spec.summed && gather.kind == Gathering::Mean) spec.norm = Norm::Mean;
  }
}
}  // namespace

std::unique_ptr<Engine> Engine::create(const GraphStore& graph, Program program, const EngineOptions& options) {
  if (options.exact) sum_in_fixed_point(program);
  if (options.exact) return std::make_unique<EngineImpl<std::int64_t>>(graph, std::move(program), options);
  return std::make_unique<EngineImpl<float>>(graph, std::move(program), options);
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
