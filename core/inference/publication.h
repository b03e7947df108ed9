// The rows that readers see. A batch stages its changed rows beside them and publishes all in one short critical
// section.
#pragma once

#include <atomic>
#include <cstdint>
#include <shared_mutex>
#include <span>
#include <vector>

#include "livegnn/graph.h"
#include "livegnn/types.h"
#include "util/aligned.h"
#include "util/thread_pool.h"

namespace livegnn {

class Publication {
 public:
  explicit Publication(int width) : width_(width), rows_(round_up(width, 16)) {}

  // ---- writer
  void reset(const GraphStore& graph);                   // rows for all slots, liveness as now; nothing staged
  float* raw_row(VertexId v) { return rows_.row(v); }    // bootstrap only: no readers yet
  void prepare(int threads, VertexId slots_before);      // drops what is staged
  void stage(VertexId v, const float* row, int thread);  // staged only where bits differ or the slot is new
  const RowTable<float>& rows() const { return rows_; }
  bool differs(VertexId v, const float* row) const;
  std::vector<VertexId> publish(const GraphStore& graph, const std::vector<VertexId>& added,
                                const std::vector<VertexId>& removed,
                                ThreadPool& pool);  // live changed vertices, in no order
  std::vector<VertexId> staged() const;
  void drop_staged();

  // ---- readers
  std::int64_t read(std::span<const std::int64_t> ids, float* out) const;  // the version that the rows are of
  void read_staged(std::span<const std::int64_t> ids, float* out, const GraphStore& graph) const;
  std::int64_t slots() const;
  std::vector<std::uint8_t> live() const;

  int width() const { return width_; }
  std::size_t bytes() const { return rows_.bytes(); }

 private:
  struct Staged {
    std::vector<VertexId> vertices;
    std::vector<float> rows;
  };
  void copy_rows(const Staged& staged);
  class ReadLock;
  class WriteLock;

  int width_;
  RowTable<float> rows_;
  std::vector<std::uint8_t> live_;
  std::vector<Staged> staged_;
  VertexId slots_before_ = 0;
  std::int64_t version_ = 0;
  mutable std::shared_mutex mutex_;
  mutable std::atomic<bool> writer_waits_{false};  // readers that come later let the writer in first
};

}  // namespace livegnn
