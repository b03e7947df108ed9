// EngineImpl: one message into one aggregate row. Inline, because every path ends here.
#pragma once

#include <bit>

#include "inference/engine_impl.h"

namespace livegnn {

// Where this thread decodes a feature row that is stored in 16 bits; nullptr where features are stored as float32.
// There are two, for a change's row before and its row now.
inline float* input_buffer(const GraphStore& graph, int which) {
  if (!graph.features().is_half()) return nullptr;
  thread_local Scratch<float> buffers[2];
  return buffers[which].need(static_cast<std::size_t>(graph.feature_stride()));
}

// What the vertices send in one aggregation: rows that are stored, or their features. For one thread and one loop: a
// row is good until the next one is read.
class MessageRows {
 public:
  MessageRows(const GraphStore& graph, const StoredRows* stored)
      : graph_(graph),
        stored_(stored),
        features_(graph.features().floats()),
        buffer_(stored == nullptr ? input_buffer(graph, 0) : nullptr),
        stride_(graph.feature_stride()) {}
  const float* row(VertexId u) const {
    if (stored_ != nullptr) return stored_->row(u);
    return buffer_ == nullptr ? features_ + u * stride_ : graph_.feature_row(u, buffer_);
  }
  void prefetch(VertexId u, int first, int width) const {  // columns
    if (stored_ == nullptr) return graph_.features().prefetch(u, first, width);
    prefetch_row(stored_->row(u) + first, static_cast<std::size_t>(width) * sizeof(float));
  }

 private:
  const GraphStore& graph_;
  const StoredRows* stored_;
  const float* features_;
  float* buffer_;
  std::int64_t stride_;
};

// Refuses a message that no sum can take, whether an edge carries it or not.
template <typename Acc>
inline void EngineImpl<Acc>::check_finite(int k, VertexId v, const float* row, int width) const {
  constexpr std::uint32_t kExponent = 0x7f800000;
  bool fine = true;
  for (int c = 0; c < width; ++c) fine &= (std::bit_cast<std::uint32_t>(row[c]) & kExponent) != kExponent;
  if (!fine) not_finite(k, v);
}

// The same of a row that a run from scratch stores, where it is a message.
template <typename Acc>
inline void EngineImpl<Acc>::check_stored(const Instruction& step, VertexId v, const float* row) const {
  if (step.op == Op::StoreMessage) return check_finite(step.index, v, row, step.width);
  const std::vector<int>& sent_by = source().stored[at(step.index)].attention_source_of;
  if (!sent_by.empty()) check_finite(sent_by.front(), v, row, step.width);
}

template <typename Acc>
inline void EngineImpl<Acc>::add_term(int k, Acc* acc, const float* x, float factor, float edge, VertexId v) const {
  const AggregationSpec& spec = aggregation(k);
  if (spec.extreme()) {
    const int flags = extremes(spec).insert(extreme_row(acc, spec), x, factor, edge, spec.width);
    if ((flags & ExtremeFlag::kNotFinite) != 0) not_finite(k, v);
    return;
  }
  const int width = state_.aggregates[at(k)].stride();
  if constexpr (std::is_same_v<Acc, float>) {
    kernels_.add_terms_f32(acc, x, factor, edge, width);
  } else {
    if (!kernels_.add_terms(acc, x, factor, edge, scales_[at(k)].up.data(), limit_, width)) {
      out_of_range(k, v, times_range(k, x, static_cast<double>(factor) * edge));
    }
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
inline MessageRows EngineImpl<Acc>::messages(int k, const State<Acc>& state) const {
  const int table = aggregation(k).message_table;
  return {graph_, table < 0 ? nullptr : &state.stored[at(table)]};
}

template <typename Acc>
template <typename Admit>
inline void EngineImpl<Acc>::add_in_terms(int k, const State<Acc>& state, VertexId v, Acc* acc, Admit&& admit) const {
  const AggregationSpec& spec = aggregation(k);
  const MessageRows sent = messages(k, state);
  graph_.visit_in(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) {
      if (i + 6 < span.count && pager_ == nullptr) sent.prefetch(span.neighbours[i + 6], 0, spec.width);
      const VertexId u = span.neighbours[i];
      if (spec.self_loops && u == v) continue;
      if (spec.relation >= 0 && span.types[i] != spec.relation) continue;
      const float edge = spec.weighted && span.weights != nullptr ? span.weights[i] : 1.0f;
      const float admitted = admit(span.ids[i], u);
      if (admitted == 0.0f) continue;
      const float share = spec.extreme() ? 1.0f : admitted;
      add_term(k, acc, sent.row(u), source_factor(k, state, u), edge * share, u);
    }
  });
}

// Asks for what the first in-edges of v bring, so that a row of few edges waits for none of them.
template <typename Acc>
inline void EngineImpl<Acc>::fetch_terms(int k, const State<Acc>& state, VertexId v) const {
  constexpr std::int32_t kFirst = 8;
  const AggregationSpec& spec = aggregation(k);
  if (spec.attention >= 0) {
    const AttentionSpec& attend = attention(k);
    return graph_.visit_in(v, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < std::min(span.count, kFirst); ++i) {
        state.stored[at(attend.source_table)].prefetch(span.neighbours[i]);
        state.stored[at(attend.message_table)].prefetch(span.neighbours[i]);
      }
    });
  }
  const MessageRows sent = messages(k, state);
  graph_.visit_in(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < std::min(span.count, kFirst); ++i) sent.prefetch(span.neighbours[i], 0, spec.width);
  });
}

// sum(v) for rows[first] to rows[last - 1], or, where rows is null, for these vertices themselves. What the rows after
// the one at work need is on its way by then: lists of in-edges, then edges, then messages.
template <typename Acc>
template <typename Sum>
inline void EngineImpl<Acc>::sum_rows(int k, const State<Acc>& state, const VertexId* rows, std::int64_t first,
                                      std::int64_t last, Sum&& sum) const {
  constexpr std::int64_t kLists = 12, kEdges = 6, kTerms = 2;
  const auto vertex = [&](std::int64_t i) { return rows == nullptr ? static_cast<VertexId>(i) : rows[i]; };
  const bool fetches = pager_ == nullptr && aggregation(k).gather < 0;
  for (std::int64_t i = first; i < last; ++i) {
    if (fetches) {
      if (i + kLists < last) graph_.prefetch_in(vertex(i + kLists));
      if (i + kEdges < last) graph_.prefetch_in_edges(vertex(i + kEdges));
      if (i + kTerms < last) fetch_terms(k, state, vertex(i + kTerms));
    }
    sum(vertex(i));
  }
}

template <typename Acc>
inline void EngineImpl<Acc>::add_root_term(int k, const State<Acc>& state, VertexId v, Acc* acc) const {
  const AggregationSpec& spec = aggregation(k);
  if (spec.root == Root::Table) {
    add_term(k, acc, state.stored[at(spec.root_table)].row(v), 1.0f, 1.0f, v);
  } else if (spec.root == Root::Message) {
    const MessageRows sent = messages(k, state);
    add_term(k, acc, sent.row(v), source_factor(k, state, v), root_factor(k, state, v), v);
  }
}

template <typename Acc>
template <typename Admit>
inline void EngineImpl<Acc>::sum_row(int k, const State<Acc>& state, VertexId v, Acc* acc, Admit&& admit) const {
  if (aggregation(k).attention >= 0) return attend_from_scratch(k, state, v, acc);
  std::memset(static_cast<void*>(acc), 0, state_.aggregates[at(k)].row_bytes());
  add_in_terms(k, state, v, acc, admit);
  add_root_term(k, state, v, acc);
}

template <typename Acc>
inline void EngineImpl<Acc>::sum_row_all(int k, const State<Acc>& state, VertexId v, Acc* acc) const {
  sum_row(k, state, v, acc, [](EdgeId, VertexId) { return 1.0f; });
}

}  // namespace livegnn
