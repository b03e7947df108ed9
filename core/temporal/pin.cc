#include "temporal/pin.h"

#include <functional>
#include <unordered_map>

namespace livegnn {

namespace {
constexpr std::size_t kScratchMax = 1024;  // changes: memory for more is not kept for the next batch

EdgeKey key_of(const EdgeKey& key) { return key; }

// A batch's changes of one kind, by the list that each is of and in its order.
template <typename Value>
struct Changed {
  VertexId list;
  Value value;
  friend bool operator<(const Changed& a, const Changed& b) {
    return a.list != b.list ? a.list < b.list : key_of(a.value) < key_of(b.value);
  }
};

// visitor(list, first, last) for each list's part.
template <typename Value, typename Visitor>
void visit_lists(std::vector<Changed<Value>>& changes, Visitor&& visitor) {
  if (!std::is_sorted(changes.begin(), changes.end())) std::sort(changes.begin(), changes.end());
  for (auto first = changes.begin(); first != changes.end();) {
    auto last = first;
    while (last != changes.end() && last->list == first->list) ++last;
    visitor(first->list, first, last);
    first = last;
  }
}

template <typename Value, typename Iterator>
void merge(std::vector<Value>& into, Iterator first, Iterator last) {
  const auto in_order = [](const Value& a, const Value& b) { return key_of(a) < key_of(b); };
  const auto from = std::upper_bound(into.begin(), into.end(), first->value, in_order) - into.begin();
  const auto old = static_cast<std::ptrdiff_t>(into.size());
  for (; first != last; ++first) into.push_back(first->value);
  std::inplace_merge(into.begin() + from, into.begin() + old, into.end(), in_order);
}

// Both are in order.
template <typename Iterator>
void subtract(std::vector<EdgeKey>& from, Iterator first, Iterator last) {
  const auto gone = [&](const EdgeKey& key) {
    while (first != last && first->value < key) ++first;
    return first != last && first->value == key;
  };
  const auto start = std::lower_bound(from.begin(), from.end(), first->value);
  from.erase(std::remove_if(start, from.end(), std::ref(gone)), from.end());
}
}  // namespace

struct TemporalPin::Impl {
  std::vector<std::uint64_t> changed;  // one bit a slot: whether `lists` knows it
  std::unordered_map<VertexId, Changes> lists;
  std::unordered_map<VertexId, bool> was_live;                    // of vertices that came or went since
  std::unordered_map<VertexId, std::vector<float>> feature_rows;  // as they were
  std::unordered_map<EdgeId, std::vector<float>> attr_rows;  // likewise, of edges that were removed or reattributed
  std::unordered_map<VertexId, std::int32_t> types;          // of slots that have another type now
  std::unordered_map<EdgeId, float> weights;                 // of edges that were reweighted

  std::vector<Changed<EdgeEntry>> removed;  // of the batch at work
  std::vector<Changed<EdgeKey>> removed_newer, added;

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
  follow_edges(delta);
  for (const VertexId v : delta.vertices_removed) impl_->was_live.try_emplace(v, true);
  for (const VertexId v : delta.vertices_added) impl_->was_live.try_emplace(v, false);
  const auto stride = static_cast<std::size_t>(graph_.feature_stride());
  for (std::size_t i = 0; i < delta.features_changed.size(); ++i) {
    const float* before = delta.features_before.data() + i * stride;
    impl_->feature_rows.try_emplace(delta.features_changed[i], before, before + graph_.options().feature_width);
  }
  for (std::size_t i = 0; i < delta.vertices_retyped.size(); ++i) {
    impl_->types.try_emplace(delta.vertices_retyped[i], delta.types_before[i]);
  }
  for (const EdgeReweighted& edge : delta.reweighted) {
    if (edge.before.id < next_edge_id_) impl_->weights.try_emplace(edge.before.id, edge.before.weight);
  }
  const auto width = static_cast<std::size_t>(graph_.options().attr_width);
  for (std::size_t i = 0; i < delta.attrs_changed.size(); ++i) {
    const float* before = delta.attrs_before.data() + i * width;
    if (delta.attrs_changed[i] < next_edge_id_)
      impl_->attr_rows.try_emplace(delta.attrs_changed[i], before, before + width);
  }
}

// A merge for each list that changed: its cost is that of the batch and of what the list had noted behind it.
void TemporalPin::follow_edges(const BatchDelta& delta) {
  Impl& impl = *impl_;
  impl.removed.clear();
  impl.removed_newer.clear();
  impl.added.clear();
  for (const EdgeRecord& edge : delta.removed) {
    if (edge.id >= next_edge_id_) {
      impl.removed_newer.push_back({edge.dst, {edge.time, edge.id}});
    } else {
      impl.removed.push_back({edge.dst, {edge.src, edge.type, edge.weight, edge.id, edge.time}});
    }
  }
  for (const EdgeRecord& edge : delta.added) impl.added.push_back({edge.dst, {edge.time, edge.id}});
  visit_lists(impl.removed, [&](VertexId v, auto first, auto last) { merge(impl.list(v).removed, first, last); });
  visit_lists(impl.removed_newer,
              [&](VertexId v, auto first, auto last) { subtract(impl.list(v).added, first, last); });
  visit_lists(impl.added, [&](VertexId v, auto first, auto last) { merge(impl.list(v).added, first, last); });
  if (delta.removed.size() + delta.added.size() > kScratchMax) {
    for (auto* keys : {&impl.removed_newer, &impl.added}) *keys = std::vector<Changed<EdgeKey>>();
    impl.removed = std::vector<Changed<EdgeEntry>>();
  }
}

bool TemporalPin::is_live(std::int64_t v) const {
  if (v < 0 || v >= graph_.slot_count()) return false;
  const auto known = impl_->was_live.find(static_cast<VertexId>(v));
  return known == impl_->was_live.end() ? graph_.is_live(static_cast<VertexId>(v)) : known->second;
}

void TemporalPin::read_features(VertexId v, float* out, std::int32_t width) const {
  const auto kept = impl_->feature_rows.find(v);
  if (kept == impl_->feature_rows.end()) return graph_.read_features(v, out, width);
  std::copy_n(kept->second.data(), width, out);
}

const float* TemporalPin::edge_attr(EdgeId id) const {
  if (id < 0 || id >= next_edge_id_) return nullptr;
  const auto kept = impl_->attr_rows.find(id);
  return kept == impl_->attr_rows.end() ? graph_.loaded_attr(id) : kept->second.data();
}

std::int32_t TemporalPin::vertex_type(VertexId v) const {
  const auto kept = impl_->types.find(v);
  return kept == impl_->types.end() ? graph_.vertex_type(v) : kept->second;
}

float TemporalPin::weight(EdgeId id, float now) const {
  const auto kept = impl_->weights.find(id);
  return kept == impl_->weights.end() ? now : kept->second;
}

const EdgeEntry* TemporalPin::removed(const EdgeKey& key, VertexId v) const {
  const Changes* of = changes(v);
  if (of == nullptr) return nullptr;
  const std::size_t at = of->removed_below(key, 0);
  return at < of->removed.size() && key_of(of->removed[at]) == key ? &of->removed[at] : nullptr;
}

bool TemporalPin::keeps_features(VertexId v) const { return impl_->feature_rows.contains(v); }
bool TemporalPin::keeps_attrs(EdgeId id) const { return impl_->attr_rows.contains(id); }
bool TemporalPin::keeps_weights() const { return !impl_->weights.empty(); }
bool TemporalPin::keeps_rows() const { return !impl_->feature_rows.empty() || !impl_->attr_rows.empty(); }

const TemporalPin::Changes* TemporalPin::changes(VertexId v) const {
  return impl_->is_changed(v) ? &impl_->lists.find(v)->second : nullptr;
}

std::size_t TemporalPin::bytes() const {
  std::size_t total = impl_->changed.size() * sizeof(std::uint64_t) +
                      impl_->removed.capacity() * sizeof(Changed<EdgeEntry>) +
                      impl_->types.size() * sizeof(std::pair<VertexId, std::int32_t>) +
                      impl_->weights.size() * sizeof(std::pair<EdgeId, float>) +
                      (impl_->removed_newer.capacity() + impl_->added.capacity()) * sizeof(Changed<EdgeKey>);
  for (const auto& [v, changes] : impl_->lists) {
    total +=
        sizeof(changes) + changes.added.capacity() * sizeof(EdgeKey) + changes.removed.capacity() * sizeof(EdgeEntry);
  }
  for (const auto& [v, row] : impl_->feature_rows) total += row.capacity() * sizeof(float);
  for (const auto& [id, row] : impl_->attr_rows) total += row.capacity() * sizeof(float);
  return total;
}

}  // namespace livegnn
