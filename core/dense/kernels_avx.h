// F of the AVX2 and AVX-512 kernels. Included inside the namespace of either.

inline constexpr int kLanes = 8;

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
