#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "dense/kernels.h"
#include "livegnn/error.h"

namespace livegnn {

extern const Kernels kKernelsGeneric;
#ifdef LIVEGNN_X86
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;
#endif

const Kernels* kernels_named(const char* name) {
#ifdef LIVEGNN_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  if (std::strcmp(name, "avx512") == 0) return avx512 ? &kKernelsAvx512 : nullptr;
  if (std::strcmp(name, "avx2") == 0) return avx2 ? &kKernelsAvx2 : nullptr;
#endif
  return std::strcmp(name, "generic") == 0 ? &kKernelsGeneric : nullptr;
}

const Kernels& kernels() {
  static const Kernels& chosen = []() -> const Kernels& {
    if (const char* wanted = std::getenv("LIVEGNN_KERNELS")) {
      if (const Kernels* found = kernels_named(wanted)) return *found;
      throw Error(ErrorKind::ValueInvalid,
                  {.where = "kernels",
                   .expected = "LIVEGNN_KERNELS to name kernels that this machine runs (avx512, avx2, generic)",
                   .got = wanted,
                   .advice = "unset it"});
    }
    for (const char* name : {"avx512", "avx2"}) {
      if (const Kernels* found = kernels_named(name)) return *found;
    }
    return kKernelsGeneric;
  }();
  return chosen;
}

void pack_weight(const float* w, int out, int in, float* packed) {
  const int panels = (out + kPanel - 1) / kPanel;
  for (int panel = 0; panel < panels; ++panel) {
    float* base = packed + static_cast<std::size_t>(panel) * kPanel * static_cast<std::size_t>(in);
    for (int k = 0; k < in; ++k) {
      for (int c = 0; c < kPanel; ++c) {
        const int column = panel * kPanel + c;
        base[static_cast<std::size_t>(k) * kPanel + static_cast<std::size_t>(c)] =
            column < out
                ? w[static_cast<std::size_t>(column) * static_cast<std::size_t>(in) + static_cast<std::size_t>(k)]
                : 0.0f;
      }
    }
  }
}

}  // namespace livegnn
