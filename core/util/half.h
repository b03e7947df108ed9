// Numbers of 16 bits to float32 and back. To float32 is exact; back rounds to nearest even, and what the format cannot
// hold becomes infinity. Subnormals are kept. Every variant gives the same bits, for any number that is not NaN.
#pragma once

#include <cstddef>
#include <cstdint>

namespace livegnn {

struct HalfCodec {
  const char* name;
  // float16: IEEE 754 binary16
  void (*decode_float16)(float* out, const std::uint16_t* in, std::size_t count);
  void (*encode_float16)(std::uint16_t* out, const float* in, std::size_t count);
  // bfloat16: the upper half of a float32
  void (*decode_bfloat16)(float* out, const std::uint16_t* in, std::size_t count);
  void (*encode_bfloat16)(std::uint16_t* out, const float* in, std::size_t count);
};

const HalfCodec& half_codec();  // the best that this machine runs
const HalfCodec* half_codec_named(
    const char* name);  // "avx512", "avx2" or "generic"; nullptr where the machine lacks it

}  // namespace livegnn
