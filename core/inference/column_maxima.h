// What fixed-point scales are chosen from.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace livegnn {

// Largest magnitude per column over rows scaled by a factor; NaN and infinity count as infinity.
class ColumnMaxima {
 public:
  explicit ColumnMaxima(int width) : values_(static_cast<std::size_t>(width), 0.0f) {}
  void take(const float* row, float factor) {
    for (std::size_t c = 0; c < values_.size(); ++c) {
      const float magnitude = std::fabs(row[c] * factor);
      values_[c] = magnitude <= values_[c] ? values_[c]
                   : std::isnan(magnitude) ? std::numeric_limits<float>::infinity()
                                           : magnitude;
    }
  }
  const std::vector<float>& values() const { return values_; }

 private:
  std::vector<float> values_;
};

}  // namespace livegnn
