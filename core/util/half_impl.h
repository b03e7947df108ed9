// Conversions in plain C++, one number at a time; compiled once per instruction set, and the tails of the vector loops.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "util/half.h"

namespace livegnn {
namespace {

float float16_to_float32(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = half >> 10 & 31u, fraction = half & 1023u;
  if (exponent == 0) {  // fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

std::uint16_t float32_to_float16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half;
  if (magnitude >= 0x47800000u) {  // 65536 and more
    half = 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: the sum's last place is 2^-24, and the processor rounds
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3F000000u;
  } else {  // another exponent, and half of the last place less one, or all of it where that is odd
    half = (magnitude - (112u << 23) + 0xFFFu + (magnitude >> 13 & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

// All of them by an instruction for kLanes at once, the rest one by one.
template <std::size_t kLanes, auto kDecode>
void decode_float16(float* out, const std::uint16_t* in, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) kDecode(out + i, in + i);
  for (; i < count; ++i) out[i] = float16_to_float32(in[i]);
}

template <std::size_t kLanes, auto kEncode>
void encode_float16(std::uint16_t* out, const float* in, std::size_t count) {
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) kEncode(out + i, in + i);
  for (; i < count; ++i) out[i] = float32_to_float16(in[i]);
}

void bfloat16_to_float32(float* out, const std::uint16_t* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(static_cast<std::uint32_t>(in[i]) << 16);
}

void float32_to_bfloat16(std::uint16_t* out, const float* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(in[i]);
    out[i] = static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
  }
}

}  // namespace
}  // namespace livegnn
