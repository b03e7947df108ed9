#include "inference/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "dense/activations.h"

namespace livegnn {

namespace {

constexpr std::size_t kChunkFloats = 96 * 1024;  // 384 KiB of registers: well inside a core's own cache
constexpr int kChunkRowsMin = 12, kChunkRowsMax = 96;

constexpr double kSecondsPerFlop = 1e-11, kSecondsPerByte = 1e-10;  // of rows that are in no order

double flops_of(const Program& program, const Instruction& step) {
  if (step.op == Op::Gemm) return 2.0 * program.weights[at(step.index)].in * round_up(step.width, kPanel);
  return 8.0 * step.width;
}

// That a row's step reads from state, or compares and writes.
double bytes_of(const Program& program, const Instruction& step, const std::vector<int>& strides) {
  const double row = 4.0 * step.width;
  switch (step.op) {
    case Op::LoadAggregate:
      return 8.0 * strides[at(step.index)];
    case Op::LoadInput:
    case Op::LoadStored:
    case Op::StoreRow:
    case Op::Output:
      return row;
    case Op::StoreMessage:
      return program.aggregations[at(step.index)].root == Root::Message ? 3.0 * row : row;
    default:
      return 0.0;
  }
}

}  // namespace

CompiledProgram::CompiledProgram(Program program) : program_(std::move(program)) {
  for (const WeightSpec& weight : program_.weights) {
    std::vector<float> packed(at(weight.in) * at(round_up(weight.out, kPanel)));
    pack_weight(weight.values.data(), weight.out, weight.in, packed.data());
    weights_.push_back(std::move(packed));
  }
  for (const std::vector<float>& values : program_.vectors) {
    std::vector<float> padded(at(round_up(static_cast<int>(values.size()), kPanel)), 0.0f);
    std::copy(values.begin(), values.end(), padded.begin());
    vectors_.push_back(std::move(padded));
  }
  for (std::size_t r = 0; r < program_.register_widths.size(); ++r) {
    const int parent = program_.register_parents[r];
    strides_.push_back(parent >= 0 ? strides_[at(parent)] : round_up(program_.register_widths[r], kPanel));
    if (parent < 0) row_floats_ += at(strides_.back());
  }
  const auto rows = static_cast<int>(kChunkFloats / std::max<std::size_t>(row_floats_, 1));
  chunk_rows_ = std::clamp(rows / 12 * 12, kChunkRowsMin, kChunkRowsMax);
}

void CompiledProgram::estimate_rows(const std::vector<int>& strides) {
  for (const std::vector<Instruction>& stage : program_.stages) {
    double seconds = 0.0;
    for (const Instruction& step : stage)
      seconds += flops_of(program_, step) * kSecondsPerFlop + bytes_of(program_, step, strides) * kSecondsPerByte;
    seconds_.push_back(seconds);
  }
}

void Registers::prepare(const CompiledProgram& program, int rows) {
  if (rows <= rows_) return;
  rows_ = rows;
  float* p = memory_.need(program.row_floats() * at(rows) + kPanel);
  base_.clear();
  stride_.clear();
  for (std::size_t r = 0; r < program.source().register_widths.size(); ++r) {
    const int parent = program.source().register_parents[r];
    stride_.push_back(program.register_stride(static_cast<int>(r)));
    base_.push_back(parent >= 0 ? base_[at(parent)] + program.source().register_offsets[r] : p);
    if (parent < 0) p += at(stride_.back()) * at(rows);
  }
}

namespace {

template <typename Body>
void each_row(int rows, Body body) {
  for (int i = 0; i < rows; ++i) body(i);
}

void multiply_rows(const CompiledProgram& program, const Instruction& s, Registers& r, int rows) {
  const Kernels& k = kernels();
  const bool broadcast = program.source().register_widths[at(s.b)] == 1 && s.width != 1;
  each_row(rows, [&](int i) {
    if (broadcast) {
      k.scale(r.row(s.out, i), r.row(s.a, i), r.row(s.b, i)[0], s.width);
    } else {
      k.multiply(r.row(s.out, i), r.row(s.a, i), r.row(s.b, i), s.width);
    }
  });
}

int width_of(const CompiledProgram& program, int r) { return program.source().register_widths[at(r)]; }

// The row of a table that one number names.
void look_up(const WeightSpec& table, float number, float* out) {
  const auto width = at(table.in);
  if (!(number > -1.0f && number < static_cast<float>(table.out)))
    return static_cast<void>(std::fill_n(out, width, 0.0f));
  std::memcpy(out, table.values.data() + static_cast<std::size_t>(number) * width, width * sizeof(float));
}

// Row i of Minimum, Divide, Less, Where or Lookup.
void combine_columns(const CompiledProgram& program, const Instruction& s, Registers& r, int i) {
  const auto operand = [&](int x) { return Operand{r.row(x, i), width_of(program, x) == 1 ? 0 : 1}; };
  float* out = r.row(s.out, i);
  if (s.op == Op::Lookup) return look_up(program.source().weights[at(s.index)], *r.row(s.a, i), out);
  const Operand a = operand(s.a), b = operand(s.b);
  if (s.op == Op::Minimum) return minimum_row(a, b, out, s.width);
  if (s.op == Op::Divide) return divide_row(a, b, out, s.width);
  if (s.op == Op::Less) return less_row(a, b, out, s.width);
  where_row(operand(s.c), a, b, out, s.width);
}

}  // namespace

void execute(const CompiledProgram& program, const Instruction& s, Registers& r, int rows) {
  const Kernels& k = kernels();
  const auto a = [&](int i) { return r.row(s.a, i); };
  const auto b = [&](int i) { return r.row(s.b, i); };
  const auto out = [&](int i) { return r.row(s.out, i); };
  const auto vector = [&](int index) { return index < 0 ? nullptr : program.vector(index); };
  switch (s.op) {
    case Op::Gemm:
      k.gemm(a(0), at(r.stride(s.a)), program.weight(s.index), out(0), at(r.stride(s.out)), rows,
             program.source().weights[at(s.index)].in, round_up(s.width, kPanel));
      return;
    case Op::AddVector:
      return each_row(rows, [&](int i) { k.add(out(i), a(i), vector(s.index), s.width); });
    case Op::Activate:
      return each_row(rows, [&](int i) { activate_row(s.activation, s.p, a(i), out(i), s.width); });
    case Op::PRelu:
      return each_row(rows, [&](int i) { prelu_row(a(i), vector(s.index), out(i), s.width); });
    case Op::Affine:
      return each_row(rows, [&](int i) { k.affine(out(i), a(i), vector(s.index), vector(s.index2), s.width); });
    case Op::LayerNorm:
      return each_row(rows,
                      [&](int i) { layer_norm_row(a(i), vector(s.index), vector(s.index2), s.p, out(i), s.width); });
    case Op::L2Normalize:
      return each_row(rows, [&](int i) { l2_normalize_row(a(i), s.p, out(i), s.width); });
    case Op::Combine:
      return each_row(rows, [&](int i) { k.axpby(out(i), a(i), s.p, b(i), s.q, s.width); });
    case Op::Scale:
      return each_row(rows, [&](int i) { k.scale(out(i), a(i), s.p, s.width); });
    case Op::Multiply:
      return multiply_rows(program, s, r, rows);
    case Op::CopyColumns:
      return each_row(rows, [&](int i) { std::memcpy(out(i) + s.offset, a(i), at(s.width) * sizeof(float)); });
    case Op::Zero:
      return each_row(rows, [&](int i) { std::fill_n(out(i), round_up(s.width, kPanel), 0.0f); });
    case Op::Slice:
      return each_row(rows, [&](int i) { std::memcpy(out(i), a(i) + s.offset, at(s.width) * sizeof(float)); });
    case Op::Maximum:
      return each_row(rows, [&](int i) { k.maximum(out(i), a(i), b(i), s.width); });
    case Op::Minimum:
    case Op::Divide:
    case Op::Less:
    case Op::Where:
    case Op::Lookup:
      return each_row(rows, [&](int i) { combine_columns(program, s, r, i); });
    case Op::Softmax:
      return each_row(rows, [&](int i) { softmax_row(a(i), out(i), s.width); });
    case Op::LogSoftmax:
      return each_row(rows, [&](int i) { log_softmax_row(a(i), out(i), s.width); });
    case Op::HeadDot:
      return each_row(rows, [&](int i) { k.head_dot(out(i), a(i), b(i), s.heads, width_of(program, s.a)); });
    case Op::HeadScale:
      return each_row(rows, [&](int i) { k.head_scale(out(i), a(i), b(i), s.heads, s.width); });
    case Op::RowMatrix:
      return each_row(rows, [&](int i) { k.row_matrix(out(i), a(i), b(i), width_of(program, s.a), s.width); });
    default:  // what loads or stores, which the stages and gathers do
      break;
  }
  invariant(false, "a state instruction reached execute()");
}

}  // namespace livegnn
