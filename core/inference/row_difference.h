// A row of floats as its difference from one that the receiver has. Bits of floats are numbered in the order of their
// values; a column is the distance between the two numbers, in an Exp-Golomb code (Teuhola 1978) of the row's own
// parameter k: k + 1 bits where the distance has at most about k, and two for each further one. Every bit of the row
// comes back.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "livegnn/error.h"

namespace livegnn {

class RowDifference {
 public:
  static constexpr int kParameterMax = 31;

  // What there is to write of `row`. Memory of earlier rows is used again.
  void take(const float* row, const float* before, int width) {
    distances_.resize(static_cast<std::size_t>(width));
    std::int64_t lengths = 0;
    for (int c = 0; c < width; ++c) {
      const std::uint32_t apart = number_of(row[c]) - number_of(before[c]);
      const std::uint32_t sign = 0u - (apart >> 31);
      distances_[static_cast<std::size_t>(c)] = (apart << 1) ^ sign;  // near ones are small, either way
      lengths += std::bit_width(distances_[static_cast<std::size_t>(c)]);
    }
    parameter_ = width == 0 ? 0 : static_cast<int>(std::min<std::int64_t>(lengths / width, kParameterMax));
    bits_ = 0;
    for (const std::uint32_t distance : distances_)
      bits_ += static_cast<std::size_t>(parameter_ + 1 + 2 * above(distance, parameter_));
  }
  int parameter() const { return parameter_; }
  std::size_t bytes() const { return (bits_ + 7) / 8; }

  void write(std::string& to) const {
    const std::size_t begin = to.size();
    to.resize(begin + bytes() + sizeof(std::uint64_t));  // a word is written at a time
    char* out = to.data() + begin;
    std::uint64_t word = 0;
    int filled = 0;
    const auto put = [&](std::uint64_t value, int bits) {  // at most 56
      word |= value << filled;
      filled += bits;
      std::memcpy(out, &word, sizeof(word));
      out += filled / 8;
      word >>= filled / 8 * 8;
      filled %= 8;
    };
    for (const std::uint32_t distance : distances_) {
      const std::uint64_t high = (std::uint64_t{distance} >> parameter_) + 1;
      const int more = above(distance, parameter_);
      put(std::uint64_t{1} << more, more + 1);
      put(high ^ (std::uint64_t{1} << more), more);
      put(distance & ((std::uint64_t{1} << parameter_) - 1), parameter_);
    }
    to.resize(begin + bytes());
  }

  // Reads `row`, at [from, end), and returns where it ends.
  static const char* read(const char* from, const char* end, int parameter, const float* before, float* row,
                          int width) {
    const std::size_t limit = static_cast<std::size_t>(end - from) * 8;
    std::size_t place = 0;
    const auto next = [&] {  // 57 bits at least, zeros past the end
      std::uint64_t word = 0;
      const std::size_t byte = std::min(place, limit) / 8;
      std::memcpy(&word, from + byte, std::min(sizeof(word), limit / 8 - byte));
      return word >> (place % 8);
    };
    for (int c = 0; c < width; ++c) {
      const int more = std::countr_zero(next());
      invariant(more <= 32, "a difference on the wire that is too long");
      place += static_cast<std::size_t>(more + 1);
      const std::uint64_t high = (next() & ((std::uint64_t{1} << more) - 1)) | std::uint64_t{1} << more;
      place += static_cast<std::size_t>(more);
      const std::uint64_t low = next() & ((std::uint64_t{1} << parameter) - 1);
      place += static_cast<std::size_t>(parameter);
      const auto distance = static_cast<std::uint32_t>(((high - 1) << parameter) | low);
      row[c] = float_of(number_of(before[c]) + ((distance >> 1) ^ (0u - (distance & 1))));
    }
    invariant(place <= limit, "a parcel that is too short");
    return from + (place + 7) / 8;
  }

 private:
  // Bits that the code takes beyond the parameter, halved.
  static int above(std::uint32_t distance, int parameter) {
    return std::bit_width((std::uint64_t{distance} >> parameter) + 1) - 1;
  }
  static std::uint32_t number_of(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return bits ^ ((0u - (bits >> 31)) >> 1);
  }
  static float float_of(std::uint32_t number) { return std::bit_cast<float>(number ^ ((0u - (number >> 31)) >> 1)); }

  int parameter_ = 0;
  std::size_t bits_ = 0;
  std::vector<std::uint32_t> distances_;
};

}  // namespace livegnn
