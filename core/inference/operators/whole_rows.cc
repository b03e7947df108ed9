#include "inference/operators/whole_rows.h"

#include <algorithm>

namespace livegnn {

namespace {

constexpr std::int64_t kRowsPerTask = 512;

class SweptRows final : public RowSink {
 public:
  SweptRows(const Operator& op, Workspace& work, int k, int thread)
      : op_(op), work_(work), k_(k), changed_(work, k, thread) {}
  std::int64_t* open(VertexId v) override { return sweeps(op_, work_, k_, v) ? changed_.open(v) : nullptr; }
  void close(VertexId v, std::int64_t* row) override { changed_.close(v, row); }

 private:
  const Operator& op_;
  Workspace& work_;
  const int k_;
  RefreshedRows changed_;
};

}  // namespace

void Operator::compute_all(State& state) const {
  const std::int64_t slots = work_.graph.slot_count();
  TableRows rows(*this, state.aggregates[at(k_)], false);
  work_.pool.run((slots + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int thread) {
    compute(state, {nullptr, task * kRowsPerTask, std::min(slots, (task + 1) * kRowsPerTask)}, false, thread, rows);
  });
}

void refresh_rows(const Operator& op, Workspace& work, int k, const std::vector<VertexId>& rows, std::int64_t share) {
  const auto total = static_cast<std::int64_t>(rows.size());
  std::int64_t read = 0;
  for (const VertexId v : rows) read += work.graph.in_degree(v);
  work.count_reread(op.stage(), read);
  work.in_shares(total, share, [&](std::int64_t first, std::int64_t last, int thread) {
    RefreshedRows changed(work, k, thread);
    op.compute(work.state, {rows.data(), first, last}, false, thread, changed);
  });
}

void count_swept(const Operator& op, Workspace& work, int k) {
  std::int64_t read = work.restricted ? 0 : work.all_in_edges();
  for (VertexId v = 0; work.restricted && v < work.slots; ++v)
    read += sweeps(op, work, k, v) ? work.graph.in_degree(v) : 0;
  work.count_reread(op.stage(), read);
}

void sweep_rows(const Operator& op, Workspace& work, int k) {
  count_swept(op, work, k);
  const std::int64_t slots = work.slots;
  work.pool.run((slots + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int thread) {
    SweptRows rows(op, work, k, thread);
    op.compute(work.state, {nullptr, task * kRowsPerTask, std::min(slots, (task + 1) * kRowsPerTask)}, false, thread,
               rows);
  });
}

}  // namespace livegnn
