// Activations and row normalisations. Transcendental functions are our own, in double precision with explicit FMA, so
// that their bits do not depend on the C library, the processor or the place of a value in a vector.
#pragma once

namespace livegnn {

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
  Reciprocal  // 0 for 0
};

double exact_exp(double x);  // within 1 ulp of double for |x| < 700; 0 and infinity beyond
double exact_log(double x);  // x > 0

void activate_row(ActivationKind kind, float parameter, const float* x, float* out, int width);
void softmax_row(const float* x, float* out, int width);  // over the row
void log_softmax_row(const float* x, float* out, int width);
void l2_normalize_row(const float* x, float eps, float* out, int width);  // x / max(|x|, eps)
void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, float* out, int width);
void prelu_row(const float* x, const float* slope, float* out, int width);

}  // namespace livegnn
