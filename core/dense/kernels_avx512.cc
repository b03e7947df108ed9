// AVX-512 (F, DQ, VL, BW) kernels: eight lanes for fixed point, sixteen for products.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 warns inside its own intrinsics
#include <immintrin.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "dense/kernels.h"
#include "livegnn/detail/prefetch.h"

namespace livegnn {
namespace avx512 {

#include "dense/kernels_avx.h"

inline F leaky(F a, F s) {
  const __mmask8 positive = _mm256_cmp_ps_mask(a.v, _mm256_setzero_ps(), _CMP_GT_OQ);
  return {_mm256_mask_blend_ps(positive, _mm256_mul_ps(a.v, s.v), a.v)};
}
inline bool in_range(F x, F limit) {
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.v);
  return _mm256_cmp_ps_mask(magnitude, limit.v, _CMP_LE_OQ) == 0xff;
}

struct Q {
  __m512i v;
  static Q load(const std::int64_t* p) { return {_mm512_loadu_si512(p)}; }
  void store(std::int64_t* p) const { _mm512_storeu_si512(p, v); }
  static Q load_half(const std::int32_t* p) {
    return {_mm512_cvtepi32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  void store_half(std::int32_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi64_epi32(v));
  }
};
inline Q add(Q a, Q b) { return {_mm512_add_epi64(a.v, b.v)}; }
inline Q sub(Q a, Q b) { return {_mm512_sub_epi64(a.v, b.v)}; }
inline bool any(Q a) { return _mm512_test_epi64_mask(a.v, a.v) != 0; }
inline bool fits_half(Q a) {
  return _mm512_cmpneq_epi64_mask(a.v, _mm512_cvtepi32_epi64(_mm512_cvtepi64_epi32(a.v))) == 0;
}
inline Q quantise(F x) { return {_mm512_cvtps_epi64(x.v)}; }
inline F to_float(Q a) { return {_mm512_cvtpd_ps(_mm512_cvtepi64_pd(a.v))}; }

struct W {
  __m512 v;
  static W load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static W set(float x) { return {_mm512_set1_ps(x)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
};
inline W plus(W a, W b) { return {_mm512_add_ps(a.v, b.v)}; }
inline W times(W a, W b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline W times_plus_zero(W a, W b) { return {_mm512_add_ps(_mm512_mul_ps(a.v, b.v), _mm512_setzero_ps())}; }
inline W blend(W a, W b, std::uint32_t lanes) {
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(lanes), a.v, b.v)};
}
inline std::uint32_t greater(W a, W b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ); }
inline std::uint32_t equal(W a, W b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ); }
inline std::uint32_t finite(W a) { return _mm512_cmp_ps_mask(_mm512_abs_ps(a.v), _mm512_set1_ps(FLT_MAX), _CMP_LE_OQ); }

using Product = W;
inline W fma(W a, W b, W c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline constexpr int kTilePanels[] = {0, 4, 4, 3, 2, 0, 0, 0, 1, 0, 0, 0, 1};
inline constexpr int kColumnsAhead = 8;

#include "dense/kernels_impl.h"

}  // namespace avx512

extern const Kernels kKernelsAvx512;
const Kernels kKernelsAvx512 = avx512::table("avx512");

}  // namespace livegnn
