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

std::size_t at(int i) { return static_cast<std::size_t>(i); }

double flops_of(const Program& program, const Instruction& step) {
  if (step.op == Op::Gemm) return 2.0 * program.weights[at(step.index)].in * round_up(step.width, kPanel);
  return 8.0 * step.width;
}

// That a row's step reads from state, or compares and writes.
double bytes_of(const Program& program, const Instruction& step) {
  const double row = 4.0 * step.width;
  switch (step.op) {
    case Op::LoadAggregate: {
      const AggregationSpec& spec = program.aggregations[at(step.index)];
      if (spec.attention < 0) return 2.0 * row;
      const bool own_loop = program.attentions[at(spec.attention)].own_loop;
      return static_cast<double>(AttentionRow::bytes(spec.width, spec.heads)) + (own_loop ? row : 0.0);
    }
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
  for (const std::vector<Instruction>& stage : program_.stages) {
    double seconds = 0.0;
    for (const Instruction& step : stage)
      seconds += flops_of(program_, step) * kSecondsPerFlop + bytes_of(program_, step) * kSecondsPerByte;
    seconds_.push_back(seconds);
  }
  const auto rows = static_cast<int>(kChunkFloats / std::max<std::size_t>(row_floats_, 1));
  chunk_rows_ = std::clamp(rows / 12 * 12, kChunkRowsMin, kChunkRowsMax);
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
  const Kernels& k = program.kernels();
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

}  // namespace

void execute(const CompiledProgram& program, const Instruction& s, Registers& r, int rows) {
  const Kernels& k = program.kernels();
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
      return each_row(rows,
                      [&](int i) { activate_row(static_cast<ActivationKind>(s.kind), s.p, a(i), out(i), s.width); });
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
    case Op::Softmax:
      return each_row(rows, [&](int i) { softmax_row(a(i), out(i), s.width); });
    case Op::LogSoftmax:
      return each_row(rows, [&](int i) { log_softmax_row(a(i), out(i), s.width); });
    case Op::HeadDot:
      return each_row(rows, [&](int i) { k.head_dot(out(i), a(i), b(i), s.kind, width_of(program, s.a)); });
    case Op::HeadScale:
      return each_row(rows, [&](int i) { k.head_scale(out(i), a(i), b(i), s.kind, s.width); });
    case Op::RowMatrix:
      return each_row(rows, [&](int i) { k.row_matrix(out(i), a(i), b(i), width_of(program, s.a), s.width); });
    case Op::LoadSource:
    case Op::LoadTarget:
    case Op::LoadAttributes:
    case Op::LoadWeight:
    case Op::GatherMessage:
    case Op::GatherScore:
    case Op::LoadInput:
    case Op::LoadAggregate:
    case Op::LoadStored:
    case Op::StoreMessage:
    case Op::StoreRow:
    case Op::Output:
      break;
  }
  invariant(false, "a state instruction reached execute()");
}

void load_attention_row(const Kernels& kernels, const AggregationSpec& spec, const AttentionSpec& attention,
                        const AttentionRow& row, const float* t, const float* message, const Scales& scales,
                        float* out) {
  constexpr int kAtOnce = SourceScore::kAtOnce, kParts = 3;  // heads; above, below, the own loop
  const int wide = spec.width / spec.heads;
  const double slope = static_cast<double>(attention.slope), bin = static_cast<double>(kBinWidth);
  const double unit_of_totals = power_of_two(-scales.total_bits);
  for (int first = 0; first < spec.heads; first += kAtOnce) {
    const int count = std::min(kAtOnce, spec.heads - first);
    double powers[kParts * kAtOnce];  // each part's unit, relative to the head's largest
    for (int i = 0; i < count; ++i) {
      const int head = first + i;
      const double s = static_cast<double>(row.heads[head].shift);
      const double own = t == nullptr ? 0.0 : static_cast<double>(t[head]) + s;
      double* logs = powers + kParts * i;
      logs[0] = row.heads[head].above_total > 0 ? s + bin * row.heads[head].top : -HUGE_VAL;
      logs[1] = row.heads[head].below_total > 0 ? slope * (s + bin * row.heads[head].low) : -HUGE_VAL;
      logs[2] = t == nullptr ? -HUGE_VAL : own > 0.0 ? own : slope * own;
      const double top = std::max(std::max(logs[0], logs[1]), logs[2]);
      for (int part = 0; part < kParts && top > -HUGE_VAL; ++part) logs[part] -= top;
    }
    kernels.exps(powers, powers, kParts * count);
    for (int i = 0; i < count; ++i) {
      const int head = first + i, from = head * wide;
      const double* power = powers + kParts * i;
      const double total = power[0] * (static_cast<double>(row.heads[head].above_total) * unit_of_totals) +
                           power[1] * (static_cast<double>(row.heads[head].below_total) * unit_of_totals) + power[2];
      const double unit = total > 0.0 ? 1.0 / total : 0.0;
      kernels.load_head(out + from, row.above + from, static_cast<float>(power[0] * unit), row.below + from,
                        static_cast<float>(power[1] * unit), scales.down.data() + from, wide);
      const auto share = static_cast<float>(power[2] * unit);
      for (int c = from; message != nullptr && c < from + wide; ++c) out[c] += share * message[c];
    }
  }
}

}  // namespace livegnn
