// Plain C++ kernels: the fallback, and what other processors compile to (with their own vector and FMA instructions).
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <functional>

#include "dense/kernels.h"
#include "livegnn/detail/prefetch.h"

namespace livegnn {
namespace generic {

// N values, and what is done with each of them.
template <typename T, int N>
struct Lanes {
  T v[N];
  static Lanes load(const T* p) {
    Lanes out;
    for (int i = 0; i < N; ++i) out.v[i] = p[i];
    return out;
  }
  static Lanes set(T x) {
    Lanes out;
    for (T& lane : out.v) lane = x;
    return out;
  }
  void store(T* p) const {
    for (int i = 0; i < N; ++i) p[i] = v[i];
  }
};
template <typename T, int N, typename Op>
inline Lanes<T, N> each(Lanes<T, N> a, Lanes<T, N> b, Op op) {
  Lanes<T, N> out;
  for (int i = 0; i < N; ++i) out.v[i] = op(a.v[i], b.v[i]);
  return out;
}

inline constexpr int kLanes = 8;
using F = Lanes<float, kLanes>;
struct Q : Lanes<std::int64_t, kLanes> {
  Q() = default;
  Q(const Lanes& lanes) : Lanes(lanes) {}
  static Q load(const std::int64_t* p) { return Lanes::load(p); }
  static Q load_half(const std::int32_t* p) {
    Q out;
    std::int32_t halves[kLanes];
    std::memcpy(halves, p, sizeof(halves));  // the row is one of int64
    for (int i = 0; i < kLanes; ++i) out.v[i] = halves[i];
    return out;
  }
  void store_half(std::int32_t* p) const {
    std::int32_t halves[kLanes];
    for (int i = 0; i < kLanes; ++i) halves[i] = static_cast<std::int32_t>(v[i]);
    std::memcpy(p, halves, sizeof(halves));
  }
};
using W = Lanes<float, 16>;

inline F add(F a, F b) { return each(a, b, std::plus<>()); }
inline F sub(F a, F b) { return each(a, b, std::minus<>()); }
inline F mul(F a, F b) { return each(a, b, std::multiplies<>()); }
inline F div(F a, F b) { return each(a, b, std::divides<>()); }
inline F max(F a, F b) {
  return each(a, b, [](float x, float y) { return x > y ? x : y; });
}
inline F fma(F a, F b, F c) {
  F out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
  return out;
}
inline F relu(F a) { return max(a, F::set(0.0f)); }
inline F leaky(F a, F s) {
  return each(a, s, [](float x, float slope) { return x > 0.0f ? x : x * slope; });
}
inline bool in_range(F x, F limit) {
  bool fine = true;
  for (int i = 0; i < kLanes; ++i) fine &= std::fabs(x.v[i]) <= limit.v[i];
  return fine;
}

// Unsigned, so that a wrapped sum is defined.
template <typename Op>
inline std::int64_t wrapped(std::int64_t x, std::int64_t y, Op op) {
  return static_cast<std::int64_t>(op(static_cast<std::uint64_t>(x), static_cast<std::uint64_t>(y)));
}
inline Q add(Q a, Q b) {
  return each<std::int64_t>(a, b, [](std::int64_t x, std::int64_t y) { return wrapped(x, y, std::plus<>()); });
}
inline Q sub(Q a, Q b) {
  return each<std::int64_t>(a, b, [](std::int64_t x, std::int64_t y) { return wrapped(x, y, std::minus<>()); });
}
inline bool any(Q a) {
  bool found = false;
  for (const std::int64_t lane : a.v) found |= lane != 0;
  return found;
}
inline bool fits_half(Q a) {
  bool fits = true;
  for (const std::int64_t lane : a.v) fits &= lane == static_cast<std::int32_t>(lane);
  return fits;
}
inline Q quantise(F x) {
  Q out;
  for (int i = 0; i < kLanes; ++i)
    out.v[i] = std::fabs(x.v[i]) < 0x1p62f ? static_cast<std::int64_t>(std::nearbyint(static_cast<double>(x.v[i]))) : 0;
  return out;
}
inline F to_float(Q a) {
  F out;
  for (int i = 0; i < kLanes; ++i) out.v[i] = static_cast<float>(static_cast<double>(a.v[i]));
  return out;
}

template <typename Test>
inline std::uint32_t lanes_where(W a, W b, Test test) {
  std::uint32_t lanes = 0;
  for (int i = 0; i < 16; ++i) lanes |= static_cast<std::uint32_t>(test(a.v[i], b.v[i]) ? 1 : 0) << i;
  return lanes;
}
inline W plus(W a, W b) { return each(a, b, std::plus<>()); }
inline W times(W a, W b) { return each(a, b, std::multiplies<>()); }
inline W times_plus_zero(W a, W b) { return plus(times(a, b), W::set(0.0f)); }
inline W blend(W a, W b, std::uint32_t lanes) {
  W out;
  for (int i = 0; i < 16; ++i) out.v[i] = ((lanes >> i) & 1u) != 0 ? b.v[i] : a.v[i];
  return out;
}
inline std::uint32_t greater(W a, W b) { return lanes_where(a, b, std::greater<>()); }
inline std::uint32_t equal(W a, W b) { return lanes_where(a, b, std::equal_to<>()); }
inline std::uint32_t finite(W a) {
  return lanes_where(a, a, [](float x, float) { return std::fabs(x) <= FLT_MAX; });
}

using Product = F;
inline constexpr int kTilePanels[] = {0, 2, 1};
inline constexpr int kColumnsAhead = 0;

#include "dense/kernels_impl.h"

}  // namespace generic

extern const Kernels kKernelsGeneric;
const Kernels kKernelsGeneric = generic::table("generic");

}  // namespace livegnn
