#include "temporal/lanes.h"

#include <cstdlib>
#include <cstring>

#include "livegnn/cpu.h"

namespace livegnn {

#ifdef LIVEGNN_X86
extern const LaneKernels kLanesAvx512;
#endif

const LaneKernels* lane_kernels() {
  static const LaneKernels* const chosen = []() -> const LaneKernels* {
#ifdef LIVEGNN_X86
    const char* wanted = std::getenv("LIVEGNN_KERNELS");  // a name that is none is refused by kernels()
    if ((wanted == nullptr || std::strcmp(wanted, "avx512") == 0) && cpu_runs("avx512")) return &kLanesAvx512;
#endif
    return nullptr;
  }();
  return chosen;
}

}  // namespace livegnn
