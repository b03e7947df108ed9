// What the engine and its operators share: the graph, the program, the state, and the batch at work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "dense/kernels.h"
#include "inference/executor.h"
#include "inference/flow.h"
#include "inference/halo_trade.h"
#include "inference/journal.h"
#include "inference/publication.h"
#include "inference/sets.h"
#include "inference/state.h"
#include "livegnn/engine.h"
#include "util/aligned.h"
#include "util/hash.h"
#include "util/pager.h"
#include "util/thread_pool.h"

namespace livegnn {

class Operator;  // operators/operator.h

// The rows that a stage's results are compared with or added to, so that they can be prefetched.
struct ResultRows {
  std::vector<const RowTable<std::int64_t>*> tables;
  std::vector<const StoredRows*> stored;
  std::vector<const DegreeNorm*> norms;
  std::vector<const VertexSet*> changed;  // that vertices join whose row changes
  std::vector<const OldRows*> before;     // that keep rows of before the batch
  const Publication* outputs = nullptr;   // of the last stage
  VertexId limit = 0;
  void prefetch(VertexId v) const {
    if (v >= limit) return;
    for (const RowTable<std::int64_t>* table : tables) prefetch_row(table->row(v), table->row_bytes());
    for (const StoredRows* rows : stored) rows->prefetch(v);
    for (const DegreeNorm* norm : norms) norm->prefetch(v);
    for (const VertexSet* set : changed) prefetch_line(set->mark_address(v));
    for (const OldRows* rows : before) rows->prefetch(v);
    if (outputs != nullptr) outputs->prefetch(v);
  }
};

// Which in-edges a sampled sum takes: those with the smallest keys. By default all.
struct InSample {
  std::uint64_t salt = 0, bound = 0;
  float factor = 1.0f;
  std::uint64_t key(EdgeId id) const { return mix(salt ^ static_cast<std::uint64_t>(id)); }
  float admits(EdgeId id) const { return bound == 0 || key(id) < bound ? factor : 0.0f; }
};

// What uses one kind of stored rows, besides stages. Operators register when they are made.
struct RowUsers {
  std::vector<VertexSet*> changed;  // sets that a vertex joins when its row changes
  int root_of = -1;                 // the aggregation whose own term the row is
  int finite_for = -1;              // an aggregation that takes finite rows only
  bool keep_before = false;         // rows of before the batch are kept until it is done
  bool recorded = false;            // the same, and they can be asked for once it is published
  bool keeps() const { return keep_before || recorded; }
};

struct PushEntry {
  VertexId dst;
  std::int32_t source;  // a place in the plan's list
};

class Workspace {
 public:
  Workspace(const GraphStore& store, Program model, const EngineOptions& chosen);
  ~Workspace();

  const Program& source() const { return program.source(); }
  const AggregationSpec& aggregation(int k) const { return source().aggregations[at(k)]; }
  Flow flow(int k) const { return {graph, aggregation(k)}; }
  bool compact() const { return options.compact; }
  bool incremental() const {
    return options.strategy == Strategy::Incremental || options.strategy == Strategy::Affected;
  }
  std::unique_ptr<Pager> make_pager();
  std::vector<int> strides() const;  // of aggregates
  State new_state(bool compact_rows, bool pin) const;

  // ---- work in shares
  // body(first, last, thread) for every share of `total`: by all threads, or where not `parallel` by this one, in
  // order.
  template <typename Body>
  void in_chunks(std::int64_t total, std::int64_t share, bool parallel, Body&& body) const {
    const auto run = [&](std::int64_t task, int thread) {
      body(task * share, std::min(total, (task + 1) * share), thread);
    };
    const std::int64_t tasks = (total + share - 1) / share;
    if (parallel) return pool.run(tasks, run);
    for (std::int64_t task = 0; task < tasks; ++task) run(task, 0);
  }
  // The same; what one thread does is one share.
  template <typename Body>
  void in_shares(std::int64_t total, std::int64_t share, Body&& body) const {
    if (total <= share || pool.threads() == 1) return body(std::int64_t{0}, total, 0);
    in_chunks(total, share, true, body);
  }
  // A pass over all vertices: body(first, last), where memory is limited block by block, after fetch(first, last).
  template <typename Fetch, typename Body>
  void pass(Fetch&& fetch, Body&& body) const {
    const std::int64_t slots_now = graph.slot_count(), block = pager == nullptr ? slots_now : block_rows;
    for (std::int64_t first = 0; first < slots_now; first += block) {
      const std::int64_t last = std::min(slots_now, first + block);
      if (pager != nullptr) fetch(first, last);
      body(first, last);
    }
  }

  // ---- ranges
  // How many times the range of messages, scale * message is; its columns are those from `first` on.
  double times_range(int k, const float* message, double scale, int first, int width) const;
  double times_range(int k, const float* message, double scale) const {
    return times_range(k, message, scale, 0, aggregation(k).width);
  }
  [[noreturn]] void out_of_range(int k, VertexId v, double times) const;
  [[noreturn]] void not_finite(int k, VertexId v) const;
  void check_finite(int k, VertexId v, const float* row, int width) const;
  // Of the directions in which messages go, the most that can come to v.
  std::int32_t messages_max(VertexId v) const {
    return std::max(goes_forward ? graph.in_degree(v) : 0, goes_back ? graph.out_degree(v) : 0);
  }
  void check_degree(VertexId v, const char* where, const char* advice) const;
  void check_degrees(const BatchDelta& changes) const;
  void check_capacity() const;
  void choose_capacity();
  void use_exponents(int k, const std::vector<int>& exponents);
  // Exponents for columns of these magnitudes, with so many bits kept free above them.
  void set_scales(int k, std::vector<float> magnitudes, int spare_bits);

  // ---- the batch at work
  // Whether the batch at work is to bring v's row of aggregate k up to date.
  bool is_ghost(VertexId v) const { return trade != nullptr && trade->is_ghost(v); }
  bool is_picky() const { return restricted || trade != nullptr; }  // whether wants() can be false
  bool wants(int k, VertexId v) const {
    if (is_ghost(v)) return false;
    if (!restricted) return true;
    const std::vector<int>& stages = aggregation(k).consumers;
    return std::any_of(stages.begin(), stages.end(), [&](int stage) { return needed[at(stage)].contains(v); });
  }
  bool wants_source(int k, VertexId u) const;
  void mark_consumers(const std::vector<int>& consumers, VertexId v, int thread) {
    for (const int stage : consumers) dirty[at(stage)].add(v, thread);
  }
  const float* input_before(VertexId v, float* buffer) const;
  std::int64_t out_edges(const Flow& flow, const std::vector<VertexId>& vertices) const;
  std::int64_t all_in_edges() const { return graph.all_edge_count() * (graph.options().undirected ? 2 : 1); }
  // The messages of these in-edges are summed again.
  void count_reread(int stage, std::int64_t edges) {
    stats[at(stage)].reread += edges;
    stats[at(stage)].edges += edges;
  }
  // How deltas of `row_bytes` each travel along the `edges` of so many moved sources.
  Path push_or_sweep(std::size_t sources, std::size_t row_bytes, std::int64_t edges, bool sums) const;
  // Keeps row v of aggregate k where it differs from the one in the state.
  void keep_row(int k, VertexId v, const std::int64_t* row, int thread);
  InSample sample_in_edges(int k, VertexId v) const;

  // ---- rows through stages (rows.cc, derive.cc)
  void transform_rows(int stage, const std::vector<VertexId>& rows);
  void evaluate_rows(int stage, const VertexId* rows, int count, std::size_t first, int thread);
  void keep_result(const Instruction& step, VertexId v, const float* row, std::size_t index, int thread);
  void store_row(int table, VertexId v, const float* row, int thread);
  void replace_stored(int table, VertexId v, const float* row, int thread);
  void clear_other_types(int stage, const VertexId* rows, int count, std::size_t first, int thread);
  int stored_table(const Instruction& step) const {  // of a Store instruction
    return step.op == Op::StoreMessage ? aggregation(step.index).message_table : step.index;
  }
  void find_result_rows(int stage);
  void check_stored(const Instruction& step, VertexId v, const float* row) const;
  void note_before();
  void begin_rows_before();
  // Of a compact state; of another one they do nothing.
  void derive_sources();
  void derive_loaded(int stage, const std::vector<VertexId>& vertices) {
    if (compact()) derive(loaded_tables(stage), vertices);
  }
  void derive_rows(int stage, const std::vector<VertexId>& vertices);
  void derive(const std::vector<int>& tables, const std::vector<VertexId>& vertices);
  std::vector<int> loaded_tables(int stage) const;
  int last_use(int table) const;

  const GraphStore& graph;
  const Kernels& kernels = livegnn::kernels();
  CompiledProgram program;
  const bool goes_back, goes_forward;  // whether messages of some aggregation are reversed, or of some are not
  EngineOptions options;
  std::int64_t block_rows = 1;  // of a pass: all rows of so many vertices are a small part of the limit
  mutable ThreadPool pool;
  mutable std::vector<Registers> registers;                // one per thread
  mutable std::vector<Scratch<std::int64_t>> row_scratch;  // one row per thread
  std::vector<RowUsers> row_users;                         // per kind of stored rows
  std::vector<std::unique_ptr<Operator>> operators;        // per aggregation
  std::unique_ptr<Pager> pager;                            // where memory is limited
  State state;
  std::vector<Scales> scales;
  int capacity_bits = 0;  // in-degrees stay below 2^capacity_bits
  float limit = 0.0f;     // of |message * up|
  Publication publication;
  std::unique_ptr<HaloTrade> trade;  // of a part

  // the batch at work
  const BatchDelta* delta = nullptr;
  VertexId slots = 0;                     // rows that the state stands for
  VertexId slots_before = 0;              // the same before the batch
  std::vector<VertexSet> dirty;           // per stage: rows to evaluate
  VertexSet retyped;                      // vertices that are of another type than before; typed programs only
  std::vector<ResultRows> result_rows;    // per stage
  std::vector<OldRows> rows_before;       // per kind of stored rows, where keep_before
  VertexSet input_changed;                // vertices with new features
  std::vector<std::uint32_t> input_slot;  // their places in the delta
  Journal journal;
  std::vector<StageStats> stats;
  std::unordered_map<VertexId, std::int32_t> edges_gained[2];  // in-edges, and out-edges; compact states only
  std::unordered_map<VertexId, std::int32_t> types_before;     // of retyped vertices; the same
  std::vector<VertexSet> needed;                               // per stage: rows that the query at work needs
  bool restricted = false;                                     // whether the batch goes into needed rows only
  std::vector<PushEntry> push_entries;                         // the edges of one push
  std::vector<float> push_weights;
  std::vector<VertexId> kept_targets;  // the same edges, by source, until they are in bins
  std::vector<float> kept_weights;
  std::vector<std::int32_t> kept_counts;
  std::vector<std::int32_t> source_places;  // by slot: of a gathering push; kNoSource between pushes
  bool finished = false;                    // whether a push has run the last stage, too
};

}  // namespace livegnn
