#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns inside its own intrinsics
#include <immintrin.h>

#include "util/half_impl.h"

namespace livegnn {

namespace {
void decode_float16(float* out, const std::uint16_t* in, std::size_t count) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + i));
    _mm512_storeu_ps(out + i, _mm512_cvtph_ps(halves));
  }
  for (; i < count; ++i) out[i] = float16_to_float32(in[i]);
}

void encode_float16(std::uint16_t* out, const float* in, std::size_t count) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i halves = _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), halves);
  }
  for (; i < count; ++i) out[i] = float32_to_float16(in[i]);
}
}  // namespace

extern const HalfCodec kHalfAvx512;
const HalfCodec kHalfAvx512{"avx512", decode_float16, encode_float16, bfloat16_to_float32, float32_to_bfloat16};

}  // namespace livegnn
