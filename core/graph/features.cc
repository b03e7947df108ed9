#include <cmath>
#include <limits>

#include "livegnn/graph_features.h"
#include "util/half.h"

namespace livegnn {

const char* dtype_name(FeatureDtype dtype) {
  switch (dtype) {
    case FeatureDtype::Float32:
      return "float32";
    case FeatureDtype::Float16:
      return "float16";
    case FeatureDtype::Bfloat16:
      return "bfloat16";
  }
  return "unknown";
}

// Half-way from the largest finite number to the next power of two: a tie, which goes to the even one, infinity.
float range_of(FeatureDtype dtype) {
  switch (dtype) {
    case FeatureDtype::Float32:
      return std::numeric_limits<float>::infinity();
    case FeatureDtype::Float16:
      return 65520.0f;
    case FeatureDtype::Bfloat16:
      return 0x1.FFp127f;
  }
  return 0.0f;
}

std::int64_t first_unfit(FeatureDtype dtype, const float* values, std::int64_t count) {
  const float range = range_of(dtype);
  std::int64_t unfit = 0;  // counted without a branch: almost always none
  for (std::int64_t i = 0; i < count; ++i) unfit += !(std::fabs(values[i]) < range);
  if (unfit == 0) return count;
  std::int64_t first = 0;
  while (std::fabs(values[first]) < range) ++first;
  return first;
}

void decode(FeatureDtype dtype, float* out, const std::uint16_t* in, std::int64_t count) {
  const HalfCodec& codec = half_codec();
  const auto run = dtype == FeatureDtype::Float16 ? codec.decode_float16 : codec.decode_bfloat16;
  run(out, in, static_cast<std::size_t>(count));
}

void FeatureTable::decode_row(VertexId v, float* out, std::int32_t width) const {
  decode(dtype_, out, halves_.data() + at(v), width);
}

void FeatureTable::reserve(std::int64_t rows) {
  if (is_half()) {
    halves_.reserve(rows * stride_);
  } else {
    floats_.reserve(rows * stride_);
  }
}

void FeatureTable::clear(std::int64_t first, std::int64_t last) {
  if (last <= first || stride_ == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(last - first) * row_bytes();
  void* from = is_half() ? static_cast<void*>(halves_.data() + first * stride_) : floats_.data() + first * stride_;
  std::memset(from, 0, bytes);
}

void FeatureTable::write(VertexId v, const float* row, std::int32_t width) {
  if (width == 0) return;
  const auto count = static_cast<std::size_t>(width);
  if (!is_half()) {
    std::memcpy(floats_.data() + at(v), row, count * sizeof(float));
    return;
  }
  const HalfCodec& codec = half_codec();
  const auto run = dtype_ == FeatureDtype::Float16 ? codec.encode_float16 : codec.encode_bfloat16;
  run(halves_.data() + at(v), row, count);
}

void FeatureTable::write(VertexId v, const std::uint16_t* row, std::int32_t width) {
  if (width > 0) std::memcpy(halves_.data() + at(v), row, static_cast<std::size_t>(width) * sizeof(std::uint16_t));
}

void FeatureTable::copy_row(VertexId v, const FeatureTable& other) {
  if (stride_ == 0) return;
  if (is_half()) {
    std::memcpy(halves_.data() + at(v), other.halves_.data() + at(v), row_bytes());
  } else {
    std::memcpy(floats_.data() + at(v), other.floats_.data() + at(v), row_bytes());
  }
}

}  // namespace livegnn
