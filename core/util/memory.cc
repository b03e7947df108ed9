// Memory of columns: the heap for small ones, anonymous mappings on 2 MiB boundaries for large ones; or mapped files.
// Mappings and files begin as zeros; the heap is cleared.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "livegnn/detail/graph_memory.h"
#include "livegnn/error.h"
#include "util/nameless_file.h"

namespace livegnn::graph_memory {

namespace {
constexpr std::size_t kHugeBytes = std::size_t{2} << 20;
constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kFileBytes = std::size_t{64} << 10;  // a region in a file is a multiple of it

thread_local const InFiles* in_files = nullptr;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

// The mapping outlives the descriptor, and the file ends with it.
void grow_in_file(Region& region, std::size_t bytes) {
  bytes = round_up(bytes, kFileBytes);
  const int file = nameless_file(in_files->folder());
  int failed = file < 0 ? errno : take_room(file, 0, bytes);
  void* fresh = MAP_FAILED;
  if (failed == 0) {
    fresh = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (fresh == MAP_FAILED) failed = errno;
  }
  if (file >= 0) close(file);
  if (failed != 0) {
    throw Error(ErrorKind::SpillUnavailable,
                {.where = in_files->where(),
                 .expected = "a folder on a disk with room for a copy of the edges in files",
                 .got = in_files->folder() + " (" + std::to_string(bytes) + " bytes: " + std::strerror(failed) + ")",
                 .advice = "make room there"});
  }
  if (region.bytes > 0) std::memcpy(fresh, region.data, region.bytes);
  release(region);
  region = {static_cast<std::byte*>(fresh), bytes, true, true};
}

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
  if (region.mapped && !region.in_file) {
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
  region = {fresh, bytes, true, false};
  return true;
}
#endif
}  // namespace

InFiles::InFiles(std::string where, std::string folder)
    : where_(std::move(where)), folder_(std::move(folder)), outer_(std::exchange(in_files, this)) {}

InFiles::~InFiles() { in_files = outer_; }

void grow(Region& region, std::size_t bytes) {
  if (bytes <= region.bytes) return;
  if (in_files != nullptr && !in_files->folder().empty() && bytes >= kFileBytes) return grow_in_file(region, bytes);
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
  std::memset(fresh + region.bytes, 0, bytes - region.bytes);
  release(region);
  region = {fresh, bytes, false, false};
}

void release(Region& region) noexcept {
  if (region.mapped) {
    munmap(region.data, region.bytes);
  } else {
    std::free(region.data);
  }
  region = {};
}

}  // namespace livegnn::graph_memory
