// A compiled program, and its instructions on a chunk of rows (view.h runs whole stages). Registers are row
// blocks in a thread's own scratch.
#pragma once

#include <cstdint>
#include <vector>

#include "dense/kernels.h"
#include "inference/vertex_lists.h"
#include "livegnn/graph.h"
#include "livegnn/program.h"
#include "util/aligned.h"

namespace livegnn {

// Program plus what is derived from it once: packed weights, padded vectors, register offsets.
class CompiledProgram {
 public:
  explicit CompiledProgram(Program program);

  const Program& source() const { return program_; }
  const float* weight(int index) const { return weights_[at(index)].data(); }
  const float* vector(int index) const { return vectors_[at(index)].data(); }
  int register_stride(int r) const { return strides_[at(r)]; }
  std::size_t row_floats() const { return row_floats_; }               // of all registers together
  int chunk_rows() const { return chunk_rows_; }                       // rows whose registers fit in the cache
  void estimate_rows(const std::vector<int>& strides);                 // of aggregates, in int64 words
  double row_seconds(int stage) const { return seconds_[at(stage)]; }  // about, on one thread

 private:
  Program program_;
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
  float* row(int r, int i) { return base_[at(r)] + at(i) * at(stride_[at(r)]); }
  int stride(int r) const { return stride_[at(r)]; }

 private:
  Scratch<float> memory_;
  std::vector<float*> base_;
  std::vector<int> stride_;
  int rows_ = 0;
};

inline constexpr int kRowsAhead = 6;  // rows between the prefetch of a row and its use

// The compute part of an instruction; loads from state and stores to it are the caller's.
void execute(const CompiledProgram& program, const Instruction& instruction, Registers& registers, int rows);

}  // namespace livegnn
