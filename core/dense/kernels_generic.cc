// Plain C++ kernels: the fallback, and what other processors compile to (with their own vector and FMA instructions).
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "dense/kernels.h"

namespace livegnn {
namespace generic {

inline constexpr int kLanes = 8;
inline constexpr int kTileRows = 2;
inline constexpr int kOneRowPanels = 2;

#define LIVEGNN_LANES for (int i = 0; i < kLanes; ++i)

struct F {
  float v[kLanes];
  static F load(const float* p) {
    F out;
    LIVEGNN_LANES out.v[i] = p[i];
    return out;
  }
  static F set(float x) {
    F out;
    LIVEGNN_LANES out.v[i] = x;
    return out;
  }
  void store(float* p) const { LIVEGNN_LANES p[i] = v[i]; }
};
template <typename Op>
inline F each(F a, F b, Op op) {
  F out;
  LIVEGNN_LANES out.v[i] = op(a.v[i], b.v[i]);
  return out;
}
inline F add(F a, F b) {
  return each(a, b, [](float x, float y) { return x + y; });
}
inline F sub(F a, F b) {
  return each(a, b, [](float x, float y) { return x - y; });
}
inline F mul(F a, F b) {
  return each(a, b, [](float x, float y) { return x * y; });
}
inline F div(F a, F b) {
  return each(a, b, [](float x, float y) { return x / y; });
}
inline F max(F a, F b) {
  return each(a, b, [](float x, float y) { return x > y ? x : y; });
}
inline F fma(F a, F b, F c) {
  F out;
  LIVEGNN_LANES out.v[i] = std::fma(a.v[i], b.v[i], c.v[i]);
  return out;
}
inline F relu(F a) { return max(a, F::set(0.0f)); }
inline F leaky(F a, F s) {
  return each(a, s, [](float x, float slope) { return x > 0.0f ? x : x * slope; });
}
inline bool in_range(F x, F limit) {
  bool fine = true;
  LIVEGNN_LANES fine &= std::fabs(x.v[i]) <= limit.v[i];
  return fine;
}

struct Q {
  std::int64_t v[kLanes];
  static Q load(const std::int64_t* p) {
    Q out;
    LIVEGNN_LANES out.v[i] = p[i];
    return out;
  }
  void store(std::int64_t* p) const { LIVEGNN_LANES p[i] = v[i]; }
};
inline Q add(Q a, Q b) {  // unsigned, so that a wrapped sum is defined
  Q out;
  LIVEGNN_LANES out.v[i] =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(a.v[i]) + static_cast<std::uint64_t>(b.v[i]));
  return out;
}
inline Q sub(Q a, Q b) {
  Q out;
  LIVEGNN_LANES out.v[i] =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(a.v[i]) - static_cast<std::uint64_t>(b.v[i]));
  return out;
}
inline bool any(Q a) {
  bool found = false;
  LIVEGNN_LANES found |= a.v[i] != 0;
  return found;
}
inline Q quantise(F x) {
  Q out;
  LIVEGNN_LANES out.v[i] =
      std::fabs(x.v[i]) < 0x1p62f ? static_cast<std::int64_t>(std::nearbyint(static_cast<double>(x.v[i]))) : 0;
  return out;
}
inline F to_float(Q a) {
  F out;
  LIVEGNN_LANES out.v[i] = static_cast<float>(static_cast<double>(a.v[i]));
  return out;
}

struct W {
  float v[16];
  static W load(const float* p) {
    W out;
    for (int i = 0; i < 16; ++i) out.v[i] = p[i];
    return out;
  }
  static W set(float x) {
    W out;
    for (float& lane : out.v) lane = x;
    return out;
  }
  void store(float* p) const {
    for (int i = 0; i < 16; ++i) p[i] = v[i];
  }
};
template <typename Op>
inline W each(W a, W b, Op op) {
  W out;
  for (int i = 0; i < 16; ++i) out.v[i] = op(a.v[i], b.v[i]);
  return out;
}
template <typename Test>
inline std::uint32_t lanes_where(W a, W b, Test test) {
  std::uint32_t lanes = 0;
  for (int i = 0; i < 16; ++i) lanes |= static_cast<std::uint32_t>(test(a.v[i], b.v[i]) ? 1 : 0) << i;
  return lanes;
}
inline W plus(W a, W b) {
  return each(a, b, [](float x, float y) { return x + y; });
}
inline W times(W a, W b) {
  return each(a, b, [](float x, float y) { return x * y; });
}
inline W times_plus_zero(W a, W b) {
  return each(a, b, [](float x, float y) { return x * y + 0.0f; });
}
inline W blend(W a, W b, std::uint32_t lanes) {
  W out;
  for (int i = 0; i < 16; ++i) out.v[i] = ((lanes >> i) & 1u) != 0 ? b.v[i] : a.v[i];
  return out;
}
inline std::uint32_t greater(W a, W b) {
  return lanes_where(a, b, [](float x, float y) { return x > y; });
}
inline std::uint32_t equal(W a, W b) {
  return lanes_where(a, b, [](float x, float y) { return x == y; });
}
inline std::uint32_t finite(W a) {
  return lanes_where(a, a, [](float x, float) { return std::fabs(x) <= FLT_MAX; });
}

#include "dense/kernels_impl.h"

}  // namespace generic

extern const Kernels kKernelsGeneric;
const Kernels kKernelsGeneric = generic::table("generic");

}  // namespace livegnn
