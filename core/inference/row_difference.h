// A row of floats as its difference from one that the receiver has. Bits of floats are numbered in the order of their
// values; a column is the distance between the two numbers, in an Exp-Golomb code (Teuhola 1978) of the row's own
// parameter k: k + 1 bits where the distance has at most about k, and two for each further one. Every bit of the row
// comes back.
//
//   row      k, then blocks of 64 columns (the last one of fewer), then zeros up to a whole byte
//   block    the columns' lengths, then their bits, without a gap
//   length   zeros, as many as the column has bits beyond k, and a one
//   bits     of distance + 2^k all but the first one, the low ones first
//
// So a reader finds all lengths of a block at once, and its columns do not wait for each other.
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
  // one, or has no code, `to` stays as it is and false is returned. Memory of earlier rows is used again.
  bool write(const float* row, const float* before, int width, std::size_t most, int first, std::string& to) {
    const int parameter = measure(row, before, width);
    if (parameter < 0) return false;
    code_.resize(static_cast<std::size_t>(width) * 8 + 1 + sizeof(std::uint64_t));  // lengths and bits have 64 at most
    BitWriter bits(code_.data());
    for (int begin = 0; begin < width; begin += kBlock)
      bits = write_block(bits, distances_.data() + begin, std::min(kBlock, width - begin), parameter);
    const std::size_t bytes = bits.bytes();
    if (bytes >= most) return false;
    to.push_back(static_cast<char>(first + parameter));
    to.append(code_.data(), bytes);
    return true;
  }

  // Reads `row`, at [from, end), and returns where it ends. `before` may be `row`.
  static const char* read(const char* from, const char* end, int parameter, const float* before, float* row,
                          int width) {
    const std::size_t limit = static_cast<std::size_t>(end - from) * 8;
    std::size_t place = 0;
    std::uint32_t apart[kBlock];
    for (int begin = 0; begin < width; begin += kBlock) {
      const int count = std::min(kBlock, width - begin);
      place = read_block(from, place, limit, parameter, count, apart);
      for (int c = 0; c < count; ++c)
        row[begin + c] = float_of(number_of(before[begin + c]) + ((apart[c] >> 1) ^ (0u - (apart[c] & 1))));
    }
    return from + (place + 7) / 8;
  }

 private:
  static constexpr int kBlock = 64;
  static constexpr int kAtOnce = 56;  // bits that a word takes or gives, wherever in a byte they begin

  class BitWriter {
   public:
    explicit BitWriter(char* to) : begin_(to), to_(to) {}
    void put(std::uint64_t value, int bits) {  // at most kAtOnce
      word_ |= value << filled_;
      filled_ += static_cast<unsigned>(bits);
      std::memcpy(to_, &word_, sizeof(word_));
      to_ += filled_ / 8;
      word_ >>= filled_ / 8 * 8;
      filled_ %= 8;
    }
    void put_two(std::uint64_t a, int bits_a, std::uint64_t b, int bits_b) {
      if (bits_a + bits_b <= kAtOnce) [[likely]]
        return put(a | b << bits_a, bits_a + bits_b);
      put(a, bits_a);
      put(b, bits_b);
    }
    std::size_t bytes() const { return static_cast<std::size_t>(to_ - begin_) + (filled_ > 0 ? 1 : 0); }

   private:
    char* begin_;
    char* to_;
    std::uint64_t word_ = 0;
    unsigned filled_ = 0;  // fewer than 8
  };

  // By value, so that no byte that is written may be the writer's own.
  static BitWriter write_block(BitWriter bits, const std::uint32_t* distances, int count, int parameter) {
    std::int32_t more[kBlock + 1];
    for (int c = 0; c < count; ++c) more[c] = places_above((distances[c] >> parameter) + 1) - 1;
    int c = 0;
    for (; c + 1 < count; c += 2)
      bits.put_two(std::uint64_t{1} << more[c], more[c] + 1, std::uint64_t{1} << more[c + 1], more[c + 1] + 1);
    if (c < count) bits.put(std::uint64_t{1} << more[c], more[c] + 1);
    const auto low = [&](int i) {
      return (distances[i] + (std::uint64_t{1} << parameter)) ^ std::uint64_t{1} << (more[i] + parameter);
    };
    for (c = 0; c + 1 < count; c += 2) bits.put_two(low(c), more[c] + parameter, low(c + 1), more[c + 1] + parameter);
    if (c < count) bits.put(low(c), more[c] + parameter);
    return bits;
  }

  static std::size_t read_block(const char* from, std::size_t place, std::size_t limit, int parameter, int count,
                                std::uint32_t* distances) {
    int bits[kBlock], longest = 0;
    for (int c = 0; c < count;) {
      std::uint64_t word = bits_at(from, place, limit) & ((std::uint64_t{1} << kAtOnce) - 1);
      invariant(word != 0, "a difference on the wire that is too long");
      int next = 0;
      for (; word != 0 && c < count; word &= word - 1) {
        const int one = std::countr_zero(word);
        longest = std::max(longest, one - next);
        bits[c++] = one - next + parameter;
        next = one + 1;
      }
      place += static_cast<std::size_t>(next);
    }
    invariant(longest + parameter <= 32, "a difference on the wire that is too long");
    std::size_t end = place;
    for (int c = 0; c < count; ++c) end += static_cast<std::size_t>(bits[c]);
    invariant(end <= limit, "a parcel that is too short");
    const std::uint64_t least = std::uint64_t{1} << parameter;
    const auto read = [&](auto&& word_at) {
      for (int c = 0; c < count; ++c) {
        const std::uint64_t first = std::uint64_t{1} << bits[c];
        distances[c] = static_cast<std::uint32_t>((word_at(place) & (first - 1)) + first - least);
        place += static_cast<std::size_t>(bits[c]);
      }
    };
    if (end + 64 <= limit) {
      read([from](std::size_t from_bit) { return whole_word(from, from_bit); });
    } else {
      read([from, limit](std::size_t from_bit) { return bits_at(from, from_bit, limit); });
    }
    return place;
  }

  // kAtOnce bits at least; zeros past the end.
  static std::uint64_t bits_at(const char* from, std::size_t place, std::size_t limit) {
    if (place + 64 <= limit) [[likely]]
      return whole_word(from, place);
    std::uint64_t word = 0;
    const std::size_t byte = std::min(place, limit) / 8;
    std::memcpy(&word, from + byte, std::min(sizeof(word), limit / 8 - byte));
    return word >> (place % 8);
  }
  static std::uint64_t whole_word(const char* from, std::size_t place) {
    std::uint64_t word;
    std::memcpy(&word, from + place / 8, sizeof(word));
    return word >> (place % 8);
  }

  // Finds the distances, and the parameter that suits them; -1 where one is too far to have a code.
  int measure(const float* row, const float* before, int width) {
    distances_.resize(static_cast<std::size_t>(width));
    std::uint32_t* const distances = distances_.data();
    std::int32_t lengths = 0, farthest = 0;
    for (int c = 0; c < width; ++c) {
      const std::uint32_t apart = number_of(row[c]) - number_of(before[c]);
      const std::uint32_t distance = (apart << 1) ^ (0u - (apart >> 31));  // near ones are small, either way
      distances[c] = distance;
      lengths += places_above(distance);
      farthest |= distance == 0xffffffff ? 1 : 0;
    }
    if (farthest != 0) return -1;
    return width == 0 ? 0 : std::min(lengths / width, kParameterMax);
  }
  // Bits of x from its first one on, by the exponent of a float, as that takes many columns at a time. A bit below the
  // first one is left out, so that nothing is rounded up.
  static std::int32_t places_above(std::uint32_t x) {
    const std::uint32_t half = x >> 1;
    const auto rounded = static_cast<float>(static_cast<std::int32_t>(half & ~(half >> 1)));
    const std::int32_t places = (std::bit_cast<std::int32_t>(rounded) >> 23) - 126;
    return std::max(places, 0) + (x != 0 ? 1 : 0);
  }
  static std::uint32_t number_of(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return bits ^ ((0u - (bits >> 31)) >> 1);
  }
  static float float_of(std::uint32_t number) { return std::bit_cast<float>(number ^ ((0u - (number >> 31)) >> 1)); }

  std::vector<std::uint32_t> distances_;
  std::vector<char> code_;
};

}  // namespace livegnn
