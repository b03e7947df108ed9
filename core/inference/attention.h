// One row of an attention's split sums (see attention.cc), and what an edge's source brings to it.
#pragma once

#include <cmath>
#include <cstdint>

#include "dense/activations.h"
#include "livegnn/program.h"
#include "util/aligned.h"

namespace livegnn {

inline constexpr float kBinWidth = 4.0f;    // of scores t; a term is at most e^4
inline constexpr int kBinBits = 6;          // e^4 < 2^6
inline constexpr int kBinsKept = 24;        // a source so far below the top adds less than e^-92 of it: nothing
inline constexpr std::int32_t kStale = -1;  // in `holders`: the head is summed again from its in-edges

// The row of vertex v: for either side of zero the messages' and the weights' sums, and per head what they refer to.
struct AttentionRow {
  std::int64_t* above;        // sum over t_u + s_v > 0 of e^(t_u - 4 top) message
  std::int64_t* below;        // sum over the others of e^(slope (t_u - 4 low)) message
  std::int64_t* above_total;  // the same of the weights alone, one per head
  std::int64_t* below_total;
  std::int32_t* top;      // the highest bin floor(t_u / 4) among in-edges
  std::int32_t* low;      // min(top, floor(-s_v / 4))
  std::int32_t* holders;  // in-edges in the highest bin; 0: no in-edges; or kStale
  float* shift;           // s_v

  static std::size_t bytes(int width, int heads) {
    const std::size_t sums =
        sizeof(std::int64_t) * 2 * static_cast<std::size_t>(round_up(width, 8) + round_up(heads, 8));
    return sums + sizeof(std::int32_t) * 4 * static_cast<std::size_t>(round_up(heads, 16));
  }
  static AttentionRow of(void* memory, int width, int heads) {
    auto* sums = static_cast<std::int64_t*>(memory);
    const int wide = round_up(width, 8), tall = round_up(heads, 8), ints = round_up(heads, 16);
    auto* refs = reinterpret_cast<std::int32_t*>(sums + 2 * wide + 2 * tall);
    return {sums, sums + wide, sums + 2 * wide, sums + 2 * wide + tall,
            refs, refs + ints, refs + 2 * ints, reinterpret_cast<float*>(refs + 3 * ints)};
  }
};

struct AttentionTables {  // e^(-4 n) and e^(-4 slope n)
  float above[kBinsKept], below[kBinsKept];
};

inline constexpr float kScoreMax = 1e6f;  // of |t| and |s|

// Scores are checked before they count; beyond, the nearest bin that an int holds.
inline std::int32_t bin_of(float t) {
  const float inside = t > -2.0f * kScoreMax ? (t < 2.0f * kScoreMax ? t : 2.0f * kScoreMax) : -2.0f * kScoreMax;
  return static_cast<std::int32_t>(std::floor(inside * (1.0f / kBinWidth)));
}
inline bool is_above(float t, float s) { return t + s > 0.0f; }

// One head of one source: its score, its bin, and the weight within the bin on either side.
struct SourceScore {
  float t, above, below;
  std::int32_t bin;
  static SourceScore of(float t, float slope) {
    const std::int32_t bin = bin_of(t);
    const double rest = static_cast<double>(t) - static_cast<double>(kBinWidth) * bin;
    return {t, static_cast<float>(exact_exp(rest)), static_cast<float>(exact_exp(static_cast<double>(slope) * rest)),
            bin};
  }
  // For one target alone: the weight on its side.
  static SourceScore for_side(float t, float slope, bool above) {
    const std::int32_t bin = bin_of(t);
    const double rest = static_cast<double>(t) - static_cast<double>(kBinWidth) * bin;
    const auto weight = static_cast<float>(exact_exp(above ? rest : static_cast<double>(slope) * rest));
    return {t, weight, weight, bin};
  }
};

}  // namespace livegnn
