// Rows are copied in chunks, each by one thread; the row a few places ahead is on its way while one is copied.
#include <algorithm>
#include <cstring>

#include "livegnn/feature_cache.h"
#include "util/aligned.h"
#include "util/thread_pool.h"

namespace livegnn {
namespace {
constexpr std::size_t kAhead = 16, kAheadBytes = 256;      // the rest of a long row comes by itself
constexpr std::size_t kChunkBytes = std::size_t{1} << 17;  // less is not worth a thread
}  // namespace

RowCopier::RowCopier(int threads) : pool_(std::make_unique<ThreadPool>(threads)) {}

RowCopier::~RowCopier() = default;

// to(i) = from(i) for i in [0, count)
template <typename From, typename To>
void RowCopier::copy(std::size_t count, std::size_t row_bytes, const From& from, const To& to) {
  const std::size_t ahead_bytes = std::min(row_bytes, kAheadBytes);
  const auto run = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (i + kAhead < end) prefetch_row(from(i + kAhead), ahead_bytes);
      std::memcpy(to(i), from(i), row_bytes);
    }
  };
  in_chunks(count, std::max<std::size_t>(kChunkBytes / row_bytes, 1), run);
}

void RowCopier::in_chunks(std::size_t count, std::size_t chunk,
                          const std::function<void(std::size_t, std::size_t)>& run) {
  if (count <= chunk) return run(0, count);
  const std::lock_guard lock(mutex_);
  pool_->run(static_cast<std::int64_t>((count + chunk - 1) / chunk), [&](std::int64_t index, int) {
    const std::size_t begin = static_cast<std::size_t>(index) * chunk;
    run(begin, std::min(begin + chunk, count));
  });
}

void RowCopier::gather(const std::uint8_t* rows, std::size_t row_bytes, std::span<const std::int64_t> ids,
                       std::uint8_t* out) {
  copy(
      ids.size(), row_bytes, [=](std::size_t i) { return rows + static_cast<std::size_t>(ids[i]) * row_bytes; },
      [=](std::size_t i) { return out + i * row_bytes; });
}

void RowCopier::join(const std::uint8_t* cached, const std::uint8_t* fresh, std::size_t row_bytes,
                     std::span<const std::int32_t> places, std::uint8_t* out) {
  copy(
      places.size(), row_bytes,
      [=](std::size_t i) {
        const std::int64_t place = places[i];
        return place >= 0 ? cached + static_cast<std::size_t>(place) * row_bytes
                          : fresh + static_cast<std::size_t>(-1 - place) * row_bytes;
      },
      [=](std::size_t i) { return out + i * row_bytes; });
}

void RowCopier::scatter(const std::uint8_t* fresh, std::size_t row_bytes, std::span<const std::int32_t> slots,
                        std::uint8_t* cached) {
  copy(
      slots.size(), row_bytes, [=](std::size_t i) { return fresh + i * row_bytes; },
      [=](std::size_t i) { return cached + static_cast<std::size_t>(slots[i]) * row_bytes; });
}

}  // namespace livegnn
