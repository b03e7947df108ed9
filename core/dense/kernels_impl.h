// The body of every kernel variant, written once over a small vector type. Included by kernels_*.cc inside a namespace
// of its own after F (float vector of kLanes), Q (the same lanes as int64) and their operations are defined.
//
// F: load, store, set, add, mul, fma, max, div, leaky(x, slope), relu(x)
// Q: load, store, add, sub, zero; quantise(F) -> Q; to_float(Q) -> F; any(Q); in_range(F, limit) -> bool;
// load_half and store_half: of int32; fits_half(Q)
// W (vector of kBlock columns of an extremum): load, store, set; plus, times, times_plus_zero, blend; greater, equal
// and finite as one bit per column
// Product: F or W, with fma; kTilePanels[r]: how many panels r rows are multiplied with at once, 0 where there is no
// such tile; kColumnsAhead: between the prefetch of a piece of weight and its use, 0 for none

#include "dense/min_max_impl.h"

// R rows against P panels; at least eight chains hide the latency of a multiply-add, and all of a tile's fit in
// registers.
template <int R, int P>
inline void gemm_tile(const float* a, std::size_t lda, const float* w, float* c, std::size_t ldc, int k) {
  constexpr int kColumns = sizeof(Product) / sizeof(float), V = kPanel / kColumns;  // vectors of a panel
  Product sum[R][V * P];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V * P; ++v) sum[r][v] = Product::set(0.0f);
  }
  const std::size_t panel = static_cast<std::size_t>(k) * kPanel;
  const auto step = [&](int i) {
    Product column[V * P];
    for (int p = 0; p < P; ++p) {
      const float* row = w + static_cast<std::size_t>(p) * panel + static_cast<std::size_t>(i) * kPanel;
      for (int line = 0; line < kPanel && kColumnsAhead > 0; line += 16)
        prefetch_line(row + kColumnsAhead * kPanel + line);
      for (int v = 0; v < V; ++v) column[p * V + v] = Product::load(row + v * kColumns);
    }
    for (int r = 0; r < R; ++r) {
      const Product x = Product::set(a[static_cast<std::size_t>(r) * lda + static_cast<std::size_t>(i)]);
      for (int v = 0; v < V * P; ++v) sum[r][v] = fma(x, column[v], sum[r][v]);
    }
  };
  if constexpr (R < 4) {
#pragma GCC unroll 4
    for (int i = 0; i < k; ++i) step(i);
  } else {
    for (int i = 0; i < k; ++i) step(i);
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V * P; ++v) sum[r][v].store(c + static_cast<std::size_t>(r) * ldc + v * kColumns);
  }
}

// R rows against all panels, P at a time and then the rest.
template <int R, int P>
inline void gemm_rows(const float* a, std::size_t lda, const float* w, float* c, std::size_t ldc, int k, int n) {
  int done = 0;
  const auto weight = [&] { return w + static_cast<std::size_t>(done) * static_cast<std::size_t>(k); };
  for (; done + P * kPanel <= n; done += P * kPanel) gemm_tile<R, P>(a, lda, weight(), c + done, ldc, k);
  if constexpr (P > 1) {
    if (done < n) gemm_rows<R, P - 1>(a, lda, weight(), c + done, ldc, k, n - done);
  }
}

// Tiles of R rows, as long as there are so many, and then of fewer.
template <int R>
inline void gemm_by(const float* a, std::size_t lda, const float* w, float* c, std::size_t ldc, int m, int k, int n) {
  if constexpr (kTilePanels[R] > 0) {
    for (; m >= R; m -= R, a += R * lda, c += R * ldc) gemm_rows<R, kTilePanels[R]>(a, lda, w, c, ldc, k, n);
  }
  if constexpr (R > 1) gemm_by<R - 1>(a, lda, w, c, ldc, m, k, n);
}

void gemm(const float* a, std::size_t lda, const float* w, float* c, std::size_t ldc, int m, int k, int n) {
  gemm_by<sizeof(kTilePanels) / sizeof(int) - 1>(a, lda, w, c, ldc, m, k, n);
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

// q(now) - q(before), of messages that are scaled so.
inline Q term_delta(F before, F factor_before, F now, F factor_now, F up, F bound, bool* fine) {
  const F term = mul(mul(now, factor_now), up);
  *fine &= in_range(term, bound);
  return sub(quantise(term), quantise(mul(mul(before, factor_before), up)));
}

bool delta_terms(std::int64_t* delta, const float* before, float source_before, const float* now, float source_now,
                 const float* up, float limit, int width, DeltaShape* shape) {
  const F sb = F::set(source_before), sn = F::set(source_now), bound = F::set(limit);
  bool fine = true, differs = false, narrow = true;
  for (int i = 0; i < width; i += kLanes) {
    const Q d = term_delta(F::load(before + i), sb, F::load(now + i), sn, F::load(up + i), bound, &fine);
    differs |= any(d);
    narrow &= fits_half(d);
    d.store(delta + i);
  }
  *shape = !differs ? DeltaShape::Zero : narrow ? DeltaShape::Narrow : DeltaShape::Wide;
  if (*shape != DeltaShape::Narrow) return fine;
  auto* const halves = reinterpret_cast<std::int32_t*>(delta);
  for (int i = 0; i < width; i += kLanes) Q::load(delta + i).store_half(halves + i);  // never before what is read next
  return fine;
}

bool add_edge_delta(std::int64_t* acc, const float* before, const float* now, float edge, const float* up, float limit,
                    int width) {
  const F e = F::set(edge), bound = F::set(limit);
  bool fine = true;
  for (int i = 0; i < width; i += kLanes) {
    const Q d = term_delta(F::load(before + i), e, F::load(now + i), e, F::load(up + i), bound, &fine);
    add(Q::load(acc + i), d).store(acc + i);
  }
  return fine;
}

void add_row(std::int64_t* acc, const std::int64_t* delta, int width) {
  for (int i = 0; i < width; i += kLanes) add(Q::load(acc + i), Q::load(delta + i)).store(acc + i);
}

void add_narrow_row(std::int64_t* acc, const std::int32_t* delta, int width) {
  for (int i = 0; i < width; i += kLanes) add(Q::load(acc + i), Q::load_half(delta + i)).store(acc + i);
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
    const F x = load_part(before + c, count), y = load_part(now + c, count);
    const Q delta = term_delta(x, fb, y, fn, load_part(up + c, count), bound, &fine);
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
                 accumulate<false>,
                 accumulate<true>,
                 delta_terms,
                 add_edge_delta,
                 add_row,
                 add_narrow_row,
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
