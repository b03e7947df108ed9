// A compiled model: row-local programs (stages) joined by aggregations over edges.
//
// Stage s runs on the rows of a set of vertices, reads the input, the aggregates of earlier stages and stored rows, and
// writes messages (for the aggregations that start at s), rows that later stages need, and, in the last stage, outputs.
//
// Where vertices have types, an instruction may be for rows of vertices of one type only (in a gather: for edges of one
// type). What it would store is zero for all other vertices.
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
  Activate,       // out = activation(a; p)
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
  Minimum,        // out = min(a, b); of this one and the next three, an operand may be one column wide
  Divide,         // out = a / b, 0 where b is 0
  Less,           // out = a < b ? 1 : 0
  Where,          // out = c != 0 ? a : b
  Softmax,
  LogSoftmax,
  HeadDot,     // out[h] = dot of the columns of head h of a and b
  HeadScale,   // out[h, c] = a[h, c] * b[h]
  RowMatrix,   // out = a * (b as a matrix of a's width rows)
  Lookup,      // out = row a, a number without its fraction, of weight[index]; 0 where there is no such row
  LoadSource,  // on edges: stored row `index` of the source; -1: its features
  LoadTarget,  // on edges: the same of the target
  LoadAttributes,
  LoadWeight,
  LoadType,       // the edge's type, as a number
  LoadAdded,      // 1 on a loop that the gather adds, else 0
  GatherMessage,  // the edge's message = a
  GatherScore,    // its scores = a
  StoreMessage,   // message row of aggregation `index` = a
  StoreRow,       // stored row `index` = a
  Output,         // output row = a
  Zero,           // out = 0, padding included
};

enum class ActivationKind : int {
  Relu,
  LeakyRelu,
  Elu,
  Selu,
  Celu,
  Gelu,
  GeluTanh,
  Silu,
  Sigmoid,
  Tanh,
  Softplus,
  Relu6,
  Hardtanh,
  Hardswish,
  Softsign,
  LogSigmoid,
  Exp,
  Abs,
  Sqrt,       // of max(x, 0)
  Log1p,      // of max(x, 0)
  Log,        // 0 for what is not above 0
  Reciprocal  // 0 for 0
};

struct Instruction {
  Op op;
  int out = -1, a = -1, b = -1, c = -1;  // registers
  int index = -1, index2 = -1;
  int width = 0;  // columns of the result
  int offset = 0;
  ActivationKind activation = ActivationKind::Relu;
  int heads = 1;
  float p = 0.0f, q = 0.0f;
  int type = -1;  // of the vertices, in a gather of the edges, that it is for; -1: all
};

// Gcn: messages times their source's factor, their sum times the target's, both of one degree context; Source: without
// the target's.
enum class Norm : int { Sum, Mean, Gcn, Source };
enum class Reduce : int { Sum, Max, Min, Median };
enum class Root : int { None, Message, Table };

// Messages computed edge by edge and reduced at the target. A row is computed again when one of its operands moves
// (NeutronRT's constrained recompute, Algorithm 4), unless it sums what reads nothing of its target.
// Newest: the message of the edge with the largest id.
enum class Gathering : int { Sum, Mean, Max, Min, Median, Newest, Softmax };
enum class Loops : int { Keep, Drop, Replace, Only };

struct EdgeReduceSpec {
  Gathering kind = Gathering::Sum;
  int heads = 1;
  Loops loops = Loops::Keep;
  bool fill_mean = true;  // Replace: the loop's attributes are the mean of the other in-edges', else `fill`
  float fill = 0.0f;
  std::vector<Instruction> steps;
  bool typed = false;  // whether steps are for edges of one type
  // A sum, or a mean over all in-edges, of messages that read nothing of their target. A target has no loop of its own.
  bool sums_sources = false;
  bool source_input = false, target_input = false, attributes = false, weights = false;  // what the steps load
};

// Softmax attention whose score is LeakyReLU(t_u + s_v), t of the source and s of the target, one column per head each.
struct AttentionSpec {
  float slope = 0.2f;     // of LeakyReLU below zero, 0 to 1
  bool own_loop = false;  // self-loop edges do not count; every vertex has one message from itself
  bool skip_loops = false;
  int source_table = -1, target_table = -1, message_table = -1;  // stored rows of t, s and the message
};

struct AggregationSpec {
  std::string name;  // of the layer, for errors
  int width = 0;
  int stage = 0;  // where its messages are made
  Norm norm = Norm::Sum;
  bool weighted = false;
  bool self_loops = false;  // self-loop edges leave the sum; Gcn over in-degrees: a loop per vertex takes their place
  int context = -1;         // Gcn, Source: which degree context; Mean with a relation: which one counts
  int message_table = -1;   // stored rows that hold the messages; -1: the input itself
  Root root = Root::None;   // the vertex's own term, folded into the sum
  int root_table = -1;      // Root::Table
  float root_coefficient = 0.0f;  // Root::Message: own message times this (with a context: times L_v instead)
  std::vector<int> consumers;     // stages that load it
  Reduce reduce = Reduce::Sum;    // but Sum: norm Sum or Gcn; nothing folded in but Gcn's self-loop

  int relation = -1;           // only edges of this type count; -1: all
  std::vector<int> relations;  // of a gather: only edges of these types; none: all
  int gather = -1;             // which EdgeReduceSpec; -1: a sum, mean or extremum of stored rows

  int attention = -1;  // which AttentionSpec
  int heads = 1;       // of an attention

  int target = -1;  // the type of the vertices that have such a row; -1: all

  bool reversed = false;  // messages go from an edge's destination to its source (flow.h); so does the context's graph

  bool scaled() const { return norm == Norm::Gcn || norm == Norm::Source; }  // by its source's factor
};

struct StoredSpec {
  std::string name;
  int width = 0;
  int stage = 0;
  std::vector<int> consumers;  // stages that load it
};

// A vertex's factor: d^-1/2, 1 / d, or 1. Of One the self-loop takes the degree away, L_v = -d_v; of Unit it is what
// self_loops makes it.
enum class Scaling : int { Root, Inverse, One, Unit };

struct DegreeNormSpec {  // a degree normalisation: which edges count, and how
  bool weighted = false;
  bool self_loops = true;
  float fill = 1.0f;
  int relation = -1;
  bool outgoing = false;            // degrees of out-edges but self-loops; self_loops is false
  Scaling scaling = Scaling::Root;  // Inverse, One: outgoing
  bool reversed = false;            // every edge counts as if it were turned round
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
  std::vector<DegreeNormSpec> contexts;
  std::vector<AggregationSpec> aggregations;
  std::vector<EdgeReduceSpec> gathers;
  std::vector<AttentionSpec> attentions;
  std::vector<StoredSpec> stored;
  std::vector<std::vector<Instruction>> stages;
  std::vector<int> input_consumers;  // stages that load the input
  bool typed = false;                // whether instructions are for vertices of one type
};

}  // namespace livegnn
