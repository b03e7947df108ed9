// Feature rows by slot, stored as float32 or in 16 bits and always read as float32: a row of 16 bits is decoded, which
// is exact, and a value that is written is rounded to nearest even.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "livegnn/detail/graph_copies.h"
#include "livegnn/detail/graph_memory.h"
#include "livegnn/detail/prefetch.h"
#include "livegnn/types.h"

namespace livegnn {

enum class FeatureDtype : std::uint8_t { Float32, Float16, Bfloat16 };

const char* dtype_name(FeatureDtype dtype);
// Values of at least this magnitude would round to infinity.
float range_of(FeatureDtype dtype);
// The place of the first value that the dtype cannot hold, NaN and infinity among them; `count` where it holds all.
std::int64_t first_unfit(FeatureDtype dtype, const float* values, std::int64_t count);
// Of a value in 16 bits: these bits are all set where it is NaN or infinite.
constexpr std::uint16_t exponent_bits(FeatureDtype dtype) { return dtype == FeatureDtype::Float16 ? 0x7C00 : 0x7F80; }
void decode(FeatureDtype dtype, float* out, const std::uint16_t* in, std::int64_t count);

// One writer, or any number of readers. Pointers into it end with reserve(), which alone can fail (std::bad_alloc).
class FeatureTable {
 public:
  FeatureTable(FeatureDtype dtype, std::int32_t stride)
      : row_bytes_(stride *
                   static_cast<std::int64_t>(dtype == FeatureDtype::Float32 ? sizeof(float) : sizeof(std::uint16_t))),
        stride_(stride),
        dtype_(dtype) {}

  FeatureDtype dtype() const { return dtype_; }
  bool is_half() const { return dtype_ != FeatureDtype::Float32; }
  std::int32_t stride() const { return stride_; }  // values of a row, a multiple of 16
  std::size_t bytes() const { return bytes_.bytes(); }

  // Row v: itself where it is stored as float32, else decoded into `buffer`, which has room for stride() floats.
  const float* row(VertexId v, float* buffer) const {
    if (!is_half()) [[likely]]
      return reinterpret_cast<const float*>(address(v));
    decode_row(v, buffer, stride_);
    return buffer;
  }
  // All rows as they are stored; nullptr where they are stored otherwise.
  const float* floats() const { return is_half() ? nullptr : reinterpret_cast<const float*>(bytes_.data()); }
  const std::uint16_t* halves() const {
    return is_half() ? reinterpret_cast<const std::uint16_t*>(bytes_.data()) : nullptr;
  }
  void read(VertexId v, float* out, std::int32_t width) const {  // the first `width` values
    if (is_half()) return decode_row(v, out, width);
    if (width > 0) std::memcpy(out, address(v), static_cast<std::size_t>(width) * sizeof(float));
  }
  void prefetch(VertexId v) const { prefetch_line(address(v)); }
  void prefetch(VertexId v, std::int32_t first, std::int32_t width) const {  // columns
    const std::size_t size = is_half() ? sizeof(std::uint16_t) : sizeof(float);
    const std::byte* from = address(v) + static_cast<std::size_t>(first) * size;
    for (std::size_t offset = 0; offset < static_cast<std::size_t>(width) * size; offset += 64) {
      prefetch_line(from + offset);
    }
  }
  bool same_row(VertexId v, const FeatureTable& other) const {  // of one dtype and stride
    return stride_ == 0 || std::memcmp(address(v), other.address(v), static_cast<std::size_t>(row_bytes_)) == 0;
  }

  void reserve(std::int64_t rows) { bytes_.reserve(rows * row_bytes_); }          // new rows hold anything
  void clear(std::int64_t first, std::int64_t last);                              // rows to zero
  void write(VertexId v, const float* row, std::int32_t width);                   // values that fit
  void write(VertexId v, const std::uint16_t* row, std::int32_t width);           // of the table's own 16 bits
  void copy_row(VertexId v, const FeatureTable& other);                           // of one dtype and stride
  void copy_from(const FeatureTable& other, std::int64_t rows, CopyPlan& plan) {  // likewise, into an empty table
    plan.add(bytes_, other.bytes_, rows * row_bytes_);
  }

 private:
  const std::byte* address(std::int64_t v) const { return bytes_.data() + v * row_bytes_; }
  std::byte* address(std::int64_t v) { return bytes_.data() + v * row_bytes_; }
  void decode_row(VertexId v, float* out, std::int32_t width) const;

  Column<std::byte> bytes_;
  std::int64_t row_bytes_;
  std::int32_t stride_;
  FeatureDtype dtype_;
};

}  // namespace livegnn
