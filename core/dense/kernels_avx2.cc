// AVX2 + FMA kernels. int64 conversions go through double with the classic magic-number trick; every int64 is split
// into halves so that the result is the correctly rounded double, as the AVX-512 instruction gives.
#include <immintrin.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "dense/kernels.h"
#include "livegnn/detail/prefetch.h"

namespace livegnn {
namespace avx2 {

#include "dense/kernels_avx.h"

inline F leaky(F a, F s) {
  return {_mm256_blendv_ps(_mm256_mul_ps(a.v, s.v), a.v, _mm256_cmp_ps(a.v, _mm256_setzero_ps(), _CMP_GT_OQ))};
}
inline bool in_range(F x, F limit) {
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.v);
  return _mm256_movemask_ps(_mm256_cmp_ps(magnitude, limit.v, _CMP_LE_OQ)) == 0xff;
}

struct Q {
  __m256i lo, hi;
  static Q load(const std::int64_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 4))};
  }
  void store(std::int64_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), lo);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 4), hi);
  }
  static __m128i half(__m256i a) {  // the low halves of its four
    const __m256i low = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
    return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(a, low));
  }
  static Q load_half(const std::int32_t* p) {
    const auto* at = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtepi32_epi64(_mm_loadu_si128(at)), _mm256_cvtepi32_epi64(_mm_loadu_si128(at + 1))};
  }
  void store_half(std::int32_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), half(lo));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p) + 1, half(hi));
  }
};
inline Q add(Q a, Q b) { return {_mm256_add_epi64(a.lo, b.lo), _mm256_add_epi64(a.hi, b.hi)}; }
inline Q sub(Q a, Q b) { return {_mm256_sub_epi64(a.lo, b.lo), _mm256_sub_epi64(a.hi, b.hi)}; }
inline bool any(Q a) {
  const __m256i both = _mm256_or_si256(a.lo, a.hi);
  return _mm256_testz_si256(both, both) == 0;
}
inline bool fits_half(Q a) {
  const __m256i lo = _mm256_xor_si256(a.lo, _mm256_cvtepi32_epi64(Q::half(a.lo)));
  const __m256i hi = _mm256_xor_si256(a.hi, _mm256_cvtepi32_epi64(Q::half(a.hi)));
  const __m256i both = _mm256_or_si256(lo, hi);
  return _mm256_testz_si256(both, both) != 0;
}
inline __m256i quantise_half(__m128 x) {  // round to nearest even; exact for |x| < 2^51, the limit of a message
  const __m256d magic = _mm256_set1_pd(6755399441055744.0);  // 1.5 * 2^52
  const __m256d shifted = _mm256_add_pd(_mm256_cvtps_pd(x), magic);
  return _mm256_sub_epi64(_mm256_castpd_si256(shifted), _mm256_castpd_si256(magic));
}
inline Q quantise(F x) {
  return {quantise_half(_mm256_castps256_ps128(x.v)), quantise_half(_mm256_extractf128_ps(x.v, 1))};
}
inline __m128 to_float_half(__m256i a) {
  // hi * 2^32 + lo, both halves exact in double, one rounding in the last addition
  const __m256i low_mask = _mm256_set1_epi64x(0xffffffff);
  const __m256d low_magic = _mm256_castsi256_pd(_mm256_set1_epi64x(0x4330000000000000));   // 2^52
  const __m256d high_magic = _mm256_castsi256_pd(_mm256_set1_epi64x(0x4530000080000000));  // 2^84 + 2^63
  const __m256d both_magic = _mm256_castsi256_pd(_mm256_set1_epi64x(0x4530000080100000));  // 2^84 + 2^63 + 2^52
  const __m256i low = _mm256_or_si256(_mm256_and_si256(a, low_mask), _mm256_castpd_si256(low_magic));
  const __m256i high = _mm256_xor_si256(_mm256_srli_epi64(a, 32), _mm256_castpd_si256(high_magic));
  const __m256d sum = _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(high), both_magic), _mm256_castsi256_pd(low));
  return _mm256_cvtpd_ps(sum);
}
inline F to_float(Q a) { return {_mm256_set_m128(to_float_half(a.hi), to_float_half(a.lo))}; }

struct W {
  __m256 low, high;
  static W load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static W set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  void store(float* p) const {
    _mm256_storeu_ps(p, low);
    _mm256_storeu_ps(p + 8, high);
  }
};
inline W plus(W a, W b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline W times(W a, W b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline W times_plus_zero(W a, W b) {
  const W product = times(a, b);
  return {_mm256_add_ps(product.low, _mm256_setzero_ps()), _mm256_add_ps(product.high, _mm256_setzero_ps())};
}
inline __m256 lane_mask(std::uint32_t lanes) {  // all bits of every lane whose bit is set
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(lanes)), bits);
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, bits));
}
inline W blend(W a, W b, std::uint32_t lanes) {
  return {_mm256_blendv_ps(a.low, b.low, lane_mask(lanes)), _mm256_blendv_ps(a.high, b.high, lane_mask(lanes >> 8))};
}
inline std::uint32_t bits_of(__m256 low, __m256 high) {
  return static_cast<std::uint32_t>(_mm256_movemask_ps(low)) |
         (static_cast<std::uint32_t>(_mm256_movemask_ps(high)) << 8);
}
inline std::uint32_t greater(W a, W b) {
  return bits_of(_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ));
}
inline std::uint32_t equal(W a, W b) {
  return bits_of(_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ));
}
inline std::uint32_t finite(W a) {
  const __m256 sign = _mm256_set1_ps(-0.0f), most = _mm256_set1_ps(FLT_MAX);
  return bits_of(_mm256_cmp_ps(_mm256_andnot_ps(sign, a.low), most, _CMP_LE_OQ),
                 _mm256_cmp_ps(_mm256_andnot_ps(sign, a.high), most, _CMP_LE_OQ));
}

using Product = F;
inline constexpr int kTilePanels[] = {0, 2, 1};
inline constexpr int kColumnsAhead = 0;

#include "dense/kernels_impl.h"

}  // namespace avx2

extern const Kernels kKernelsAvx2;
const Kernels kKernelsAvx2 = avx2::table("avx2");

}  // namespace livegnn
