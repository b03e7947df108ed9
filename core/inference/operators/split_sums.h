// One row of an attention's split sums (see split_attention.cc), and what an edge's source brings to it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "dense/activations.h"
#include "dense/kernels.h"
#include "livegnn/program.h"
#include "util/aligned.h"

namespace livegnn {

inline constexpr float kBinWidth = 4.0f;    // of scores t, around multiples of it; a term is at most e^2
inline constexpr int kBinBits = 3;          // e^2 < 2^3
inline constexpr int kBinsKept = 24;        // a source so far below the top adds less than e^-92 of it: nothing
inline constexpr std::int32_t kStale = -1;  // in `holders`: the head is summed again from its in-edges

struct AttentionHead {
  std::int64_t above_total, below_total;  // sums of the weights alone
  std::int32_t top;                       // the highest bin, t_u / 4 to the nearest whole number, among in-edges
  std::int32_t low;                       // min(top, the bin of -s_v)
  std::int32_t holders;                   // in-edges in the highest bin; 0: no in-edges; or kStale
  float shift;                            // s_v
};

// The row of vertex v: for either side of zero the messages' sums, and per head what they refer to.
struct AttentionRow {
  std::int64_t* above;  // sum over t_u + s_v > 0 of e^(t_u - 4 top) message
  std::int64_t* below;  // sum over the others of e^(slope (t_u - 4 low)) message
  AttentionHead* heads;

  static std::size_t head_bytes(int heads) {
    return sizeof(AttentionHead) * static_cast<std::size_t>(round_up(heads, 2));
  }
  static std::size_t bytes(int width, int heads) {
    return sizeof(std::int64_t) * 2 * static_cast<std::size_t>(round_up(width, 8)) + head_bytes(heads);
  }
  static AttentionRow of(void* memory, int width) {
    auto* sums = static_cast<std::int64_t*>(memory);
    const int wide = round_up(width, 8);
    return {sums, sums + wide, reinterpret_cast<AttentionHead*>(sums + 2 * wide)};
  }
};

struct AttentionTables {
  float powers[2][kBinsKept];  // e^(-4 slope n) below the threshold, e^(-4 n) above it
  double slopes[2];            // of LeakyReLU on either side
};

inline constexpr float kScoreMax = 1e6f;  // of |t| and |s|

// The nearest multiple of the width. Scores are checked before they count; beyond, the nearest bin that an int holds.
inline std::int32_t bin_of(float t) {
  const float inside = t > -2.0f * kScoreMax ? (t < 2.0f * kScoreMax ? t : 2.0f * kScoreMax) : -2.0f * kScoreMax;
  return static_cast<std::int32_t>(std::lrint(inside * (1.0f / kBinWidth)));
}
inline double rest_in_bin(float t, std::int32_t bin) {
  return static_cast<double>(t) - static_cast<double>(kBinWidth) * bin;
}
inline bool is_above(float t, float s) { return t + s > 0.0f; }

inline double power_of_two(int exponent) {  // of a normal number
  return std::bit_cast<double>(static_cast<std::int64_t>(exponent + 1023) << 52);
}

// One head of one source: its score, its bin, and the weight within the bin on either side.
struct SourceScore {
  float t, above, below;
  std::int32_t bin;
  static constexpr int kAtOnce = 8;

  static SourceScore of(float t, float slope) {
    SourceScore score;
    fill(&t, slope, 1, &score);
    return score;
  }
  static void fill(const float* t, float slope, int heads, SourceScore* scores) {
    for (int first = 0; first < heads; first += kAtOnce) {
      const int count = std::min(kAtOnce, heads - first);
      double powers[2 * kAtOnce];
      for (int i = 0; i < count; ++i) {
        SourceScore& score = scores[first + i];
        score.t = t[first + i];
        score.bin = bin_of(score.t);
        powers[2 * i] = rest_in_bin(score.t, score.bin);
        powers[2 * i + 1] = static_cast<double>(slope) * powers[2 * i];
      }
      kernels().exps(powers, powers, 2 * count);
      for (int i = 0; i < count; ++i) {
        scores[first + i].above = static_cast<float>(powers[2 * i]);
        scores[first + i].below = static_cast<float>(powers[2 * i + 1]);
      }
    }
  }
};

}  // namespace livegnn
