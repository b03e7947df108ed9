#include <immintrin.h>

#include "util/half_impl.h"

namespace livegnn {

namespace {
void decode_lanes(float* out, const std::uint16_t* in) {
  _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in))));
}

void encode_lanes(std::uint16_t* out, const float* in) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_cvtps_ph(_mm256_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT));
}
}  // namespace

extern const HalfCodec kHalfAvx2;
const HalfCodec kHalfAvx2{"avx2", decode_float16<8, decode_lanes>, encode_float16<8, encode_lanes>, bfloat16_to_float32,
                          float32_to_bfloat16};

}  // namespace livegnn
