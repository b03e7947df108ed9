#include "dense/activations.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "dense/kernels.h"
#include "livegnn/error.h"

namespace livegnn {

double exact_exp(double x) {
  double y;
  kernels().exps(&y, &x, 1);
  return y;
}

double exact_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2.0;
    --exponent;
  }
  const double s = (m - 1.0) / (m + 1.0), z = s * s;  // log m = 2 atanh(s), |s| < 0.172
  double sum = 1.0 / 23.0;
  for (int k = 21; k >= 1; k -= 2) sum = std::fma(sum, z, 1.0 / static_cast<double>(k));
  return std::fma(static_cast<double>(exponent), 0.69314718055994531, 2.0 * s * sum);
}

namespace {

// log(1 + e^x), also where e^x is tiny or huge
double softplus(double x) {
  if (x > 40.0) return x;
  const double e = exact_exp(x);
  return e < 1e-5 ? std::fma(-0.5 * e, e, e) : exact_log(1.0 + e);
}

double activate(ActivationKind kind, double p, double x) {
  switch (kind) {
    case ActivationKind::Softplus:
      return x * p > 20.0 ? x : softplus(x * p) / p;
    case ActivationKind::Relu6:
      return x < 0.0 ? 0.0 : x > 6.0 ? 6.0 : x;
    case ActivationKind::Hardtanh:
      return x < -1.0 ? -1.0 : x > 1.0 ? 1.0 : x;
    case ActivationKind::Hardswish:
      return x <= -3.0 ? 0.0 : x >= 3.0 ? x : x * (x + 3.0) / 6.0;
    case ActivationKind::Softsign:
      return x / (1.0 + std::fabs(x));
    case ActivationKind::LogSigmoid:
      return -softplus(-x);
    case ActivationKind::Abs:
      return std::fabs(x);
    case ActivationKind::Sqrt:
      return x > 0.0 ? std::sqrt(x) : 0.0;
    case ActivationKind::Log1p:
      return x <= 0.0 ? 0.0 : x < 1e-5 ? std::fma(-0.5 * x, x, x) : exact_log(1.0 + x);
    case ActivationKind::Log:
      return x > 0.0 ? exact_log(x) : 0.0;
    case ActivationKind::Reciprocal:
      return x == 0.0 ? 0.0 : 1.0 / x;
    default:  // Relu and those with powers: activate_row
      break;
  }
  invariant(false, "activation kind without a formula");
  return 0.0;
}

double row_max(const float* x, int width) {
  double top = x[0];
  for (int i = 1; i < width; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

// visit(i, e^(x[i] - top)) in order, the powers many at a time; x[i] is read before it.
template <typename Visit>
void each_power(const float* x, double top, int width, Visit&& visit) {
  constexpr int kPiece = 64;
  double powers[kPiece];
  for (int from = 0; from < width; from += kPiece) {
    const int count = std::min(kPiece, width - from);
    for (int i = 0; i < count; ++i) powers[i] = static_cast<double>(x[from + i]) - top;
    kernels().exps(powers, powers, count);
    for (int i = 0; i < count; ++i) visit(from + i, powers[i]);
  }
}

}  // namespace

void activate_row(ActivationKind kind, float parameter, const float* x, float* out, int width) {
  const auto p = static_cast<double>(parameter);
  const PowerKernels& powers = kernels().powers;
  switch (kind) {
    case ActivationKind::Relu:
      return kernels().relu(out, x, width);
    case ActivationKind::LeakyRelu:
      return kernels().leaky(out, x, parameter, width);
    case ActivationKind::Elu:
      return powers.elu(out, x, p, width);
    case ActivationKind::Selu:
      return powers.selu(out, x, p, width);
    case ActivationKind::Celu:
      return powers.celu(out, x, p, width);
    case ActivationKind::Gelu:
      return powers.gelu(out, x, p, width);
    case ActivationKind::GeluTanh:
      return powers.gelu_tanh(out, x, p, width);
    case ActivationKind::Silu:
      return powers.silu(out, x, p, width);
    case ActivationKind::Sigmoid:
      return powers.sigmoid(out, x, p, width);
    case ActivationKind::Tanh:
      return powers.hyperbolic_tangent(out, x, p, width);
    case ActivationKind::Exp:
      return powers.exponential(out, x, p, width);
    default:
      for (int i = 0; i < width; ++i) out[i] = static_cast<float>(activate(kind, p, static_cast<double>(x[i])));
  }
}

void softmax_row(const float* x, float* out, int width) {
  const double top = row_max(x, width);
  double sum = 0.0;
  each_power(x, top, width, [&](int, double power) { sum += power; });
  each_power(x, top, width, [&](int i, double power) { out[i] = static_cast<float>(power / sum); });
}

void log_softmax_row(const float* x, float* out, int width) {
  const double top = row_max(x, width);
  double sum = 0.0;
  each_power(x, top, width, [&](int, double power) { sum += power; });
  const double shift = top + exact_log(sum);
  for (int i = 0; i < width; ++i) out[i] = static_cast<float>(static_cast<double>(x[i]) - shift);
}

void l2_normalize_row(const float* x, float eps, float* out, int width) {
  double sum = 0.0;
  for (int i = 0; i < width; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  const double norm = std::sqrt(sum), floor = static_cast<double>(eps), divisor = norm > floor ? norm : floor;
  for (int i = 0; i < width; ++i) out[i] = static_cast<float>(static_cast<double>(x[i]) / divisor);
}

void layer_norm_row(const float* x, const float* weight, const float* bias, float eps, float* out, int width) {
  double mean = 0.0, variance = 0.0;
  for (int i = 0; i < width; ++i) mean += static_cast<double>(x[i]);
  mean /= width;
  for (int i = 0; i < width; ++i) variance += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
  const double inverse = 1.0 / std::sqrt(variance / width + static_cast<double>(eps));
  for (int i = 0; i < width; ++i) {
    const double y = (static_cast<double>(x[i]) - mean) * inverse;
    const double scale = weight != nullptr ? static_cast<double>(weight[i]) : 1.0;
    const double shift = bias != nullptr ? static_cast<double>(bias[i]) : 0.0;
    out[i] = static_cast<float>(y * scale + shift);
  }
}

void prelu_row(const float* x, const float* slope, float* out, int width) {
  for (int i = 0; i < width; ++i) out[i] = x[i] > 0.0f ? x[i] : x[i] * slope[i];
}

void minimum_row(Operand a, Operand b, float* out, int width) {
  for (int i = 0; i < width; ++i) out[i] = a[i] < b[i] ? a[i] : b[i];
}

void divide_row(Operand a, Operand b, float* out, int width) {
  for (int i = 0; i < width; ++i) out[i] = b[i] == 0.0f ? 0.0f : a[i] / b[i];
}

void less_row(Operand a, Operand b, float* out, int width) {
  for (int i = 0; i < width; ++i) out[i] = a[i] < b[i] ? 1.0f : 0.0f;
}

void where_row(Operand c, Operand a, Operand b, float* out, int width) {
  for (int i = 0; i < width; ++i) out[i] = c[i] != 0.0f ? a[i] : b[i];
}

}  // namespace livegnn
