#include "temporal/lanes.h"

#include "dense/kernels.h"

namespace livegnn {

#ifdef LIVEGNN_X86
extern const LaneKernels kLanesAvx512;
#endif

const LaneKernels* lane_kernels() {
  static const LaneKernels* const chosen = []() -> const LaneKernels* {
    [[maybe_unused]] const Kernels& of_engines = kernels();  // throws where LIVEGNN_KERNELS names none
#ifdef LIVEGNN_X86
    if (&of_engines == kernels_named("avx512")) return &kLanesAvx512;
#endif
    return nullptr;
  }();
  return chosen;
}

}  // namespace livegnn
