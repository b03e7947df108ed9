// Messages that are computed edge by edge, a chunk of edges at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "inference/terms.h"

namespace livegnn {

// An edge whose message is wanted.
struct MessageEdge {
  VertexId src, dst;
  float weight, share;  // share: what the message counts for, 1 but in samples
  const float* attr;    // stays where it is until the message is there
  std::int32_t type;
  bool before = false;  // the message of the source's rows as they were before the batch
};

// One thread's way through many edges. Messages as they were before the batch are of the engine's own state alone.
template <typename Acc>
class EngineImpl<Acc>::EdgeMessages {
 public:
  EdgeMessages(const EngineImpl& engine, int k, const State<Acc>& state, int thread)
      : engine_(engine),
        spec_(engine.gather_spec(k)),
        state_(state),
        registers_(engine.registers_[at(thread)]),
        chunk_(engine.program_.chunk_rows()),
        input_(at(engine.graph_.feature_stride())) {
    registers_.prepare(engine.program_, chunk_);
    edges_.reserve(at(chunk_));
  }

  // visitor(edge, message, score) for every edge in the order given, now or later; score: nullptr where there is none.
  template <typename Visitor>
  void add(const MessageEdge& edge, Visitor&& visitor) {
    if (spec_.typed && !edges_.empty() && edges_.back().type != edge.type) flush(visitor);
    edges_.push_back(edge);
    if (static_cast<int>(edges_.size()) == chunk_) flush(visitor);
  }
  std::size_t waiting() const { return edges_.size(); }

  template <typename Visitor>
  void flush(Visitor&& visitor) {
    if (edges_.empty()) return;
    const int count = static_cast<int>(edges_.size());
    int message = -1, score = -1;
    for (const Instruction& step : spec_.steps) {
      if (step.type >= 0 && step.type != edges_.front().type) continue;
      if (step.op == Op::GatherMessage) {
        message = step.a;
      } else if (step.op == Op::GatherScore) {
        score = step.a;
      } else if (!load(step, count)) {
        execute(engine_.program_, step, registers_, count);
      }
    }
    for (int i = 0; i < count; ++i)
      visitor(edges_[at(i)], registers_.row(message, i), score < 0 ? nullptr : registers_.row(score, i));
    edges_.clear();
  }

 private:
  void prefetch_end(int table, VertexId v, int width) const {
    if (table < 0) return engine_.graph_.features().prefetch(v, 0, width);
    prefetch_row(state_.stored[at(table)].row(v), at(width) * sizeof(float));
  }

  void load_end(int table, VertexId v, bool before, float* out, int width) {
    if (before) {
      const float* row = table < 0 ? engine_.input_before(v, input_.data())
                                   : engine_.rows_before_[at(table)].find(v, state_.stored[at(table)].row(v));
      std::memcpy(out, row, at(width) * sizeof(float));
    } else if (table < 0) {
      engine_.graph_.read_features(v, out, width);
    } else {
      std::memcpy(out, state_.stored[at(table)].row(v), at(width) * sizeof(float));
    }
  }

  bool load(const Instruction& step, int count) {
    constexpr int kEndsAhead = 6;
    if (step.op != Op::LoadSource && step.op != Op::LoadTarget && step.op != Op::LoadAttributes &&
        step.op != Op::LoadWeight)
      return false;
    for (int i = 0; i < count; ++i) {
      const MessageEdge& edge = edges_[at(i)];
      float* out = registers_.row(step.out, i);
      if (step.op == Op::LoadSource) {
        if (i + kEndsAhead < count) prefetch_end(step.index, edges_[at(i + kEndsAhead)].src, step.width);
        load_end(step.index, edge.src, edge.before, out, step.width);
      } else if (step.op == Op::LoadTarget) {
        load_end(step.index, edge.dst, false, out, step.width);
      } else if (step.op == Op::LoadAttributes) {
        std::memcpy(out, edge.attr, at(step.width) * sizeof(float));
      } else {
        out[0] = edge.weight;
      }
    }
    return true;
  }

  const EngineImpl& engine_;
  const GatherSpec& spec_;
  const State<Acc>& state_;
  Registers& registers_;
  const int chunk_;
  std::vector<MessageEdge> edges_;
  std::vector<float> input_;  // room for a vertex's features
};

// visitor(edge) for the in-edges of v that aggregation k hears and admit(v, id) gives a share other than 0.
template <typename Acc>
template <typename Admit, typename Visitor>
void EngineImpl<Acc>::visit_messages(int k, VertexId v, Admit&& admit, Visitor&& visitor) const {
  const GatherSpec& gather = gather_spec(k);
  graph_.visit_in(v, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) {
      const VertexId u = span.neighbours[i];
      const std::int32_t type = span.types != nullptr ? span.types[i] : 0;
      if (!hears(k, u, v, type)) continue;
      const float share = admit(v, span.ids[i]);
      if (share == 0.0f) continue;
      const float* attr = gather.attributes ? graph_.edge_attr(span.ids[i]) : nullptr;
      visitor(MessageEdge{u, v, span.weights != nullptr ? span.weights[i] : 1.0f, share, attr, type});
    }
  });
}

// Rows of sums from scratch. admit(v, id): the share that an in-edge counts for.
template <typename Acc>
template <typename Admit>
void EngineImpl<Acc>::sum_edges(int k, State<Acc>& state, const VertexId* rows, std::int64_t count, int thread,
                                Admit&& admit) const {
  RowTable<Acc>& table = state.aggregates[at(k)];
  EdgeMessages messages(*this, k, state, thread);
  const auto add = [&](const MessageEdge& edge, const float* message, const float*) {
    add_message(k, table.row(edge.dst), edge, message);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    std::fill_n(table.row(rows[i]), table.stride(), Acc{0});
    visit_messages(k, rows[i], admit, [&](const MessageEdge& edge) { messages.add(edge, add); });
  }
  messages.flush(add);
}

}  // namespace livegnn
