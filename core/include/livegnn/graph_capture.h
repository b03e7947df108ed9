// A store at one version, copied as it lies in memory: what a writer must wait for is the copying of bytes alone.
// Memory for it comes before, and order and form come later, from the copy, while the store goes on.
#pragma once

#include <cstdint>

#include "livegnn/detail/graph_attributes.h"
#include "livegnn/detail/graph_blocks.h"
#include "livegnn/detail/graph_copies.h"
#include "livegnn/graph.h"

namespace livegnn {

class GraphCapture {
 public:
  // Three steps. The caller holds the store's lock for the first and the last one. Throws std::bad_alloc.
  explicit GraphCapture(const GraphStore& store);        // notes how much room it takes
  void make_room(int threads) { room_.touch(threads); }  // the store may go on
  void take(const GraphStore& store, int threads);       // the copy; edges in files are not copied

  const GraphOptions& options() const { return options_; }
  std::int64_t version() const { return version_; }
  EdgeId next_edge_id() const { return next_edge_id_; }
  VertexId slot_count() const { return slot_count_; }
  EdgeRun edges() const;  // by id; undirected edges once
  const float* attr(EdgeId id) const { return attributes_.find(id); }
  bool is_live(VertexId v) const { return live_[v] != 0; }
  std::int32_t vertex_type(VertexId v) const { return vertex_types_[v]; }  // of a graph with types of vertex
  const FeatureTable& features() const { return features_; }

 private:
  struct CapturedRun {  // one block of an out-list
    std::int64_t place;
    VertexId owner;
    std::int32_t count;
  };
  void note(const GraphStore& store, CopyPlan& plan);
  void note_runs(const Adjacency& lists);

  GraphOptions options_;
  std::int64_t version_ = 0, edge_count_ = 0, run_count_ = 0;
  EdgeId next_edge_id_ = 0;
  VertexId slot_count_ = 0;
  Column<CapturedRun> runs_;
  BlockPool pool_;
  FeatureTable features_;
  Column<std::uint8_t> live_;
  Column<std::int32_t> vertex_types_;
  AttributeTable attributes_;
  CopyPlan room_{CopyPlan::Room::ToGrow};
};

}  // namespace livegnn
