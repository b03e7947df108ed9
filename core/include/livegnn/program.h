// A compiled model: row-local programs (stages) joined by aggregations over edges.
//
// Stage s runs on the rows of a set of vertices, reads the input, the aggregates of earlier stages and stored rows, and
// writes messages (for the aggregations that start at s), rows that later stages need, and, in the last stage, outputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace livegnn {

enum class Op : int {
  LoadInput,      // out = features
  LoadAggregate,  // out = aggregate `index`, finished (divided, degree-scaled)
  LoadStored,     // out = stored row `index`
  Gemm,           // out = a * weight[index]^T
  AddVector,      // out = a + vector[index]
  Activate,       // out = kind(a; p)
  PRelu,          // out = a > 0 ? a : a * vector[index]
  Affine,         // out = fma(a, vector[index], vector[index2])
  LayerNorm,      // out = norm(a) * vector[index] + vector[index2], eps p; index -1: no affine part
  L2Normalize,    // out = a / max(|a|, p)
  Combine,        // out = p * a + q * b
  Scale,          // out = p * a
  Multiply,       // out = a * b; b one column wide: broadcast
  CopyColumns,    // out[:, offset : offset + width] = a        (concatenation)
  Slice,          // out = a[:, offset : offset + width]
  Maximum,        // out = max(a, b)
  Softmax,
  LogSoftmax,
  StoreMessage,  // message row of aggregation `index` = a
  StoreRow,      // stored row `index` = a
  Output,        // output row = a
};

struct Instruction {
  Op op;
  int out = -1, a = -1, b = -1;  // registers
  int index = -1, index2 = -1;
  int width = 0;  // columns of the result
  int offset = 0;
  int kind = 0;
  float p = 0.0f, q = 0.0f;
};

enum class Norm : int { Sum, Mean, Gcn };
enum class Reduce : int { Sum, Max, Min };
enum class Root : int { None, Message, Table };

struct AggregationSpec {
  std::string name;  // of the layer, for errors
  int width = 0;
  int stage = 0;  // where its messages are made
  Norm norm = Norm::Sum;
  bool weighted = false;
  bool self_loops = false;  // Gcn: add_remaining_self_loops; self-loop edges leave the sum
  float fill = 1.0f;
  int context = -1;               // Gcn: which degree context
  int message_table = -1;         // stored rows that hold the messages; -1: the input itself
  Root root = Root::None;         // the vertex's own term, folded into the sum
  int root_table = -1;            // Root::Table
  float root_coefficient = 0.0f;  // Root::Message: own message times this (Gcn with self-loops: times L_v instead)
  std::vector<int> consumers;     // stages that load it
  Reduce reduce = Reduce::Sum;    // Max, Min: norm Sum or Gcn; nothing folded in but Gcn's self-loop

  bool extreme() const { return reduce != Reduce::Sum; }
};

struct StoredSpec {
  std::string name;
  int width = 0;
  int stage = 0;
  int root_of = -1;            // aggregation whose root term it is
  std::vector<int> consumers;  // stages that load it
};

struct ContextSpec {  // a degree normalisation: which edges count, and how
  bool weighted = false;
  bool self_loops = true;
  float fill = 1.0f;
};

struct WeightSpec {
  int out = 0, in = 0;
  std::vector<float> values;  // row-major (out, in)
};

struct Program {
  int input_width = 0, output_width = 0;
  std::vector<int> register_widths;
  std::vector<int> register_parents;  // -1, or the register whose columns from register_offsets on this one is
  std::vector<int> register_offsets;  // multiples of 16
  std::vector<WeightSpec> weights;
  std::vector<std::vector<float>> vectors;
  std::vector<ContextSpec> contexts;
  std::vector<AggregationSpec> aggregations;
  std::vector<StoredSpec> stored;
  std::vector<std::vector<Instruction>> stages;
  std::vector<int> input_consumers;  // stages that load the input
};

}  // namespace livegnn
