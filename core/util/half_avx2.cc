#include <immintrin.h>

#include "util/half_impl.h"

namespace livegnn {

namespace {
void decode_float16(float* out, const std::uint16_t* in, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
  }
  for (; i < count; ++i) out[i] = float16_to_float32(in[i]);
}

void encode_float16(std::uint16_t* out, const float* in, std::size_t count) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), halves);
  }
  for (; i < count; ++i) out[i] = float32_to_float16(in[i]);
}
}  // namespace

extern const HalfCodec kHalfAvx2;
const HalfCodec kHalfAvx2{"avx2", decode_float16, encode_float16, bfloat16_to_float32, float32_to_bfloat16};

}  // namespace livegnn
