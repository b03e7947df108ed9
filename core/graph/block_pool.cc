// Size classes, free lists and the small loops over one block.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "livegnn/detail/graph_blocks.h"
#include "livegnn/error.h"

namespace livegnn {

namespace {
constexpr std::int64_t kNoBlock = -1;

// 1, 2, ... 8, then four classes per doubling: at most a fifth of a block loaded at once lies idle.
std::vector<std::int32_t> size_classes(std::int32_t largest) {
  std::vector<std::int32_t> capacities;
  std::int32_t step = 1;
  for (std::int32_t capacity = 1; capacity < largest; capacity += step) {
    capacities.push_back(capacity);
    if (capacity >= 8 && (capacity & (capacity - 1)) == 0) step = capacity / 4;
  }
  capacities.push_back(largest);
  return capacities;
}

template <typename T>
void move_values(Column<T>& column, std::int64_t to, std::int64_t from, std::int32_t count) {
  std::memmove(column.data() + to, column.data() + from, static_cast<std::size_t>(count) * sizeof(T));
}

template <typename T>
void permute(Column<T>& column, std::int64_t place, const std::vector<std::int64_t>& order) {
  std::vector<T> sorted(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) sorted[i] = column[place + order[i]];
  std::memcpy(column.data() + place, sorted.data(), sorted.size() * sizeof(T));
}
}  // namespace

BlockPool::BlockPool(PoolColumns columns, std::int32_t block_edges_max)
    : columns_(columns), class_capacity_(size_classes(block_edges_max)) {
  page_blocks_max_ = std::clamp(block_edges_max, 4, 128);
  class_of_.resize(static_cast<std::size_t>(block_edges_max) + 1, 0);
  for (std::int32_t count = 1, size_class = 0; count <= block_edges_max; ++count) {
    if (class_capacity_[size_class] < count) ++size_class;
    class_of_[count] = static_cast<std::uint8_t>(size_class);
  }
  class_head_.assign(class_capacity_.size(), kNoBlock);
}

void BlockPool::reserve(std::int64_t places) {
  neighbours_.reserve(places);
  ids_.reserve(places);
  if (columns_.weight) weights_.reserve(places);
  if (columns_.time) times_.reserve(places);
  if (columns_.type) types_.reserve(places);
}

void BlockPool::copy_from(const BlockPool& other, CopyPlan& plan) {
  plan.add(neighbours_, other.neighbours_, other.top_);
  plan.add(ids_, other.ids_, other.top_);
  if (columns_.weight) plan.add(weights_, other.weights_, other.top_);
  if (columns_.time) plan.add(times_, other.times_, other.top_);
  if (columns_.type) plan.add(types_, other.types_, other.top_);
}

std::int64_t BlockPool::extend(std::int64_t places) {
  reserve(top_ + places);
  const std::int64_t place = top_;
  top_ += places;
  return place;
}

std::int64_t BlockPool::allocate(std::int32_t capacity) {
  const std::uint8_t size_class = class_of_[capacity];
  const std::int64_t head = class_head_[size_class];
  if (head == kNoBlock) return extend(capacity);
  class_head_[size_class] = ids_[head];
  free_ -= capacity;
  return head;
}

void BlockPool::free(std::int64_t place, std::int32_t capacity) {
  const std::uint8_t size_class = class_of_[capacity];
  ids_[place] = class_head_[size_class];
  class_head_[size_class] = place;
  free_ += capacity;
}

void BlockPool::copy(std::int64_t to, std::int64_t from, std::int32_t count) {
  if (count <= 0) return;
  move_values(neighbours_, to, from, count);
  move_values(ids_, to, from, count);
  if (columns_.weight) move_values(weights_, to, from, count);
  if (columns_.time) move_values(times_, to, from, count);
  if (columns_.type) move_values(types_, to, from, count);
}

void BlockPool::write_run(std::int64_t place, const EdgeSpan& run, std::int32_t first, std::int32_t count) {
  const auto put = [&](auto& column, const auto* from) {
    std::memcpy(column.data() + place, from + first, static_cast<std::size_t>(count) * sizeof(*from));
  };
  put(neighbours_, run.neighbours);
  put(ids_, run.ids);
  if (columns_.weight) put(weights_, run.weights);
  if (columns_.time) put(times_, run.times);
  if (columns_.type) put(types_, run.types);
}

std::int32_t BlockPool::lower_bound(std::int64_t place, std::int32_t count, const EdgeKey& wanted) const {
  if (count == 0 || key(place + count - 1) < wanted) return count;  // appending is the common case
  std::int32_t low = 0;
  while (count > 0) {
    const std::int32_t half = count / 2;
    if (key(place + low + half) < wanted) {
      low += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return low;
}

void BlockPool::sort(std::int64_t place, std::int64_t count) {
  const auto below = [&](std::int64_t a, std::int64_t b) { return key(place + a) < key(place + b); };
  std::int64_t sorted = 1;
  while (sorted < count && !below(sorted, sorted - 1)) ++sorted;
  if (sorted >= count) return;
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::sort(order.begin(), order.end(), below);  // ids differ, so keys do
  permute(neighbours_, place, order);
  permute(ids_, place, order);
  if (columns_.weight) permute(weights_, place, order);
  if (columns_.time) permute(times_, place, order);
  if (columns_.type) permute(types_, place, order);
}

std::size_t BlockPool::place_bytes() const {
  return sizeof(VertexId) + sizeof(EdgeId) + (columns_.weight ? sizeof(float) : 0) +
         (columns_.time ? sizeof(EdgeTime) : 0) + (columns_.type ? sizeof(std::int32_t) : 0);
}

}  // namespace livegnn
