#include "livegnn/cpu.h"

#include <algorithm>
#include <cstring>

namespace livegnn {

std::vector<std::string> cpu_features() {
  std::vector<std::string> found;
#ifdef LIVEGNN_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  if (avx2) found.push_back("avx2");
  if (avx512) found.push_back("avx512");
#endif
  return found;
}

bool cpu_runs(const char* kernels) {
  const std::vector<std::string> found = cpu_features();
  return std::strcmp(kernels, "generic") == 0 || std::find(found.begin(), found.end(), kernels) != found.end();
}

}  // namespace livegnn
