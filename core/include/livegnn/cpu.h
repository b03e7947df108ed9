// What this machine can do.
#pragma once

#include <string>
#include <vector>

namespace livegnn {

// Instruction sets of this machine that kernels exist for, of "avx2" (with FMA) and "avx512" (F, DQ, VL and BW); empty
// where only the portable kernels run. Any thread.
std::vector<std::string> cpu_features();

// Whether kernels of this name run here: one of the above, or "generic".
bool cpu_runs(const char* kernels);

}  // namespace livegnn
