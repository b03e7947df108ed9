// Messages that are computed edge by edge, a chunk of edges at a time.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "inference/counted_edges.h"
#include "inference/workspace.h"

namespace livegnn {

// An edge whose message is wanted.
struct MessageEdge {
  VertexId src, dst;
  float weight, share;  // share: what the message counts for, 1 but in samples
  const float* attr;    // stays where it is until the message is there
  std::int32_t type;
  bool before = false;  // the message of the source's rows as they were before the batch
  EdgeId id = -1;       // -1: a loop that the gather adds
};

inline MessageEdge message_edge(const GraphStore& graph, const EdgeReduceSpec& spec, const EdgeSpan& span,
                                std::int32_t i, VertexId src, VertexId dst) {
  const float* attr = spec.attributes ? graph.edge_attr(span.ids[i]) : nullptr;
  const std::int32_t type = span.types != nullptr ? span.types[i] : 0;
  return {src, dst, weight_of(span, i), 1.0f, attr, type, false, span.ids[i]};
}

// One thread's way through many edges. Messages as they were before the batch are of the engine's own state alone.
class EdgeMessages {
 public:
  EdgeMessages(const Workspace& work, const EdgeReduceSpec& spec, const State& state, int thread)
      : work_(work),
        spec_(spec),
        state_(state),
        registers_(work.registers[at(thread)]),
        chunk_(work.program.chunk_rows()),
        input_(at(work.graph.feature_stride())) {
    registers_.prepare(work.program, chunk_);
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
        execute(work_.program, step, registers_, count);
      }
    }
    for (int i = 0; i < count; ++i)
      visitor(edges_[at(i)], registers_.row(message, i), score < 0 ? nullptr : registers_.row(score, i));
    edges_.clear();
  }

 private:
  void prefetch_end(int table, VertexId v, int width) const {
    if (table < 0) return work_.graph.features().prefetch(v, 0, width);
    state_.stored[at(table)].prefetch(v);
  }

  void load_end(int table, VertexId v, bool before, float* out, int width) {
    if (before) {
      const float* row = table < 0 ? work_.input_before(v, input_.data())
                                   : work_.rows_before[at(table)].find(v, state_.stored[at(table)].row(v));
      std::memcpy(out, row, at(width) * sizeof(float));
    } else if (table < 0) {
      work_.graph.read_features(v, out, width);
    } else {
      std::memcpy(out, state_.stored[at(table)].row(v), at(width) * sizeof(float));
    }
  }

  bool load(const Instruction& step, int count) {
    for (int i = 0; i < count; ++i) {
      const MessageEdge& edge = edges_[at(i)];
      float* out = registers_.row(step.out, i);
      switch (step.op) {
        case Op::LoadSource:
          if (i + kRowsAhead < count) prefetch_end(step.index, edges_[at(i + kRowsAhead)].src, step.width);
          load_end(step.index, edge.src, edge.before, out, step.width);
          break;
        case Op::LoadTarget:
          load_end(step.index, edge.dst, false, out, step.width);
          break;
        case Op::LoadAttributes:
          std::memcpy(out, edge.attr, at(step.width) * sizeof(float));
          break;
        case Op::LoadWeight:
          out[0] = edge.weight;
          break;
        case Op::LoadType:
          out[0] = static_cast<float>(edge.type);
          break;
        case Op::LoadAdded:
          out[0] = edge.id < 0 ? 1.0f : 0.0f;
          break;
        default:
          return false;
      }
    }
    return true;
  }

  const Workspace& work_;
  const EdgeReduceSpec& spec_;
  const State& state_;
  Registers& registers_;
  const int chunk_;
  std::vector<MessageEdge> edges_;
  std::vector<float> input_;  // room for a vertex's features
};

}  // namespace livegnn
