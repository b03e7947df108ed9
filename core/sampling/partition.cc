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

// A partition's graph has no features.
Update without_row(Update update) {
  update.row = -1;
  update.row_width = 0;
  return update;
}
}  // namespace

PartitionedUpdates partition_updates(const UpdateBuffer& batch, std::span<const std::uint8_t> owned, EdgePolicy policy,
                                     EdgeId next_edge_id, bool attributes) {
  invariant(owned.size() == kBuckets, "flags of owned buckets of the wrong number");
  PartitionedUpdates part{{}, next_edge_id, INT64_MIN, 0};
  const auto with_attributes = [&](const Update& update) {
    Update kept = without_row(update);
    if (!attributes || update.row < 0) return kept;
    kept.row = part.buffer.add_row({batch.row(update), static_cast<std::size_t>(update.row_width)});
    kept.row_width = update.row_width;
    return kept;
  };
  for (const Update& update : batch.updates()) {
    switch (update.kind) {
      case UpdateKind::AddEdge: {
        if (update.time != kUnsetTime) part.latest = std::max(part.latest, update.time);
        if (keeps_edge(owned, policy, update)) {
          Update kept = with_attributes(update);
          kept.edge_id = part.next_edge_id;
          part.buffer.add(kept);
        }
        ++part.next_edge_id;
        ++part.additions;
        break;
      }
      case UpdateKind::RemoveEdge:
      case UpdateKind::SetWeight:
        if (keeps_edge(owned, policy, update)) part.buffer.add(update);
        break;
      case UpdateKind::RemoveEdgesBefore:
      case UpdateKind::AddVertex:
      case UpdateKind::RemoveVertex:
        part.buffer.add(without_row(update));
        break;
      case UpdateKind::SetEdgeAttr:
        if (attributes && keeps_edge(owned, policy, update)) part.buffer.add(with_attributes(update));
        break;
      case UpdateKind::SetFeatures:
        break;
    }
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

struct FeatureRows::Impl {
  std::int32_t width;
  FeatureDtype dtype;
  EdgeIdMap place_of;  // by vertex
  Column<float> rows;
  std::int64_t row_count = 0;
  std::vector<std::int64_t> free;
  std::vector<std::uint16_t> bits{};  // of one row, and what they stand for
  std::vector<float> rounded{};

  float* row(std::int64_t place) { return rows.data() + place * width; }

  std::span<const float> as_stored(std::span<const float> given) {
    if (dtype == FeatureDtype::Float32) return given;
    const HalfCodec& codec = half_codec();
    const auto encode = dtype == FeatureDtype::Float16 ? codec.encode_float16 : codec.encode_bfloat16;
    bits.resize(given.size());
    rounded.resize(given.size());
    encode(bits.data(), given.data(), given.size());
    decode(dtype, rounded.data(), bits.data(), static_cast<std::int64_t>(given.size()));
    return rounded;
  }

  std::int64_t new_place(VertexId v) {
    std::int64_t place = row_count;
    if (!free.empty()) {
      place = free.back();
      free.pop_back();
    } else {
      rows.reserve((row_count + 1) * width);
      ++row_count;
    }
    place_of.insert(v, place);
    return place;
  }
};

FeatureRows::FeatureRows(std::int32_t width, FeatureDtype dtype) : impl_(std::make_unique<Impl>()) {
  impl_->width = width;
  impl_->dtype = dtype;
}
FeatureRows::~FeatureRows() = default;

std::int32_t FeatureRows::width() const { return impl_->width; }
std::int64_t FeatureRows::count() const { return impl_->place_of.count(); }

const float* FeatureRows::find(VertexId v) const {
  static constexpr float kNoColumns = 0.0f;
  const std::int64_t place = impl_->place_of.find(v);
  if (place == EdgeIdMap::kNone) return nullptr;
  return impl_->width == 0 ? &kNoColumns : impl_->row(place);
}

void FeatureRows::prefetch(VertexId v) const { impl_->place_of.prefetch(v); }

bool FeatureRows::set(VertexId v, std::span<const float> given) {
  const std::span<const float> row = impl_->as_stored(given);
  const auto width = static_cast<std::size_t>(impl_->width);
  invariant(row.size() <= width, "a row of features is too wide");
  std::int64_t place = impl_->place_of.find(v);
  const bool is_new = place == EdgeIdMap::kNone;
  if (is_new) place = impl_->new_place(v);
  if (width == 0) return is_new;
  float* kept = impl_->row(place);
  const bool same = !is_new && std::memcmp(kept, row.data(), row.size_bytes()) == 0 &&
                    std::all_of(kept + row.size(), kept + width, [](float x) { return x == 0.0f; });
  if (same) return false;
  if (!row.empty()) std::memcpy(kept, row.data(), row.size_bytes());
  std::fill(kept + row.size(), kept + width, 0.0f);
  return true;
}

void FeatureRows::erase(VertexId v) {
  const std::int64_t place = impl_->place_of.erase(v);
  if (place != EdgeIdMap::kNone) impl_->free.push_back(place);
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
  impl_->place_of.visit([&](EdgeId v, std::int64_t) { found.push_back(static_cast<VertexId>(v)); });
  std::sort(found.begin(), found.end());
  return found;
}

std::size_t FeatureRows::bytes() const {
  return impl_->rows.bytes() + impl_->place_of.bytes() + impl_->free.capacity() * sizeof(std::int64_t);
}

}  // namespace livegnn
