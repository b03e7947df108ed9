// Which slot of a feature cache goes next. Every order is total and a function of the calls alone.
//
// lru   the one used longest ago: hits of a fetch count in the order they were first asked for, then those it admits
// lfu   the one fewest fetches used since it came; among equals the one used longest ago
// fifo  the one admitted longest ago
// Slots that the fetch under way has used are never given.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "livegnn/feature_cache.h"

namespace livegnn {

class Replacement {
 public:
  virtual ~Replacement() = default;
  // A new fetch begins, which uses these slots; negative places are no slots. Returns how many different ones.
  virtual std::int64_t use(std::span<const std::int32_t> places) = 0;
  // Takes out the first `count` slots that this fetch has not used; there are so many.
  virtual void evict(std::int64_t count, std::vector<std::int32_t>& slots) = 0;
  virtual void admit(std::int32_t slot) = 0;
  virtual void remove(std::int32_t slot) = 0;
  // All of them, the first to go first, and the fetches that used each.
  virtual void list(std::vector<std::int32_t>& slots, std::vector<std::int64_t>& uses) const = 0;
  // Forgets all, then holds these slots.
  virtual void assign(std::span<const std::int32_t> slots, std::span<const std::int64_t> uses) = 0;
  virtual std::size_t bytes() const = 0;
};

std::unique_ptr<Replacement> make_replacement(CachePolicy policy, std::int32_t capacity);

}  // namespace livegnn
