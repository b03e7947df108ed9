#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns inside its own intrinsics
#include <immintrin.h>

#include "util/half_impl.h"

namespace livegnn {

namespace {
void decode_lanes(float* out, const std::uint16_t* in) {
  _mm512_storeu_ps(out, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in))));
}

void encode_lanes(std::uint16_t* out, const float* in) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtps_ph(_mm512_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT));
}
}  // namespace

extern const HalfCodec kHalfAvx512;
const HalfCodec kHalfAvx512{"avx512", decode_float16<16, decode_lanes>, encode_float16<16, encode_lanes>,
                            bfloat16_to_float32, float32_to_bfloat16};

}  // namespace livegnn
