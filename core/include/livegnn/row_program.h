// A row-local model, run on rows that are given: heads of readouts and of edges.
#pragma once

#include <memory>

#include "livegnn/program.h"

namespace livegnn {

class CompiledProgram;

// A row's bits do not depend on the rows given with it. Safe to run from several threads at once.
class RowProgram {
 public:
  explicit RowProgram(Program program);  // of one stage, without aggregations
  ~RowProgram();

  int input_width() const;
  int output_width() const;
  void run(const float* in, int count, float* out) const;  // (count, input_width) to (count, output_width)

 private:
  std::unique_ptr<const CompiledProgram> program_;
};

}  // namespace livegnn
