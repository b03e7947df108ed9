// Lookups run ahead of themselves: the lines that a later id needs are brought in while an earlier one is worked on.
// Invariants: ids_[s] == id >= 0 exactly where map_ has id -> s, and the order holds exactly these slots.
#include <algorithm>
#include <numeric>

#include "livegnn/detail/prefetch.h"
#include "livegnn/feature_cache.h"
#include "temporal/replacement.h"

namespace livegnn {
namespace {
constexpr std::size_t kAhead = 16;
constexpr std::size_t kChunk = 8192;  // ids that one thread looks up
}  // namespace

// ---- IdSet

void IdSet::clear(std::size_t count_max) {
  std::size_t cells = 64;
  while (cells < 2 * count_max) cells *= 2;
  if (cells > cells_.size() || ++round_ == 0) {
    cells_.assign(std::max(cells, cells_.size()), SeenId{-1, 0, 0});
    round_ = 1;
    shift_ = 64;
    for (std::size_t n = cells_.size(); n > 1; n /= 2) --shift_;
  }
}

std::size_t IdSet::home(std::int64_t id) const {
  return static_cast<std::size_t>((static_cast<std::uint64_t>(id) * 0x9E3779B97F4A7C15ull) >> shift_);
}

void IdSet::prefetch(std::int64_t id) const { prefetch_line(&cells_[home(id)]); }

std::int32_t IdSet::place_of(std::int64_t id, std::int32_t next) {
  for (std::size_t at = home(id);; at = (at + 1) & (cells_.size() - 1)) {
    SeenId& cell = cells_[at];
    if (cell.round != round_) {
      cell = {id, next, round_};
      return next;
    }
    if (cell.id == id) return cell.place;
  }
}

// ---- SlotMap

inline std::int32_t SlotMap::find(std::int64_t id) const {
  if (!dense_) return static_cast<std::int32_t>(hashed_.find(id));
  return id < end_ ? slots_[id] : -1;
}

inline void SlotMap::prefetch(std::int64_t id) const {
  if (!dense_) {
    hashed_.prefetch(id);
  } else if (id >= 0 && id < end_) {
    prefetch_line(slots_.data() + id);
  }
}

void SlotMap::insert(std::int64_t id, std::int32_t slot) {
  if (!dense_) return hashed_.insert(id, slot);
  if (id >= end_) {
    slots_.reserve(id + 1);
    std::fill(slots_.data() + end_, slots_.data() + slots_.capacity(), -1);
    end_ = slots_.capacity();
  }
  slots_[id] = slot;
}

void SlotMap::erase(std::int64_t id) {
  if (dense_) {
    slots_[id] = -1;
  } else {
    hashed_.erase(id);
  }
}

// ---- FeatureIndex

FeatureIndex::FeatureIndex(CachePolicy policy, std::int32_t capacity, bool dense)
    : capacity_(capacity),
      map_(dense),
      free_(static_cast<std::size_t>(capacity)),
      order_(make_replacement(policy, capacity)) {
  ids_.reserve(capacity);
  std::fill(ids_.data(), ids_.data() + capacity, -1);
  std::iota(free_.rbegin(), free_.rend(), 0);
}

FeatureIndex::~FeatureIndex() = default;

std::int64_t FeatureIndex::lookup(std::span<const std::int64_t> ids, std::int64_t row_count,
                                  std::span<std::int32_t> places, RowCopier& threads) {
  missed_.clear();
  missed_at_.resize(ids.size());
  missed_in_.assign(ids.size() / kChunk + 1, 0);
  threads.in_chunks(ids.size(), kChunk, [&](std::size_t begin, std::size_t end) {
    missed_in_[begin / kChunk] = find_slots(ids, row_count, places, begin, end);
  });
  missed_places_ = 0;
  for (std::size_t chunk = 0; chunk < missed_in_.size(); ++chunk) {
    if (missed_in_[chunk] < 0) return static_cast<std::int64_t>(chunk * kChunk) + (-1 - missed_in_[chunk]);
    missed_places_ += missed_in_[chunk];
  }
  seen_.clear(static_cast<std::size_t>(missed_places_));
  for (std::size_t chunk = 0; chunk < missed_in_.size(); ++chunk) {
    number_missed(ids, {missed_at_.data() + chunk * kChunk, static_cast<std::size_t>(missed_in_[chunk])}, places);
  }
  return -1;
}

// Slots of one chunk's ids, -1 where there is none; those places go to missed_at_ from the chunk's begin on. Returns
// how many, or -1 - i where the chunk's i-th id is the first out of range.
std::int32_t FeatureIndex::find_slots(std::span<const std::int64_t> ids, std::int64_t row_count,
                                      std::span<std::int32_t> places, std::size_t begin, std::size_t end) {
  std::size_t missed = begin;
  for (std::size_t i = begin; i < end; ++i) {
    if (i + kAhead < end) map_.prefetch(ids[i + kAhead]);
    if (ids[i] < 0 || ids[i] >= row_count) return -1 - static_cast<std::int32_t>(i - begin);
    places[i] = map_.find(ids[i]);
    missed_at_[missed] = static_cast<std::int32_t>(i);
    missed += places[i] < 0;
  }
  return static_cast<std::int32_t>(missed - begin);
}

// Gives the ids at these places their numbers among the missed, in order.
void FeatureIndex::number_missed(std::span<const std::int64_t> ids, std::span<const std::int32_t> at,
                                 std::span<std::int32_t> places) {
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (i + kAhead < at.size()) seen_.prefetch(ids[at[i + kAhead]]);
    const auto next = static_cast<std::int32_t>(missed_.size());
    const std::int32_t number = seen_.place_of(ids[at[i]], next);
    if (number == next) missed_.push_back(ids[at[i]]);
    places[at[i]] = -1 - number;
  }
}

Admission FeatureIndex::commit(std::span<const std::int32_t> places, std::int64_t admitted_max) {
  const std::int64_t used = order_->use(places);
  const auto missed = static_cast<std::int64_t>(missed_.size()), free = static_cast<std::int64_t>(free_.size());
  const std::int64_t count = std::max<std::int64_t>(std::min({admitted_max, missed, capacity_ - used}), 0);
  Admission done;
  done.evicted = std::max<std::int64_t>(count - free, 0);
  done.slots.reserve(static_cast<std::size_t>(count));
  order_->evict(done.evicted, done.slots);
  while (static_cast<std::int64_t>(done.slots.size()) < count) {
    done.slots.push_back(free_.back());
    free_.pop_back();
  }
  const std::vector<std::int32_t>& slots = done.slots;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (i + 2 * kAhead < slots.size()) prefetch_line(&ids_[slots[i + 2 * kAhead]]);
    if (i + kAhead < slots.size()) {
      map_.prefetch(ids_[slots[i + kAhead]]);
      map_.prefetch(missed_[i + kAhead]);
    }
    if (ids_[slots[i]] >= 0) map_.erase(ids_[slots[i]]);
    put(missed_[i], slots[i]);
    order_->admit(slots[i]);
  }
  return done;
}

std::vector<std::int32_t> FeatureIndex::find(std::span<const std::int64_t> ids) const {
  std::vector<std::int32_t> slots(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i + kAhead < ids.size()) map_.prefetch(ids[i + kAhead]);
    slots[i] = ids[i] < 0 ? -1 : map_.find(ids[i]);
  }
  return slots;
}

std::int64_t FeatureIndex::drop(std::span<const std::int64_t> ids) {
  const std::int64_t before = size();
  for (const std::int64_t id : ids) {
    const std::int32_t slot = id < 0 ? -1 : map_.find(id);
    if (slot < 0) continue;
    order_->remove(slot);
    clear_slot(slot);
    free_.push_back(slot);
  }
  return before - size();
}

CacheContents FeatureIndex::contents() const {
  std::vector<std::int32_t> slots;
  CacheContents found;
  order_->list(slots, found.uses);
  found.ids.reserve(slots.size());
  for (const std::int32_t slot : slots) found.ids.push_back(ids_[slot]);
  return found;
}

std::vector<std::int32_t> FeatureIndex::install(std::span<const std::int64_t> ids, std::span<const std::int64_t> uses) {
  invariant(ids.size() <= static_cast<std::size_t>(capacity_) && ids.size() == uses.size(),
            "more contents than the cache holds");
  std::vector<std::int32_t> slots = find(ids);
  std::vector<std::uint8_t> stays(static_cast<std::size_t>(capacity_), 0);
  for (const std::int32_t slot : slots) {
    if (slot >= 0) stays[slot] = 1;
  }
  order_->assign({}, {});
  free_.clear();
  for (std::int32_t slot = capacity_ - 1; slot >= 0; --slot) {
    if (stays[slot]) continue;
    if (ids_[slot] >= 0) clear_slot(slot);
    free_.push_back(slot);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (slots[i] >= 0) continue;
    slots[i] = free_.back();
    free_.pop_back();
    put(ids[i], slots[i]);
  }
  order_->assign(slots, uses);
  return slots;
}

void FeatureIndex::put(std::int64_t id, std::int32_t slot) {
  ids_[slot] = id;
  map_.insert(id, slot);
}

void FeatureIndex::clear_slot(std::int32_t slot) {
  map_.erase(ids_[slot]);
  ids_[slot] = -1;
}

std::size_t FeatureIndex::bytes() const {
  return map_.bytes() + ids_.bytes() + free_.capacity() * sizeof(std::int32_t) + order_->bytes();
}

void FeatureIndex::check_invariants() const {
  std::vector<std::int32_t> slots;
  std::vector<std::int64_t> uses;
  order_->list(slots, uses);
  invariant(static_cast<std::int64_t>(slots.size()) == size(), "the order of a cache holds other rows than its index");
  std::vector<std::uint8_t> held(static_cast<std::size_t>(capacity_), 0);
  for (const std::int32_t slot : slots) {
    invariant(!held[slot] && ids_[slot] >= 0 && map_.find(ids_[slot]) == slot, "a slot of a cache is not its id's");
    held[slot] = 1;
  }
  for (const std::int32_t slot : free_) {
    invariant(!held[slot] && ids_[slot] < 0, "a free slot of a cache is taken");
    held[slot] = 1;
  }
}

}  // namespace livegnn
