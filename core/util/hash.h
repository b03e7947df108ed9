// A strong 64-bit mix (the finaliser of splitmix64) for order-free digests and sampling keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace livegnn {

inline constexpr std::uint64_t kMixStep = 0x9e3779b97f4a7c15ull;

inline std::uint64_t mix(std::uint64_t x) {
  x += kMixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

inline std::uint64_t mix_bytes(std::uint64_t seed, const void* data, std::size_t bytes) {
  const char* p = static_cast<const char*>(data);
  for (; bytes >= 8; bytes -= 8, p += 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    seed = mix(seed ^ word);
  }
  std::uint64_t tail = 0;
  std::memcpy(&tail, p, bytes);
  return mix(seed ^ tail ^ (static_cast<std::uint64_t>(bytes) << 56));
}

}  // namespace livegnn
