// The body of every kernel variant, written once over a small vector type. Included by kernels_*.cc inside a namespace
// of its own after F (float vector of kLanes), Q (the same lanes as int64) and their operations are defined.
//
// F: load, store, set, add, mul, fma, max, div, leaky(x, slope), relu(x)
// Q: load, store, add, sub, zero; quantise(F) -> Q; to_float(Q) -> F; any(Q); in_range(F, limit) -> bool
// W (vector of kBlock columns of an extremum): load, store, set; plus, times, times_plus_zero, blend; greater, equal
// and finite as one bit per column

#include "dense/min_max_impl.h"

template <int R, int V>
inline void gemm_tile(const float* a, std::size_t lda, const float* w, float* c, std::size_t ldc, int k) {
  F sum[R][V];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sum[r][v] = F::set(0.0f);
  }
  for (int i = 0; i < k; ++i) {
    F column[V];
    for (int v = 0; v < V; ++v) column[v] = F::load(w + static_cast<std::size_t>(i) * kPanel + v * kLanes);
    for (int r = 0; r < R; ++r) {
      const F x = F::set(a[static_cast<std::size_t>(r) * lda + static_cast<std::size_t>(i)]);
      for (int v = 0; v < V; ++v) sum[r][v] = fma(x, column[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sum[r][v].store(c + static_cast<std::size_t>(r) * ldc + v * kLanes);
  }
}

// One row against up to four panels at once: enough independent chains to hide the latency of an FMA.
template <int P>
inline void gemm_one_row(const float* a, const float* w, float* c, int k) {
  constexpr int V = kPanel / kLanes;
  const std::size_t panel = static_cast<std::size_t>(k) * kPanel;
  F sum[P][V];
  for (int p = 0; p < P; ++p) {
    for (int v = 0; v < V; ++v) sum[p][v] = F::set(0.0f);
  }
  for (int i = 0; i < k; ++i) {
    const F x = F::set(a[i]);
    for (int p = 0; p < P; ++p) {
      const float* row = w + static_cast<std::size_t>(p) * panel + static_cast<std::size_t>(i) * kPanel;
      for (int v = 0; v < V; ++v) sum[p][v] = fma(x, F::load(row + v * kLanes), sum[p][v]);
    }
  }
  for (int p = 0; p < P; ++p) {
    for (int v = 0; v < V; ++v) sum[p][v].store(c + p * kPanel + v * kLanes);
  }
}

void gemm_row(const float* a, const float* w, float* c, int k, int n) {
  int done = 0;
  const std::size_t panel = static_cast<std::size_t>(k);
  while (done < n) {
    const float* base = w + static_cast<std::size_t>(done) * panel;
    const int left = (n - done) / kPanel;
    if (kOneRowPanels >= 4 && left >= 4) {
      gemm_one_row<4>(a, base, c + done, k);
      done += 4 * kPanel;
    } else if (left >= 2) {
      gemm_one_row<2>(a, base, c + done, k);
      done += 2 * kPanel;
    } else {
      gemm_one_row<1>(a, base, c + done, k);
      done += kPanel;
    }
  }
}

template <int R>
inline void gemm_rows(const float* a, std::size_t lda, const float* w, float* c, std::size_t ldc, int k, int n) {
  for (int done = 0; done < n; done += kPanel) {
    gemm_tile<R, kPanel / kLanes>(a, lda, w + static_cast<std::size_t>(done) * static_cast<std::size_t>(k), c + done,
                                  ldc, k);
  }
}

void gemm(const float* a, std::size_t lda, const float* w, float* c, std::size_t ldc, int m, int k, int n) {
  while (m > 0) {
    int rows = m >= kTileRows ? kTileRows : m >= 4 ? 4 : m >= 2 ? 2 : 1;
    if (kTileRows >= 8 && rows < kTileRows && m >= 8) rows = 8;
    if (rows > kTileRows) rows = kTileRows;
    if (rows == kTileRows) {
      gemm_rows<kTileRows>(a, lda, w, c, ldc, k, n);
    } else if (rows == 8) {
      gemm_rows<8>(a, lda, w, c, ldc, k, n);
    } else if (rows == 4) {
      gemm_rows<4>(a, lda, w, c, ldc, k, n);
    } else if (rows == 2) {
      gemm_rows<2>(a, lda, w, c, ldc, k, n);
    } else {
      gemm_row(a, w, c, k, n);
    }
    a += static_cast<std::size_t>(rows) * lda;
    c += static_cast<std::size_t>(rows) * ldc;
    m -= rows;
  }
}

template <bool kSubtract>
bool accumulate(std::int64_t* acc, const float* x, float source, float edge, const float* up, float limit, int width) {
  const F s = F::set(source), e = F::set(edge), bound = F::set(limit);
  bool fine = true;
  for (int i = 0; i < width; i += kLanes) {
    const F term = mul(mul(mul(F::load(x + i), s), e), F::load(up + i));
    fine &= in_range(term, bound);
    const Q q = quantise(term);
    const Q sum = kSubtract ? sub(Q::load(acc + i), q) : add(Q::load(acc + i), q);
    sum.store(acc + i);
  }
  return fine;
}

bool add_terms(std::int64_t* acc, const float* x, float source, float edge, const float* up, float limit, int width) {
  return accumulate<false>(acc, x, source, edge, up, limit, width);
}

bool sub_terms(std::int64_t* acc, const float* x, float source, float edge, const float* up, float limit, int width) {
  return accumulate<true>(acc, x, source, edge, up, limit, width);
}

bool delta_terms(std::int64_t* delta, const float* before, float source_before, const float* now, float source_now,
                 const float* up, float limit, int width, bool* changed) {
  const F sb = F::set(source_before), sn = F::set(source_now), bound = F::set(limit);
  bool fine = true, differs = false;
  for (int i = 0; i < width; i += kLanes) {
    const F scale = F::load(up + i);
    const F next = mul(mul(F::load(now + i), sn), scale);
    fine &= in_range(next, bound);
    const Q d = sub(quantise(next), quantise(mul(mul(F::load(before + i), sb), scale)));
    differs |= any(d);
    d.store(delta + i);
  }
  *changed = differs;
  return fine;
}

bool add_edge_delta(std::int64_t* acc, const float* before, const float* now, float edge, const float* up, float limit,
                    int width) {
  const F e = F::set(edge), bound = F::set(limit);
  bool fine = true;
  for (int i = 0; i < width; i += kLanes) {
    const F scale = F::load(up + i);
    const F next = mul(mul(F::load(now + i), e), scale);
    fine &= in_range(next, bound);
    const Q d = sub(quantise(next), quantise(mul(mul(F::load(before + i), e), scale)));
    add(Q::load(acc + i), d).store(acc + i);
  }
  return fine;
}

void add_row(std::int64_t* acc, const std::int64_t* delta, int width) {
  for (int i = 0; i < width; i += kLanes) add(Q::load(acc + i), Q::load(delta + i)).store(acc + i);
}

void load(float* out, const std::int64_t* acc, const float* down, int width) {
  for (int i = 0; i < width; i += kLanes) mul(to_float(Q::load(acc + i)), F::load(down + i)).store(out + i);
}

// Elementwise rows may be of any width; the buffers behind them are padded to 16, so whole vectors are safe.
void axpby(float* out, const float* a, float ca, const float* b, float cb, int width) {
  const F x = F::set(ca), y = F::set(cb);
  for (int i = 0; i < width; i += kLanes) add(mul(x, F::load(a + i)), mul(y, F::load(b + i))).store(out + i);
}

void add_rows(float* out, const float* a, const float* b, int width) {
  for (int i = 0; i < width; i += kLanes) add(F::load(a + i), F::load(b + i)).store(out + i);
}

void multiply(float* out, const float* a, const float* b, int width) {
  for (int i = 0; i < width; i += kLanes) mul(F::load(a + i), F::load(b + i)).store(out + i);
}

void maximum(float* out, const float* a, const float* b, int width) {
  for (int i = 0; i < width; i += kLanes) max(F::load(a + i), F::load(b + i)).store(out + i);
}

void scale(float* out, const float* a, float c, int width) {
  const F x = F::set(c);
  for (int i = 0; i < width; i += kLanes) mul(x, F::load(a + i)).store(out + i);
}

void divide(float* out, const float* a, float c, int width) {
  const F x = F::set(c);
  for (int i = 0; i < width; i += kLanes) div(F::load(a + i), x).store(out + i);
}

void affine(float* out, const float* a, const float* factor, const float* shift, int width) {
  for (int i = 0; i < width; i += kLanes) fma(F::load(a + i), F::load(factor + i), F::load(shift + i)).store(out + i);
}

void relu_row(float* out, const float* a, int width) {
  for (int i = 0; i < width; i += kLanes) relu(F::load(a + i)).store(out + i);
}

void leaky_row(float* out, const float* a, float slope, int width) {
  const F s = F::set(slope);
  for (int i = 0; i < width; i += kLanes) leaky(F::load(a + i), s).store(out + i);
}

// Eight partial sums, column c into sum c % 8, then pairs of them: the same order on every machine.
inline float dot(const float* a, const float* b, int width) {
  static_assert(kLanes == 8);
  F sums = F::set(0.0f);
  int c = 0;
  for (; c + kLanes <= width; c += kLanes) sums = fma(F::load(a + c), F::load(b + c), sums);
  float part[kLanes];
  sums.store(part);
  for (int i = 0; c < width; ++c, ++i) part[i] = std::fma(a[c], b[c], part[i]);
  return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

void head_dot(float* out, const float* a, const float* b, int heads, int width) {
  const int wide = width / heads;
  for (int h = 0; h < heads; ++h) out[h] = dot(a + h * wide, b + h * wide, wide);
}

void head_scale(float* out, const float* a, const float* factors, int heads, int width) {
  const int wide = width / heads;
  for (int h = 0; h < heads; ++h) {
    for (int c = h * wide; c < (h + 1) * wide; ++c) out[c] = a[c] * factors[h];
  }
}

void row_matrix(float* out, const float* a, const float* matrix, int in, int width) {
  for (int c = 0; c < width; ++c) out[c] = 0.0f;
  for (int i = 0; i < in; ++i) {
    for (int c = 0; c < width; ++c) out[c] = std::fma(a[i], matrix[i * width + c], out[c]);
  }
}

void add_scaled(double* sum, const float* x, double factor, int width) {
  for (int c = 0; c < width; ++c) sum[c] = std::fma(factor, static_cast<double>(x[c]), sum[c]);
}

// Whole vectors, and for the rest a copy that is a whole vector.
template <typename Step>
inline void each_vector(int width, Step step) {
  int c = 0;
  for (; c + kLanes <= width; c += kLanes) step(c, kLanes);
  if (c < width) step(c, width - c);
}

inline F load_part(const float* p, int count) {
  if (count == kLanes) return F::load(p);
  float part[kLanes] = {};
  for (int i = 0; i < count; ++i) part[i] = p[i];
  return F::load(part);
}

inline Q load_part(const std::int64_t* p, int count) {
  if (count == kLanes) return Q::load(p);
  std::int64_t part[kLanes] = {};
  for (int i = 0; i < count; ++i) part[i] = p[i];
  return Q::load(part);
}

template <typename V, typename T>
inline void store_part(V value, T* p, int count) {
  if (count == kLanes) return value.store(p);
  T part[kLanes];
  value.store(part);
  for (int i = 0; i < count; ++i) p[i] = part[i];
}

template <bool kSubtract>
bool accumulate_head(std::int64_t* acc, const float* x, float factor, const float* up, float limit, int width) {
  const F f = F::set(factor), bound = F::set(limit);
  bool fine = true;
  each_vector(width, [&](int c, int count) {
    const F term = mul(mul(load_part(x + c, count), f), load_part(up + c, count));
    fine &= in_range(term, bound);
    const Q sum = load_part(acc + c, count), q = quantise(term);
    store_part(kSubtract ? sub(sum, q) : add(sum, q), acc + c, count);
  });
  return fine;
}

bool replace_head(std::int64_t* acc, const float* before, float factor_before, const float* now, float factor,
                  const float* up, float limit, int width) {
  const F fb = F::set(factor_before), fn = F::set(factor), bound = F::set(limit);
  bool fine = true;
  each_vector(width, [&](int c, int count) {
    const F scale = load_part(up + c, count);
    const F term = mul(mul(load_part(now + c, count), fn), scale);
    fine &= in_range(term, bound);
    const Q delta = sub(quantise(term), quantise(mul(mul(load_part(before + c, count), fb), scale)));
    store_part(add(load_part(acc + c, count), delta), acc + c, count);
  });
  return fine;
}

void load_head(float* out, const std::int64_t* a, float factor_a, const std::int64_t* b, float factor_b,
               const float* down, int width) {
  const F fa = F::set(factor_a), fb = F::set(factor_b);
  each_vector(width, [&](int c, int count) {
    const F scale = load_part(down + c, count);
    const F first = mul(mul(to_float(load_part(a + c, count)), scale), fa);
    store_part(add(first, mul(mul(to_float(load_part(b + c, count)), scale), fb)), out + c, count);
  });
}

#include "dense/activations_impl.h"

constexpr Kernels table(const char* name) {
  return Kernels{name,
                 gemm,
                 add_terms,
                 sub_terms,
                 delta_terms,
                 add_edge_delta,
                 add_row,
                 load,
                 axpby,
                 add_rows,
                 multiply,
                 maximum,
                 scale,
                 divide,
                 affine,
                 relu_row,
                 leaky_row,
                 head_dot,
                 head_scale,
                 row_matrix,
                 add_scaled,
                 accumulate_head<false>,
                 accumulate_head<true>,
                 replace_head,
                 load_head,
                 exps,
                 power_kernels(),
                 extreme_kernels<true>(),
                 extreme_kernels<false>()};
}
