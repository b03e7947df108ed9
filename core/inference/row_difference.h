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

  // Appends the parameter, as `first` plus it, and the code. Where that would be more than `most` bytes after the first
  // one, `to` stays as it is and false is returned. Memory of earlier rows is used again.
  bool write(const float* row, const float* before, int width, std::size_t most, int first, std::string& to) {
    const int parameter = measure(row, before, width);
    char* const code = room_for(width);
    char* out = code;
    std::uint64_t word = 0;
    unsigned filled = 0;                                   // fewer than 8
    const auto put = [&](std::uint64_t value, int bits) {  // at most 56
      word |= value << filled;
      filled += static_cast<unsigned>(bits);
      std::memcpy(out, &word, sizeof(word));
      out += filled / 8;
      word >>= filled / 8 * 8;
      filled %= 8;
    };
    const std::uint64_t low = (std::uint64_t{1} << parameter) - 1;
    for (int c = 0; c < width; ++c) {
      const std::uint64_t distance = distances_[static_cast<std::size_t>(c)], high = (distance >> parameter) + 1;
      const int more = last_one(high);  // bits beyond the parameter, halved
      // `more` zeros and a one; the bits of `high` below its first one; the low bits
      const std::uint64_t head = std::uint64_t{1} << more | (high ^ (std::uint64_t{1} << more)) << (more + 1);
      if (2 * more + 1 + parameter <= 56) {
        put(head | (distance & low) << (2 * more + 1), 2 * more + 1 + parameter);
      } else {
        put(std::uint64_t{1} << more, more + 1);
        put(high ^ (std::uint64_t{1} << more), more);
        put(distance & low, parameter);
      }
    }
    const std::size_t bytes = static_cast<std::size_t>(out - code) + (filled > 0 ? 1 : 0);
    if (bytes >= most) return false;
    to.push_back(static_cast<char>(first + parameter));
    to.append(code, bytes);
    return true;
  }

  // Reads `row`, at [from, end), and returns where it ends.
  static const char* read(const char* from, const char* end, int parameter, const float* before, float* row,
                          int width) {
    const std::size_t limit = static_cast<std::size_t>(end - from) * 8;
    const std::uint64_t low = (std::uint64_t{1} << parameter) - 1;
    std::size_t place = 0;
    for (int c = 0; c < width; ++c) {
      std::uint64_t word = bits_at(from, place, limit);
      int more = std::countr_zero(word);
      invariant(more <= 32, "a difference on the wire that is too long");
      std::uint64_t high = 0;
      if (2 * more + 1 + parameter <= kBitsAtOnce) {
        word >>= more + 1;
        high = word & ((std::uint64_t{1} << more) - 1);
        word >>= more;
      } else {
        high = bits_at(from, place + static_cast<std::size_t>(more + 1), limit) & ((std::uint64_t{1} << more) - 1);
        word = bits_at(from, place + static_cast<std::size_t>(2 * more + 1), limit);
      }
      place += static_cast<std::size_t>(2 * more + 1 + parameter);
      high |= std::uint64_t{1} << more;
      const auto distance = static_cast<std::uint32_t>(((high - 1) << parameter) | (word & low));
      row[c] = float_of(number_of(before[c]) + ((distance >> 1) ^ (0u - (distance & 1))));
    }
    invariant(place <= limit, "a parcel that is too short");
    return from + (place + 7) / 8;
  }

 private:
  static constexpr int kBitsAtOnce = 57;

  // For the longest code, and for the word that is written last.
  char* room_for(int width) {
    code_.resize(static_cast<std::size_t>(width) * 97 / 8 + 1 + sizeof(std::uint64_t));
    return code_.data();
  }
  // kBitsAtOnce bits at least; zeros past the end.
  static std::uint64_t bits_at(const char* from, std::size_t place, std::size_t limit) {
    std::uint64_t word = 0;
    if (place + 64 <= limit) [[likely]] {
      std::memcpy(&word, from + place / 8, sizeof(word));
    } else {
      const std::size_t byte = std::min(place, limit) / 8;
      std::memcpy(&word, from + byte, std::min(sizeof(word), limit / 8 - byte));
    }
    return word >> (place % 8);
  }
  // Finds the distances, and the parameter that suits them.
  int measure(const float* row, const float* before, int width) {
    distances_.resize(static_cast<std::size_t>(width));
    int lengths = 0;
    for (int c = 0; c < width; ++c) {
      const std::uint32_t apart = number_of(row[c]) - number_of(before[c]);
      const std::uint32_t distance = (apart << 1) ^ (0u - (apart >> 31));  // near ones are small, either way
      distances_[static_cast<std::size_t>(c)] = distance;
      lengths += last_one(std::uint64_t{distance} << 1 | 1);
    }
    return width == 0 ? 0 : std::min(lengths / width, kParameterMax);
  }
  // The place of its first one, without a branch for none.
  static int last_one(std::uint64_t word) { return 63 - std::countl_zero(word | 1); }
  static std::uint32_t number_of(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return bits ^ ((0u - (bits >> 31)) >> 1);
  }
  static float float_of(std::uint32_t number) { return std::bit_cast<float>(number ^ ((0u - (number >> 31)) >> 1)); }

  std::vector<std::uint32_t> distances_;
  std::vector<char> code_;
};

}  // namespace livegnn
