// Every kernel variant gives the bits of the plain one; products and fixed point are checked against their definition.
#include <cfloat>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "dense/activations.h"
#include "dense/kernels.h"
#include "tests/check.h"

using namespace livegnn;

namespace {

std::vector<const Kernels*> variants() {
  std::vector<const Kernels*> found;
  for (const char* name : {"generic", "avx2", "avx512"}) {
    if (const Kernels* k = kernels_named(name)) found.push_back(k);
  }
  return found;
}

std::vector<float> normal(std::mt19937& rng, std::size_t count, float scale = 1.0f) {
  std::normal_distribution<float> draw(0.0f, scale);
  std::vector<float> values(count);
  for (float& x : values) x = draw(rng);
  return values;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST(products_are_chains_in_k_order_and_rows_do_not_depend_on_each_other) {
  std::mt19937 rng(1);
  for (const int m : {1, 2, 3, 7, 12, 13, 31}) {
    for (const int n : {1, 32, 40, 130}) {
      const int k = 1 + static_cast<int>(rng() % 70), wide = (n + kPanel - 1) / kPanel * kPanel;
      const std::vector<float> a = normal(rng, static_cast<std::size_t>(m * k)),
                               w = normal(rng, static_cast<std::size_t>(n * k));
      std::vector<float> packed(static_cast<std::size_t>(wide * k));
      pack_weight(w.data(), n, k, packed.data());
      std::vector<float> expected(static_cast<std::size_t>(m * wide), 0.0f);
      for (int i = 0; i < m; ++i) {
        for (int c = 0; c < n; ++c) {
          float sum = 0.0f;
          for (int j = 0; j < k; ++j)
            sum = std::fma(a[static_cast<std::size_t>(i * k + j)], w[static_cast<std::size_t>(c * k + j)], sum);
          expected[static_cast<std::size_t>(i * wide + c)] = sum;
        }
      }
      for (const Kernels* kernel : variants()) {
        std::vector<float> got(expected.size(), -1.0f);
        kernel->gemm(a.data(), static_cast<std::size_t>(k), packed.data(), got.data(), static_cast<std::size_t>(wide),
                     m, k, wide);
        CHECK(same(got, expected));
      }
    }
  }
}

TEST(fixed_point_rounds_to_nearest_even_and_sums_are_exactly_undone) {
  std::mt19937 rng(2);
  const int width = 24;
  const std::vector<float> up(width, 0x1p30f), down(width, 0x1p-30f);
  for (int round = 0; round < 200; ++round) {
    const std::vector<float> x = normal(rng, width, round % 2 == 0 ? 1.0f : 1e-6f);
    const float source = 0.3f, edge = 1.7f;
    std::vector<std::vector<std::int64_t>> sums;
    for (const Kernels* kernel : variants()) {
      std::vector<std::int64_t> acc(width, 5);
      CHECK(kernel->add_terms(acc.data(), x.data(), source, edge, up.data(), 0x1p45f, width));
      for (int c = 0; c < width; ++c) {
        const float term = x[static_cast<std::size_t>(c)] * source * edge * 0x1p30f;
        CHECK(acc[static_cast<std::size_t>(c)] ==
              5 + static_cast<std::int64_t>(std::nearbyint(static_cast<double>(term))));
      }
      sums.push_back(acc);
      std::vector<float> loaded(width);
      kernel->load(loaded.data(), acc.data(), down.data(), width);
      for (int c = 0; c < width; ++c) {
        CHECK(loaded[static_cast<std::size_t>(c)] ==
              static_cast<float>(static_cast<double>(acc[static_cast<std::size_t>(c)])) * 0x1p-30f);
      }
      CHECK(kernel->sub_terms(acc.data(), x.data(), source, edge, up.data(), 0x1p45f, width));
      for (const std::int64_t value : acc) CHECK(value == 5);
    }
    for (const auto& sum : sums) CHECK(sum == sums.front());
  }
}

TEST(sums_as_large_as_62_bits_load_alike) {
  std::mt19937_64 rng(3);
  std::vector<std::int64_t> acc(16);
  const std::vector<float> down(16, 1.0f);
  for (int round = 0; round < 500; ++round) {
    for (std::int64_t& value : acc) value = static_cast<std::int64_t>(rng()) >> (1 + rng() % 40);
    for (const Kernels* kernel : variants()) {
      std::vector<float> got(16);
      kernel->load(got.data(), acc.data(), down.data(), 16);
      for (std::size_t c = 0; c < 16; ++c) CHECK(got[c] == static_cast<float>(static_cast<double>(acc[c])));
    }
  }
}

void add_delta(const Kernels& kernel, std::vector<std::int64_t>& acc, const std::vector<std::int64_t>& delta,
               DeltaShape shape) {
  const int width = static_cast<int>(acc.size());
  if (shape == DeltaShape::Narrow) {
    kernel.add_narrow_row(acc.data(), reinterpret_cast<const std::int32_t*>(delta.data()), width);
  } else {
    kernel.add_row(acc.data(), delta.data(), width);
  }
}

TEST(deltas_equal_the_difference_of_terms_and_say_whether_anything_changed) {
  std::mt19937 rng(4);
  const int width = 16;
  const std::vector<float> up(width, 0x1p28f);
  for (const Kernels* kernel : variants()) {
    const std::vector<float> before = normal(rng, width), now = normal(rng, width);
    std::vector<std::int64_t> delta(width), acc(width, 0), direct(width, 0);
    DeltaShape shape = DeltaShape::Zero;
    CHECK(kernel->delta_terms(delta.data(), before.data(), 0.5f, now.data(), 0.25f, up.data(), 0x1p45f, width, &shape));
    CHECK(shape != DeltaShape::Zero);
    kernel->add_terms(acc.data(), before.data(), 0.5f, 1.0f, up.data(), 0x1p45f, width);
    add_delta(*kernel, acc, delta, shape);
    kernel->add_terms(direct.data(), now.data(), 0.25f, 1.0f, up.data(), 0x1p45f, width);
    CHECK(acc == direct);
    CHECK(kernel->delta_terms(delta.data(), now.data(), 0.5f, now.data(), 0.5f, up.data(), 0x1p45f, width, &shape));
    CHECK(shape == DeltaShape::Zero);
  }
}

TEST(deltas_are_narrow_where_all_of_them_fit) {
  std::mt19937 rng(5);
  const int width = 24;
  const std::vector<float> up(width, 1.0f), zeros(width, 0.0f);
  for (const Kernels* kernel : variants()) {
    for (const float most : {0x1p31f - 128.0f, -0x1p31f, 0x1p31f, -0x1p31f - 256.0f, 0x1p40f}) {
      for (int place = 0; place < width; ++place) {
        std::vector<float> now = normal(rng, width);
        for (float& x : now) x *= 1000.0f;
        now[static_cast<std::size_t>(place)] = most;
        std::vector<std::int64_t> delta(width), acc(width, 7), direct(width, 7);
        DeltaShape shape = DeltaShape::Zero;
        CHECK(
            kernel->delta_terms(delta.data(), zeros.data(), 1.0f, now.data(), 1.0f, up.data(), 0x1p45f, width, &shape));
        CHECK((shape == DeltaShape::Narrow) == (most < 0x1p31f && most >= -0x1p31f));
        add_delta(*kernel, acc, delta, shape);
        kernel->add_terms(direct.data(), now.data(), 1.0f, 1.0f, up.data(), 0x1p45f, width);
        CHECK(acc == direct);
      }
    }
  }
}

TEST(out_of_range_and_not_finite_are_noticed) {
  const std::vector<float> up(8, 1.0f);
  for (const Kernels* kernel : variants()) {
    for (const float bad : {0x1p46f, -0x1p46f, INFINITY, -INFINITY, NAN}) {
      std::vector<float> x(8, 1.0f);
      x[5] = bad;
      std::vector<std::int64_t> acc(8, 0);
      CHECK(!kernel->add_terms(acc.data(), x.data(), 1.0f, 1.0f, up.data(), 0x1p45f, 8));
    }
    std::vector<float> edge(8, 0x1p45f);
    std::vector<std::int64_t> acc(8, 0);
    CHECK(kernel->add_terms(acc.data(), edge.data(), 1.0f, 1.0f, up.data(), 0x1p45f, 8));
    CHECK(acc[0] == std::int64_t{1} << 45);
  }
}

TEST(elementwise_kernels_agree) {
  std::mt19937 rng(5);
  const std::vector<float> a = normal(rng, 48), b = normal(rng, 48);
  std::vector<float> expected(48), got(48);
  const auto compare = [&](auto call) {
    call(*kernels_named("generic"), expected.data());
    for (const Kernels* kernel : variants()) {
      call(*kernel, got.data());
      CHECK(same(expected, got));
    }
  };
  compare([&](const Kernels& k, float* out) { k.axpby(out, a.data(), 0.9f, b.data(), 0.1f, 48); });
  compare([&](const Kernels& k, float* out) { k.add(out, a.data(), b.data(), 48); });
  compare([&](const Kernels& k, float* out) { k.multiply(out, a.data(), b.data(), 48); });
  compare([&](const Kernels& k, float* out) { k.maximum(out, a.data(), b.data(), 48); });
  compare([&](const Kernels& k, float* out) { k.scale(out, a.data(), 0.3f, 48); });
  compare([&](const Kernels& k, float* out) { k.divide(out, a.data(), 3.0f, 48); });
  compare([&](const Kernels& k, float* out) { k.affine(out, a.data(), b.data(), a.data(), 48); });
  compare([&](const Kernels& k, float* out) { k.relu(out, a.data(), 48); });
  compare([&](const Kernels& k, float* out) { k.leaky(out, a.data(), 0.2f, 48); });
}

TEST(our_own_functions_are_close_to_the_library_s) {
  for (double x = -30.0; x < 30.0; x += 0.0137) {
    CHECK(std::fabs(exact_exp(x) / std::exp(x) - 1.0) < 1e-14);
    if (x > 0.0) CHECK(std::fabs(exact_log(x) - std::log(x)) < 1e-13);
  }
  CHECK(exact_exp(-1000.0) == 0.0);
  CHECK(std::isinf(exact_exp(1000.0)));
}

// Widths that fill no vector, values on both sides of every case.
TEST(activations_by_powers_agree_and_are_close_to_the_library_s) {
  std::vector<float> x;
  for (float v = -40.0f; v < 40.0f; v += 0.0371f) x.push_back(v);
  for (const float v : {0.0f, -0.0f, 1e-6f, -1e-6f, 9e-5f, -2e-4f, 800.0f, -800.0f}) x.push_back(v);
  const std::size_t ordinary = x.size();
  for (const float v : {FLT_MAX, -FLT_MAX, INFINITY, -INFINITY, NAN}) x.push_back(v);
  const auto alike = [](float a, float b) { return (std::isnan(a) && std::isnan(b)) || (a == b); };
  const auto width = static_cast<int>(x.size());
  const auto compare = [&](PowerKernels::Row PowerKernels::* row, double p, double (*formula)(double)) {
    std::vector<float> expected(x.size()), got(x.size());
    (kernels_named("generic")->powers.*row)(expected.data(), x.data(), p, width);
    for (std::size_t i = 0; i < ordinary; ++i) {
      const double y = formula(static_cast<double>(x[i]));
      CHECK(expected[i] == static_cast<float>(y) ||
            std::fabs(static_cast<double>(expected[i]) - y) <= 1e-6 * std::fabs(y) + 1e-12);
    }
    for (const Kernels* kernel : variants()) {
      for (const int part : {width, 1, 63, 65, 200}) {
        got = x;  // in place
        (kernel->powers.*row)(got.data(), got.data(), p, part);
        CHECK(std::equal(got.begin(), got.begin() + part, expected.begin(), alike));
        CHECK(std::equal(got.begin() + part, got.end(), x.begin() + part, alike));
      }
    }
  };
  compare(&PowerKernels::elu, 1.5, [](double v) { return v > 0.0 ? v : 1.5 * std::expm1(v); });
  compare(&PowerKernels::selu, 0.0,
          [](double v) { return 1.0507009873554805 * (v > 0.0 ? v : 1.6732632423543772 * std::expm1(v)); });
  compare(&PowerKernels::celu, 2.0, [](double v) { return v > 0.0 ? v : 2.0 * std::expm1(v / 2.0); });
  compare(&PowerKernels::silu, 0.0, [](double v) { return v / (1.0 + std::exp(-v)); });
  compare(&PowerKernels::sigmoid, 0.0, [](double v) { return 1.0 / (1.0 + std::exp(-v)); });
  compare(&PowerKernels::exponential, 0.0, [](double v) { return v > 700.0 ? INFINITY : std::exp(v); });
  compare(&PowerKernels::hyperbolic_tangent, 0.0, [](double v) { return std::tanh(v); });
  compare(&PowerKernels::gelu, 0.0, [](double v) { return 0.5 * v * std::erfc(-v * 0.7071067811865475); });
  compare(&PowerKernels::gelu_tanh, 0.0,
          [](double v) { return 0.5 * v * (1.0 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))); });
}

int main() { return livegnn::testing::run_all(); }

TEST(rows_of_two_and_three_are_computed_from_their_definitions) {
  std::mt19937 rng(11);
  for (const int width : {1, 2, 15, 16, 17, 70}) {
    const auto count = static_cast<std::size_t>(width);
    std::vector<float> a = normal(rng, count), b = normal(rng, count), c = normal(rng, count), out(count);
    b[0] = 0.0f;
    c[count / 2] = 0.0f;
    a[count - 1] = b[count - 1];
    for (const int step : {0, 1}) {
      const auto at = [step](const std::vector<float>& x, int i) { return x[static_cast<std::size_t>(i * step)]; };
      const Operand divisor{b.data(), step}, condition{c.data(), step}, row{a.data(), 1};
      divide_row(row, divisor, out.data(), width);
      for (int i = 0; i < width; ++i) CHECK(out[i] == (at(b, i) == 0.0f ? 0.0f : a[i] / at(b, i)));
      minimum_row(row, divisor, out.data(), width);
      for (int i = 0; i < width; ++i) CHECK(out[i] == std::fmin(a[i], at(b, i)));
      less_row(divisor, row, out.data(), width);
      for (int i = 0; i < width; ++i) CHECK(out[i] == (at(b, i) < a[i] ? 1.0f : 0.0f));
      where_row(condition, row, divisor, out.data(), width);
      for (int i = 0; i < width; ++i) CHECK(out[i] == (at(c, i) != 0.0f ? a[i] : at(b, i)));
    }
  }
}

TEST(a_logarithm_is_the_nearest_float_and_0_where_there_is_none) {
  std::mt19937 rng(12);
  std::vector<float> x = normal(rng, 999, 50.0f), out(x.size());
  x.insert(x.end(), {0.0f, 1.0f, FLT_MIN, FLT_MAX, 1e-40f});
  out.resize(x.size());
  activate_row(ActivationKind::Log, 0.0f, x.data(), out.data(), static_cast<int>(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = x[i] > 0.0f ? std::log(static_cast<double>(x[i])) : 0.0;
    CHECK(std::fabs(static_cast<double>(out[i]) - expected) <= 6e-8 * std::fabs(expected));
  }
}
