// What the batches of a graph brought, for whoever learns from it: added edges as events, and what went.
#pragma once

#include <vector>

#include "livegnn/follower.h"

namespace livegnn {

// src and dst as the update named them: an undirected edge is one event.
struct EdgeEvent {
  std::int64_t src, dst, time, id, type;  // type: 0 in a graph whose edges have none
};

// Not thread-safe: the caller holds the graph's lock.
class Arrivals final : public BatchFollower {
 public:
  // edge_types: only edges of these types are events; empty: all are.
  explicit Arrivals(const GraphStore& store, std::vector<std::int32_t> edge_types = {})
      : edge_types_(std::move(edge_types)), next_edge_id_(store.next_edge_id()) {}
  void check(const BatchDelta&) const override {}
  void follow(const BatchDelta& delta, const UpdateBuffer& batch) override;

  const std::vector<EdgeEvent>& added() const { return added_; }           // since the last clear(), less the removed
  const std::vector<std::int64_t>& removed() const { return removed_; }    // ids of edges that had come before that
  const std::vector<std::int64_t>& vertices() const { return vertices_; }  // slots that lost their vertex, ascending
  void clear();

 private:
  std::vector<std::int32_t> edge_types_;
  std::vector<EdgeEvent> added_;  // by id
  std::vector<std::int64_t> removed_;
  std::vector<std::int64_t> vertices_;
  EdgeId next_edge_id_;
};

}  // namespace livegnn
