// lru and fifo: a log of slots, in which only the last entry of a slot counts. A use is one write to the slot's stamp
// and one at the log's end; the log is swept when it is mostly stale, so that an operation costs O(1) in the mean.
// lfu: a list of slots for each number of uses, the lists in a list of their own.
#include "temporal/replacement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "livegnn/detail/graph_memory.h"
#include "livegnn/detail/prefetch.h"

namespace livegnn {
namespace {

constexpr std::size_t kAhead = 16;  // places ahead that are brought in

template <typename T>
Column<T> filled(std::int32_t count, T value) {
  Column<T> column;
  column.reserve(count);
  std::fill(column.data(), column.data() + count, value);
  return column;
}

// Entries are numbered from the last sweep on; 4 bytes do, as a log is not much longer than its cache.
class AccessLog {
 public:
  explicit AccessLog(std::int32_t capacity) : capacity_(capacity), stamps_(filled(capacity, kOut)) {}

  std::int32_t end() const { return end_; }
  void append(std::int32_t slot) {
    if (end_ >= log_.capacity()) log_.reserve(end_ + 1024);
    stamps_[slot] = end_;
    log_[end_++] = slot;
  }
  // Entries for those of `places` that are slots without one from `begin` on. No branch: what comes is as good as
  // random.
  void append_new(std::span<const std::int32_t> places, std::int32_t begin) {
    const std::int64_t needed = end_ + static_cast<std::int64_t>(places.size());
    if (needed > log_.capacity()) log_.reserve(needed);
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (i + kAhead < places.size()) prefetch_line(&stamps_[std::max(places[i + kAhead], 0)]);
      const std::int32_t slot = std::max(places[i], 0), stamp = stamps_[slot];
      const bool is_new = places[i] >= 0 && stamp < begin;
      log_[end_] = slot;
      stamps_[slot] = is_new ? end_ : stamp;
      end_ += is_new ? 1 : 0;
    }
  }
  void remove(std::int32_t slot) { stamps_[slot] = kOut; }
  // Takes out the `count` oldest slots with an entry before `end` that `stays(slot)` does not keep; there are so many.
  template <typename Stays>
  void take_oldest(std::int64_t count, std::int32_t end, std::vector<std::int32_t>& slots, const Stays& stays) {
    std::size_t taken = slots.size();
    const std::size_t wanted = taken + static_cast<std::size_t>(count);
    slots.resize(wanted + 1);  // a place for the one that may not be taken
    bool at_head = true;       // nothing before is live
    for (std::int32_t at = head_; taken < wanted && at < end; ++at) {
      if (at + kAheadOfWalk < end_) prefetch_line(&stamps_[log_[at + kAheadOfWalk]]);
      const std::int32_t slot = log_[at], stamp = stamps_[slot];
      const bool is_taken = stamp == at && !stays(slot);
      at_head = at_head && (is_taken || stamp != at);
      head_ += at_head ? 1 : 0;
      slots[taken] = slot;
      stamps_[slot] = is_taken ? kOut : stamp;
      taken += is_taken ? 1 : 0;
    }
    invariant(taken == wanted, "fewer rows to evict than there should be");
    slots.resize(wanted);
  }
  void list(std::vector<std::int32_t>& slots) const {
    for (std::int32_t at = head_; at < end_; ++at) {
      if (is_live(at)) slots.push_back(log_[at]);
    }
  }
  // Between fetches: stamps are given anew.
  void sweep_if_stale() {
    if (end_ < 3 * static_cast<std::int64_t>(capacity_) + 4096) return;
    const std::int32_t end = std::exchange(end_, 0);
    for (std::int32_t at = std::exchange(head_, 0); at < end; ++at) {
      if (at + kAheadOfWalk < end) prefetch_line(&stamps_[log_[at + kAheadOfWalk]]);
      if (!is_live(at)) continue;
      stamps_[log_[at]] = end_;
      log_[end_++] = log_[at];
    }
  }
  void assign(std::span<const std::int32_t> slots) {
    head_ = end_ = 0;
    std::fill(stamps_.data(), stamps_.data() + capacity_, kOut);
    for (const std::int32_t slot : slots) append(slot);
  }
  std::size_t bytes() const { return log_.bytes() + stamps_.bytes(); }

 private:
  static constexpr std::int32_t kOut = -1, kAheadOfWalk = 16;
  bool is_live(std::int32_t at) const { return stamps_[log_[at]] == at; }

  std::int32_t capacity_;
  Column<std::int32_t> stamps_;  // by slot: the number of its last entry
  Column<std::int32_t> log_;
  std::int32_t head_ = 0, end_ = 0;
};

// What lru and fifo share: slots go in the order of a log. Which of them the fetch under way has used, each tells.
class Logged : public Replacement {
 public:
  void admit(std::int32_t slot) final { log_.append(slot); }
  void remove(std::int32_t slot) final { log_.remove(slot); }
  void list(std::vector<std::int32_t>& slots, std::vector<std::int64_t>& uses) const final {
    log_.list(slots);
    uses.assign(slots.size(), 1);
  }
  void assign(std::span<const std::int32_t> slots, std::span<const std::int64_t>) final { log_.assign(slots); }

 protected:
  explicit Logged(std::int32_t capacity) : log_(capacity) {}
  AccessLog log_;
};

class LeastRecent final : public Logged {
 public:
  explicit LeastRecent(std::int32_t capacity) : Logged(capacity) {}
  std::int64_t use(std::span<const std::int32_t> places) override {
    log_.sweep_if_stale();
    begin_ = log_.end();
    log_.append_new(places, begin_);
    return log_.end() - begin_;
  }
  void evict(std::int64_t count, std::vector<std::int32_t>& slots) override {
    log_.take_oldest(count, begin_, slots, [](std::int32_t) { return false; });  // what is used stands behind begin_
  }
  std::size_t bytes() const override { return log_.bytes(); }

 private:
  std::int32_t begin_ = 0;  // of the entries of this fetch
};

class FirstIn final : public Logged {
 public:
  explicit FirstIn(std::int32_t capacity) : Logged(capacity), used_(filled<std::int64_t>(capacity, 0)) {}
  std::int64_t use(std::span<const std::int32_t> places) override {
    log_.sweep_if_stale();
    ++fetch_;
    std::int64_t count = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (i + kAhead < places.size()) prefetch_line(&used_[std::max(places[i + kAhead], 0)]);
      if (places[i] >= 0) count += std::exchange(used_[places[i]], fetch_) != fetch_;
    }
    return count;
  }
  void evict(std::int64_t count, std::vector<std::int32_t>& slots) override {
    log_.take_oldest(count, log_.end(), slots, [&](std::int32_t slot) { return used_[slot] == fetch_; });
  }
  std::size_t bytes() const override { return log_.bytes() + used_.bytes(); }

 private:
  Column<std::int64_t> used_;  // by slot: the last fetch that used it
  std::int64_t fetch_ = 0;
};

class LeastFrequent final : public Replacement {
 public:
  explicit LeastFrequent(std::int32_t capacity) : capacity_(capacity), entries_(filled(capacity, SlotEntry{})) {}
  std::int64_t use(std::span<const std::int32_t> places) override {
    ++fetch_;
    std::int64_t count = 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (i + 2 * kAhead < places.size()) prefetch_line(&entries_[std::max(places[i + 2 * kAhead], 0)]);
      if (i + kAhead < places.size()) prefetch_beside(std::max(places[i + kAhead], 0));
      if (places[i] < 0 || entries_[places[i]].used == fetch_) continue;
      ++count;
      use(places[i]);
    }
    return count;
  }
  void evict(std::int64_t count, std::vector<std::int32_t>& slots) override {
    const std::size_t begin = slots.size();
    for (std::int32_t list = first_; list != kNone && count > 0; list = lists_[list].next) {
      // those that this fetch used stand at the list's end
      for (std::int32_t slot = lists_[list].first; slot != kNone && count > 0; slot = entries_[slot].next) {
        if (entries_[slot].used == fetch_) break;
        slots.push_back(slot);
        --count;
      }
    }
    invariant(count == 0, "fewer rows to evict than there should be");
    for (std::size_t i = begin; i < slots.size(); ++i) remove(slots[i]);
  }
  void admit(std::int32_t slot) override {
    entries_[slot].used = fetch_;
    append(slot, list_after(kNone, 1));
  }
  void remove(std::int32_t slot) override { unlink(slot); }
  void list(std::vector<std::int32_t>& slots, std::vector<std::int64_t>& uses) const override {
    for (std::int32_t list = first_; list != kNone; list = lists_[list].next) {
      for (std::int32_t slot = lists_[list].first; slot != kNone; slot = entries_[slot].next) {
        slots.push_back(slot);
        uses.push_back(lists_[list].uses);
      }
    }
  }
  void assign(std::span<const std::int32_t> slots, std::span<const std::int64_t> uses) override {
    std::fill(entries_.data(), entries_.data() + capacity_, SlotEntry{});
    lists_.clear();
    spare_.clear();
    first_ = kNone;
    std::vector<std::size_t> order(slots.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return uses[a] < uses[b]; });
    std::int32_t last = kNone;
    for (const std::size_t i : order) {
      if (last == kNone || lists_[last].uses != uses[i]) last = list_after(last, uses[i]);
      append(slots[i], last);
    }
  }
  std::size_t bytes() const override {
    return entries_.bytes() + lists_.capacity() * sizeof(UseList) + spare_.capacity() * sizeof(int);
  }

 private:
  static constexpr std::int32_t kNone = -1;
  struct SlotEntry {  // of a slot
    std::int32_t previous = kNone, next = kNone, list = kNone;
    std::int64_t used = 0;  // the last fetch that used it
  };
  struct UseList {  // slots of one number of uses, the one used longest ago first; never empty between two calls
    std::int64_t uses = 0;
    std::int32_t first = kNone, last = kNone, previous = kNone, next = kNone;
  };

  void prefetch_beside(std::int32_t slot) const {
    const SlotEntry& entry = entries_[slot];
    prefetch_line(&entries_[std::max(entry.previous, 0)]);
    prefetch_line(&entries_[std::max(entry.next, 0)]);
  }
  void use(std::int32_t slot) {
    const std::int32_t from = entries_[slot].list;
    const std::int32_t to = list_after(from, lists_[from].uses + 1);
    entries_[slot].used = fetch_;
    unlink(slot);
    append(slot, to);
  }
  // The list of so many uses, which comes right after `list` (kNone: at the front), made if it is not there.
  std::int32_t list_after(std::int32_t list, std::int64_t uses) {
    const std::int32_t next = list == kNone ? first_ : lists_[list].next;
    if (next != kNone && lists_[next].uses == uses) return next;
    std::int32_t made = 0;
    if (spare_.empty()) {
      made = static_cast<std::int32_t>(lists_.size());
      lists_.emplace_back();
    } else {
      made = spare_.back();
      spare_.pop_back();
    }
    lists_[made] = {uses, kNone, kNone, list, next};
    (list == kNone ? first_ : lists_[list].next) = made;
    if (next != kNone) lists_[next].previous = made;
    return made;
  }
  void append(std::int32_t slot, std::int32_t at) {
    SlotEntry& entry = entries_[slot];
    UseList& list = lists_[at];
    entry.previous = list.last;
    entry.next = kNone;
    entry.list = at;
    (list.last == kNone ? list.first : entries_[list.last].next) = slot;
    list.last = slot;
  }
  void unlink(std::int32_t slot) {
    const SlotEntry& entry = entries_[slot];
    const std::int32_t at = entry.list;
    UseList& list = lists_[at];
    (entry.previous == kNone ? list.first : entries_[entry.previous].next) = entry.next;
    (entry.next == kNone ? list.last : entries_[entry.next].previous) = entry.previous;
    if (list.first != kNone) return;
    (list.previous == kNone ? first_ : lists_[list.previous].next) = list.next;
    if (list.next != kNone) lists_[list.next].previous = list.previous;
    spare_.push_back(at);
  }

  std::int32_t capacity_;
  Column<SlotEntry> entries_;
  std::vector<UseList> lists_;
  std::vector<std::int32_t> spare_;  // places of lists_ that hold none
  std::int32_t first_ = kNone;
  std::int64_t fetch_ = 0;
};

}  // namespace

std::unique_ptr<Replacement> make_replacement(CachePolicy policy, std::int32_t capacity) {
  if (policy == CachePolicy::Lru) return std::make_unique<LeastRecent>(capacity);
  if (policy == CachePolicy::Lfu) return std::make_unique<LeastFrequent>(capacity);
  return std::make_unique<FirstIn>(capacity);  // static: in order of admission, and nothing is evicted
}

}  // namespace livegnn
