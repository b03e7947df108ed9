#include <algorithm>
#include <cmath>
#include <limits>

#include "livegnn/graph_features.h"
#include "util/half.h"

namespace livegnn {

const char* dtype_name(FeatureDtype dtype) {
  constexpr const char* kNames[] = {"float32", "float16", "bfloat16"};
  return kNames[static_cast<int>(dtype)];
}

// Half-way from the largest finite number to the next power of two: a tie, which goes to the even one, infinity.
float range_of(FeatureDtype dtype) {
  constexpr float kRanges[] = {std::numeric_limits<float>::infinity(), 65520.0f, 0x1.FFp127f};
  return kRanges[static_cast<int>(dtype)];
}

std::int64_t first_unfit(FeatureDtype dtype, const float* values, std::int64_t count) {
  const float range = range_of(dtype);
  return std::find_if_not(values, values + count, [&](float value) { return std::fabs(value) < range; }) - values;
}

void decode(FeatureDtype dtype, float* out, const std::uint16_t* in, std::int64_t count) {
  const HalfCodec& codec = half_codec();
  const auto run = dtype == FeatureDtype::Float16 ? codec.decode_float16 : codec.decode_bfloat16;
  run(out, in, static_cast<std::size_t>(count));
}

void FeatureTable::decode_row(VertexId v, float* out, std::int32_t width) const {
  decode(dtype_, out, reinterpret_cast<const std::uint16_t*>(address(v)), width);
}

void FeatureTable::clear(std::int64_t first, std::int64_t last) {
  if (last > first && stride_ > 0)
    std::memset(address(first), 0, static_cast<std::size_t>((last - first) * row_bytes_));
}

void FeatureTable::write(VertexId v, const float* row, std::int32_t width) {
  if (width == 0) return;
  const auto count = static_cast<std::size_t>(width);
  if (!is_half()) {
    std::memcpy(address(v), row, count * sizeof(float));
    return;
  }
  const HalfCodec& codec = half_codec();
  const auto run = dtype_ == FeatureDtype::Float16 ? codec.encode_float16 : codec.encode_bfloat16;
  run(reinterpret_cast<std::uint16_t*>(address(v)), row, count);
}

void FeatureTable::write(VertexId v, const std::uint16_t* row, std::int32_t width) {
  if (width > 0) std::memcpy(address(v), row, static_cast<std::size_t>(width) * sizeof(std::uint16_t));
}

void FeatureTable::copy_row(VertexId v, const FeatureTable& other) {
  if (stride_ > 0) std::memcpy(address(v), other.address(v), static_cast<std::size_t>(row_bytes_));
}

}  // namespace livegnn
