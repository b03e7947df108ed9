#include "temporal/pin.h"

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace livegnn {

namespace {
EdgeKey key_of(const EdgeKey& key) { return key; }

// A batch's change of one kind, and the list that it is of.
template <typename Value>
struct Changed {
  VertexId list;
  Value value;
  friend bool operator<(const Changed& a, const Changed& b) {
    return a.list != b.list ? a.list < b.list : key_of(a.value) < key_of(b.value);
  }
};

// Puts the changes among those noted before, noted_of(list), in order. A merge for each list that changed: its cost is
// that of the batch and of what the list had noted behind it.
template <typename Value, typename NotedOf>
void merge(std::vector<Changed<Value>> changes, const NotedOf& noted_of) {
  const auto in_order = [](const Value& a, const Value& b) { return key_of(a) < key_of(b); };
  if (!std::is_sorted(changes.begin(), changes.end())) std::sort(changes.begin(), changes.end());
  for (auto change = changes.begin(); change != changes.end();) {
    const VertexId list = change->list;
    std::vector<Value>& noted = noted_of(list);
    const auto from = std::upper_bound(noted.begin(), noted.end(), change->value, in_order) - noted.begin();
    const auto old = static_cast<std::ptrdiff_t>(noted.size());
    for (; change != changes.end() && change->list == list; ++change) noted.push_back(change->value);
    std::inplace_merge(noted.begin() + from, noted.begin() + old, noted.end(), in_order);
  }
}

// Takes keys of newer edges out of those noted before, noted_of(list).
template <typename NotedOf>
void subtract(std::vector<Changed<EdgeKey>> gone, const NotedOf& noted_of) {
  if (!std::is_sorted(gone.begin(), gone.end())) std::sort(gone.begin(), gone.end());
  for (auto first = gone.begin(); first != gone.end();) {
    const VertexId list = first->list;
    std::vector<EdgeKey>& noted = noted_of(list);
    const auto is_gone = [&](const EdgeKey& key) {
      while (first != gone.end() && first->list == list && first->value < key) ++first;
      return first != gone.end() && first->list == list && first->value == key;
    };
    const auto from = std::lower_bound(noted.begin(), noted.end(), first->value);
    noted.erase(std::remove_if(from, noted.end(), std::ref(is_gone)), noted.end());
    while (first != gone.end() && first->list == list) ++first;
  }
}

// What a map holds under a key, or nullptr.
template <typename Map>
const typename Map::mapped_type* find(const Map& map, typename Map::key_type key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
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

void TemporalPin::follow_edges(const BatchDelta& delta) {
  std::vector<Changed<EdgeEntry>> removed;
  std::vector<Changed<EdgeKey>> removed_newer, added;
  for (const EdgeRecord& edge : delta.removed) {
    if (edge.id >= next_edge_id_) {
      removed_newer.push_back({edge.dst, {edge.time, edge.id}});
    } else {
      removed.push_back({edge.dst, {edge.src, edge.type, edge.weight, edge.id, edge.time}});
    }
  }
  for (const EdgeRecord& edge : delta.added) added.push_back({edge.dst, {edge.time, edge.id}});
  const auto added_to = [&](VertexId v) -> std::vector<EdgeKey>& { return impl_->list(v).added; };
  merge(std::move(removed), [&](VertexId v) -> std::vector<EdgeEntry>& { return impl_->list(v).removed; });
  subtract(std::move(removed_newer), added_to);
  merge(std::move(added), added_to);
}

bool TemporalPin::is_live(std::int64_t v) const {
  if (v < 0 || v >= graph_.slot_count()) return false;
  const bool* was = find(impl_->was_live, static_cast<VertexId>(v));
  return was != nullptr ? *was : graph_.is_live(static_cast<VertexId>(v));
}

void TemporalPin::read_features(VertexId v, float* out, std::int32_t width) const {
  const std::vector<float>* kept = find(impl_->feature_rows, v);
  if (kept == nullptr) return graph_.read_features(v, out, width);
  std::copy_n(kept->data(), width, out);
}

const float* TemporalPin::edge_attr(EdgeId id) const {
  if (id < 0 || id >= next_edge_id_) return nullptr;
  const std::vector<float>* kept = find(impl_->attr_rows, id);
  return kept == nullptr ? graph_.loaded_attr(id) : kept->data();
}

std::int32_t TemporalPin::vertex_type(VertexId v) const {
  const std::int32_t* kept = find(impl_->types, v);
  return kept == nullptr ? graph_.vertex_type(v) : *kept;
}

float TemporalPin::weight(EdgeId id, float now) const {
  const float* kept = find(impl_->weights, id);
  return kept == nullptr ? now : *kept;
}

const EdgeEntry* TemporalPin::removed(const EdgeKey& key, VertexId v) const {
  const Changes* of = changes(v);
  if (of == nullptr) return nullptr;
  const std::size_t at = of->removed_below(key, 0);
  return at < of->removed.size() && key_of(of->removed[at]) == key ? &of->removed[at] : nullptr;
}

bool TemporalPin::keeps_weights() const { return !impl_->weights.empty(); }
bool TemporalPin::keeps_rows() const { return !impl_->feature_rows.empty() || !impl_->attr_rows.empty(); }
bool TemporalPin::keeps_row(std::int64_t id, bool edge) const {
  return edge ? impl_->attr_rows.contains(id) : impl_->feature_rows.contains(static_cast<VertexId>(id));
}

const TemporalPin::Changes* TemporalPin::changes(VertexId v) const {
  return impl_->is_changed(v) ? &impl_->lists.find(v)->second : nullptr;
}

std::size_t TemporalPin::bytes() const {
  std::size_t total = impl_->changed.size() * sizeof(std::uint64_t) +
                      impl_->types.size() * sizeof(std::pair<VertexId, std::int32_t>) +
                      impl_->weights.size() * sizeof(std::pair<EdgeId, float>);
  for (const auto& [v, changes] : impl_->lists) {
    total +=
        sizeof(changes) + changes.added.capacity() * sizeof(EdgeKey) + changes.removed.capacity() * sizeof(EdgeEntry);
  }
  for (const auto& [v, row] : impl_->feature_rows) total += row.capacity() * sizeof(float);
  for (const auto& [id, row] : impl_->attr_rows) total += row.capacity() * sizeof(float);
  return total;
}

void read_event_weights(const GraphStore& graph, std::span<const std::int64_t> dst, std::span<const std::int64_t> time,
                        std::span<const std::int64_t> ids, const TemporalPin* pin, float* out) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto v = static_cast<VertexId>(dst[i]);
    const EdgeKey key{graph.options().has_time ? time[i] : 0, ids[i]};
    const EdgeEntry* gone = pin == nullptr ? nullptr : pin->removed(key, v);
    const std::optional<EdgeEntry> found = gone != nullptr ? std::optional(*gone) : graph.in_lists().find(v, key);
    if (!found) {
      throw Error(graph.has_offloaded() ? ErrorKind::EdgeOffloaded : ErrorKind::EdgeMissing,
                  {.where = "weights",
                   .expected = "edges in memory",
                   .got = "edge " + std::to_string(ids[i]) + ", which was removed or lies in a file",
                   .advice = "reload the graph, or leave it out"});
    }
    out[i] = pin == nullptr ? found->weight : pin->weight(ids[i], found->weight);
  }
}

}  // namespace livegnn
