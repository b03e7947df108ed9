// A hint to bring a cache line in. The empty asm is an effect in the compiler's eyes: without it, functions that do
// nothing but prefetch count as pure, and calls of them are dropped.
#pragma once

namespace livegnn {

inline void prefetch_line(const void* address) {
  __builtin_prefetch(address, 0, 3);
  asm volatile("");
}

}  // namespace livegnn
