// Activations that need a power of e, column by column in double. Both sides of every case are computed and one is
// taken, so that the compiler can do several columns at a time; each step is a single IEEE operation or an explicit
// fused multiply-add. Included by kernels_impl.h, inside the namespace of its variant.

inline constexpr int kPiece = 64;  // columns at a time
inline constexpr int kVector = 8;  // powers at a time where they are few

inline double pick(bool condition, double yes, double no) { return condition ? yes : no; }

// x = k ln 2 + r, |r| <= ln(2) / 2; Taylor to degree 13 leaves less than 2^-57 of the result.
inline double exp_of(double x) {
  const double inside = x > 709.0 ? 709.0 : x < -708.0 ? -708.0 : x;
  constexpr double kRound = 0x1.8p52;  // adding it rounds to a whole number, which the last bits then hold
  const double shifted = inside * 1.4426950408889634 + kRound, k = shifted - kRound;
  const double r = std::fma(k, -1.9082149292705877e-10, std::fma(k, -6.93147180369123816490e-01, inside));
  double sum = 1.0 / 6227020800.0;
  sum = std::fma(sum, r, 1.0 / 479001600.0);
  sum = std::fma(sum, r, 1.0 / 39916800.0);
  sum = std::fma(sum, r, 1.0 / 3628800.0);
  sum = std::fma(sum, r, 1.0 / 362880.0);
  sum = std::fma(sum, r, 1.0 / 40320.0);
  sum = std::fma(sum, r, 1.0 / 5040.0);
  sum = std::fma(sum, r, 1.0 / 720.0);
  sum = std::fma(sum, r, 1.0 / 120.0);
  sum = std::fma(sum, r, 1.0 / 24.0);
  sum = std::fma(sum, r, 1.0 / 6.0);
  sum = std::fma(sum, r, 0.5);
  sum = std::fma(sum, r, 1.0);
  sum = std::fma(sum, r, 1.0);
  const double power = std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023) << 52);  // 2^k
  const double y = sum * power;
  return x > 709.0 ? HUGE_VAL : x < -708.0 ? 0.0 : y;
}

void exps(double* y, const double* x, int count) {
  for (int from = 0; from < count; from += kVector) {
    const int some = count - from < kVector ? count - from : kVector;
    double powers[kVector] = {};
    std::memcpy(powers, x + from, static_cast<std::size_t>(some) * sizeof(double));
    for (double& power : powers) power = exp_of(power);
    std::memcpy(y + from, powers, static_cast<std::size_t>(some) * sizeof(double));
  }
}

// Up to N columns: out = finish(x, e^exponent(x)).
template <int N, typename Exponent, typename Finish>
inline void piece_with_powers(float* out, const float* x, int count, Exponent exponent, Finish finish) {
  double value[N], power[N];
  for (int i = 0; i < count; ++i) value[i] = static_cast<double>(x[i]);
  for (int i = count; i < N; ++i) value[i] = 0.0;
  for (int i = 0; i < N; ++i) power[i] = exponent(value[i]);
  for (int i = 0; i < N; ++i) power[i] = exp_of(power[i]);
  for (int i = 0; i < N; ++i) value[i] = finish(value[i], power[i]);
  for (int i = 0; i < count; ++i) out[i] = static_cast<float>(value[i]);
}

template <typename Exponent, typename Finish>
inline void with_powers(float* out, const float* x, int width, Exponent exponent, Finish finish) {
  int from = 0;
  for (; from + kPiece <= width; from += kPiece)
    piece_with_powers<kPiece>(out + from, x + from, kPiece, exponent, finish);
  for (; from < width; from += kVector) {
    const int left = width - from;
    piece_with_powers<kVector>(out + from, x + from, left < kVector ? left : kVector, exponent, finish);
  }
}

inline double below_zero(double x) { return pick(x < 0.0, x, 0.0); }
inline double expm1_of(double x, double power) { return pick(std::fabs(x) < 1e-5, 0.5 * x * x + x, power - 1.0); }
inline double twice_size(double x) { return 2.0 * pick(std::fabs(x) < 21.0, std::fabs(x), 21.0); }

void elu(float* out, const float* x, double p, int width) {
  with_powers(out, x, width, below_zero, [p](double v, double e) { return pick(v > 0.0, v, p * expm1_of(v, e)); });
}
void selu(float* out, const float* x, double, int width) {
  constexpr double kScale = 1.0507009873554804934193349852946, kAlpha = 1.6732632423543772848170429916717;
  with_powers(out, x, width, below_zero,
              [](double v, double e) { return kScale * pick(v > 0.0, v, kAlpha * expm1_of(v, e)); });
}
void celu(float* out, const float* x, double p, int width) {
  with_powers(
      out, x, width, [p](double v) { return pick(v < 0.0, v / p, 0.0); },
      [p](double v, double e) { return pick(v > 0.0, v, p * expm1_of(v / p, e)); });
}
void silu(float* out, const float* x, double, int width) {
  with_powers(out, x, width, [](double v) { return -v; }, [](double v, double e) { return v / (1.0 + e); });
}
void sigmoid(float* out, const float* x, double, int width) {
  with_powers(out, x, width, [](double v) { return -v; }, [](double, double e) { return 1.0 / (1.0 + e); });
}
void exponential(float* out, const float* x, double, int width) {
  with_powers(out, x, width, [](double v) { return v; }, [](double, double e) { return e; });
}

// power: e^(2 |x|); near: tanh x where |x| < 1e-4
inline double tanh_of(double x, double power, double near) {
  const double a = std::fabs(x), size = pick(a > 20.0, 1.0, (power - 1.0) / (power + 1.0));
  return pick(a < 1e-4, near, pick(x > 0.0, size, -size));
}
void hyperbolic_tangent(float* out, const float* x, double, int width) {
  with_powers(out, x, width, twice_size, [](double v, double e) { return tanh_of(v, e, v * (1.0 - v * v / 3.0)); });
}
void gelu_tanh(float* out, const float* x, double, int width) {
  const auto inner = [](double v) { return 0.7978845608028654 * std::fma(0.044715 * v * v, v, v); };
  with_powers(
      out, x, width, [inner](double v) { return twice_size(inner(v)); },
      [inner](double v, double e) {
        const double u = inner(v);
        return 0.5 * v * (1.0 + tanh_of(u, e, u * std::fma(-u / 3.0, u, 1.0)));
      });
}

// erf by its Maclaurin series below 1/2 (the next term is below 1e-16), else by a rational Chebyshev fit of erfc with
// a fractional error below 1.2e-7. power: e^erf_exponent(x)
inline double erf_fit(double a) { return 1.0 / std::fma(0.5, a, 1.0); }
inline double erf_exponent(double x) {
  constexpr double kFit[] = {0.17087277,  -0.82215223, 1.48851587, -1.13520398, 0.27886807,
                             -0.18628806, 0.09678418,  0.37409196, 1.00002368,  -1.26551223};
  const double a = std::fabs(x), t = erf_fit(a);
  double sum = 0.0;
#pragma GCC unroll 10
  for (const double term : kFit) sum = std::fma(sum, t, term);
  return std::fma(-a, a, sum);
}
inline double erf_of(double x, double power) {
  const double z = -x * x;
  double sum = 0.0, factorial = 479001600.0;
#pragma GCC unroll 13
  for (int n = 12; n >= 0; --n) {
    sum = std::fma(sum, z, 1.0 / (factorial * (2 * n + 1)));
    if (n > 0) factorial /= n;
  }
  const double a = std::fabs(x), tail = erf_fit(a) * power;
  return pick(a < 0.5, 1.1283791670955126 * x * sum, pick(x > 0.0, 1.0 - tail, tail - 1.0));
}
void gelu(float* out, const float* x, double, int width) {
  constexpr double kRootHalf = 0.70710678118654752;
  with_powers(
      out, x, width, [](double v) { return erf_exponent(v * kRootHalf); },
      [](double v, double e) { return 0.5 * v * (1.0 + erf_of(v * kRootHalf, e)); });
}

constexpr PowerKernels power_kernels() {
  return {elu, selu, celu, silu, sigmoid, exponential, hyperbolic_tangent, gelu, gelu_tanh};
}
