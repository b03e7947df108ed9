#include "inference/operators/whole_rows.h"

#include <algorithm>

#include "inference/view.h"

namespace livegnn {

namespace {

constexpr std::int64_t kRowsPerTask = 512;

// The engine's own rows that `wanted` names, kept where they differ. Of an operator that has one row open at a time.
template <typename Wanted>
class RefreshedRows final : public RowSink {
 public:
  RefreshedRows(Workspace& work, int k, int thread, Wanted wanted)
      : work_(work),
        k_(k),
        thread_(thread),
        wanted_(std::move(wanted)),
        scratch_(work.row_scratch[at(thread)].need(at(work.state.aggregates[at(k)].stride()))) {}
  std::int64_t* open(VertexId v) override { return wanted_(v) ? scratch_ : nullptr; }
  void close(VertexId v, std::int64_t* row) override { work_.keep_row(k_, v, row, thread_); }

 private:
  Workspace& work_;
  const int k_, thread_;
  const Wanted wanted_;
  std::int64_t* scratch_;
};

}  // namespace

void Operator::compute_all(State& state) const {
  work_.in_shares(work_.graph.slot_count(), kRowsPerTask, [&](std::int64_t first, std::int64_t last, int thread) {
    PlacedRows rows(*this, false, [&](VertexId v) { return state.aggregates[at(k_)].row(v); });
    compute(state, {nullptr, first, last}, false, thread, rows);
  });
}

void Operator::refresh_rows(const std::vector<VertexId>& rows, std::int64_t share) const {
  std::int64_t read = 0;
  for (const VertexId v : rows) read += flow_.in_degree(v);
  work_.count_reread(stage(), read);
  const auto total = static_cast<std::int64_t>(rows.size());
  work_.in_shares(total, share, [&](std::int64_t first, std::int64_t last, int thread) {
    RefreshedRows changed(work_, k_, thread, [&](VertexId v) { return work_.wants(k_, v); });
    compute(work_.state, {rows.data(), first, last}, false, thread, changed);
  });
}

// It can be other than zero, or the type has changed, and its own term left.
bool Operator::sweeps(VertexId v) const {
  return work_.wants(k_, v) && (has_row(v) || (work_.source().typed && work_.retyped.contains(v)));
}

void Operator::count_swept() const {
  std::int64_t read = work_.restricted ? 0 : work_.all_in_edges();
  for (VertexId v = 0; work_.restricted && v < work_.slots; ++v) read += sweeps(v) ? flow_.in_degree(v) : 0;
  work_.count_reread(stage(), read);
}

void Operator::sweep_rows() const {
  count_swept();
  work_.in_shares(work_.slots, kRowsPerTask, [&](std::int64_t first, std::int64_t last, int thread) {
    RefreshedRows changed(work_, k_, thread, [&](VertexId v) { return sweeps(v); });
    compute(work_.state, {nullptr, first, last}, false, thread, changed);
  });
}

void Operator::load(const StageView& view, const VertexId* vertices, int count, float* out, int out_stride) const {
  const float* down = work_.scales[at(k_)].down.data();
  const int width = facts.floats ? round_up(spec_.width, 16) : stride();
  for (int i = 0; i < count; ++i, out += out_stride) {
    const VertexId v = vertices[i];
    if (i + kRowsAhead < count) {
      const VertexId next = vertices[i + kRowsAhead];
      view.prefetch_aggregate(k_, next);
      if (facts.mean && spec_.relation < 0) flow_.prefetch_in(next);
      if (spec_.context >= 0) view.state.norms[at(spec_.context)].prefetch(next);
    }
    if (facts.floats) {
      std::memcpy(out, view.aggregate(k_, v), at(width) * sizeof(float));
    } else {
      work_.kernels.load(out, view.aggregate(k_, v), down, width);
    }
    if (facts.mean) {
      const std::int32_t edges = view.in_edges(spec_, v);
      if (edges > 1) work_.kernels.divide(out, out, static_cast<float>(edges), width);
    } else if (spec_.norm == Norm::Gcn) {
      work_.kernels.scale(out, out, view.scale(spec_.context, v), width);
    }
  }
}

}  // namespace livegnn
