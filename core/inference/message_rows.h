// What the vertices send in one aggregation.
#pragma once

#include "inference/stored_rows.h"
#include "livegnn/graph.h"
#include "util/aligned.h"

namespace livegnn {

// Where this thread decodes a feature row that is stored in 16 bits; nullptr where features are stored as float32.
// There are two, for a change's row before and its row now.
inline float* input_buffer(const GraphStore& graph, int which) {
  if (!graph.features().is_half()) return nullptr;
  thread_local Scratch<float> buffers[2];
  return buffers[which].need(static_cast<std::size_t>(graph.feature_stride()));
}

// Rows that are stored, or the vertices' features. For one thread and one loop: a row is good until the next is read.
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

}  // namespace livegnn
