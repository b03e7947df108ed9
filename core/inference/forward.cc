// The run from scratch: bootstrap, recompute, rebuild, and the yardstick of verify().
#include <algorithm>
#include <cmath>

#include "inference/column_maxima.h"
#include "inference/terms.h"

namespace livegnn {

namespace {

constexpr std::int64_t kSumChunk = 512;

}  // namespace

// Whether the sums of an aggregation, where nobody wants them afterwards, can go to the one stage that reads them row
// by row: a table of them would be the largest of a run, and its pages come fresh from the system each time.
template <typename Acc>
bool EngineImpl<Acc>::passes(int k) const {
  const AggregationSpec& spec = aggregation(k);
  return pager_ == nullptr && !compact() && spec.gather < 0 && spec.consumers.size() == 1;
}

template <typename Acc>
PassingSums<Acc> EngineImpl<Acc>::sum_passing(int stage, const State<Acc>& state, VertexId first, VertexId last,
                                              Scratch<Acc>& scratch) const {
  PassingSums<Acc> sums{first, std::vector<const Acc*>(plans_.size(), nullptr)};
  std::vector<int> here;
  std::size_t row = 0;  // elements of all sums of a vertex
  for (int k = 0; k < static_cast<int>(plans_.size()); ++k) {
    if (!passes(k) || aggregation(k).consumers.front() != stage) continue;
    here.push_back(k);
    row += at(state.aggregates[at(k)].stride());
  }
  Acc* to = scratch.need(row * at(last - first));
  for (const int k : here) {
    const int stride = state.aggregates[at(k)].stride();
    sums.of_first[at(k)] = to;
    sum_rows(k, state, nullptr, first, last, [&](VertexId v) {
      Acc* sum = to + std::int64_t{v - first} * stride;
      if (has_sum(k, v)) return sum_row_all(k, state, v, sum);
      std::memset(static_cast<void*>(sum), 0, at(stride) * sizeof(Acc));
    });
    to += std::int64_t{last - first} * stride;
  }
  return sums;
}

template <typename Acc>
void EngineImpl<Acc>::forward_stage(int stage, State<Acc>& state, Sums sums, const OutputRow& out) const {
  const std::int64_t rows = program_.chunk_rows();
  std::vector<Scratch<Acc>> scratch(at(pool_.threads()));
  const auto run_chunk = [&](std::int64_t first, std::int64_t last, int thread) {
    const int count = static_cast<int>(last - first);
    std::vector<VertexId> vertices(at(count));
    for (int i = 0; i < count; ++i) vertices[at(i)] = static_cast<VertexId>(first + i);
    Registers& registers = registers_[at(thread)];
    registers.prepare(program_, static_cast<int>(rows));
    CurrentView<Acc> view{state, graph_};
    PassingSums<Acc> passing;
    if (sums == Sums::Passing) {
      passing = sum_passing(stage, state, vertices.front(), static_cast<VertexId>(last), scratch[at(thread)]);
      view.passing = &passing;
    }
    run_stage(program_, stage, view, scales_, vertices.data(), count, registers,
              [&](const Instruction& step, Registers& r, int from, int run) {
                for (int i = 0; i < run; ++i) {
                  const VertexId v = vertices[at(from + i)];
                  float* to = nullptr;
                  if (step.op == Op::Output) {
                    to = out(v);
                  } else {
                    check_stored(step, v, r.row(step.a, i));
                    const int table = step.op == Op::StoreMessage ? aggregation(step.index).message_table : step.index;
                    to = state.stored[at(table)].row(v);
                  }
                  std::memcpy(to, r.row(step.a, i), at(step.width) * sizeof(float));
                }
              });
  };
  pass([&](std::int64_t first, std::int64_t last) { fetch_stage(stage, state, first, last); },
       [&](std::int64_t first, std::int64_t last) {
         pool_.run((last - first + rows - 1) / rows, [&](std::int64_t chunk, int thread) {
           run_chunk(first + chunk * rows, std::min(last, first + (chunk + 1) * rows), thread);
         });
       });
}

template <typename Acc>
void EngineImpl<Acc>::forward_aggregate(int k, State<Acc>& state) const {
  const std::int64_t slots = graph_.slot_count();
  if (aggregation(k).gather >= 0) return gather_all(k, state);
  if (sums_in_blocks(k)) return forward_in_blocks(k, state);
  pool_.run((slots + kSumChunk - 1) / kSumChunk, [&](std::int64_t chunk, int) {
    const std::int64_t last = std::min(slots, (chunk + 1) * kSumChunk);
    sum_rows(k, state, nullptr, chunk * kSumChunk, last, [&](VertexId v) {
      if (has_sum(k, v)) sum_row_all(k, state, v, state.aggregates[at(k)].row(v));
    });
  });
}

template <typename Acc>
void EngineImpl<Acc>::forward(State<Acc>& state, bool choose, Sums sums, const OutputRow& out) const {
  state.reserve(graph_.slot_count());
  for (DegreeContext& context : state.contexts) context.rebuild(graph_, 0, graph_.slot_count());
  for (int stage = 0; stage < static_cast<int>(source().stages.size()); ++stage) {
    for (std::size_t t = 0; t < state.stored.size(); ++t) {
      if (source().stored[t].stage == stage) state.stored[t].hold_all(graph_.slot_count());
    }
    forward_stage(stage, state, sums, out);
    for (int k = 0; k < static_cast<int>(source().aggregations.size()); ++k) {
      if (aggregation(k).stage != stage) continue;
      if (choose) const_cast<EngineImpl*>(this)->choose_scales(k, state);
      if (sums == Sums::Kept || !passes(k)) forward_aggregate(k, state);
    }
    state.release_rows();  // of a compact state: what the stage made has done its work
  }
}

template <typename Acc>
RowTable<float> EngineImpl<Acc>::run_from_scratch(State<Acc>& state) const {
  RowTable<float> outputs(round_up(output_width(), 16), pager_.get(), Rows::ByVertex);
  outputs.reserve(graph_.slot_count());
  forward(state, false, Sums::Kept, [&](VertexId v) { return outputs.row(v); });
  return outputs;
}

// Capacity that was given, or chosen for another version of the graph.
template <typename Acc>
void EngineImpl<Acc>::check_capacity() const {
  if constexpr (std::is_same_v<Acc, float>) return;
  const std::int64_t capacity = std::int64_t{1} << capacity_bits_;
  for (VertexId v = 0; v < graph_.slot_count(); ++v) {
    if (graph_.in_degree(v) < capacity) continue;
    throw Error(ErrorKind::RangeOverflow, "[Engine] expected in-degrees below " + std::to_string(capacity) +
                                              ", for which the scales are, got " + std::to_string(graph_.in_degree(v)) +
                                              " at vertex " + std::to_string(v) +
                                              "; choose scales anew: leave them out, or rescale()");
  }
}

template <typename Acc>
void EngineImpl<Acc>::choose_capacity() {
  std::int64_t degree_max = 1;
  for (VertexId v = 0; v < graph_.slot_count(); ++v)
    degree_max = std::max<std::int64_t>(degree_max, graph_.in_degree(v));
  capacity_bits_ = 16;
  while ((std::int64_t{1} << capacity_bits_) < 16 * degree_max + 2) ++capacity_bits_;
}

template <typename Acc>
void EngineImpl<Acc>::use_exponents(int k, const std::vector<int>& exponents) {
  Scales& scales = scales_[at(k)];
  const auto padded = at(round_up(static_cast<int>(exponents.size()), 16));
  scales.exponents = exponents;
  scales.total_bits = total_bits();
  scales.up.assign(padded, 1.0f);
  scales.down.assign(padded, 1.0f);
  for (std::size_t c = 0; c < exponents.size(); ++c) {
    scales.up[c] = std::ldexp(1.0f, exponents[c]);
    scales.down[c] = std::ldexp(1.0f, -exponents[c]);
  }
}

template <typename Acc>
void EngineImpl<Acc>::choose_scales(int k, const State<Acc>& state) {
  if constexpr (std::is_same_v<Acc, float>) return;
  const AggregationSpec& spec = aggregation(k);
  if (spec.extreme() || spec.gathers_rows()) return;  // kept as they are
  if (spec.summed) return set_scales(k, largest_messages(k, state), 0);
  float weight_max = 1.0f;
  if (spec.weighted) {
    for (VertexId v = 0; v < graph_.slot_count(); ++v) {
      graph_.visit_in(v, [&](const EdgeSpan& span) {
        for (std::int32_t i = 0; i < span.count && span.weights != nullptr; ++i)
          weight_max = std::max(weight_max, std::fabs(span.weights[i]));
      });
    }
  }
  ColumnMaxima maxima(spec.width);
  if (spec.attention >= 0) {
    const StoredRows& messages = state.stored[at(attention(k).message_table)];
    const auto fetch = [&](std::int64_t first, std::int64_t last) { messages.fetch(first, last); };
    pass(fetch, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t v = first; v < last; ++v) maxima.take(messages.row(static_cast<VertexId>(v)), 1.0f);
    });
    return set_scales(k, maxima.values(), kBinBits);
  }
  const MessageRows sent = messages(k, state);
  const auto take = [&](VertexId v) {
    const float factor = source_factor(k, state, v);
    const bool outgoing = spec.scaled() && state.contexts[at(spec.context)].outgoing();
    const float most = outgoing ? state.contexts[at(spec.context)].share_max(weight_max) : factor * weight_max;
    const float* row = sent.row(v);
    maxima.take(row, most);
    if (spec.root == Root::Message) maxima.take(row, factor * root_factor(k, state, v));
    if (spec.root == Root::Table) maxima.take(state.stored[at(spec.root_table)].row(v), 1.0f);
  };
  pass(
      [&](std::int64_t first, std::int64_t last) {
        if (spec.message_table >= 0) state.stored[at(spec.message_table)].fetch(first, last);
        if (spec.root == Root::Table) state.stored[at(spec.root_table)].fetch(first, last);
      },
      [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t v = first; v < last; ++v) take(static_cast<VertexId>(v));
      });
  set_scales(k, maxima.values(), 0);
}

// Exponents for columns of these magnitudes, with so many bits kept free above them.
template <typename Acc>
void EngineImpl<Acc>::set_scales(int k, const std::vector<float>& magnitudes, int spare_bits) {
  const AggregationSpec& spec = aggregation(k);
  const float top = *std::max_element(magnitudes.begin(), magnitudes.end());
  if (!std::isfinite(top)) {
    throw Error(ErrorKind::ValueInvalid, "[Engine] expected finite messages in " + spec.name +
                                             ", got NaN or infinity; check weights and features");
  }
  const int message_bits = kSumBits - capacity_bits_ - kHeadroomBits - spare_bits;
  std::vector<int> exponents;
  for (const float column : magnitudes) {
    const float floor = std::ldexp(top, -kFloorBits);
    const float largest = std::max(column, floor);
    const int magnitude = largest > 0.0f ? std::ilogb(largest) + 1 : 0;
    exponents.push_back(std::clamp(message_bits - magnitude, -80, 100));
  }
  use_exponents(k, exponents);
}

template <typename Acc>
void EngineImpl<Acc>::recompute(float* out) const {
  refuse_unsound_files();
  State<Acc> fresh = new_state();
  forward(fresh, false, Sums::Passing, [&](VertexId v) { return out + std::int64_t{v} * output_width(); });
}

template <typename Acc>
void EngineImpl<Acc>::rebuild() {
  outputs_stale_ |= pending() || !demanded_.empty();
  publication_.drop_staged();
  build_state(outputs_stale_);
  if (!outputs_stale_) return;
  publication_.publish(graph_, {}, {});
  outputs_stale_ = false;
}

// State from scratch with the recorded scales. Until it is whole the engine counts as broken, and will try again.
template <typename Acc>
void EngineImpl<Acc>::build_state(bool stage_outputs) {
  broken_ = true;
  admitted_ = false;
  pending_.clear();
  demanded_.clear();
  spent_edges_ = 0;
  for (BorderTable& borders : borders_) borders.clear();
  stale_known_ = false;
  state_.aggregates.clear();  // before others take their place
  state_.stored.clear();
  state_ = State<Acc>(source(), compact(), pager_.get(), true);
  result_rows_.clear();  // they point into the state that was
  journal_.end();
  slots_before_ = slots_ = graph_.slot_count();
  check_capacity();
  if (!incremental()) {
    state_.reserve(slots_);
    for (DegreeContext& context : state_.contexts) context.rebuild(graph_, 0, slots_);
    broken_ = false;
    return;
  }
  const RowTable<float> out = run_from_scratch(state_);
  broken_ = false;
  if (!stage_outputs) return;
  publication_.prepare(slots_, slots_);
  for (VertexId v = 0; v < slots_; ++v) publication_.stage(v, out.row(v), 0);
}

template <typename Acc>
Mismatch EngineImpl<Acc>::verify() const {
  refuse_unsound_files();
  State<Acc> fresh = new_state();
  const RowTable<float> out = run_from_scratch(fresh);
  const auto differ = [&](const auto& a, const auto& b, std::size_t bytes, VertexId v) {
    return std::memcmp(a.row(v), b.row(v), bytes) != 0;
  };
  const auto aggregates_differ = [&](std::size_t index, VertexId v) {
    const int k = static_cast<int>(index);
    const RowTable<Acc>&a = state_.aggregates[index], &b = fresh.aggregates[index];
    if (aggregation(k).extreme()) return !extreme_agrees(k, a.row(v), b.row(v));
    return differ(a, b, value_bytes<Acc>(aggregation(k)), v);
  };
  const auto compare = [&](VertexId v) -> Mismatch {
    for (std::size_t c = 0; c < fresh.contexts.size(); ++c) {
      if (!state_.contexts[c].equal_row(fresh.contexts[c], v))
        return {true, describe("degree context", static_cast<int>(c), v)};
    }
    for (std::size_t k = 0; incremental() && std::is_same_v<Acc, std::int64_t> && k < fresh.aggregates.size(); ++k) {
      if (aggregates_differ(k, v)) {
        return {true, describe("aggregate of", static_cast<int>(k), v)};
      }
    }
    const bool kept = incremental() && !compact() && std::is_same_v<Acc, std::int64_t>;
    for (std::size_t t = 0; kept && t < fresh.stored.size(); ++t) {
      if (differ(state_.stored[t], fresh.stored[t], at(source().stored[t].width) * sizeof(float), v)) {
        return {true, describe("stored row", static_cast<int>(t), v)};
      }
    }
    const bool same = options_.strategy == Strategy::Sampled || !std::is_same_v<Acc, std::int64_t> ||
                      !publication_.differs(v, out.row(v));
    if (!same) return {true, describe("output", 0, v)};
    return {};
  };
  Mismatch found;
  pass(
      [&](std::int64_t first, std::int64_t last) {
        for (const State<Acc>* state : std::initializer_list<const State<Acc>*>{&state_, &fresh})
          state->fetch(first, last);
        publication_.fetch(first, last);
        out.fetch(first, last);
      },
      [&](std::int64_t first, std::int64_t last) {
        for (auto v = static_cast<VertexId>(first); v < last && !found.found; ++v) {
          if (graph_.is_live(v)) found = compare(v);
        }
      });
  return found;
}

template <typename Acc>
std::string EngineImpl<Acc>::describe(const char* what, int index, VertexId v) const {
  std::string text = std::string(what) + " ";
  if (std::string(what) == "aggregate of") text += aggregation(index).name;
  if (std::string(what) == "stored row") text += source().stored[at(index)].name;
  if (std::string(what) == "degree context") text += std::to_string(index);
  return text + " at vertex " + std::to_string(v);
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
