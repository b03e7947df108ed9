// EngineImpl: one message into one aggregate row. Inline, because every path ends here.
#pragma once

#include "inference/engine_impl.h"

namespace livegnn {

template <typename Acc>
inline void EngineImpl<Acc>::add_term(int k, Acc* acc, const float* x, float factor, float edge, VertexId v) const {
  const AggregationSpec& spec = aggregation(k);
  if (spec.extreme()) {
    const int flags = extremes(spec).insert(extreme_row(acc, spec), x, factor, edge, spec.width);
    if ((flags & ExtremeFlag::kNotFinite) != 0) out_of_range(k, v);
    return;
  }
  const int width = state_.aggregates[at(k)].stride();
  if constexpr (std::is_same_v<Acc, float>) {
    kernels_.add_terms_f32(acc, x, factor, edge, width);
  } else {
    if (!kernels_.add_terms(acc, x, factor, edge, scales_[at(k)].up.data(), limit_, width)) out_of_range(k, v);
  }
}

template <typename Acc>
inline void EngineImpl<Acc>::subtract_term(int k, Acc* acc, const float* x, float factor, float edge) const {
  const int width = state_.aggregates[at(k)].stride();
  if constexpr (std::is_same_v<Acc, float>) {
    kernels_.add_terms_f32(acc, x, factor, -edge, width);
  } else {
    kernels_.sub_terms(acc, x, factor, edge, scales_[at(k)].up.data(), limit_, width);
  }
}

template <typename Acc>
inline float EngineImpl<Acc>::source_factor(int k, const State<Acc>& state, VertexId u) const {
  const AggregationSpec& spec = aggregation(k);
  return spec.scaled() ? state.contexts[at(spec.context)].scale(u) : 1.0f;
}

template <typename Acc>
inline float EngineImpl<Acc>::source_factor_before(int k, VertexId u) const {
  const AggregationSpec& spec = aggregation(k);
  return spec.scaled() ? state_.contexts[at(spec.context)].scale_before(u) : 1.0f;
}

template <typename Acc>
inline float EngineImpl<Acc>::root_factor(int k, const State<Acc>& state, VertexId v) const {
  const AggregationSpec& spec = aggregation(k);
  return spec.scaled() ? state.contexts[at(spec.context)].loop(v) : spec.root_coefficient;
}

template <typename Acc>
inline float EngineImpl<Acc>::root_factor_before(int k, VertexId v) const {
  const AggregationSpec& spec = aggregation(k);
  return spec.scaled() ? state_.contexts[at(spec.context)].loop_before(v) : spec.root_coefficient;
}

template <typename Acc>
inline const float* EngineImpl<Acc>::message_row(int k, const State<Acc>& state, VertexId u) const {
  const int table = aggregation(k).message_table;
  return table < 0 ? graph_.feature_row(u) : state.stored[at(table)].row(u);
}

template <typename Acc>
template <typename Admit>
inline void EngineImpl<Acc>::sum_row(int k, const State<Acc>& state, VertexId v, Acc* acc, Admit&& admit) const {
  const AggregationSpec& spec = aggregation(k);
  if (spec.attention >= 0) return attend_from_scratch(k, state, v, acc);
  const std::size_t bytes = at(spec.width) * sizeof(float);
  std::memset(static_cast<void*>(acc), 0, state_.aggregates[at(k)].row_bytes());
  graph_.visit_in(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) {
      if (i + 6 < span.count) prefetch_row(message_row(k, state, span.neighbours[i + 6]), bytes);
      const VertexId u = span.neighbours[i];
      if (spec.self_loops && u == v) continue;
      if (spec.relation >= 0 && span.types[i] != spec.relation) continue;
      const float edge = spec.weighted && span.weights != nullptr ? span.weights[i] : 1.0f;
      const float admitted = admit(span.ids[i]);
      if (admitted == 0.0f) continue;
      const float share = spec.extreme() ? 1.0f : admitted;
      add_term(k, acc, message_row(k, state, u), source_factor(k, state, u), edge * share, u);
    }
  });
  if (spec.root == Root::Table) {
    add_term(k, acc, state.stored[at(spec.root_table)].row(v), 1.0f, 1.0f, v);
  } else if (spec.root == Root::Message) {
    add_term(k, acc, message_row(k, state, v), source_factor(k, state, v), root_factor(k, state, v), v);
  }
}

template <typename Acc>
inline void EngineImpl<Acc>::sum_row_all(int k, const State<Acc>& state, VertexId v, Acc* acc) const {
  sum_row(k, state, v, acc, [](EdgeId) { return 1.0f; });
}

}  // namespace livegnn
