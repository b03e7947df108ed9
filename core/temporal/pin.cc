#include "temporal/pin.h"

#include <cstring>
#include <unordered_map>

namespace livegnn {

namespace {
template <typename Values, typename Value, typename Key>
void insert_in_order(Values& values, const Value& value, Key&& key) {
  auto at = values.end();
  if (!values.empty() && key(value) < key(values.back())) {
    at = std::upper_bound(values.begin(), values.end(), value,
                          [&](const Value& a, const Value& b) { return key(a) < key(b); });
  }
  values.insert(at, value);
}
}  // namespace

struct TemporalPin::Impl {
  std::vector<std::uint64_t> changed;  // one bit a slot: whether `lists` knows it
  std::unordered_map<VertexId, Changes> lists;
  std::unordered_map<VertexId, bool> was_live;                    // of vertices that came or went since
  std::unordered_map<VertexId, std::vector<float>> feature_rows;  // as they were

  bool is_changed(VertexId v) const {
    const auto word = static_cast<std::size_t>(v) / 64;
    return word < changed.size() && (changed[word] >> (v % 64) & 1) != 0;
  }
  Changes& list(VertexId v) {
    const auto word = static_cast<std::size_t>(v) / 64;
    if (word >= changed.size()) changed.resize(word + 1, 0);
    changed[word] |= std::uint64_t{1} << (v % 64);
    return lists[v];
  }
};

TemporalPin::TemporalPin(const GraphStore& graph)
    : graph_(graph), version_(graph.version()), next_edge_id_(graph.next_edge_id()), impl_(std::make_unique<Impl>()) {}

TemporalPin::~TemporalPin() = default;

void TemporalPin::check(const BatchDelta&) const {}

void TemporalPin::follow(const BatchDelta& delta, const UpdateBuffer&) {
  const auto same = [](const EdgeKey& key) { return key; };
  for (const EdgeRecord& edge : delta.removed) {
    Changes& changes = impl_->list(edge.dst);
    const EdgeKey key{edge.time, edge.id};
    if (edge.id >= next_edge_id_) {
      changes.added.erase(std::lower_bound(changes.added.begin(), changes.added.end(), key));
      continue;
    }
    const Changes::Removed gone{{edge.src, edge.type, edge.weight, edge.id, edge.time}};
    insert_in_order(changes.removed, gone, [](const Changes::Removed& removed) { return removed.key(); });
  }
  for (const EdgeRecord& edge : delta.added) {
    insert_in_order(impl_->list(edge.dst).added, EdgeKey{edge.time, edge.id}, same);
  }
  for (const VertexId v : delta.vertices_removed) impl_->was_live.try_emplace(v, true);
  for (const VertexId v : delta.vertices_added) impl_->was_live.try_emplace(v, false);
  const auto stride = static_cast<std::size_t>(graph_.feature_stride());
  for (std::size_t i = 0; i < delta.features_changed.size(); ++i) {
    const float* before = delta.features_before.data() + i * stride;
    impl_->feature_rows.try_emplace(delta.features_changed[i], before, before + graph_.options().feature_width);
  }
}

bool TemporalPin::is_live(std::int64_t v) const {
  if (v < 0 || v >= graph_.slot_count()) return false;
  const auto known = impl_->was_live.find(static_cast<VertexId>(v));
  return known == impl_->was_live.end() ? graph_.is_live(static_cast<VertexId>(v)) : known->second;
}

const float* TemporalPin::feature_row(VertexId v) const {
  const auto kept = impl_->feature_rows.find(v);
  return kept == impl_->feature_rows.end() ? graph_.feature_row(v) : kept->second.data();
}

const TemporalPin::Changes* TemporalPin::changes(VertexId v) const {
  return impl_->is_changed(v) ? &impl_->lists.find(v)->second : nullptr;
}

std::size_t TemporalPin::bytes() const {
  std::size_t total = impl_->changed.size() * sizeof(std::uint64_t);
  for (const auto& [v, changes] : impl_->lists) {
    total += sizeof(changes) + changes.added.capacity() * sizeof(EdgeKey) +
             changes.removed.capacity() * sizeof(Changes::Removed);
  }
  for (const auto& [v, row] : impl_->feature_rows) total += row.capacity() * sizeof(float);
  return total;
}

}  // namespace livegnn
