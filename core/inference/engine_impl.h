// The engine's members, by the file that defines them. Acc is std::int64_t (exact) or float.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "dense/kernels.h"
#include "inference/borders.h"
#include "inference/executor.h"
#include "inference/journal.h"
#include "inference/pending.h"
#include "inference/publication.h"
#include "inference/sets.h"
#include "inference/state.h"
#include "livegnn/engine.h"
#include "util/aligned.h"
#include "util/hash.h"
#include "util/pager.h"
#include "util/thread_pool.h"

namespace livegnn {

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class MessageRows;   // terms.h
struct MessageEdge;  // edge_messages.h

template <typename Acc>
class EngineImpl final : public Engine {
 public:
  EngineImpl(const GraphStore& graph, Program program, const EngineOptions& options);

  void anticipate(const UpdateBuffer& batch) const override;
  void admit(const BatchDelta& delta) override;
  void withdraw() override;
  void propagate(const BatchDelta& delta) override;
  Changes publish() override;
  DemandStats demand(std::span<const std::int64_t> ids) override;
  void settle() override;
  bool pending() const override { return pending_.any() || broken_; }
  void rebuild() override;
  void begin_journal() override;
  void restore_journal() override;
  std::vector<VertexId> staged_vertices() const override { return publication_.staged(graph_, added_, removed_); }

  std::int64_t read(std::span<const std::int64_t> ids, float* out) const override {
    refuse_unsound_files();
    return publication_.read(ids, out);
  }
  void read_staged(std::span<const std::int64_t> ids, float* out) const override {
    refuse_unsound_files();
    publication_.read_staged(ids, out, graph_);
  }
  std::int64_t version() const override { return publication_.version(); }
  SnapshotFacts open_snapshot() override { return publication_.open_snapshot(); }
  void close_snapshot(std::int64_t moment) override { publication_.close_snapshot(moment); }
  void read_snapshot(std::int64_t moment, std::span<const std::int64_t> ids, float* out) const override {
    refuse_unsound_files();
    publication_.read_snapshot(moment, ids, out);
  }

  void recompute(float* out) const override;
  Mismatch verify() const override;
  std::uint64_t digest() const override;
  StateBytes bytes() const override;
  std::optional<PagingStats> paging() const override;
  std::vector<std::vector<int>> scale_exponents() const override;
  int output_width() const override { return program_.source().output_width; }
  int threads() const override { return pool_.threads(); }
  void corrupt_for_test(int aggregation, VertexId v, int column) override;

 private:
  // How one aggregation is brought up to date in one batch. Row i of `deltas` belongs to sources[i].
  struct Plan {
    Path path = Path::None;
    bool resum = false;  // no message moves in this batch: rows are summed again
    std::vector<VertexId> sources;
    std::vector<std::uint8_t> changed;
    Scratch<std::int64_t> deltas;
    int stride = 0;
    std::size_t listed = 0;  // of the sources: those whose rows are computed, or features set; then rescaled ones
    const std::int64_t* deltas_row(std::int32_t source) const { return deltas.data() + std::int64_t{source} * stride; }
  };
  struct ResultRows {
    std::vector<const RowTable<Acc>*> tables;
    std::vector<const StoredRows*> stored;
    std::vector<const DegreeContext*> contexts;
    const Publication* outputs = nullptr;  // of the last stage
    VertexId limit = 0;
    void prefetch(VertexId v) const {
      if (v >= limit) return;
      for (const RowTable<Acc>* table : tables) prefetch_row(table->row(v), table->row_bytes());
      for (const StoredRows* rows : stored) rows->prefetch(v);
      for (const DegreeContext* context : contexts) context->prefetch(v);
      if (outputs != nullptr) outputs->prefetch(v);
    }
  };
  class DeltaWriter;  // push.cc

  // Which in-edges a sampled sum takes: those with the smallest keys. By default all.
  struct InSample {
    std::uint64_t salt = 0, bound = 0;
    float factor = 1.0f;
    std::uint64_t key(EdgeId id) const { return mix(salt ^ static_cast<std::uint64_t>(id)); }
    float admits(EdgeId id) const { return bound == 0 || key(id) < bound ? factor : 0.0f; }
  };
  // The message of one source before and after the batch.
  struct SourceChange {
    VertexId vertex;
    const float* before;
    const float* now;
    bool bits_differ;
  };

  const Program& source() const { return program_.source(); }
  const AggregationSpec& aggregation(int k) const { return source().aggregations[at(k)]; }
  bool compact() const { return options_.compact; }
  // Whether v's row of a sum can be other than zero. Extremes and messages on edges have a say in every vertex's row.
  bool has_sum(int k, VertexId v) const {
    const AggregationSpec& spec = aggregation(k);
    return spec.target < 0 || spec.extreme() || spec.on_edges() || graph_.vertex_type(v) == spec.target;
  }
  bool incremental() const {
    return options_.strategy == Strategy::Incremental || options_.strategy == Strategy::Affected;
  }

  // body(first, last, thread) for every share of `total`; on this thread alone where there is one share.
  template <typename Body>
  void in_shares(std::int64_t total, std::int64_t share, Body&& body) const {
    if (total <= share || pool_.threads() == 1) return body(std::int64_t{0}, total, 0);
    pool_.run((total + share - 1) / share,
              [&](std::int64_t task, int thread) { body(task * share, std::min(total, (task + 1) * share), thread); });
  }

  // ---- terms.cc: one message into one aggregate row
  void add_term(int k, Acc* acc, const float* x, float factor, float edge, VertexId v) const;
  void subtract_term(int k, Acc* acc, const float* x, float factor, float edge) const;
  float source_factor(int k, const State<Acc>& state, VertexId u) const;
  float source_factor_before(int k, VertexId u) const;
  float root_factor(int k, const State<Acc>& state, VertexId v) const;
  float root_factor_before(int k, VertexId v) const;
  MessageRows messages(int k, const State<Acc>& state) const;
  const ExtremeKernels& extremes(const AggregationSpec& spec) const {
    return spec.reduce == Reduce::Max ? kernels_.max : kernels_.min;
  }
  // How many times the range of messages, scale * message is; its columns are those from `first` on.
  double times_range(int k, const float* message, double scale, int first, int width) const;
  double times_range(int k, const float* message, double scale) const {
    return times_range(k, message, scale, 0, aggregation(k).width);
  }
  [[noreturn]] void out_of_range(int k, VertexId v, double times) const;
  [[noreturn]] void not_finite(int k, VertexId v) const;
  void check_finite(int k, VertexId v, const float* row, int width) const;
  void check_stored(const Instruction& step, VertexId v, const float* row) const;
  void check_score(int k, float score, VertexId v) const;
  // The whole sum of v from its in-edges and its own term. admit(edge, source): a factor, 0 to leave the edge out.
  template <typename Admit>
  void add_in_terms(int k, const State<Acc>& state, VertexId v, Acc* acc, Admit&& admit) const;
  void add_root_term(int k, const State<Acc>& state, VertexId v, Acc* acc) const;
  template <typename Admit>
  void sum_row(int k, const State<Acc>& state, VertexId v, Acc* acc, Admit&& admit) const;
  void sum_row_all(int k, const State<Acc>& state, VertexId v, Acc* acc) const;
  void fetch_terms(int k, const State<Acc>& state, VertexId v) const;
  template <typename Sum>
  void sum_rows(int k, const State<Acc>& state, const VertexId* rows, std::int64_t first, std::int64_t last,
                Sum&& sum) const;

  // ---- memory.cc: a limit of memory
  std::unique_ptr<Pager> make_pager();
  State<Acc> new_state() const { return {source(), compact(), pager_.get(), false}; }
  void refuse_unsound_files() const;
  void fetch_stage(int stage, const State<Acc>& state, std::int64_t first, std::int64_t last) const;
  // A pass over all vertices: body(first, last), where memory is limited block by block, after fetch(first, last).
  template <typename Fetch, typename Body>
  void pass(Fetch&& fetch, Body&& body) const {
    const std::int64_t slots = graph_.slot_count(), block = pager_ == nullptr ? slots : block_rows_;
    for (std::int64_t first = 0; first < slots; first += block) {
      const std::int64_t last = std::min(slots, first + block);
      if (pager_ != nullptr) fetch(first, last);
      body(first, last);
    }
  }
  bool fits_scratch(const Plan& plan, std::int64_t edges) const;
  bool sums_in_blocks(int k) const;
  template <typename Begin, typename Sum, typename Done>
  void sum_in_blocks(int k, const State<Acc>& state, Begin&& begin, Sum&& sum, Done&& done) const;
  void forward_in_blocks(int k, State<Acc>& state) const;
  void sweep_in_blocks(int k);

  // ---- forward.cc: from scratch
  using OutputRow = std::function<float*(VertexId)>;  // where a vertex's output goes
  enum class Sums { Kept, Passing };                  // whether the state is wanted afterwards, or the outputs alone
  void forward(State<Acc>& state, bool choose_scales, Sums sums, const OutputRow& out) const;
  void forward_stage(int stage, State<Acc>& state, Sums sums, const OutputRow& out) const;
  bool passes(int k) const;
  PassingSums<Acc> sum_passing(int stage, const State<Acc>& state, VertexId first, VertexId last,
                               Scratch<Acc>& scratch) const;
  void forward_aggregate(int k, State<Acc>& state) const;
  RowTable<float> run_from_scratch(State<Acc>& state) const;  // the outputs, padded
  void build_state(bool stage_outputs);
  void choose_scales(int k, const State<Acc>& state);
  void set_scales(int k, const std::vector<float>& magnitudes, int spare_bits);
  void choose_capacity();
  void check_capacity() const;
  void use_exponents(int k, const std::vector<int>& exponents);

  // ---- demand.cc: batches that wait for a query
  bool defers() const { return options_.on_demand && !journal_armed_; }
  void check_deferred(const BatchDelta& delta) const;
  void defer(const BatchDelta& delta);
  void find_stale();
  void find_operands(int k, std::vector<int>* sources, std::vector<int>* targets) const;
  double looks_for_an_edge() const;
  bool asks_for_much(std::span<const std::int64_t> ids) const;
  bool find_needed(const std::vector<VertexId>& outputs);
  bool propagate_needed();
  struct Asked {
    bool whole = false;
    std::vector<VertexId> outputs;
  };
  Asked find_asked(std::span<const std::int64_t> ids);
  // Whether the batch at work is to bring v's row of aggregate k up to date.
  bool wants(int k, VertexId v) const {
    if (!restricted_) return true;
    const std::vector<int>& stages = aggregation(k).consumers;
    return std::any_of(stages.begin(), stages.end(), [&](int stage) { return needed_[at(stage)].contains(v); });
  }
  bool wants_source(int k, VertexId u) const;

  // ---- incremental.cc: one batch
  void take_degrees(const BatchDelta& delta);
  void propagate_now(const BatchDelta& delta);
  void grow();
  void mark_new_vertices();
  CurrentView<Acc> current() const { return {state_, graph_}; }
  void apply_edge_terms(const BatchDelta& delta);
  void apply_edge_term(int k, const EdgeRecord& edge, float weight, int sign);
  void run_stage_incrementally(int stage);
  void transform_rows(int stage, const std::vector<VertexId>& rows);
  void evaluate_rows(int stage, const VertexId* rows, int count, std::size_t first, int thread);
  void keep_result(const Instruction& step, VertexId v, const float* row, std::size_t index, int thread);
  void clear_other_types(int stage, const VertexId* rows, int count, std::size_t first, int thread);
  void find_result_rows(int stage);
  std::int64_t out_edges(const std::vector<VertexId>& vertices) const;
  std::int64_t all_in_edges() const;
  void count_reread(int stage, std::int64_t edges);
  Path push_or_sweep(const Plan& plan, std::int64_t edges) const;
  void choose_path(int k, const std::vector<VertexId>& rows);
  template <typename Body>
  void each_source(int k, std::size_t first, std::size_t last, Body&& change);
  void input_sources(int k);
  void rescaled_sources(int k);
  void update_source(int k, const SourceChange& change, std::size_t index, int thread);
  void update_root_from_message(int k, const SourceChange& change, int thread);
  void note_row_change(int index, VertexId v, int thread);
  void store_row(int index, VertexId v, const float* row, int thread);
  void mark_consumers(const std::vector<int>& consumers, VertexId v, int thread);
  void mark_refinished(int k);
  bool must_resum(int k) const;
  const float* input_before(VertexId v, float* buffer) const;

  // ---- derive.cc: rows of a compact state, as they were before the batch
  struct ViewBefore;
  bool makes_rows(int stage) const;
  void note_degrees(const BatchDelta& delta);
  void derive_rows(int stage, const std::vector<VertexId>& vertices);
  void derive_sources(const BatchDelta& delta);
  void derive_all(int stage);

  // ---- push.cc, propagate.cc: changed messages to aggregates
  void aggregate(int k, bool finish);
  void push(int k, bool finish);
  void push_serial(int k, std::int64_t edges);
  void push_binned(int k, std::int64_t edges, bool finish);
  template <typename Body>
  void visit_pushed(int k, std::size_t first, std::size_t last, Body&& body) const;
  void need_entries(std::int64_t count, bool weighted);
  void put_entry(std::int64_t slot, std::int32_t source, VertexId dst, bool weighted, float weight);
  void write_entries(int k, const DeltaWriter& writer, std::int64_t first, std::int64_t last, std::int64_t ahead,
                     int thread);
  void finish_rows(int stage, std::size_t listed, int thread);
  std::vector<std::size_t> share_sources(int k, std::int64_t shares) const;
  std::vector<std::int64_t> bin_entries(int k, int shift, const std::vector<VertexId>& listed);
  void pull(int k);
  void sweep(int k);
  void refresh_row(int k, VertexId v, Acc* scratch, int thread);
  void keep_row(int k, VertexId v, const Acc* sum, int thread);
  bool has_row_to_sweep(int k, VertexId v) const {  // where the type has changed, its own term may have left
    return wants(k, v) && (has_sum(k, v) || (source().typed && retyped_.contains(v)));
  }

  // ---- extremes.cc: minima and maxima
  void insert_extreme(int k, VertexId v, const float* x, float factor, float edge, int thread);
  void remove_extreme(int k, VertexId v, const float* x, float factor, float edge, int thread);
  void replace_extreme(int k, VertexId v, const float* before, const float* now, float edge, int thread);
  ExtremeRow open_extreme(int k, VertexId v, int thread);
  void note_extreme(int k, VertexId v, int flags);
  void settle_extremes(int k);
  void derive_exposed(int k, const std::vector<VertexId>& rows);
  std::int64_t reread_exposed(int k, VertexId v, bool* value_changed, int thread);
  bool extreme_agrees(int k, const Acc* live, const Acc* fresh) const;

  // ---- attention.cc: separable attention by split sums
  struct MovedSource;
  const AttentionSpec& attention(int k) const { return source().attentions[at(aggregation(k).attention)]; }
  static AttentionTables attention_tables(const AttentionSpec& spec);
  int total_bits() const { return kSumBits - capacity_bits_ - kBinBits - 1; }
  std::int64_t weight_bits(float weight) const {
    return std::llrint(static_cast<double>(weight) * power_of_two(total_bits()));
  }
  AttentionRow attention_row(int k, void* memory) const;
  AttentionRow open_attention(int k, VertexId v, int thread);
  template <bool kAdd>
  void move_head(int k, const AttentionRow& row, int head, const SourceScore& source, const float* message,
                 VertexId v) const;
  template <bool kAdd>
  void add_share(int k, const AttentionRow& row, int head, const SourceScore& source, const float* message,
                 VertexId v) const;
  template <bool kAdd>
  void add_weighted(int k, const AttentionRow& row, int head, bool above, float weight, const float* message,
                    VertexId v) const;
  void add_shares(int k, const AttentionRow& row, const std::vector<int>& heads, const float* t, const float* message,
                  VertexId v) const;
  float share_of(int k, const AttentionRow& row, int head, std::int32_t bin, float power, bool above) const;
  template <typename Visit>
  void visit_heard(int k, VertexId v, Visit&& visit) const;
  std::int64_t sum_stale_heads(int k, const State<Acc>& state, VertexId v, const AttentionRow& row) const;
  void attend_from_scratch(int k, const State<Acc>& state, VertexId v, Acc* acc) const;
  void attend_edge(int k, const EdgeRecord& edge, int sign);
  void replace_source(int k, VertexId v, const std::int64_t* delta, int thread);
  void choose_attention_path(int k);
  void plan_moved_sources(int k);
  void sweep_attention(int k);
  bool keeps_windows() const { return pager_ == nullptr && !options_.constrained; }
  void prepare_windows(int k);
  struct MovedBorder {
    int head, crossed;  // crossed: in-edges that changed sides
    float before, now;  // s of the target
  };
  bool cross(int k, const AttentionRow& row, const MovedBorder& border, float t, VertexId u, VertexId v) const;
  std::int64_t move_target(int k, VertexId v, const AttentionRow& row, int thread);
  std::int64_t cross_in_edges(int k, VertexId v, const AttentionRow& row, int thread);
  void forget_stale_windows(int k, VertexId v, const AttentionRow& row);
  void attend(int k);

  // ---- gather.cc: messages computed edge by edge
  class Gatherer;
  bool has_own_loop(int k) const {  // messages on edges: whether a vertex hears itself once, whatever its edges
    return aggregation(k).gather >= 0 ? gather_spec(k).loops == Loops::Replace : attention(k).own_loop;
  }
  const GatherSpec& gather_spec(int k) const { return source().gathers[at(aggregation(k).gather)]; }
  template <typename Admit, typename Sink>
  void gather_rows(int k, const State<Acc>& state, const VertexId* rows, std::int64_t count, int thread, Admit&& admit,
                   Sink&& sink) const;
  const std::vector<VertexId>& rows_to_gather(int k);
  void gather_again(int k, const std::vector<VertexId>& rows);
  void gather_into(int k, State<Acc>& state, const VertexId* rows, std::int64_t count, int thread) const;
  void gather_all(int k, State<Acc>& state) const;
  void gather_moved(int k);
  void gather_sampled(int k, State<Acc>& state, const VertexId* rows, std::int64_t count, int thread) const;
  class EdgeMessages;                                                   // edge_messages.h
  bool hears(int k, VertexId u, VertexId v, std::int32_t type) const {  // whether an edge's message counts for v
    return aggregation(k).counts(type) && (u != v || gather_spec(k).loops == Loops::Keep);
  }
  template <typename Admit, typename Visitor>
  void visit_messages(int k, VertexId v, Admit&& admit, Visitor&& visitor) const;

  // ---- edge_sums.cc: sums of such messages
  class BatchMessages;
  void add_message(int k, Acc* sums, const MessageEdge& edge, const float* message) const;
  template <typename Admit>
  void sum_edges(int k, State<Acc>& state, const VertexId* rows, std::int64_t count, int thread, Admit&& admit) const;
  void sum_again(int k, const VertexId* rows, std::int64_t count, int thread);
  std::vector<float> largest_messages(int k, const State<Acc>& state) const;
  bool replaces_messages(int k);
  void replace_messages(int k);
  bool may_replace_messages() const {
    return options_.strategy == Strategy::Incremental && !options_.constrained &&
           (options_.force_path == Path::None || options_.force_path == Path::Push);
  }
  // Whether rows that leave this table are kept until the batch is done.
  bool keeps_before(const StoredSpec& stored) const {
    if (!stored.attention_source_of.empty()) return true;
    return may_replace_messages() &&
           std::any_of(stored.source_of.begin(), stored.source_of.end(), [&](int k) { return aggregation(k).summed; });
  }

  // ---- neighbourhood.cc: the strategies that keep no state
  void propagate_full();
  void propagate_neighbourhoods(const BatchDelta& delta);
  std::vector<std::vector<VertexId>> affected_sets(const BatchDelta& delta);
  void spread_on_edges(int k, const std::vector<std::vector<VertexId>>& sets, const BatchDelta& delta);
  std::vector<std::vector<VertexId>> needed_sets(const std::vector<VertexId>& outputs) const;
  InSample sample_in_edges(int k, VertexId v) const;
  void sum_sampled_row(int k, const State<Acc>& state, VertexId v, Acc* acc) const;

  void check_degrees(const BatchDelta& delta) const;
  std::string describe(const char* what, int index, VertexId v) const;

  const GraphStore& graph_;
  const Kernels& kernels_ = kernels();
  CompiledProgram program_;
  EngineOptions options_;
  std::int64_t block_rows_ = 1;   // of a pass: all rows of so many vertices are a small part of the limit
  std::unique_ptr<Pager> pager_;  // where memory is limited
  mutable ThreadPool pool_;
  mutable std::vector<Registers> registers_;  // one per thread
  State<Acc> state_;
  std::vector<Scales> scales_;
  int capacity_bits_ = 0;  // in-degrees stay below 2^capacity_bits
  float limit_ = 0.0f;     // of |message * up|
  Publication publication_;

  // the batch at work
  const BatchDelta* delta_ = nullptr;
  VertexId slots_ = 0;         // rows that state_ stands for
  VertexId slots_before_ = 0;  // the same before the batch
  std::uint32_t epoch_ = 0;
  std::vector<VertexSet> dirty_;         // per stage: rows to evaluate
  VertexSet retyped_;                    // vertices that are of another type than before; typed programs only
  std::vector<ResultRows> result_rows_;  // per stage
  std::vector<Plan> plans_;              // per aggregation
  struct Touched {                       // rows of minima or maxima that this batch has reached, with their flags
    VertexSet set;
    std::vector<std::uint8_t> flags;
  };
  std::vector<Touched> touched_;          // per aggregation; of a gather: the rows to compute again
  std::vector<VertexSet> moved_sources_;  // per gather and attention: vertices whose row at the source has changed
  std::vector<RowsBefore> rows_before_;   // per stored rows: where keeps_before()
  std::vector<AttentionTables> attention_factors_;
  std::vector<SourceScore> source_scores_;
  std::vector<BorderTable> borders_;                       // per attention's aggregation
  std::vector<std::vector<MovedBorder>> moved_borders_;    // per thread
  std::vector<std::vector<WindowFinder>> window_finders_;  // per thread
  std::vector<std::uint32_t> input_mark_, input_slot_;
  Journal<Acc> journal_;
  bool journal_armed_ = false;
  std::vector<StageStats> stats_;
  double topology_seconds_ = 0.0, started_ = 0.0;
  double admit_seconds_ = 0.0;
  bool admitted_ = false;  // whether the degrees are those after the batch already
  std::vector<VertexId> added_, removed_;
  std::unordered_map<VertexId, std::int32_t> in_edges_gained_;  // by this batch; compact states only
  std::unique_ptr<State<Acc>> scratch_state_;                   // of the strategies that keep no state

  // on demand
  Pending pending_;
  std::vector<VertexSet> stale_;   // per stage: rows that the pending batches can have changed, where stale_known_
  VertexSet fresh_;                // outputs among them that a query has brought up to date
  std::vector<VertexSet> needed_;  // per stage: stale rows that the query at work needs
  std::uint32_t needed_epoch_ = 0;
  std::int64_t spent_edges_ = 0;  // of work for queries since all was propagated
  bool restricted_ = false;       // whether the batch at work goes into needed rows only
  bool stale_known_ = false;
  std::vector<VertexId> demanded_;  // vertices whose published output is ahead of the state, some several times
  std::size_t demanded_limit_ = 4096;
  std::uint32_t stale_epoch_ = 0;
  std::int64_t stale_edges_ = 0;   // out of the stale rows: about what propagating all of it would cost
  double edges_per_change_ = 0.0;  // of the latest batches that were propagated, or walked
  DemandStats demand_stats_;
  bool broken_ = false;         // a propagation failed half-way: the state has to be built again
  bool outputs_stale_ = false;  // and the outputs that readers see are not the graph's

  // push scratch: the edges of one push; a source is a place in the plan's list
  struct Entry {
    VertexId dst;
    std::int32_t source;
  };
  std::vector<Entry> entries_;
  std::vector<float> entry_weights_;
  bool finished_ = false;                          // whether a push has run the last stage, too
  mutable std::vector<Scratch<Acc>> row_scratch_;  // one row per thread
};

}  // namespace livegnn
