#include "livegnn/row_program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "inference/executor.h"
#include "livegnn/error.h"

namespace livegnn {

RowProgram::RowProgram(Program program) {
  invariant(program.stages.size() == 1 && program.aggregations.empty(), "a row program that reads edges");
  program_ = std::make_unique<const CompiledProgram>(std::move(program));
}

RowProgram::~RowProgram() = default;

int RowProgram::input_width() const { return program_->source().input_width; }
int RowProgram::output_width() const { return program_->source().output_width; }

void RowProgram::run(const float* in, int count, float* out) const {
  const auto row_of = [](auto* rows, int i, int width) { return rows + static_cast<std::ptrdiff_t>(i) * width; };
  Registers registers;
  registers.prepare(*program_, std::min(count, program_->chunk_rows()));
  for (int first = 0; first < count; first += program_->chunk_rows()) {
    const int rows = std::min(program_->chunk_rows(), count - first);
    for (const Instruction& step : program_->source().stages[0]) {
      const std::size_t bytes = static_cast<std::size_t>(step.width) * sizeof(float);
      if (step.op == Op::LoadInput) {
        for (int i = 0; i < rows; ++i)
          std::memcpy(registers.row(step.out, i), row_of(in, first + i, input_width()), bytes);
      } else if (step.op == Op::Output) {
        for (int i = 0; i < rows; ++i)
          std::memcpy(row_of(out, first + i, output_width()), registers.row(step.a, i), bytes);
      } else {
        execute(*program_, step, registers, rows);
      }
    }
  }
}

}  // namespace livegnn
