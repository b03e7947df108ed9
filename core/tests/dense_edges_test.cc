// Kernels of extremes, heads and powers: every variant gives the bits of the plain one, and extremes hold to their
// definition, the multiset of the messages at hand.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

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

std::vector<float> normal(std::mt19937& rng, std::size_t count) {
  std::normal_distribution<float> draw(0.0f, 1.0f);
  std::vector<float> values(count);
  for (float& x : values) x = draw(rng);
  return values;
}

struct Row {
  std::vector<float> best, next;
  std::vector<MinMaxMasks> masks;
  explicit Row(int width)
      : best(static_cast<std::size_t>((width + 15) / 16 * 16), 0.0f),
        next(best),
        masks(best.size() / 16, MinMaxMasks{}) {}
  MinMaxRow row() { return {best.data(), next.data(), masks.data()}; }
  bool same(const Row& other) const {
    return best == other.best && next == other.next &&
           std::memcmp(masks.data(), other.masks.data(), masks.size() * sizeof(MinMaxMasks)) == 0;
  }
};

bool bit(std::uint16_t mask, int column) { return ((mask >> (column % 16)) & 1) != 0; }

// What a row says of a column, against the messages that are really there.
void check_column(Row& row, int column, std::vector<float> messages, bool max) {
  const MinMaxMasks& masks = row.masks[static_cast<std::size_t>(column / 16)];
  const auto c = static_cast<std::size_t>(column);
  std::sort(messages.begin(), messages.end());
  if (max) std::reverse(messages.begin(), messages.end());
  const auto beaten = [&](float bound, float x) { return max ? x > bound : x < bound; };
  if (bit(masks.open_best, column)) {
    CHECK(!bit(masks.has_best, column));
    CHECK(messages.empty() || !beaten(row.best[c], messages[0]));
    return;
  }
  CHECK(bit(masks.has_best, column) == !messages.empty());
  if (messages.empty()) {
    CHECK(row.best[c] == 0.0f);
    return;
  }
  CHECK(row.best[c] == messages[0]);
  if (bit(masks.has_next, column) && bit(masks.open_next, column)) {  // tied
    const auto holders = std::count(messages.begin(), messages.end(), messages[0]);
    CHECK(row.next[c] >= 1.0f && row.next[c] + 1.0f <= static_cast<float>(holders));
    return;
  }
  if (bit(masks.has_next, column)) CHECK(messages.size() > 1 && row.next[c] == messages[1]);
  if (bit(masks.open_next, column)) CHECK(messages.size() < 2 || !beaten(row.next[c], messages[1]));
  if (!bit(masks.has_next, column) && !bit(masks.open_next, column)) CHECK(messages.size() == 1);
}

}  // namespace

TEST(extremes_follow_any_sequence_of_messages) {
  std::mt19937 rng(1);
  for (const int width : {1, 7, 16, 17, 40}) {
    for (const bool max : {true, false}) {
      std::vector<Row> rows(variants().size(), Row(width));
      std::vector<std::vector<float>> messages;
      for (int step = 0; step < 600; ++step) {
        std::vector<float> x(rows[0].best.size(), 0.0f);
        for (int c = 0; c < width; ++c) x[static_cast<std::size_t>(c)] = static_cast<float>(rng() % 7) - 3.0f;  // ties
        const std::size_t place = messages.empty() ? 0 : rng() % messages.size();
        const int kind = messages.empty() ? 0 : static_cast<int>(rng() % 3);
        for (std::size_t i = 0; i < rows.size(); ++i) {
          const MinMaxKernels& kernels = max ? variants()[i]->max : variants()[i]->min;
          int flags = 0;
          if (kind == 0) flags = kernels.insert(rows[i].row(), x.data(), 1.0f, 1.0f, width);
          if (kind == 1) flags = kernels.remove(rows[i].row(), messages[place].data(), 1.0f, 1.0f, width);
          if (kind == 2) flags = kernels.replace(rows[i].row(), messages[place].data(), x.data(), 1.0f, width);
          CHECK((flags & MinMaxFlag::kNotFinite) == 0);
          bool open = false;
          for (const MinMaxMasks& masks : rows[i].masks) open |= masks.open_best != 0;
          CHECK(((flags & MinMaxFlag::kExposed) != 0) == open);
        }
        if (kind == 0) messages.push_back(x);
        if (kind == 1) messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(place));
        if (kind == 2) messages[place] = x;
        for (const Row& row : rows) CHECK(row.same(rows[0]));
        for (int c = 0; c < width; ++c) {
          std::vector<float> column;
          for (const std::vector<float>& message : messages) column.push_back(message[static_cast<std::size_t>(c)]);
          check_column(rows[0], c, column, max);
        }
      }
    }
  }
}

TEST(extremes_have_one_zero_and_notice_what_is_not_finite) {
  for (const Kernels* kernel : variants()) {
    Row row(3);
    std::vector<float> x(16, 0.0f);
    x[0] = -0.0f;
    CHECK((kernel->max.insert(row.row(), x.data(), 1.0f, 1.0f, 3) & MinMaxFlag::kNotFinite) == 0);
    CHECK(!std::signbit(row.best[0]));
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      x[2] = bad;
      CHECK((kernel->min.insert(row.row(), x.data(), 1.0f, 1.0f, 3) & MinMaxFlag::kNotFinite) != 0);
      CHECK((kernel->max.insert(row.row(), x.data(), 1.0f, 1.0f, 2) & MinMaxFlag::kNotFinite) == 0);  // past the row
    }
  }
}

TEST(heads_add_take_out_replace_and_load_alike) {
  std::mt19937 rng(2);
  for (const int width : {1, 5, 8, 13, 32}) {
    const auto size = static_cast<std::size_t>(width);
    const std::vector<float> x = normal(rng, size), y = normal(rng, size), up(size, 0x1p30f), down(size, 0x1p-30f);
    std::vector<std::int64_t> expected;
    std::vector<float> loaded;
    for (const Kernels* kernel : variants()) {
      std::vector<std::int64_t> acc(size, 3), other(size, 3);
      CHECK(kernel->add_head(acc.data(), x.data(), 0.7f, up.data(), 0x1p45f, width));
      CHECK(kernel->replace_head(acc.data(), x.data(), 0.7f, y.data(), 1.3f, up.data(), 0x1p45f, width));
      CHECK(kernel->add_head(other.data(), y.data(), 1.3f, up.data(), 0x1p45f, width));
      CHECK(acc == other);
      if (expected.empty()) expected = acc;
      CHECK(acc == expected);
      std::vector<float> out(size);
      kernel->load_head(out.data(), acc.data(), 0.25f, other.data(), 0.5f, down.data(), width);
      if (loaded.empty()) loaded = out;
      CHECK(out == loaded);
      CHECK(kernel->sub_head(acc.data(), y.data(), 1.3f, up.data(), 0x1p45f, width));
      CHECK(std::all_of(acc.begin(), acc.end(), [](std::int64_t value) { return value == 3; }));
      CHECK(!kernel->add_head(acc.data(), x.data(), 0x1p60f, up.data(), 0x1p45f, width));
    }
  }
}

TEST(rows_with_a_matrix_and_dot_products_agree) {
  std::mt19937 rng(3);
  for (const int wide : {1, 3, 8, 19}) {
    const int heads = 3, width = heads * wide;
    const auto size = static_cast<std::size_t>(width);
    const std::vector<float> a = normal(rng, size), b = normal(rng, size), matrix = normal(rng, size * 5);
    std::array<float, 3> dots{}, first_dots{};
    std::vector<float> product(5), first_product, scaled(size), first_scaled;
    std::vector<double> sum(size, 0.5), first_sum;
    for (const Kernels* kernel : variants()) {
      kernel->head_dot(dots.data(), a.data(), b.data(), heads, width);
      kernel->row_matrix(product.data(), a.data(), matrix.data(), width, 5);
      kernel->head_scale(scaled.data(), a.data(), b.data(), heads, width);
      sum.assign(size, 0.5);
      kernel->add_scaled(sum.data(), a.data(), 0.3, width);
      if (first_product.empty()) {
        first_dots = dots;
        first_product = product;
        first_scaled = scaled;
        first_sum = sum;
      }
      CHECK(dots == first_dots && product == first_product && scaled == first_scaled && sum == first_sum);
    }
    for (int h = 0; h < heads; ++h) {
      double truth = 0.0;
      for (int c = h * wide; c < (h + 1) * wide; ++c)
        truth +=
            static_cast<double>(a[static_cast<std::size_t>(c)]) * static_cast<double>(b[static_cast<std::size_t>(c)]);
      CHECK(std::fabs(truth - static_cast<double>(dots[static_cast<std::size_t>(h)])) < 1e-5);
    }
  }
}

TEST(powers_agree_and_are_close_to_the_library_s) {
  std::vector<double> x;
  for (double v = -720.0; v < 720.0; v += 0.377) x.push_back(v);
  std::vector<double> expected;
  for (const Kernels* kernel : variants()) {
    std::vector<double> got(x.size());
    kernel->exps(got.data(), x.data(), static_cast<int>(x.size()));
    if (expected.empty()) expected = got;
    CHECK(std::memcmp(got.data(), expected.data(), got.size() * sizeof(double)) == 0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::fabs(x[i]) < 708.0) CHECK(std::fabs(got[i] / std::exp(x[i]) - 1.0) < 1e-14);
    }
    CHECK(got.front() == 0.0 && std::isinf(got.back()));
  }
}

int main() { return livegnn::testing::run_all(); }
