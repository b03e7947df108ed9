// AVX-512 (F, DQ, VL, BW) kernels: eight lanes for fixed point; products use sixteen through pairs of panels.
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

inline constexpr int kLanes = 8;
inline constexpr int kTileRows = 6;
inline constexpr int kOneRowPanels = 4;
inline constexpr int kColumnsAhead = 8;  // between the prefetch of a piece of weight and its use

struct F {
  __m256 v;
  static F load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static F set(float x) { return {_mm256_set1_ps(x)}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
};
inline F add(F a, F b) { return {_mm256_add_ps(a.v, b.v)}; }
inline F sub(F a, F b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline F mul(F a, F b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline F div(F a, F b) { return {_mm256_div_ps(a.v, b.v)}; }
inline F max(F a, F b) { return {_mm256_max_ps(a.v, b.v)}; }
inline F fma(F a, F b, F c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline F relu(F a) { return {_mm256_max_ps(a.v, _mm256_setzero_ps())}; }
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
};
inline Q add(Q a, Q b) { return {_mm512_add_epi64(a.v, b.v)}; }
inline Q sub(Q a, Q b) { return {_mm512_sub_epi64(a.v, b.v)}; }
inline bool any(Q a) { return _mm512_test_epi64_mask(a.v, a.v) != 0; }
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

#include "dense/kernels_impl.h"

// Products again, with full-width registers: the same chains of fused multiply-adds, more of them at a time. R rows
// against P panels; at least eight chains hide the latency of a multiply-add, and all of a tile's fit in registers.
template <int R, int P>
inline void wide_tile(const float* a, std::size_t lda, const float* w, float* c, std::size_t ldc, int k) {
  __m512 sum[R][2 * P];
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < 2 * P; ++p) sum[r][p] = _mm512_setzero_ps();
  }
  const std::size_t panel = static_cast<std::size_t>(k) * kPanel;
  const auto step = [&](int i) {
    __m512 column[2 * P];
    for (int p = 0; p < P; ++p) {
      const float* row = w + static_cast<std::size_t>(p) * panel + static_cast<std::size_t>(i) * kPanel;
      prefetch_line(row + kColumnsAhead * kPanel);
      prefetch_line(row + kColumnsAhead * kPanel + 16);
      column[2 * p] = _mm512_loadu_ps(row);
      column[2 * p + 1] = _mm512_loadu_ps(row + 16);
    }
    for (int r = 0; r < R; ++r) {
      const __m512 x = _mm512_set1_ps(a[static_cast<std::size_t>(r) * lda + static_cast<std::size_t>(i)]);
      for (int p = 0; p < 2 * P; ++p) sum[r][p] = _mm512_fmadd_ps(x, column[p], sum[r][p]);
    }
  };
  if constexpr (R < 4) {
#pragma GCC unroll 4
    for (int i = 0; i < k; ++i) step(i);
  } else {
    for (int i = 0; i < k; ++i) step(i);
  }
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < 2 * P; ++p) _mm512_storeu_ps(c + static_cast<std::size_t>(r) * ldc + 16 * p, sum[r][p]);
  }
}

// R rows against all panels, P at a time and then the rest.
template <int R, int P>
inline void wide_rows(const float* a, std::size_t lda, const float* w, float* c, std::size_t ldc, int k, int n) {
  int done = 0;
  for (; done + P * kPanel <= n; done += P * kPanel) {
    wide_tile<R, P>(a, lda, w + static_cast<std::size_t>(done) * static_cast<std::size_t>(k), c + done, ldc, k);
  }
  if constexpr (P > 1) {
    if (done < n) {
      wide_rows<R, P - 1>(a, lda, w + static_cast<std::size_t>(done) * static_cast<std::size_t>(k), c + done, ldc, k,
                          n - done);
    }
  }
}

void wide_gemm(const float* a, std::size_t lda, const float* w, float* c, std::size_t ldc, int m, int k, int n) {
  while (m > 0) {
    int rows = m;
    if (m >= 12) {
      rows = 12;
      wide_rows<12, 1>(a, lda, w, c, ldc, k, n);
    } else if (m >= 8) {
      rows = 8;
      wide_rows<8, 1>(a, lda, w, c, ldc, k, n);
    } else if (m >= 4) {
      rows = 4;
      wide_rows<4, 2>(a, lda, w, c, ldc, k, n);
    } else if (m == 3) {
      wide_rows<3, 3>(a, lda, w, c, ldc, k, n);
    } else if (m == 2) {
      wide_rows<2, 4>(a, lda, w, c, ldc, k, n);
    } else {
      wide_rows<1, 4>(a, lda, w, c, ldc, k, n);
    }
    a += static_cast<std::size_t>(rows) * lda;
    c += static_cast<std::size_t>(rows) * ldc;
    m -= rows;
  }
}

constexpr Kernels with_wide_products() {
  Kernels kernels = table("avx512");
  kernels.gemm = wide_gemm;
  return kernels;
}

}  // namespace avx512

extern const Kernels kKernelsAvx512;
const Kernels kKernelsAvx512 = avx512::with_wide_products();

}  // namespace livegnn
