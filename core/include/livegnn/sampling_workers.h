// Samples of one graph kept by several workers and served by several others (Helios, sections 4 to 6): the loops of it.
// docs/sampling-workers.md has the protocol, its invariants and why they hold.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "livegnn/detail/graph_attributes.h"
#include "livegnn/follower.h"
#include "livegnn/graph.h"
#include "livegnn/sampling.h"
#include "livegnn/types.h"

namespace livegnn {

// ---- a partition of the graph

// Which worker keeps an edge: that which owns its source, its destination, or both do.
enum class EdgePolicy : std::uint8_t { BySource, ByDestination, Both };

struct PartitionedUpdates {
  UpdateBuffer buffer;  // what one partition takes of a batch: no features, edges with their global ids
  EdgeId next_edge_id;  // after the batch
  EdgeTime latest;      // the largest time of an added edge, of any partition; INT64_MIN if there is none
};

// owned: kBuckets flags. next_edge_id: of the whole graph, before the batch. attributes: whether the partition keeps
// them.
PartitionedUpdates partition_updates(const UpdateBuffer& batch, std::span<const std::uint8_t> owned, EdgePolicy policy,
                                     EdgeId next_edge_id, bool attributes = false);

// The writer's side: refuses batches that a table of weighted samples could not take, since what is in the history
// cannot be refused any more, and keeps the latest batch as the store got it, with slots for ids, for the workers.
class BatchTap final : public BatchFollower {
 public:
  explicit BatchTap(std::vector<std::int32_t> weighted_types) : weighted_types_(std::move(weighted_types)) {}
  void check(const BatchDelta& delta) const override;  // throws Error: a negative weight of these types (kAnyType: all)
  void follow(const BatchDelta& delta, const UpdateBuffer& batch) override;
  const UpdateBuffer& latest() const { return latest_; }

 private:
  std::vector<std::int32_t> weighted_types_;
  UpdateBuffer latest_;
};

// Features of some vertices: a row of `width` floats each, rounded to what a store of this dtype holds. Not
// thread-safe.
class FeatureRows {
 public:
  explicit FeatureRows(std::int32_t width, FeatureDtype dtype = FeatureDtype::Float32);

  std::int32_t width() const { return width_; }
  std::int64_t count() const { return rows_.count(); }
  const float* find(VertexId v) const { return rows_.find(v); }  // nullptr if it has none; until the next change
  void read(VertexId v, float* out, std::int32_t width) const;   // the first `width` floats; zeros if it has none
  void prefetch(VertexId v) const { rows_.prefetch(v); }
  bool set(VertexId v, std::span<const float> row);  // shorter rows end in zeros; whether any bit is new
  void erase(VertexId v);                            // which may have none
  // What a whole batch does to the features of owned vertices; those with new bits, once each, ascending.
  std::vector<VertexId> follow(const UpdateBuffer& batch, std::span<const std::uint8_t> owned);
  std::vector<VertexId> vertices() const;  // ascending
  std::size_t bytes() const { return rows_.bytes(); }

 private:
  std::int32_t width_;
  FeatureDtype dtype_;
  AttributeTable rows_;              // by vertex; of one float where the width is 0
  std::vector<float> row_;           // as it is to be stored
  std::vector<std::uint16_t> bits_;  // of it
};

// ---- who needs what

inline constexpr int kServingMax = 64;
inline constexpr std::int32_t kFeatureReasons = -1;  // in place of a table

// Changes of counts: serving worker `serving` has `change` more reasons for `vertex` of `table`.
struct Reasons {
  std::vector<std::int32_t> table;
  std::vector<VertexId> vertex;
  std::vector<std::int32_t> serving;
  std::vector<std::int32_t> change;
  std::size_t size() const { return table.size(); }
  void add(std::int32_t t, VertexId v, std::int32_t j, std::int32_t n);
};

// What a serving worker is to put into its tables and to take out. Rows of samples lie end to end.
struct Push {
  std::vector<std::int32_t> table;
  std::vector<VertexId> vertex;
  std::vector<std::int32_t> count;  // of entries, from 1
  std::vector<VertexId> neighbours;
  std::vector<EdgeId> edge_ids;
  std::vector<float> edge_rows;  // of each entry, words of the edge columns
  std::vector<std::int32_t> dropped_table;
  std::vector<VertexId> dropped;
  std::vector<VertexId> feature_vertex;
  std::vector<float> features;  // rows of the feature width
  std::vector<VertexId> features_dropped;
  void add(std::int32_t t, VertexId v, const SampleView& sample);  // but for the edge rows
};

struct SubscribedTable {
  std::int32_t reservoir = 0;            // number in Reservoirs
  std::int32_t hop = 1;                  // from 1
  std::vector<std::int32_t> feeds;       // places of tables at hop + 1
  std::vector<std::int32_t> seed_types;  // at hop 1: of vertices that are seeds; kAnyType: all
};

// The subscriptions of one sampling worker. One step goes: follow, or route; then for every hop take (what the
// other workers passed on) and advance; then take and finish; then the pushes. Not thread-safe.
class Subscriptions final : public BatchFollower {
 public:
  // owners: sampling worker of each bucket. The reservoirs track changes. All three must outlive this.
  Subscriptions(const GraphStore& graph, const Reservoirs& reservoirs, const FeatureRows& features,
                std::vector<SubscribedTable> tables, std::vector<std::uint16_t> owners, int worker, int workers);
  ~Subscriptions() override;

  // ---- a step
  void check(const BatchDelta&) const override {}
  void follow(const BatchDelta& delta, const UpdateBuffer& batch) override;  // begins the step of a batch
  void features_changed(std::span<const VertexId> vertices);  // after follow: of owned vertices, ascending
  void route(std::span<const std::uint64_t> serving);  // begins a step that gives buckets to other serving workers

  void take(const Reasons& reasons);    // for the hop that comes next, or for features
  std::vector<Reasons> advance();       // the tables of the next hop; what to pass on, by sampling worker
  void finish();                        // features; ends the step
  const Push& push(int serving) const;  // of the step that has ended
  std::int32_t hops() const;

  // ---- state between steps
  Reasons counts() const;  // all of them, as changes from nothing, sorted
  void restore(const Reasons& counts, std::span<const std::uint64_t> serving);
  std::size_t bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// ---- what a serving worker answers from

struct ServingBytes {
  std::size_t rows, index, features;
};

// Samples and features of the vertices that a serving worker's seeds reach. One writer; any number of readers, who see
// whole steps.
class ServingTables {
 public:
  ServingTables(std::vector<std::int32_t> fanouts, std::int32_t feature_width, EdgeColumns columns = {});  // by table
  ~ServingTables();
  ServingTables(const ServingTables&) = delete;
  ServingTables& operator=(const ServingTables&) = delete;

  // All pushes of a step at once. serving: which buckets' vertices are seeds here, kBuckets flags.
  void apply(std::span<const Push> pushes, std::span<const std::uint8_t> seeds, std::int64_t version);
  // Returns the version. Throws Error for a seed that is not here.
  std::int64_t sample(const SampleRequest& request) const;
  std::int64_t version() const;
  EdgeColumns edge_columns() const;
  Push contents() const;  // everything, sorted; a push that fills empty tables
  std::int32_t fanout(std::int32_t table) const;
  ServingBytes bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace livegnn
