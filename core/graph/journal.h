// What a batch did, step by step, and the scratch that batches share.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "graph/edge_run.h"
#include "livegnn/graph.h"
#include "util/thread_pool.h"

namespace livegnn {

enum class EdgeChangeKind : std::uint8_t { Added, AddedRun, Removed, Reweighted, AttrSet };

struct EdgeChange {
  EdgeChangeKind kind;
  EdgeRecord edge;          // with its weight after the change, for Removed the one it had
  float weight_before;      // Reweighted
  std::int64_t row_before;  // Removed, AttrSet: the attribute row as it was, offset into rows; -1 without attributes.
                            // AddedRun: place in runs, and nothing else
};

struct VertexChange {  // one per vertex, from its first change in the batch
  VertexId v;
  std::int32_t type_before;
  bool was_live;
  std::int64_t row_before;  // offset into rows; -1: a slot that is new, its row was zero
};

struct BatchDelta::Journal {
  std::vector<EdgeChange> edges;
  std::vector<EdgeRun> runs;  // the first run_count are of this batch, the rest keep their memory for the next
  std::size_t run_count = 0;
  std::vector<VertexChange> vertices;
  std::vector<float> rows;
  EdgeId next_edge_id_before = 0;
  std::int64_t version_before = 0;
  std::int64_t vertex_count_before = 0;
  std::int64_t edge_count_before = 0;
  VertexId slot_count_before = 0;
  std::int64_t serial = 0;         // of this batch; 0 while it is not committed
  std::int64_t serial_before = 0;  // of the batch before

  EdgeRun& begin_run() {
    if (run_count == runs.size()) runs.emplace_back();
    runs[run_count].clear();
    edges.push_back({EdgeChangeKind::AddedRun, {}, 0.0f, static_cast<std::int64_t>(run_count)});
    return runs[run_count++];
  }
  std::size_t run_bytes() const {
    std::size_t total = 0;
    for (const EdgeRun& run : runs) total += run.capacity() * sizeof(EdgeRecord);
    return total;
  }

  std::int64_t save_row(const float* row, std::int32_t width) {
    const auto offset = static_cast<std::int64_t>(rows.size());
    rows.insert(rows.end(), row, row + width);
    return offset;
  }
};

struct GraphStore::Scratch {
  std::shared_ptr<BatchDelta::Journal> journal;  // of the running or the latest batch
  GroupedRun grouped[2];                         // by direction
  std::unique_ptr<ThreadPool> pool;              // for long runs, made by the first
  std::vector<VertexId> sparse;  // by vertex: place in journal->vertices, valid if that names the vertex
  EdgeIdMap reweighted;          // id -> place in delta.reweighted; empty between batches
  std::vector<EdgeEntry> incident;
  std::vector<float> zeros;
  std::vector<float> row;  // a feature row of 16 bits, decoded

  // Memory of long runs, kept for the next batch up to kRunBytesMax. The latest batch's own runs stay: undo() reads
  // them.
  static constexpr std::size_t kRunBytesMax = std::size_t{64} << 20;
  std::size_t run_bytes() const {
    return (journal == nullptr ? 0 : journal->run_bytes()) + grouped[0].bytes() + grouped[1].bytes();
  }
  void release_runs() {
    for (GroupedRun& half : grouped) half = {};
    if (journal != nullptr && journal.use_count() == 1) {
      journal->runs.resize(journal->run_count);
      journal->runs.shrink_to_fit();
    }
  }

  std::int64_t serial_latest = 0;  // of the batch that undo() takes
  std::int64_t serial_next = 1;
};

}  // namespace livegnn
