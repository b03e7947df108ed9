#include "graph/edge_run.h"

#include <array>
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

EdgeEntry EdgeRun::entry(std::size_t i) const {
  EdgeEntry entry;
  entry.neighbour = dst[i];
  entry.id = ids[i];
  if (!weights.empty()) entry.weight = weights[i];
  if (!times.empty()) entry.time = times[i];
  if (!types.empty()) entry.type = types[i];
  return entry;
}

// Digits of 11 bits, the last first; a digit that all keys share is not sorted by.
void GroupedRun::sort(VertexId slot_count) {
  constexpr int kDigitBits = 11;
  constexpr std::uint64_t kDigits = std::uint64_t{1} << kDigitBits;
  spare_.resize(keys_.size());
  const int bits = std::bit_width(static_cast<std::uint32_t>(slot_count));
  for (int shift = 32; shift < 32 + bits; shift += kDigitBits) {
    std::array<std::size_t, kDigits> next{};
    for (const std::uint64_t key : keys_) ++next[key >> shift & (kDigits - 1)];
    std::size_t start = 0;
    for (std::size_t& count : next) {
      const std::size_t digit = count;
      count = start;
      start += digit;
    }
    for (const std::uint64_t key : keys_) spare_[next[key >> shift & (kDigits - 1)]++] = key;
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

void GroupedRun::assign(const EdgeRun& run, RunSide side, VertexId slot_count) {
  const std::size_t count = run.size();
  const auto pack = [](VertexId owner, std::size_t place) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(owner)) << 32 | place;
  };
  keys_.clear();
  const int ends_bits = side == RunSide::Both ? 1 : 0;
  keys_.reserve(count << ends_bits);
  if (side == RunSide::Both) {
    for (std::size_t i = 0; i < count; ++i) {
      keys_.push_back(pack(run.src[i], 2 * i));
      if (run.src[i] != run.dst[i]) keys_.push_back(pack(run.dst[i], 2 * i + 1));
    }
  } else {
    const std::vector<VertexId>& owners = side == RunSide::BySrc ? run.src : run.dst;
    for (std::size_t i = 0; i < count; ++i) keys_.push_back(pack(owners[i], i));
  }
  sort(slot_count);
  groups_.clear();
  neighbours_.resize(keys_.size());
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto owner = static_cast<VertexId>(keys_[i] >> 32);
    if (groups_.empty() || groups_.back().owner != owner) groups_.push_back({owner, static_cast<std::int64_t>(i)});
    const std::size_t edge = static_cast<std::uint32_t>(keys_[i]) >> ends_bits;
    const bool owner_is_src = side == RunSide::BySrc || (side == RunSide::Both && (keys_[i] & 1) == 0);
    neighbours_[i] = owner_is_src ? run.dst[edge] : run.src[edge];
  }
  gather(ids_, run.ids, keys_, ends_bits);
  gather(weights_, run.weights, keys_, ends_bits);
  gather(times_, run.times, keys_, ends_bits);
  gather(types_, run.types, keys_, ends_bits);
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
