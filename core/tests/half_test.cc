// Numbers of 16 bits: every one of them in every variant, and rounding against arithmetic in double.
#include "util/half.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "check.h"
#include "livegnn/graph_features.h"

using namespace livegnn;

namespace {

std::vector<const HalfCodec*> variants() {
  std::vector<const HalfCodec*> found;
  for (const char* name : {"generic", "avx2", "avx512"}) {
    if (const HalfCodec* codec = half_codec_named(name)) found.push_back(codec);
  }
  return found;
}

// What the bits say: (-1)^sign * 2^(exponent - bias) * 1.fraction, or 0.fraction where the exponent is 0.
double value_of(std::uint16_t half, int exponent_width) {
  const int fraction_bits = 15 - exponent_width, bias = (1 << (exponent_width - 1)) - 1;
  const int exponent = half >> fraction_bits & ((1 << exponent_width) - 1);
  const double fraction = std::ldexp(half & ((1 << fraction_bits) - 1), -fraction_bits);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1.0 + fraction, exponent - bias);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

// The nearest number of the format, of two equally near the even one.
std::uint16_t nearest(float value, int exponent_width) {
  const std::uint16_t infinity = static_cast<std::uint16_t>(((1 << exponent_width) - 1) << (15 - exponent_width));
  std::uint16_t low = 0, high = infinity;  // magnitudes, low <= |value| < high
  const double magnitude = std::fabs(static_cast<double>(value));
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (value_of(middle, exponent_width) <= magnitude ? low : high) = middle;
  }
  const double below = magnitude - value_of(low, exponent_width), above = value_of(high, exponent_width) - magnitude;
  const bool up = above < below || (above == below && (low & 1) != 0);
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  return static_cast<std::uint16_t>(sign | (up ? high : low));
}

// Numbers near and half-way between neighbours of the format, small and large ones, and any.
std::vector<float> hard_values(int exponent_width) {
  std::vector<float> values{0.0f,     -0.0f,    0x1p-149f,   -0x1p-149f,      0x1p-126f,   65504.0f,       65519.99f,
                            65520.0f, 70000.0f, 0x1.FEp127f, 0x1.FEFFFEp127f, 0x1.FFp127f, 0x1.FFFFFEp127f};
  for (int half = 0; half < 0x7C00; half += 7) {
    const auto low = static_cast<float>(value_of(static_cast<std::uint16_t>(half), exponent_width));
    const auto high = static_cast<float>(value_of(static_cast<std::uint16_t>(half + 1), exponent_width));
    const float middle = low + (high - low) / 2;
    for (const float x : {low, middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e30f)}) {
      values.push_back(x);
      values.push_back(-x);
    }
  }
  std::mt19937 random(1);
  while (values.size() < 60000) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isfinite(x)) values.push_back(x);
  }
  return values;
}

}  // namespace

TEST(every_number_is_decoded_exactly_and_comes_back) {
  std::vector<std::uint16_t> float16s, bfloat16s;
  for (int bits = 0; bits < 1 << 16; ++bits) {
    if ((bits & 0x7C00) != 0x7C00) float16s.push_back(static_cast<std::uint16_t>(bits));
    if ((bits & 0x7F80) != 0x7F80) bfloat16s.push_back(static_cast<std::uint16_t>(bits));
  }
  for (const HalfCodec* codec : variants()) {
    const auto check = [&](const std::vector<std::uint16_t>& all, auto decode, auto encode, int exponent_width) {
      std::vector<float> wide(all.size());
      std::vector<std::uint16_t> again(all.size());
      decode(wide.data(), all.data(), all.size());
      encode(again.data(), wide.data(), all.size());
      CHECK(again == all);
      for (std::size_t i = 0; i < all.size(); ++i) {
        CHECK(static_cast<double>(wide[i]) == value_of(all[i], exponent_width));
        CHECK(std::signbit(wide[i]) == ((all[i] & 0x8000) != 0));
      }
    };
    check(float16s, codec->decode_float16, codec->encode_float16, 5);
    check(bfloat16s, codec->decode_bfloat16, codec->encode_bfloat16, 8);
  }
}

TEST(encoding_rounds_to_nearest_even) {
  for (const HalfCodec* codec : variants()) {
    for (const int exponent_width : {5, 8}) {
      const std::vector<float> values = hard_values(exponent_width);
      std::vector<std::uint16_t> got(values.size());
      (exponent_width == 5 ? codec->encode_float16 : codec->encode_bfloat16)(got.data(), values.data(), values.size());
      const FeatureDtype dtype = exponent_width == 5 ? FeatureDtype::Float16 : FeatureDtype::Bfloat16;
      for (std::size_t i = 0; i < values.size(); ++i) {
        CHECK(got[i] == nearest(values[i], exponent_width));
        const bool fits = first_unfit(dtype, &values[i], 1) == 1;
        const bool infinite = (got[i] & exponent_bits(dtype)) == exponent_bits(dtype);
        CHECK(fits != infinite);  // what fits stays finite, and nothing else
      }
    }
  }
}

TEST(a_row_of_any_width_is_converted_to_its_end) {
  for (const HalfCodec* codec : variants()) {
    for (std::size_t width = 0; width < 40; ++width) {
      std::vector<float> row(width + 1, 1.5f), back(width + 1, -1.0f);
      std::vector<std::uint16_t> half(width + 1, 0x1234);
      codec->encode_float16(half.data(), row.data(), width);
      CHECK(half[width] == 0x1234);
      codec->decode_float16(back.data(), half.data(), width);
      CHECK(back[width] == -1.0f);
      for (std::size_t i = 0; i < width; ++i) CHECK(back[i] == 1.5f);
    }
  }
}

LIVEGNN_TEST_MAIN
