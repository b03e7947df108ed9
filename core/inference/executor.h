// Runs one stage's instructions on a chunk of rows. Registers are row blocks that live in a thread's own scratch.
#pragma once

#include <cstdint>
#include <vector>

#include "dense/kernels.h"
#include "inference/state.h"
#include "livegnn/graph.h"
#include "livegnn/program.h"
#include "util/aligned.h"

namespace livegnn {

// Program plus what is derived from it once: packed weights, padded vectors, register offsets.
class CompiledProgram {
 public:
  explicit CompiledProgram(Program program);

  const Program& source() const { return program_; }
  const Kernels& kernels() const { return kernels_; }
  const float* weight(int index) const { return weights_[static_cast<std::size_t>(index)].data(); }
  const float* vector(int index) const { return vectors_[static_cast<std::size_t>(index)].data(); }
  int register_stride(int r) const { return strides_[static_cast<std::size_t>(r)]; }
  std::size_t row_floats() const { return row_floats_; }  // of all registers together
  int chunk_rows() const { return chunk_rows_; }          // rows whose registers fit in the cache
  double row_seconds(int stage) const { return seconds_[static_cast<std::size_t>(stage)]; }  // about, on one thread

 private:
  Program program_;
  const Kernels& kernels_ = livegnn::kernels();
  std::vector<std::vector<float>> weights_, vectors_;
  std::vector<int> strides_;
  std::vector<double> seconds_;
  std::size_t row_floats_ = 0;
  int chunk_rows_ = 0;
};

// Registers of one thread for chunks of up to `rows` rows.
class Registers {
 public:
  void prepare(const CompiledProgram& program, int rows);
  float* row(int r, int i) {
    return base_[static_cast<std::size_t>(r)] +
           static_cast<std::size_t>(i) * static_cast<std::size_t>(stride_[static_cast<std::size_t>(r)]);
  }
  int stride(int r) const { return stride_[static_cast<std::size_t>(r)]; }

 private:
  Scratch<float> memory_;
  std::vector<float*> base_;
  std::vector<int> stride_;
  int rows_ = 0;
};

inline constexpr int kRowsAhead = 6;  // rows between the prefetch of a row and its use

// The compute part of an instruction; loads from state and stores to it are the caller's.
void execute(const CompiledProgram& program, const Instruction& instruction, Registers& registers, int rows);

// Sums of the rows at work, side by side, that are read once and kept in no table.
template <typename Acc>
struct PassingSums {
  VertexId first = 0;                // of the rows at work
  std::vector<const Acc*> of_first;  // per aggregation; null where a table keeps its sums
};

// What a stage reads, as it is now.
template <typename Acc>
struct CurrentView {
  const State<Acc>& state;
  const GraphStore& graph;
  const PassingSums<Acc>* passing = nullptr;

  void read_input(VertexId v, float* out, std::int32_t width) const { graph.read_features(v, out, width); }
  const RowTable<Acc>& table(int k) const { return state.aggregates[static_cast<std::size_t>(k)]; }
  const Acc* passing_sum(int k) const {
    return passing == nullptr ? nullptr : passing->of_first[static_cast<std::size_t>(k)];
  }
  const Acc* aggregate(int k, VertexId v) const {
    const Acc* sum = passing_sum(k);
    return sum == nullptr ? table(k).row(v) : sum + std::int64_t{v - passing->first} * table(k).stride();
  }
  void prefetch_sum(int k, VertexId v) const {
    if (passing_sum(k) == nullptr) prefetch_row(table(k).row(v), table(k).row_bytes());
  }
  std::int32_t in_edges(const AggregationSpec& spec, VertexId v) const {
    return spec.relation < 0 ? graph.in_degree(v) : state.contexts[static_cast<std::size_t>(spec.context)].edges(v);
  }
  float scale(int context, VertexId v) const { return state.contexts[static_cast<std::size_t>(context)].scale(v); }
  std::int32_t type(VertexId v) const { return graph.vertex_type(v); }
  const StoredRows& stored(int t) const { return state.stored[static_cast<std::size_t>(t)]; }
  void prefetch_factor(const AggregationSpec& spec, VertexId v) const {
    if (spec.norm == Norm::Mean && spec.relation < 0) graph.prefetch_in(v);
    if (spec.context >= 0) state.contexts[static_cast<std::size_t>(spec.context)].prefetch(v);
  }
};

// The softmax's mean of the messages. t, message: of the vertex's own loop, or null.
void load_attention_row(const Kernels& kernels, const AggregationSpec& spec, const AttentionSpec& attention,
                        const AttentionRow& row, const float* t, const float* message, const Scales& scales,
                        float* out);

template <typename View>
void load_aggregate_row(const CompiledProgram& program, const AggregationSpec& spec, const View& view,
                        const std::vector<Scales>& scales, int index, VertexId v, float* out) {
  const Kernels& k = program.kernels();
  const auto* acc = view.aggregate(index, v);
  if (spec.attention >= 0) {
    const AttentionSpec& attention = program.source().attentions[static_cast<std::size_t>(spec.attention)];
    const AttentionRow row = AttentionRow::of(const_cast<void*>(static_cast<const void*>(acc)), spec.width);
    const float* t = attention.own_loop ? view.stored(attention.source_table).row(v) : nullptr;
    const float* message = attention.own_loop ? view.stored(attention.message_table).row(v) : nullptr;
    return load_attention_row(k, spec, attention, row, t, message, scales[static_cast<std::size_t>(index)], out);
  }
  if (spec.gathers_rows()) {
    std::memcpy(out, acc, static_cast<std::size_t>(round_up(spec.width, 16)) * sizeof(float));
    return;
  }
  if (spec.extreme()) {
    const int width = round_up(spec.width, 16);
    std::memcpy(out, acc, static_cast<std::size_t>(width) * sizeof(float));
    if (spec.norm == Norm::Gcn) k.scale(out, out, view.scale(spec.context, v), width);
    return;
  }
  const int stride = view.table(index).stride();
  if constexpr (std::is_same_v<decltype(acc), const float*>) {
    std::memcpy(out, acc, view.table(index).row_bytes());
  } else {
    k.load(out, acc, scales[static_cast<std::size_t>(index)].down.data(), stride);
  }
  if (spec.norm == Norm::Mean) {
    const std::int32_t count = view.in_edges(spec, v);
    if (count > 1) k.divide(out, out, static_cast<float>(count), stride);
  } else if (spec.norm == Norm::Gcn) {
    k.scale(out, out, view.scale(spec.context, v), stride);
  }
}

// Asks for all that load_aggregate_row will read.
template <typename View>
void prefetch_aggregate(const Program& program, const View& view, int index, VertexId v) {
  const AggregationSpec& spec = program.aggregations[static_cast<std::size_t>(index)];
  view.prefetch_sum(index, v);
  view.prefetch_factor(spec, v);
  if (spec.attention < 0) return;
  const AttentionSpec& attention = program.attentions[static_cast<std::size_t>(spec.attention)];
  if (!attention.own_loop) return;
  view.stored(attention.source_table).prefetch(v);
  view.stored(attention.message_table).prefetch(v);
}

// Rows of vertices of one type through a stage; run_stage says the rest.
template <typename View, typename Sink>
void run_rows(const CompiledProgram& program, int stage, std::int32_t type, const View& view,
              const std::vector<Scales>& scales, const VertexId* vertices, int count, Registers& registers,
              Sink&& sink) {
  const Program& source = program.source();
  for (const Instruction& step : source.stages[static_cast<std::size_t>(stage)]) {
    if (step.type >= 0 && step.type != type) continue;
    switch (step.op) {
      case Op::LoadInput:
        for (int i = 0; i < count; ++i) view.read_input(vertices[i], registers.row(step.out, i), step.width);
        break;
      case Op::LoadAggregate: {
        const AggregationSpec& spec = source.aggregations[static_cast<std::size_t>(step.index)];
        for (int i = 0; i < count; ++i) {
          if (i + kRowsAhead < count) prefetch_aggregate(source, view, step.index, vertices[i + kRowsAhead]);
          load_aggregate_row(program, spec, view, scales, step.index, vertices[i], registers.row(step.out, i));
        }
        break;
      }
      case Op::LoadStored: {
        const StoredRows& table = view.stored(step.index);
        for (int i = 0; i < count; ++i) {
          if (i + kRowsAhead < count) table.prefetch(vertices[i + kRowsAhead]);
          std::memcpy(registers.row(step.out, i), table.row(vertices[i]),
                      static_cast<std::size_t>(step.width) * sizeof(float));
        }
        break;
      }
      case Op::StoreMessage:
      case Op::StoreRow:
      case Op::Output:
        sink(step, registers);
        break;
      default:
        execute(program, step, registers, count);
    }
  }
}

// Runs stage `stage` on `count` rows (at most chunk_rows). Store and Output instructions are handed to
// sink(instruction, registers, first, rows) after everything before them has run: row i of the registers is of
// vertices[first + i].
template <typename View, typename Sink>
void run_stage(const CompiledProgram& program, int stage, const View& view, const std::vector<Scales>& scales,
               const VertexId* vertices, int count, Registers& registers, Sink&& sink) {
  int last = 0;
  for (int first = 0; first < count; first = last) {  // a run of vertices of one type
    const std::int32_t type = program.source().typed ? view.type(vertices[first]) : kNoVertexType;
    last = first + 1;
    while (last < count && (!program.source().typed || view.type(vertices[last]) == type)) ++last;
    run_rows(program, stage, type, view, scales, vertices + first, last - first, registers,
             [&](const Instruction& step, Registers& r) { sink(step, r, first, last - first); });
  }
}

}  // namespace livegnn
