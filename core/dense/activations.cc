#include "dense/activations.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "dense/kernels.h"
#include "livegnn/error.h"

namespace livegnn {

double exact_exp(double x) {
  if (x > 709.0) return std::numeric_limits<double>::infinity();
  if (x < -708.0) return 0.0;
  // x = k ln 2 + r, |r| <= ln(2) / 2; Taylor to degree 13 leaves less than 2^-57 of the result
  const double k = std::nearbyint(x * 1.4426950408889634);
  const double r = std::fma(k, -1.9082149292705877e-10, std::fma(k, -6.93147180369123816490e-01, x));
  double sum = 1.0 / 6227020800.0;
  constexpr double kInverseFactorials[] = {1.0 / 479001600.0,
                                           1.0 / 39916800.0,
                                           1.0 / 3628800.0,
                                           1.0 / 362880.0,
                                           1.0 / 40320.0,
                                           1.0 / 5040.0,
                                           1.0 / 720.0,
                                           1.0 / 120.0,
                                           1.0 / 24.0,
                                           1.0 / 6.0,
                                           0.5,
                                           1.0,
                                           1.0};
  for (const double term : kInverseFactorials) sum = std::fma(sum, r, term);
  return std::ldexp(sum, static_cast<int>(k));
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

double exact_tanh(double x) {
  const double a = std::fabs(x);
  if (a < 1e-4) return x * std::fma(-x / 3.0, x, 1.0);
  if (a > 20.0) return x > 0.0 ? 1.0 : -1.0;
  const double e = exact_exp(2.0 * a), value = (e - 1.0) / (e + 1.0);
  return x > 0.0 ? value : -value;
}

double exact_erf(double x) {
  const double a = std::fabs(x);
  if (a < 0.5) {  // Maclaurin series: the next term is below 1e-16
    const double z = -x * x;
    double sum = 0.0, factorial = 479001600.0;
    for (int n = 12; n >= 0; --n) {
      sum = std::fma(sum, z, 1.0 / (factorial * (2 * n + 1)));
      if (n > 0) factorial /= n;
    }
    return 1.1283791670955126 * x * sum;
  }
  // rational Chebyshev fit of erfc, fractional error below 1.2e-7
  const double t = 1.0 / std::fma(0.5, a, 1.0);
  constexpr double kFit[] = {0.17087277,  -0.82215223, 1.48851587, -1.13520398, 0.27886807,
                             -0.18628806, 0.09678418,  0.37409196, 1.00002368,  -1.26551223};
  double sum = 0.0;
  for (const double term : kFit) sum = std::fma(sum, t, term);
  const double tail = t * exact_exp(std::fma(-a, a, sum));
  return x > 0.0 ? 1.0 - tail : tail - 1.0;
}

namespace {

double expm1_small(double x) { return std::fabs(x) < 1e-5 ? std::fma(0.5 * x, x, x) : exact_exp(x) - 1.0; }
double sigmoid(double x) { return 1.0 / (1.0 + exact_exp(-x)); }

// log(1 + e^x), also where e^x is tiny or huge
double softplus(double x) {
  if (x > 40.0) return x;
  const double e = exact_exp(x);
  return e < 1e-5 ? std::fma(-0.5 * e, e, e) : exact_log(1.0 + e);
}

double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + exact_tanh(0.7978845608028654 * std::fma(0.044715 * x * x, x, x)));
}

double activate(ActivationKind kind, double p, double x) {
  switch (kind) {
    case ActivationKind::Elu:
      return x > 0.0 ? x : p * expm1_small(x);
    case ActivationKind::Selu:
      return 1.0507009873554804934193349852946 * (x > 0.0 ? x : 1.6732632423543772848170429916717 * expm1_small(x));
    case ActivationKind::Celu:
      return x > 0.0 ? x : p * expm1_small(x / p);
    case ActivationKind::Gelu:
      return 0.5 * x * (1.0 + exact_erf(x * 0.70710678118654752));
    case ActivationKind::GeluTanh:
      return gelu_tanh(x);
    case ActivationKind::Silu:
      return x * sigmoid(x);
    case ActivationKind::Sigmoid:
      return sigmoid(x);
    case ActivationKind::Tanh:
      return exact_tanh(x);
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
    case ActivationKind::Exp:
      return exact_exp(x);
    case ActivationKind::Abs:
      return std::fabs(x);
    case ActivationKind::Sqrt:
      return x > 0.0 ? std::sqrt(x) : 0.0;
    case ActivationKind::Log1p:
      return x <= 0.0 ? 0.0 : x < 1e-5 ? std::fma(-0.5 * x, x, x) : exact_log(1.0 + x);
    case ActivationKind::Reciprocal:
      return x == 0.0 ? 0.0 : 1.0 / x;
    case ActivationKind::Relu:
    case ActivationKind::LeakyRelu:
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

}  // namespace

void activate_row(ActivationKind kind, float parameter, const float* x, float* out, int width) {
  if (kind == ActivationKind::Relu) return kernels().relu(out, x, width);
  if (kind == ActivationKind::LeakyRelu) return kernels().leaky(out, x, parameter, width);
  for (int i = 0; i < width; ++i) {
    out[i] = static_cast<float>(activate(kind, static_cast<double>(parameter), static_cast<double>(x[i])));
  }
}

void softmax_row(const float* x, float* out, int width) {
  const double top = row_max(x, width);
  double sum = 0.0;
  for (int i = 0; i < width; ++i) sum += exact_exp(static_cast<double>(x[i]) - top);
  for (int i = 0; i < width; ++i) out[i] = static_cast<float>(exact_exp(static_cast<double>(x[i]) - top) / sum);
}

void log_softmax_row(const float* x, float* out, int width) {
  const double top = row_max(x, width);
  double sum = 0.0;
  for (int i = 0; i < width; ++i) sum += exact_exp(static_cast<double>(x[i]) - top);
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

}  // namespace livegnn
