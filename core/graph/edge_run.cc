#include "graph/edge_run.h"

#include <bit>

namespace livegnn {

void EdgeRun::clear() {
  src.clear();
  dst.clear();
  ids.clear();
  weights.clear();
  times.clear();
  types.clear();
}

void EdgeRun::reserve(std::size_t count, const PoolColumns& columns) {
  src.reserve(count);
  dst.reserve(count);
  ids.reserve(count);
  if (columns.weight) weights.reserve(count);
  if (columns.time) times.reserve(count);
  if (columns.type) types.reserve(count);
}

void EdgeRun::add(VertexId u, const EdgeEntry& entry, const PoolColumns& columns) {
  src.push_back(u);
  dst.push_back(entry.neighbour);
  ids.push_back(entry.id);
  if (columns.weight) weights.push_back(entry.weight);
  if (columns.time) times.push_back(entry.time);
  if (columns.type) types.push_back(entry.type);
}

namespace {
template <typename... Columns>
std::size_t capacity_bytes(const Columns&... columns) {
  return (std::size_t{0} + ... + (columns.capacity() * sizeof(columns[0])));
}
}  // namespace

std::size_t EdgeRun::bytes() const { return capacity_bytes(src, dst, ids, weights, times, types); }

std::size_t GroupedRun::bytes() const {
  return capacity_bytes(groups_, keys_, spare_, counts_, neighbours_, ids_, weights_, times_, types_);
}

EdgeEntry EdgeRun::entry(std::size_t i) const {
  EdgeEntry entry;
  entry.neighbour = dst[i];
  entry.id = ids[i];
  if (!weights.empty()) entry.weight = weights[i];
  if (!times.empty()) entry.time = times[i];
  if (!types.empty()) entry.type = types[i];
  return entry;
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

namespace {
template <typename T>
void gather(std::vector<T>& to, const std::vector<T>& from, const std::vector<std::uint64_t>& keys, int ends_bits) {
  to.resize(from.empty() ? 0 : keys.size());
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[static_cast<std::uint32_t>(keys[i]) >> ends_bits];
}
}  // namespace

namespace {
std::uint64_t pack(VertexId owner, std::size_t place) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(owner)) << 32 | place;
}
}  // namespace

void GroupedRun::collect_both(const EdgeRun& run, VertexId last_bit) {
  keys_.resize(2 * run.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < run.size(); ++i) {  // written in any case, kept where it counts: no branch to mispredict
    const VertexId u = run.src[i], v = run.dst[i];
    keys_[count] = pack(u, 2 * i);
    count += (u & 1) == last_bit;
    keys_[count] = pack(v, 2 * i + 1);
    count += (v & 1) == last_bit && u != v;
  }
  keys_.resize(count);
}

void GroupedRun::assign(const EdgeRun& run, RunSide side, VertexId slot_count) {
  const bool both = side == RunSide::BothEven || side == RunSide::BothOdd;
  const int ends_bits = both ? 1 : 0;
  if (both) {
    collect_both(run, side == RunSide::BothOdd ? 1 : 0);
  } else {
    const std::vector<VertexId>& owners = side == RunSide::BySrc ? run.src : run.dst;
    keys_.resize(run.size());
    for (std::size_t i = 0; i < run.size(); ++i) keys_[i] = pack(owners[i], i);
  }
  sort(slot_count);
  groups_.clear();
  gather(ids_, run.ids, keys_, ends_bits);
  gather(weights_, run.weights, keys_, ends_bits);
  gather(times_, run.times, keys_, ends_bits);
  gather(types_, run.types, keys_, ends_bits);
  neighbours_.resize(keys_.size());  // groups come last: whoever finds one finds its columns
  VertexId known = kNoVertex;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto owner = static_cast<VertexId>(keys_[i] >> 32);
    if (owner != known) groups_.push_back({owner, static_cast<std::int64_t>(i)});
    known = owner;
    const std::size_t edge = static_cast<std::uint32_t>(keys_[i]) >> ends_bits;
    const bool owner_is_src = both ? (keys_[i] & 1) == 0 : side == RunSide::BySrc;
    neighbours_[i] = owner_is_src ? run.dst[edge] : run.src[edge];
  }
}

EdgeSpan GroupedRun::span(std::int64_t first, std::int64_t last) const {
  return {neighbours_.data() + first,
          weights_.empty() ? nullptr : weights_.data() + first,
          ids_.data() + first,
          times_.empty() ? nullptr : times_.data() + first,
          types_.empty() ? nullptr : types_.data() + first,
          static_cast<std::int32_t>(last - first)};
}

}  // namespace livegnn
