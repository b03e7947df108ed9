// The net effect of batches that an engine has not propagated yet (mode on demand), as one BatchDelta against the state
// that the engine stands for.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "livegnn/graph.h"

namespace livegnn {

class Pending {
 public:
  bool any() const { return any_; }
  const BatchDelta& delta() const { return delta_; }
  std::size_t changes() const {
    return delta_.added.size() + delta_.removed.size() + delta_.reweighted.size() + delta_.reattributed.size() +
           delta_.features_changed.size() + delta_.vertices_retyped.size();
  }
  void add(const BatchDelta& next, std::int32_t feature_stride);
  BatchDelta take();  // and nothing is pending
  void clear();

 private:
  struct Key {  // an undirected edge is there both ways, under one id
    EdgeId id;
    VertexId src;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>(static_cast<std::uint64_t>(key.id) * 0x9E3779B97F4A7C15ull) ^
             static_cast<std::size_t>(key.src);
    }
  };
  using Places = std::unordered_map<Key, std::size_t, KeyHash>;
  template <typename Record>
  static bool take_out(std::vector<Record>& records, Places& places, const Key& key, Record* taken);
  void add_removed(const EdgeRecord& edge);
  void add_reweighted(const EdgeReweighted& edge);

  bool any_ = false;
  BatchDelta delta_;
  Places added_, reweighted_;                           // places in delta_
  std::unordered_map<VertexId, std::size_t> featured_;  // the same of features_changed
  std::unordered_set<EdgeId> attributed_;               // ids in attrs_changed
  std::unordered_set<VertexId> retyped_;                // in vertices_retyped, where some are back in their old type
};

}  // namespace livegnn
