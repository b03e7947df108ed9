#include "graph/edge_run.h"

#include <bit>

namespace livegnn {

namespace {
template <typename... Columns>
std::size_t capacity_bytes(const Columns&... columns) {
  return (std::size_t{0} + ... + (columns.capacity() * sizeof(columns[0])));
}

std::uint64_t pack(VertexId owner, std::size_t place) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(owner)) << 32 | place;
}
}  // namespace

std::size_t GroupedRun::bytes() const {
  return capacity_bytes(groups_, keys_, spare_, counts_, neighbours_, ids_, weights_, times_, types_);
}

// Digits of 11 bits, the last first; all bits at once where that many counters are few beside the keys.
void GroupedRun::sort(VertexId slot_count) {
  const int bits = std::bit_width(static_cast<std::uint32_t>(slot_count));
  const int digit_bits = bits <= 17 && (std::size_t{1} << bits) <= keys_.size() ? bits : 11;
  const std::uint64_t mask = (std::uint64_t{1} << digit_bits) - 1;
  spare_.resize(keys_.size());
  for (int shift = 32; shift < 32 + bits; shift += digit_bits) {
    counts_.assign(mask + 1, 0);
    for (const std::uint64_t key : keys_) ++counts_[key >> shift & mask];
    std::uint32_t start = 0;
    for (std::uint32_t& count : counts_) {
      const std::uint32_t digit = count;
      count = start;
      start += digit;
    }
    for (const std::uint64_t key : keys_) spare_[counts_[key >> shift & mask]++] = key;
    keys_.swap(spare_);
  }
}

void GroupedRun::collect_both(const EdgeRun& run, VertexId last_bit) {
  keys_.resize(2 * run.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < run.size(); ++i) {  // written in any case, kept where it counts: no branch to mispredict
    const VertexId u = run[i].src, v = run[i].dst;
    keys_[count] = pack(u, 2 * i);
    count += (u & 1) == last_bit;
    keys_[count] = pack(v, 2 * i + 1);
    count += (v & 1) == last_bit && u != v;
  }
  keys_.resize(count);
}

void GroupedRun::assign(const EdgeRun& run, RunSide side, VertexId slot_count, const PoolColumns& columns) {
  const bool both = side == RunSide::BothEven || side == RunSide::BothOdd;
  const int ends_bits = both ? 1 : 0;
  if (both) {
    collect_both(run, side == RunSide::BothOdd ? 1 : 0);
  } else {
    keys_.resize(run.size());
    for (std::size_t i = 0; i < run.size(); ++i) keys_[i] = pack(side == RunSide::BySrc ? run[i].src : run[i].dst, i);
  }
  sort(slot_count);
  const std::size_t count = keys_.size();
  neighbours_.resize(count);
  ids_.resize(count);
  weights_.resize(columns.weight ? count : 0);
  times_.resize(columns.time ? count : 0);
  types_.resize(columns.type ? count : 0);
  groups_.clear();
  const auto edge_at = [&](std::size_t i) { return &run[static_cast<std::uint32_t>(keys_[i]) >> ends_bits]; };
  constexpr std::size_t kAhead = 16;
  VertexId known = kNoVertex;
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) prefetch_line(edge_at(i + kAhead));
    const auto owner = static_cast<VertexId>(keys_[i] >> 32);
    if (owner != known) groups_.push_back({owner, static_cast<std::int64_t>(i)});
    known = owner;
    const EdgeRecord& edge = *edge_at(i);
    const bool owner_is_src = both ? (keys_[i] & 1) == 0 : side == RunSide::BySrc;
    neighbours_[i] = owner_is_src ? edge.dst : edge.src;
    ids_[i] = edge.id;
    if (columns.weight) weights_[i] = edge.weight;
    if (columns.time) times_[i] = edge.time;
    if (columns.type) types_[i] = edge.type;
  }
}

EdgeSpan GroupedRun::span(std::size_t group) const {
  const std::int64_t first = groups_[group].begin;
  const auto last = group + 1 < groups_.size() ? groups_[group + 1].begin : static_cast<std::int64_t>(ids_.size());
  return {neighbours_.data() + first,
          weights_.empty() ? nullptr : weights_.data() + first,
          ids_.data() + first,
          times_.empty() ? nullptr : times_.data() + first,
          types_.empty() ? nullptr : types_.data() + first,
          static_cast<std::int32_t>(last - first)};
}

}  // namespace livegnn
