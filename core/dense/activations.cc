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
    case ActivationKind::Gelu:
      return 0.5 * x * (1.0 + exact_erf(x * 0.70710678118654752));
    case ActivationKind::GeluTanh:
      return gelu_tanh(x);
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

constexpr int kPiece = 64;  // columns at a time

double expm1_of(double x, double power) { return std::fabs(x) < 1e-5 ? 0.5 * x * x + x : power - 1.0; }

// finish(x, e^exponent(x)) column by column, the powers many at a time.
template <typename Exponent, typename Finish>
void with_powers(const float* x, float* out, int width, Exponent exponent, Finish finish) {
  double powers[kPiece];
  for (int from = 0; from < width; from += kPiece) {
    const int count = std::min(kPiece, width - from);
    for (int i = 0; i < count; ++i) powers[i] = exponent(static_cast<double>(x[from + i]));
    kernels().exps(powers, powers, count);
    for (int i = 0; i < count; ++i)
      out[from + i] = static_cast<float>(finish(static_cast<double>(x[from + i]), powers[i]));
  }
}

double tanh_of(double x, double power) {  // power: e^(2 |x|)
  const double a = std::fabs(x), value = (power - 1.0) / (power + 1.0);
  if (a < 1e-4) return x * (1.0 - x * x / 3.0);
  if (a > 20.0) return x > 0.0 ? 1.0 : -1.0;
  return x > 0.0 ? value : -value;
}

}  // namespace

void activate_row(ActivationKind kind, float parameter, const float* x, float* out, int width) {
  const auto p = static_cast<double>(parameter);
  constexpr double kScale = 1.0507009873554804934193349852946, kAlpha = 1.6732632423543772848170429916717;
  const auto low = [](double v) { return v < 0.0 ? v : 0.0; };
  switch (kind) {
    case ActivationKind::Relu:
      return kernels().relu(out, x, width);
    case ActivationKind::LeakyRelu:
      return kernels().leaky(out, x, parameter, width);
    case ActivationKind::Elu:
      return with_powers(x, out, width, low, [p](double v, double e) { return v > 0.0 ? v : p * expm1_of(v, e); });
    case ActivationKind::Selu:
      return with_powers(x, out, width, low,
                         [](double v, double e) { return kScale * (v > 0.0 ? v : kAlpha * expm1_of(v, e)); });
    case ActivationKind::Celu:
      return with_powers(
          x, out, width, [p](double v) { return v < 0.0 ? v / p : 0.0; },
          [p](double v, double e) { return v > 0.0 ? v : p * expm1_of(v / p, e); });
    case ActivationKind::Silu:
      return with_powers(x, out, width, [](double v) { return -v; }, [](double v, double e) { return v / (1.0 + e); });
    case ActivationKind::Sigmoid:
      return with_powers(x, out, width, [](double v) { return -v; }, [](double, double e) { return 1.0 / (1.0 + e); });
    case ActivationKind::Tanh:
      return with_powers(x, out, width, [](double v) { return 2.0 * std::min(std::fabs(v), 21.0); }, tanh_of);
    case ActivationKind::Exp:
      return with_powers(x, out, width, [](double v) { return v; }, [](double, double e) { return e; });
    default:
      for (int i = 0; i < width; ++i) out[i] = static_cast<float>(activate(kind, p, static_cast<double>(x[i])));
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
