// Row kernels behind one table, chosen once for the machine: AVX-512, AVX2 or plain C++.
//
// Every variant gives the same bits: each output element of a product is a chain of fused multiply-adds in k order,
// elementwise steps are single IEEE operations, and fixed-point conversion rounds once to nearest even.
// Float rows have strides that are multiples of 16, accumulator rows multiples of 8; padding is zero.
#pragma once

#include <cstddef>
#include <cstdint>

namespace livegnn {

inline constexpr int kPanel = 32;  // columns of a packed weight panel

// Minima and maxima. Per column a row keeps the best message and the next best, each of them exactly (`has`) or as a
// bound on all that is left (`open`). Where several messages are best, both bits of next are set, and it counts how
// many there are beside the first, at least. One MinMaxMasks stands for 16 columns, a bit each; a column with no bit
// has no messages, and best is 0. An open best means that the column has to be read again unless a message that reaches
// the bound still comes. A term is t = fl(edge * fl(source * x)), -0 taken as +0.
struct MinMaxMasks {
  std::uint16_t has_best, has_next, open_best, open_next;
};

struct MinMaxRow {
  float* best;
  float* next;
  MinMaxMasks* masks;
};

struct MinMaxFlag {  // what happened in some column of a row
  static constexpr int kValueChanged = 1;
  static constexpr int kHolderLeft = 2;  // a best message was taken out
  static constexpr int kExposed = 4;     // some best is open now
  static constexpr int kNotFinite = 8;   // a term was NaN or infinite; the row is spoilt
};

struct MinMaxKernels {
  // All return MinMaxFlags. Rows `before` and `now` of replace are already scaled by their source.
  int (*insert)(MinMaxRow row, const float* x, float source, float edge, int width);
  int (*remove)(MinMaxRow row, const float* x, float source, float edge, int width);
  int (*replace)(MinMaxRow row, const float* before, const float* now, float edge, int width);
};

// Activations by powers of e (activations.h says what each is): out may be x; p is the activation's parameter.
struct PowerKernels {
  using Row = void (*)(float* out, const float* x, double p, int width);
  Row elu, selu, celu, silu, sigmoid, exponential, hyperbolic_tangent, gelu, gelu_tanh;
};

// A narrow delta has all its columns as int32, in the first half of its row. Most changes are so small, and a push
// reads a delta once for every edge.
enum class DeltaShape : std::uint8_t { Zero, Narrow, Wide };

struct Kernels {
  const char* name;

  // c[m, n] = a[m, k] * w, w packed by pack_weight; n a multiple of kPanel; rows of c at least n wide.
  void (*gemm)(const float* a, std::size_t lda, const float* w, float* c, std::size_t ldc, int m, int k, int n);

  // Fixed point. A term is t = fl(edge * fl(source * x)); q = round(t * up). `limit` bounds |t * up|;
  // each returns false where a term is out of range or not finite (the row is then half-written: roll back).
  bool (*add_terms)(std::int64_t* acc, const float* x, float source, float edge, const float* up, float limit,
                    int width);
  bool (*sub_terms)(std::int64_t* acc, const float* x, float source, float edge, const float* up, float limit,
                    int width);
  // delta = q(now) - q(before), narrow where it fits
  bool (*delta_terms)(std::int64_t* delta, const float* before, float source_before, const float* now, float source_now,
                      const float* up, float limit, int width, DeltaShape* shape);
  // acc += q(edge * now) - q(edge * before), rows already scaled by their source
  bool (*add_edge_delta)(std::int64_t* acc, const float* before, const float* now, float edge, const float* up,
                         float limit, int width);
  void (*add_row)(std::int64_t* acc, const std::int64_t* delta, int width);
  void (*add_narrow_row)(std::int64_t* acc, const std::int32_t* delta, int width);
  void (*load)(float* out, const std::int64_t* acc, const float* down, int width);

  // Elementwise on rows of `width` (any count).
  void (*axpby)(float* out, const float* a, float ca, const float* b, float cb, int width);  // fl(fl(ca*a) + fl(cb*b))
  void (*add)(float* out, const float* a, const float* b, int width);
  void (*multiply)(float* out, const float* a, const float* b, int width);
  void (*maximum)(float* out, const float* a, const float* b, int width);
  void (*scale)(float* out, const float* a, float c, int width);
  void (*divide)(float* out, const float* a, float c, int width);
  void (*affine)(float* out, const float* a, const float* scale, const float* shift, int width);  // fma
  void (*relu)(float* out, const float* a, int width);
  void (*leaky)(float* out, const float* a, float slope, int width);

  // Rows of `width` columns in `heads` blocks.
  void (*head_dot)(float* out, const float* a, const float* b, int heads, int width);  // one sum per head
  void (*head_scale)(float* out, const float* a, const float* factors, int heads, int width);
  void (*row_matrix)(float* out, const float* a, const float* matrix, int in, int width);  // matrix (in, width)
  void (*add_scaled)(double* sum, const float* x, double factor, int width);               // sum += factor * x

  // One head's columns of an attention's sums; `width` may be any. Terms are t = fl(factor * x), as above.
  bool (*add_head)(std::int64_t* acc, const float* x, float factor, const float* up, float limit, int width);
  bool (*sub_head)(std::int64_t* acc, const float* x, float factor, const float* up, float limit, int width);
  bool (*replace_head)(std::int64_t* acc, const float* before, float factor_before, const float* now, float factor,
                       const float* up, float limit, int width);
  // out = a * down * factor_a + b * down * factor_b
  void (*load_head)(float* out, const std::int64_t* a, float factor_a, const std::int64_t* b, float factor_b,
                    const float* down, int width);

  // y = e^x: within 1 ulp for |x| < 708; 0 and infinity beyond. y may be x.
  void (*exps)(double* y, const double* x, int count);
  PowerKernels powers;

  MinMaxKernels max, min;
};

const Kernels& kernels();                        // the best that this machine runs
const Kernels* kernels_named(const char* name);  // "avx512", "avx2" or "generic"; nullptr where the machine lacks it

// Packs w (out, in), row-major as torch.nn.Linear keeps it, into panels of kPanel columns (outputs), zero padded.
// packed holds in * round_up(out, kPanel) floats.
void pack_weight(const float* w, int out, int in, float* packed);

}  // namespace livegnn
