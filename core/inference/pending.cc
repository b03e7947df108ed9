#include "inference/pending.h"

#include <utility>

namespace livegnn {

namespace {

const EdgeRecord& record_of(const EdgeRecord& edge) { return edge; }
const EdgeRecord& record_of(const EdgeReweighted& edge) { return edge.before; }

}  // namespace

// Removes the record of a key, where there is one; the last record takes its place.
template <typename Record>
bool Pending::take_out(std::vector<Record>& records, Places& places, const Key& key, Record* taken) {
  const auto found = places.find(key);
  if (found == places.end()) return false;
  const std::size_t place = found->second;
  *taken = records[place];
  places.erase(found);
  if (place + 1 != records.size()) {
    records[place] = records.back();
    const EdgeRecord& moved = record_of(records[place]);
    places[{moved.id, moved.src}] = place;
  }
  records.pop_back();
  return true;
}

void Pending::add_removed(const EdgeRecord& edge) {
  const Key key{edge.id, edge.src};
  EdgeRecord added{};
  if (take_out(delta_.added, added_, key, &added)) return;
  EdgeReweighted reweighted{};
  EdgeRecord before = edge;
  if (take_out(delta_.reweighted, reweighted_, key, &reweighted)) before.weight = reweighted.before.weight;
  delta_.removed.push_back(before);
}

void Pending::add_reweighted(const EdgeReweighted& edge) {
  const Key key{edge.before.id, edge.before.src};
  if (const auto found = added_.find(key); found != added_.end()) {
    delta_.added[found->second].weight = edge.weight_after;
  } else if (const auto known = reweighted_.find(key); known != reweighted_.end()) {
    delta_.reweighted[known->second].weight_after = edge.weight_after;
  } else {
    reweighted_[key] = delta_.reweighted.size();
    delta_.reweighted.push_back(edge);
  }
}

void Pending::add(const BatchDelta& next, std::int32_t feature_stride) {
  any_ = true;
  for (const EdgeRecord& edge : next.removed) add_removed(edge);
  for (const EdgeRecord& edge : next.added) {
    added_[{edge.id, edge.src}] = delta_.added.size();
    delta_.added.push_back(edge);
  }
  for (const EdgeReweighted& edge : next.reweighted) add_reweighted(edge);
  delta_.reattributed.insert(delta_.reattributed.end(), next.reattributed.begin(), next.reattributed.end());
  const std::size_t attrs = next.attrs_changed.size();
  for (std::size_t i = 0; i < attrs; ++i) {
    if (!attributed_.insert(next.attrs_changed[i]).second) continue;
    const auto width = static_cast<std::ptrdiff_t>(next.attrs_before.size() / attrs);
    const auto row = next.attrs_before.begin() + static_cast<std::ptrdiff_t>(i) * width;
    delta_.attrs_changed.push_back(next.attrs_changed[i]);
    delta_.attrs_before.insert(delta_.attrs_before.end(), row, row + width);
  }
  for (std::size_t i = 0; i < next.vertices_retyped.size(); ++i) {
    if (!retyped_.insert(next.vertices_retyped[i]).second) continue;
    delta_.vertices_retyped.push_back(next.vertices_retyped[i]);
    delta_.types_before.push_back(next.types_before[i]);
  }
  const auto stride = static_cast<std::ptrdiff_t>(feature_stride);
  for (std::size_t i = 0; i < next.features_changed.size(); ++i) {
    if (!featured_.try_emplace(next.features_changed[i], delta_.features_changed.size()).second) continue;
    delta_.features_changed.push_back(next.features_changed[i]);
    const auto row = next.features_before.begin() + static_cast<std::ptrdiff_t>(i) * stride;
    delta_.features_before.insert(delta_.features_before.end(), row, row + stride);
  }
}

BatchDelta Pending::take() {
  BatchDelta delta = std::move(delta_);
  clear();
  return delta;
}

void Pending::clear() {
  any_ = false;
  delta_.clear();
  added_.clear();
  reweighted_.clear();
  featured_.clear();
  attributed_.clear();
  retyped_.clear();
}

}  // namespace livegnn
