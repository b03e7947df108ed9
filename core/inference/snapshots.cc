#include "inference/snapshots.h"

#include <algorithm>
#include <cstring>

#include "livegnn/error.h"

namespace livegnn {

namespace {

constexpr std::int64_t kBlockFloats = 1 << 14;

}  // namespace

Snapshots::Snapshots(int width)
    : width_(width), block_rows_(std::max<std::int64_t>(1, kBlockFloats / std::max(1, width))) {}

const Snapshots::MomentRows& Snapshots::open(std::int64_t moment, std::int64_t version, VertexId slots,
                                             std::int64_t vertex_count) {
  if (groups_.empty() || groups_.back()->moment != moment) {
    groups_.push_back(std::make_unique<MomentRows>(MomentRows{moment, version, slots, vertex_count, 0, {}, {}, {}, 0}));
  }
  ++groups_.back()->holders;
  return *groups_.back();
}

std::unique_ptr<Snapshots::MomentRows> Snapshots::close(std::int64_t moment) {
  const std::size_t place = this->place(moment);
  if (--groups_[place]->holders > 0) return nullptr;
  std::unique_ptr<MomentRows> closed = std::move(groups_[place]);
  groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(place));
  if (place == 0) return closed;
  MomentRows& before = *groups_[place - 1];
  closed->rows.each([&](VertexId v, const float* row) { keep(before, v, row); });
  for (const auto& [v, live] : closed->live) before.live.try_emplace(v, live);
  return closed;
}

void Snapshots::keep(MomentRows& group, VertexId v, const float* row) {
  if (v >= group.slots || group.rows.find(v) != nullptr) return;
  const std::int64_t in_block = group.row_count % block_rows_;
  if (in_block == 0) group.blocks.push_back(std::make_unique_for_overwrite<float[]>(at(block_rows_ * width_)));
  float* kept = group.blocks.back().get() + in_block * width_;
  std::memcpy(kept, row, at(width_) * sizeof(float));
  group.rows.add(v, kept);
  ++group.row_count;
}

std::size_t Snapshots::place(std::int64_t moment) const {
  const auto found = std::lower_bound(groups_.begin(), groups_.end(), moment,
                                      [](const auto& group, std::int64_t wanted) { return group->moment < wanted; });
  invariant(found != groups_.end() && (*found)->moment == moment, "a snapshot was read that is not open");
  return at(found - groups_.begin());
}

const float* Snapshots::row(std::size_t place, VertexId v) const {
  for (; place < groups_.size(); ++place) {
    if (const float* found = groups_[place]->rows.find(v); found != nullptr) return found;
  }
  return nullptr;
}

bool Snapshots::live(std::size_t place, VertexId v, bool live_now) const {
  for (; place < groups_.size(); ++place) {
    const MomentRows& group = *groups_[place];
    if (const auto found = group.live.find(v); found != group.live.end()) return found->second;
  }
  return live_now;
}

std::size_t Snapshots::bytes() const {
  std::size_t bytes = 0;
  for (const auto& group : groups_) {
    bytes += group->blocks.size() * at(block_rows_ * width_) * sizeof(float);
    bytes += group->rows.bytes() + group->live.bucket_count() * sizeof(void*) + group->live.size() * 3 * sizeof(void*);
  }
  return bytes;
}

}  // namespace livegnn
