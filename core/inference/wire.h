// What parts send each other: numbers in as many bytes as they need, and rows without their zeros or without what the
// receiver has of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "inference/row_difference.h"
#include "livegnn/error.h"

namespace livegnn {

class WireWriter {
 public:
  explicit WireWriter(std::string& to) : to_(to) {}

  void byte(std::uint8_t value) { to_.push_back(static_cast<char>(value)); }
  void number(std::uint64_t value) {  // seven bits to a byte
    for (; value >= 0x80; value >>= 7) byte(static_cast<std::uint8_t>(value | 0x80));
    byte(static_cast<std::uint8_t>(value));
  }
  void signed_number(std::int64_t value) {
    number((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
  }
  void id(std::int64_t value) {  // as the distance from the one before
    signed_number(value - last_);
    last_ = value;
  }
  void begin_ids() { last_ = 0; }
  void bytes(const void* from, std::size_t count) {
    if (count != 0) to_.append(static_cast<const char*>(from), count);
  }
  template <typename T>
  void plain(T value) {
    bytes(&value, sizeof(value));
  }

  // A first byte, then where zeros save more than their bits cost a bit for each column, then what is not zero.
  void floats(const float* row, int width) {
    const auto is_zero = [&](int c) { return std::bit_cast<std::uint32_t>(row[c]) == 0; };
    const bool sparse = write_shape(width, 4, is_zero);
    if (!sparse) return bytes(row, static_cast<std::size_t>(width) * sizeof(float));
    for (int c = 0; c < width; ++c) {
      if (!is_zero(c)) plain(row[c]);
    }
  }
  // The same where bytes cost less than to look for zeros.
  void floats_as_they_are(const float* row, int width) {
    byte(0);
    bytes(row, static_cast<std::size_t>(width) * sizeof(float));
  }
  // As floats(), to a receiver that has `before`: as the difference where that is shorter. The first byte is then above
  // those of floats().
  void floats_since(const float* before, const float* row, int width) {
    if (!difference_.write(row, before, width, plain_bytes(row, width), kDifference, to_)) floats(row, width);
  }
  // In the fewest bytes that hold every column.
  void integers(const std::int64_t* row, int width) {
    std::uint64_t most = 0;
    for (int c = 0; c < width; ++c) most |= static_cast<std::uint64_t>(row[c] < 0 ? ~row[c] : row[c]);
    const int size = std::max(1, (static_cast<int>(std::bit_width(most)) + 8) / 8);
    byte(static_cast<std::uint8_t>(size));
    const auto is_zero = [&](int c) { return row[c] == 0; };
    const bool sparse = write_shape(width, size, is_zero);
    for (int c = 0; c < width; ++c) {
      if (!sparse || !is_zero(c)) bytes(&row[c], static_cast<std::size_t>(size));  // the low bytes come first
    }
  }

  static constexpr int kDifference = 2;  // the first byte of a row that is one, plus its parameter

 private:
  static std::size_t plain_bytes(const float* row, int width) {  // after the first byte
    const auto zeros =
        static_cast<int>(std::count_if(row, row + width, [](float x) { return std::bit_cast<std::uint32_t>(x) == 0; }));
    return static_cast<std::size_t>(std::min(width * 4, (width + 7) / 8 + (width - zeros) * 4));
  }
  template <typename IsZero>
  bool write_shape(int width, int size, IsZero&& is_zero) {
    int zeros = 0;
    for (int c = 0; c < width; ++c) zeros += is_zero(c) ? 1 : 0;
    const bool sparse = zeros * size > (width + 7) / 8;
    byte(sparse ? 1 : 0);
    for (int first = 0; sparse && first < width; first += 8) {
      std::uint8_t mask = 0;
      for (int c = first; c < std::min(width, first + 8); ++c) {
        if (!is_zero(c)) mask |= static_cast<std::uint8_t>(1u << (c - first));
      }
      byte(mask);
    }
    return sparse;
  }

  std::string& to_;
  std::int64_t last_ = 0;
  RowDifference difference_;
};

// Of a parcel of another part of this cluster: what does not fit is our own mistake or a broken wire.
class WireReader {
 public:
  explicit WireReader(std::span<const char> from) : at_(from.data()), end_(from.data() + from.size()) {}

  bool at_end() const { return at_ == end_; }
  std::uint8_t byte() {
    need(1);
    return static_cast<std::uint8_t>(*at_++);
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint64_t part = byte();
      value |= (part & 0x7f) << shift;
      if (part < 0x80) return value;
    }
    invariant(false, "a number on the wire that does not end");
    return 0;
  }
  std::size_t count() { return static_cast<std::size_t>(number()); }
  std::int64_t signed_number() {
    const std::uint64_t value = number();
    return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
  }
  std::int64_t id() { return last_ += signed_number(); }
  void begin_ids() { last_ = 0; }
  void bytes(void* to, std::size_t count) {
    need(count);
    if (count == 0) return;  // `to` and at_ may be null
    std::memcpy(to, at_, count);
    at_ += count;
  }
  template <typename T>
  T plain() {
    T value;
    bytes(&value, sizeof(value));
    return value;
  }
  void floats(float* row, int width) {
    if (!read_shape(width)) return bytes(row, static_cast<std::size_t>(width) * sizeof(float));
    for (int c = 0; c < width; ++c) row[c] = there(c) ? plain<float>() : 0.0f;
  }
  // What floats_since() wrote; `before` may be `row`.
  void floats_since(const float* before, float* row, int width) {
    need(1);
    const int parameter = static_cast<std::uint8_t>(*at_) - WireWriter::kDifference;
    if (parameter < 0) return floats(row, width);
    invariant(parameter <= RowDifference::kParameterMax, "a difference on the wire of no such parameter");
    at_ = RowDifference::read(at_ + 1, end_, parameter, before, row, width);
  }
  void integers(std::int64_t* row, int width) {
    const int size = byte();
    invariant(size >= 1 && size <= 8, "an integer on the wire that is too wide");
    const bool sparse = read_shape(width);
    const int unused = 64 - 8 * size;
    for (int c = 0; c < width; ++c) {
      std::uint64_t value = 0;
      if (!sparse || there(c)) bytes(&value, static_cast<std::size_t>(size));
      row[c] = static_cast<std::int64_t>(value << unused) >> unused;  // with its sign
    }
  }

 private:
  void need(std::size_t count) const {
    invariant(static_cast<std::size_t>(end_ - at_) >= count, "a parcel that is too short");
  }
  bool read_shape(int width) {
    const bool sparse = byte() != 0;
    if (!sparse) return false;
    mask_.resize(static_cast<std::size_t>((width + 7) / 8));
    bytes(mask_.data(), mask_.size());
    return true;
  }
  bool there(int c) const { return (mask_[static_cast<std::size_t>(c / 8)] >> (c % 8) & 1) != 0; }

  const char* at_;
  const char* end_;
  std::int64_t last_ = 0;
  std::vector<std::uint8_t> mask_;
};

}  // namespace livegnn
