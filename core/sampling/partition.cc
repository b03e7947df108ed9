// What one partition takes of a batch, and the features of its vertices.
#include <algorithm>
#include <cstring>

#include "livegnn/sampling_workers.h"
#include "sampling/candidates.h"
#include "util/aligned.h"
#include "util/half.h"

namespace livegnn {

namespace {
bool owns(std::span<const std::uint8_t> owned, std::int64_t id) {
  return id >= 0 && id <= INT32_MAX && owned[static_cast<std::size_t>(bucket_of(static_cast<VertexId>(id)))] != 0;
}

bool keeps_edge(std::span<const std::uint8_t> owned, EdgePolicy policy, const Update& update) {
  return (policy != EdgePolicy::ByDestination && owns(owned, update.u)) ||
         (policy != EdgePolicy::BySource && owns(owned, update.v));
}
}  // namespace

PartitionedUpdates partition_updates(const UpdateBuffer& batch, std::span<const std::uint8_t> owned, EdgePolicy policy,
                                     EdgeId next_edge_id, bool attributes) {
  invariant(owned.size() == kBuckets, "flags of owned buckets of the wrong number");
  PartitionedUpdates part{{}, next_edge_id, INT64_MIN};
  for (const Update& update : batch.updates()) {
    const bool adds = update.kind == UpdateKind::AddEdge, sets_attr = update.kind == UpdateKind::SetEdgeAttr;
    const bool of_one_edge =
        adds || sets_attr || update.kind == UpdateKind::RemoveEdge || update.kind == UpdateKind::SetWeight;
    Update kept = update;
    if (adds) {
      kept.edge_id = part.next_edge_id++;
      if (update.time != kUnsetTime) part.latest = std::max(part.latest, update.time);
    }
    if (update.kind == UpdateKind::SetFeatures || (sets_attr && !attributes)) continue;
    if (of_one_edge && !keeps_edge(owned, policy, update)) continue;
    kept.row = -1;  // a partition's graph has no features
    kept.row_width = 0;
    if (attributes && of_one_edge && update.row >= 0) {
      kept.row = part.buffer.add_row({batch.row(update), static_cast<std::size_t>(update.row_width)});
      kept.row_width = update.row_width;
    }
    part.buffer.add(kept);
  }
  return part;
}

void BatchTap::check(const BatchDelta& delta) const {
  const auto check_edge = [&](const EdgeRecord& edge, float weight, WeightOf of) {
    for (const std::int32_t type : weighted_types_) {
      if (type == kAnyType || type == edge.type) check_sample_weight(edge, weight, of);
    }
  };
  for (const EdgeRecord& edge : delta.added) check_edge(edge, edge.weight, WeightOf::Added);
  for (const EdgeReweighted& edge : delta.reweighted) check_edge(edge.before, edge.weight_after, WeightOf::Reweighted);
}

void BatchTap::follow(const BatchDelta&, const UpdateBuffer& batch) { latest_ = batch; }

// ---- features

FeatureRows::FeatureRows(std::int32_t width, FeatureDtype dtype)
    : width_(width), dtype_(dtype), rows_(std::max(width, 1)), row_(static_cast<std::size_t>(std::max(width, 1))) {}

void FeatureRows::read(VertexId v, float* out, std::int32_t width) const {
  if (const float* row = find(v)) {
    std::copy_n(row, width, out);
  } else {
    std::fill_n(out, width, 0.0f);
  }
}

bool FeatureRows::set(VertexId v, std::span<const float> given) {
  invariant(given.size() <= static_cast<std::size_t>(width_), "a row of features is too wide");
  std::fill(std::ranges::copy(given, row_.begin()).out, row_.end(), 0.0f);
  if (dtype_ != FeatureDtype::Float32) {
    const HalfCodec& codec = half_codec();
    const auto encode = dtype_ == FeatureDtype::Float16 ? codec.encode_float16 : codec.encode_bfloat16;
    bits_.resize(row_.size());
    encode(bits_.data(), row_.data(), row_.size());
    decode(dtype_, row_.data(), bits_.data(), static_cast<std::int64_t>(row_.size()));
  }
  float* kept = rows_.find(v);
  if (kept == nullptr) {
    rows_.insert(v, row_.data());
    return true;
  }
  if (std::memcmp(kept, row_.data(), row_.size() * sizeof(float)) == 0) return false;
  std::ranges::copy(row_, kept);
  return true;
}

void FeatureRows::erase(VertexId v) {
  if (rows_.find(v) != nullptr) rows_.erase(v);
}

std::vector<VertexId> FeatureRows::follow(const UpdateBuffer& batch, std::span<const std::uint8_t> owned) {
  invariant(owned.size() == kBuckets, "flags of owned buckets of the wrong number");
  std::vector<VertexId> changed;
  for (const Update& update : batch.updates()) {
    const bool sets = update.kind == UpdateKind::SetFeatures || update.kind == UpdateKind::AddVertex;
    if ((!sets && update.kind != UpdateKind::RemoveVertex) || !owns(owned, update.u)) continue;
    const auto v = static_cast<VertexId>(update.u);
    if (!sets) {
      erase(v);
    } else if (set(v, {batch.row(update), static_cast<std::size_t>(update.row < 0 ? 0 : update.row_width)})) {
      changed.push_back(v);
    }
  }
  std::sort(changed.begin(), changed.end());
  changed.erase(std::unique(changed.begin(), changed.end()), changed.end());
  return changed;
}

std::vector<VertexId> FeatureRows::vertices() const {
  std::vector<VertexId> found;
  found.reserve(static_cast<std::size_t>(count()));
  rows_.index().visit([&](EdgeId v, std::int64_t) { found.push_back(static_cast<VertexId>(v)); });
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace livegnn
