// The engine: stages, batches, strategies, queries on demand. Operators keep the aggregates (operators/operator.h).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inference/pending.h"
#include "inference/view.h"
#include "inference/workspace.h"
#include "livegnn/engine.h"

namespace livegnn {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What is done at the end of its scope, however that comes. It may throw, but not while another error is on its way.
template <typename Work>
class AtEnd {
 public:
  explicit AtEnd(Work work) : work_(std::move(work)) {}
  ~AtEnd() noexcept(false) { work_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  Work work_;
};

class EngineImpl final : public Engine {
 public:
  EngineImpl(const GraphStore& graph, Program program, const EngineOptions& options);

  void prefetch(const UpdateBuffer& batch) const override;
  void prepare(const BatchDelta& delta) override;
  void abort() override;
  void propagate(const BatchDelta& delta) override;
  Changes publish() override;
  bool lists_edges() const override { return work_.options.lists_edges; }
  DemandStats demand(std::span<const std::int64_t> ids) override;
  void flush() override;
  bool pending() const override { return pending_.any() || broken_; }
  void rebuild() override;
  void begin_journal() override;
  void restore_journal() override;
  std::vector<VertexId> staged_vertices() const override {
    return work_.publication.staged(work_.graph, added_, removed_);
  }
  std::int64_t note_changes() override { return work_.publication.note_changes(); }
  std::optional<std::vector<VertexId>> changed_since(std::int64_t place) const override {
    return work_.publication.changed_since(place);
  }

  void keep_moves(std::int64_t rows_max) override { moves_max_ = rows_max; }

  std::int64_t read(std::span<const std::int64_t> ids, float* out) const override {
    refuse_unsound_files();
    return work_.publication.read(ids, out);
  }
  void read_staged(std::span<const std::int64_t> ids, float* out) const override {
    refuse_unsound_files();
    work_.publication.read_staged(ids, out, work_.graph);
  }
  std::int64_t version() const override { return work_.publication.version(); }
  SnapshotFacts open_snapshot() override { return work_.publication.open_snapshot(); }
  void close_snapshot(std::int64_t moment) override { work_.publication.close_snapshot(moment); }
  void read_snapshot(std::int64_t moment, std::span<const std::int64_t> ids, float* out) const override {
    refuse_unsound_files();
    work_.publication.read_snapshot(moment, ids, out);
  }

  void recompute(float* out) const override;
  std::optional<std::string> verify() const override;
  std::uint64_t digest() const override;
  StateBytes bytes() const override;
  std::optional<PagingStats> paging() const override;
  std::vector<std::vector<int>> scale_exponents() const override;
  int output_width() const override { return source().output_width; }
  std::vector<Parcels> parcels_of_start() const override {
    return work_.trade != nullptr ? work_.trade->parcels_of_start() : std::vector<Parcels>();
  }
  void remember(HaloMemory& memory) const override {
    if (work_.trade != nullptr) memory.stale = work_.trade->stale();
  }
  void recall(const HaloMemory& memory) override {
    if (work_.trade != nullptr) work_.trade->recall(memory.stale);
  }
  void corrupt_for_test(int aggregation, VertexId v, int column) override;

  void stored_rows(int table, std::span<const std::int64_t> slots, float* out) const override;
  void factors(int context, std::span<const std::int64_t> slots, float* out) const override;
  int aggregate_stride(int k) const override { return work_.state.aggregates.at(at(k)).stride(); }
  void aggregate_rows(int k, std::span<const std::int64_t> slots, std::int64_t* out) const override;
  bool terms(int k, const TermOperands& given, std::int64_t* out) const override;
  EdgeTerms edge_terms(int k, VertexId v) const override;
  void record(std::span<const int> tables, bool on) override;
  BatchRecord recorded() const override;

 private:
  const Program& source() const { return work_.source(); }
  int stages() const { return static_cast<int>(source().stages.size()); }
  void refuse_unsound_files() const;  // memory.cc

  // ---- forward.cc: from scratch
  using OutputRow = std::function<float*(VertexId)>;  // where a vertex's output goes
  enum class Sums { Kept, Transient };                // whether the state is wanted afterwards, or the outputs alone
  void forward(State& state, bool choose_scales, Sums sums, const OutputRow& out) const;
  void forward_stage(int stage, State& state, Sums sums, const OutputRow& out) const;
  void fetch_stage(int stage, const State& state, std::int64_t first, std::int64_t last) const;
  bool passes(std::size_t k) const;
  TransientSums sum_transient(int stage, const State& state, VertexId first, VertexId last, int thread,
                              Scratch<std::int64_t>& scratch) const;
  RowTable<float> run_from_scratch(State& state) const;
  void build_state(bool stage_outputs);
  std::string difference(VertexId v, const State& fresh, const float* output) const;

  // ---- incremental.cc: one batch
  template <typename Work>
  void in_step(Work&& work);
  void take_degrees(const BatchDelta& delta);
  void propagate_now(const BatchDelta& delta);
  void grow();
  void mark_new_vertices(const BatchDelta& delta);
  void apply_edges();
  void run_stage(int stage);
  void settle(int stage);
  void begin_saving();
  void sum_again(VertexId slots_after);

  // ---- explain.cc
  void note_batch(const BatchDelta& delta);

  // ---- neighbourhood.cc: the strategies that keep no state, and what batches reach by structure
  void propagate_full();
  void propagate_neighbourhoods();
  void run_needed(int stage, const std::vector<VertexId>& rows, State& state);
  VertexSets affected_sets(const BatchDelta& delta);
  VertexSets needed_sets(const std::vector<VertexId>& outputs) const;

  // ---- demand.cc: batches that wait for a query
  bool defers() const { return work_.options.on_demand && !journal_armed_; }
  void check_deferred(const BatchDelta& delta) const;
  void defer(const BatchDelta& delta);
  void find_stale();
  double looks_for_an_edge() const;
  bool asks_for_much(std::span<const std::int64_t> ids) const;
  bool find_needed(const std::vector<VertexId>& outputs);
  bool propagate_needed();
  std::optional<std::vector<VertexId>> find_asked(std::span<const std::int64_t> ids);

  Workspace work_;

  // the batch at work
  bool journal_armed_ = false;
  bool saves_less_ = false;  // the journal leaves out aggregates that can be summed again once the graph is as before
  double topology_seconds_ = 0.0, started_ = 0.0, prepare_seconds_ = 0.0;
  bool prepared_ = false;  // whether the degrees are those after the batch already
  std::vector<VertexId> added_, removed_;
  std::int64_t moves_max_ = -1;           // rows; below 0: none are kept
  std::unique_ptr<State> scratch_state_;  // of the strategies that keep no state

  bool records_ = false;
  BatchRecord record_;  // its edges and features; recorded() adds the rows

  // on demand
  Pending pending_;
  std::vector<VertexSet> stale_;  // per stage: rows that the pending batches can have changed, where stale_known_
  VertexSet fresh_;               // outputs among them that a query has brought up to date
  std::int64_t spent_edges_ = 0;  // of work for queries since all was propagated
  bool stale_known_ = false;
  std::vector<VertexId> demanded_;  // vertices whose published output is ahead of the state, some several times
  std::size_t demanded_limit_ = 4096;
  std::int64_t stale_edges_ = 0;   // out of the stale rows: about what propagating all of it would cost
  double edges_per_change_ = 0.0;  // of the latest batches that were propagated, or walked
  DemandStats demand_stats_;
  bool broken_ = false;         // a propagation failed half-way: the state has to be built again
  bool outputs_stale_ = false;  // and the outputs that readers see are not the graph's
};

}  // namespace livegnn
