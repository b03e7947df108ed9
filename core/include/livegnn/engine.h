// The engine: keeps the outputs of a compiled model equal to a run from scratch on the graph as it is now.
//
// State is a function of the graph (and of the recorded scales): messages are rounded once to fixed point, and integer
// sums do not depend on order, batching or threads. One writer; readers of published rows may be in any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "livegnn/explain.h"
#include "livegnn/follower.h"
#include "livegnn/graph.h"
#include "livegnn/halo.h"
#include "livegnn/program.h"

namespace livegnn {

enum class Strategy : int { Incremental, Affected, KHop, Sampled, Full };
enum class Path : int { None, Push, Pull, Sweep };  // how a layer's aggregates were brought up to date

struct EngineOptions {
  Strategy strategy = Strategy::Incremental;
  Path force_path = Path::None;  // None: the cheaper one, by counts known before the work
  bool compact = false;          // Incremental: only aggregates are kept, rows are derived again when needed; the
                                 // program must be closed (no stage loads stored rows)
  bool on_demand = false;        // Incremental: batches are noted, and propagated as far as a query asks
  bool lists_edges = false;      // Changes name the edges that a batch touched, for models with one row per edge
  bool constrained = false;  // Incremental: attention of a target that moves is summed again (NeutronRT, Algorithm 4)
  int threads = 1;
  int fanout = 10;                                // Sampled
  std::uint64_t seed = 0;                         // Sampled
  std::vector<std::vector<int>> scale_exponents;  // per aggregation and column; empty: chosen from the first run
  std::size_t memory_limit = 0;                   // bytes of rows in memory, the rest in files; 0: all in memory
  std::string spill_folder;                       // of the files
  Halo* halo = nullptr;  // of an engine whose graph is a part: Incremental, eager, in memory, not compact. Its audits
                         // are rounds, too: all parts make them together. It outlives the engine
};

// Rows of minima and maxima that a batch reached (InkStream, Figure 13), each in one of the first four, and again in
// `resilient` where no value changed.
struct MinMaxStats {
  bool present = false;          // whether the stage has any minima or maxima
  std::int64_t no_deletion = 0;  // only new messages came
  std::int64_t no_effect = 0;    // messages left or changed, none of which had an extremum
  std::int64_t covered = 0;      // one that had an extremum left it to another one at hand
  std::int64_t exposed = 0;      // messages had to be read again
  std::int64_t resilient = 0;
  std::int64_t reread_bytes = 0;

  void count(bool deletion, bool holder_left, bool changed, std::int64_t bytes);  // one row
  void add(const MinMaxStats& other);
};

struct StageStats {
  std::int64_t affected = 0;  // rows evaluated
  std::int64_t edges = 0;     // edges along which work was done, those below among them
  std::int64_t scanned = 0;   // attention: in-edges of moved targets whose scores were looked at
  std::int64_t reread = 0;    // in-edges whose messages were read to reduce a row again
  Path path = Path::None;
  double transform_seconds = 0.0, aggregate_seconds = 0.0;
  MinMaxStats extremes;
};

// The output rows that a batch moved, as they were and as they are; width floats each.
struct OutputMoves {
  std::vector<VertexId> vertices;  // that are there after the batch, ascending; then those that are gone, likewise
  std::size_t gone = 0;            // how many of them are
  std::size_t width = 0;
  std::vector<std::uint8_t> is_new;  // there was no row before: zeros
  std::unique_ptr<float[]> before, after;
};

struct Changes {
  std::vector<VertexId> vertices;      // live vertices whose output changed; call arrange() first
  void arrange();                      // ascending, each once
  std::shared_ptr<OutputMoves> moves;  // of engines that keep them, where they are not too many
  // Of engines that list edges: what the batch itself did to edges that are there after it.
  EdgeRun edges_added, edges_reattributed, edges_reweighted;
  std::vector<StageStats> stages;
  double topology_seconds = 0.0, publish_seconds = 0.0, total_seconds = 0.0;
};

struct StateBytes {
  std::size_t aggregates = 0, messages = 0, stored = 0, contexts = 0, outputs = 0, scratch = 0;
};

// Rows that need not all be in memory. Bytes and pages.
struct PagingStats {
  std::size_t limit = 0, resident = 0, files = 0;  // resident: as the kernel has it
  std::int64_t hubs = 0;                           // vertices whose rows stay
  std::int64_t brought = 0, dropped = 0;           // pages, since the engine was made
};

// What a query of an engine on demand cost: rows computed for it and edges along which work was done, or whether it
// brought all up to date.
struct DemandStats {
  std::int64_t rows = 0, edges = 0;
  bool whole = false;
};

// A snapshot of published rows. moment: what the engine finds it by; several may be of one version.
struct SnapshotFacts {
  std::int64_t moment = 0, version = 0, vertex_count = 0;
};

class Engine {
 public:
  // Runs the model on the whole graph. The graph must outlive the engine.
  static std::unique_ptr<Engine> create(const GraphStore& graph, Program program, const EngineOptions& options);
  virtual ~Engine() = default;

  // ---- writer
  virtual void prefetch(const UpdateBuffer& batch) const = 0;  // asks for rows that a small batch will touch
  virtual void prepare(const BatchDelta& delta) = 0;           // degrees follow; may throw: then abort()
  virtual void abort() = 0;                                    // undoes prepare(), for a batch that is not propagated
  virtual void propagate(const BatchDelta& delta) = 0;         // outputs are staged; may throw: then rebuild()
  virtual Changes publish() = 0;                               // one short critical section
  virtual bool lists_edges() const = 0;
  virtual void rebuild() = 0;          // state from scratch with the recorded scales, after graph.undo()
  virtual void begin_journal() = 0;    // from here on old rows are kept ...
  virtual void restore_journal() = 0;  // ... and put back, bit for bit; staged outputs are dropped
  virtual std::vector<VertexId> staged_vertices() const = 0;

  // ---- what is published, for a follower that looks later (the writer's place)
  virtual std::int64_t note_changes() = 0;  // changed and new vertices are noted from here on; the place of the next
  // Those noted since a place, ascending; none where there were so many that they are forgotten.
  virtual std::optional<std::vector<VertexId>> changed_since(std::int64_t place) const = 0;

  // From the next batch on Changes has the rows that it moved, where they are at most so many; below 0: no more.
  virtual void keep_moves(std::int64_t rows_max) = 0;

  // ---- on demand (the writer's place); no effect where nothing is pending
  virtual DemandStats demand(std::span<const std::int64_t> ids) = 0;  // brings these outputs up to date
  virtual void flush() = 0;                                           // brings everything up to date
  virtual bool pending() const = 0;

  // ---- readers (any thread)
  // Returns the rows' version; throws VertexUnknown.
  virtual std::int64_t read(std::span<const std::int64_t> ids, float* out) const = 0;
  virtual void read_staged(std::span<const std::int64_t> ids, float* out) const = 0;  // inside what_if
  virtual std::int64_t version() const = 0;  // of what read() gives now: that, or a later one once it is called

  // ---- snapshots (any thread): see Snapshot
  virtual SnapshotFacts open_snapshot() = 0;
  virtual void close_snapshot(std::int64_t moment) = 0;
  virtual void read_snapshot(std::int64_t moment, std::span<const std::int64_t> ids, float* out) const = 0;

  // ---- audits (no writer at work)
  virtual void recompute(float* out) const = 0;  // slot_count x output_width, from scratch, with the recorded scales
  virtual std::optional<std::string> verify() const = 0;  // the first difference that it finds, in words
  virtual std::uint64_t digest() const = 0;               // contexts and aggregates of live vertices, and scales
  virtual StateBytes bytes() const = 0;
  virtual std::optional<PagingStats> paging() const = 0;  // none without a memory limit
  virtual std::vector<std::vector<int>> scale_exponents() const = 0;
  virtual int output_width() const = 0;
  // Of a part, between batches: see HaloTrade::parcels_of_start; what is stale, and that again.
  virtual std::vector<Parcels> parcels_of_start() const = 0;
  virtual void remember(HaloMemory& memory) const = 0;
  virtual void recall(const HaloMemory& memory) = 0;

  // ---- explanations (no writer at work; of a state that keeps rows): see livegnn/explain.h. Table -1: the features
  virtual void stored_rows(int table, std::span<const std::int64_t> slots, float* out) const = 0;
  virtual void factors(int context, std::span<const std::int64_t> slots, float* out) const = 0;  // s and L of each
  virtual int aggregate_stride(int k) const = 0;                                                 // in int64 words
  virtual void aggregate_rows(int k, std::span<const std::int64_t> slots, std::int64_t* out) const = 0;
  // A row of aggregate_stride words for each term; false where the aggregation keeps no sum of terms.
  virtual bool terms(int k, const TermOperands& given, std::int64_t* out) const = 0;
  virtual EdgeTerms edge_terms(int k, VertexId v) const = 0;  // of a gather
  // From the next batch on: these tables, features, degrees and edges; or, where not `on`, nothing.
  virtual void record(std::span<const int> tables, bool on) = 0;
  virtual BatchRecord recorded() const = 0;                                    // of the batch that was published last
  virtual void corrupt_for_test(int aggregation, VertexId v, int column) = 0;  // the canary: off by one unit
};

// Applies one batch to the store and to every engine, all or none, and publishes. Changes in the engines' order.
// before_publish, where given, runs when nothing can be refused any more and no reader has seen anything yet; what it
// throws takes the batch back. Taking back after propagation costs a run from scratch.
std::vector<Changes> apply_batch(GraphStore& graph, std::span<Engine* const> engines,
                                 std::span<BatchFollower* const> followers, const UpdateBuffer& batch,
                                 const std::function<void()>& before_publish = {});

// The rows that are published when it is made, for as long as it is open: batches that come later keep the old rows of
// what they change for it. Neither waits for the other. One on demand must have nothing pending. The engine must
// outlive it; any thread may read.
class Snapshot {
 public:
  explicit Snapshot(Engine& engine) : engine_(engine), facts_(engine.open_snapshot()) {}
  ~Snapshot() { engine_.close_snapshot(facts_.moment); }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  // Throws VertexUnknown for what was not live then.
  void read(std::span<const std::int64_t> ids, float* out) const { engine_.read_snapshot(facts_.moment, ids, out); }
  std::int64_t version() const { return facts_.version; }
  std::int64_t vertex_count() const { return facts_.vertex_count; }
  int width() const { return engine_.output_width(); }

 private:
  Engine& engine_;
  SnapshotFacts facts_;
};

// A batch that is looked at and taken back. Between construction and close() the graph and the engine are as after the
// batch; readers still see the committed version.
class WhatIf {
 public:
  WhatIf(GraphStore& graph, Engine& engine, const UpdateBuffer& batch);
  ~WhatIf();
  void close();

 private:
  GraphStore& graph_;
  Engine& engine_;
  BatchDelta delta_;
  bool open_ = false;
};

}  // namespace livegnn
