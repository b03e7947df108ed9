// Memory of the store's columns: the heap for small ones, anonymous mappings on 2 MiB boundaries for large ones.
#include <cstdlib>
#include <cstring>
#include <new>

#include "livegnn/detail/graph_memory.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace livegnn::graph_memory {

namespace {
constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
constexpr std::size_t kLineBytes = 64;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

#if defined(__linux__)
// A mapping of `bytes` (a multiple of 2 MiB) on a 2 MiB boundary, or nullptr.
std::byte* map_aligned(std::size_t bytes) {
  void* raw = mmap(nullptr, bytes + kHugeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(raw);
  const std::uintptr_t aligned = (start + kHugeBytes - 1) / kHugeBytes * kHugeBytes;
  const std::size_t head = aligned - start;
  if (head > 0) munmap(raw, head);
  if (head < kHugeBytes) munmap(reinterpret_cast<void*>(aligned + bytes), kHugeBytes - head);
  return reinterpret_cast<std::byte*>(aligned);
}

void ask_huge(std::byte* data, std::size_t bytes) {
#if defined(MADV_HUGEPAGE)
  madvise(data, bytes, MADV_HUGEPAGE);  // advice only: a refusal changes nothing but speed
#else
  (void)data, (void)bytes;
#endif
}

bool grow_mapped(Region& region, std::size_t bytes) {
  bytes = round_up(bytes, kHugeBytes);
  std::byte* fresh = map_aligned(bytes);
  if (fresh == nullptr) return false;
  bool moved = false;
  if (region.mapped) {
    // Moves page tables, not bytes; the target keeps the alignment.
    void* got = mremap(region.data, region.bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, fresh);
    moved = got != MAP_FAILED;
    if (!moved) fresh = map_aligned(bytes);  // a refused move may already have unmapped its target
    if (fresh == nullptr) return false;
  }
  ask_huge(fresh, bytes);
  if (!moved) {
    if (region.bytes > 0) std::memcpy(fresh, region.data, region.bytes);
    release(region);
  }
  region = {fresh, bytes, true};
  return true;
}
#endif
}  // namespace

void grow(Region& region, std::size_t bytes) {
  if (bytes <= region.bytes) return;
#if defined(__linux__)
  if (bytes >= kHugeBytes) {
    if (!grow_mapped(region, bytes)) throw std::bad_alloc();
    return;
  }
#endif
  bytes = round_up(bytes, kLineBytes);
  auto* fresh = static_cast<std::byte*>(std::aligned_alloc(kLineBytes, bytes));
  if (fresh == nullptr) throw std::bad_alloc();
  if (region.bytes > 0) std::memcpy(fresh, region.data, region.bytes);
  release(region);
  region = {fresh, bytes, false};
}

void release(Region& region) noexcept {
#if defined(__linux__)
  if (region.mapped) {
    munmap(region.data, region.bytes);
    region = {};
    return;
  }
#endif
  std::free(region.data);
  region = {};
}

}  // namespace livegnn::graph_memory
