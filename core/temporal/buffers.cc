#include <utility>

#include "livegnn/temporal.h"

namespace livegnn {

namespace {
constexpr std::size_t kWasteMax = 8;  // a buffer larger than so many times the need is left for another call
constexpr std::size_t kSmall = 4096;
}  // namespace

TemporalBuffers::Buffer TemporalBuffers::take(std::size_t count) {
  {
    const std::lock_guard lock(mutex_);
    std::size_t best = free_.size();
    for (std::size_t i = 0; i < free_.size(); ++i) {
      if (free_[i].capacity < count || free_[i].capacity > kWasteMax * (count + kSmall)) continue;
      if (best == free_.size() || free_[i].capacity < free_[best].capacity) best = i;
    }
    if (best < free_.size()) {
      std::swap(free_[best], free_.back());
      Buffer found = std::move(free_.back());
      free_.pop_back();
      return found;
    }
  }
  const std::size_t capacity = count + count / 8;  // so that the next call's, of about this size, fits too
  return {std::unique_ptr<std::int64_t[]>(new std::int64_t[capacity]), capacity};
}

void TemporalBuffers::give(Buffer buffer) {
  if (buffer.capacity > kValuesMax) return;
  const std::lock_guard lock(mutex_);
  if (free_.size() == kBuffersMax) free_.erase(free_.begin());
  free_.push_back(std::move(buffer));
}

}  // namespace livegnn
