// The features of this machine are reported in rising order, each standing on the one before.
#include "livegnn/cpu.h"

#include <cstdio>

int main() {
  const std::vector<std::string> features = livegnn::cpu_features();
  const std::vector<std::string> rising = {"avx2", "avx512"};
  for (std::size_t i = 0; i < features.size(); ++i) {
    if (i < rising.size() && features[i] == rising[i]) continue;
    std::fprintf(stderr, "[cpu_features] expected a head of {avx2, avx512}, got %s at %zu\n", features[i].c_str(), i);
    return 1;
  }
  return 0;
}
