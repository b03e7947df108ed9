// An operator keeps the rows of one aggregation equal to a run from scratch. It is chosen once, when the engine is made
// (registry.cc), and is the only part that knows which kind of aggregation it is.
//
// To add one: write a file with a final class and an OperatorKind, and add a line to registry.cc.
//
// A row is `stride` int64 words of State::aggregates; what is in it is the operator's business. It must be a function
// of the graph and the scales: digest() and verify() read its first `facts.value_bytes`.
//
// One batch calls, in this order:
//   begin         sets are sized; nothing has moved
//   apply_edges   edges that came, went or changed take the OLD messages of their sources along
//   plan          (of the operator's stage) the rows to evaluate are known, not yet evaluated
//   take_message  a row of the stage stores a new message; take_root: its own term. Many threads, one call a vertex
//   take_others   sources that move though no row was evaluated for them: features, degrees
//   settle        all rows are brought up to date, and the stages that read changed ones are marked dirty
// Rows that an operator reads at the ends of edges are watched: it enters its sets in Workspace::row_users.
//
// A call is virtual, so it is made once per layer and batch, per chunk of rows, per changed row or, for a whole row, to
// its RowSink. Loops over edges are inside the operator: plain code, or templates of counted_edges.h and push.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "inference/workspace.h"

namespace livegnn {

struct StageView;  // view.h

// The vertices list[first] to list[last - 1], or, without a list, first to last - 1 themselves.
struct VertexRange {
  const VertexId* list;
  std::int64_t first, last;
  VertexId operator[](std::int64_t i) const { return list == nullptr ? static_cast<VertexId>(i) : list[i]; }
};

// Where whole rows go. open(v): memory for v's row, null to leave v out; close(v, row): it is whole. An operator may
// have several rows open and closes each of them.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual std::int64_t* open(VertexId v) = 0;
  virtual void close(VertexId, std::int64_t* /*row*/) {}
};

// A message of one vertex before and after the batch, padding included.
struct SourceChange {
  VertexId vertex;
  const float* before;
  const float* now;
  bool bits_differ;
};

using VertexSets = std::vector<std::vector<VertexId>>;

// The kinds of stored rows that an aggregation is made of.
struct Operands {
  std::vector<int> sources, targets;  // read at an edge's source, and at its target
  std::vector<int> loaded;            // of the targets': those that load() reads, too
};

class Operator {
 public:
  struct Facts {
    int stride;               // of a row, in int64 words
    std::size_t value_bytes;  // at its front that are a function of the graph
    bool floats = false;      // the value is floats, not int64
    bool dear = false;        // an edge costs several times what a sum's does
    bool passes = true;       // rows can be made a chunk at a time for the one stage that reads them
    bool mean = false;        // a stage reads the value divided by the number of in-edges
    bool may_finish = false;  // settle(true) can run the last stage for the rows that it changes
  };
  Operator(Workspace& work, int k, Facts facts_of_it)
      : facts(facts_of_it), work_(work), k_(k), spec_(work.aggregation(k)), flow_(work.flow(k)) {}
  virtual ~Operator() = default;
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  int stride() const { return facts.stride; }
  int stage() const { return spec_.stage; }
  const Operands& operands() const { return operands_; }
  // Whether v's row can be other than zero.
  bool has_row(VertexId v) const {
    return (row_type_ < 0 || work_.graph.vertex_type(v) == row_type_) && !work_.is_ghost(v);
  }

  // ---- whole rows
  virtual void choose_scales(const State&) {}
  // Rows of `range` from their in-edges, or from a sample of these.
  virtual void compute(const State& state, const VertexRange& range, bool sampled, int thread, RowSink& sink) const = 0;
  virtual void compute_all(State& state) const;
  // out + i * out_stride: what stages read of vertices[i], the value as its norm has it.
  virtual void load(const StageView& view, const VertexId* vertices, int count, float* out, int out_stride) const;

  // ---- one batch; what is empty here does nothing
  virtual void begin() {
    for (VertexSet* set : sets_) set->prepare(work_.slots, work_.pool.threads());
  }
  // From u to v, as messages go.
  virtual void prefetch_edge(VertexId, VertexId v) const { prefetch_row(table().row(v), table().row_bytes()); }
  void prefetch_ends(VertexId src, VertexId dst) const {  // of an edge
    flow_.reversed() ? prefetch_edge(dst, src) : prefetch_edge(src, dst);
  }
  virtual void apply_edges() = 0;
  virtual void plan(const std::vector<VertexId>&) {}
  virtual void take_message(const SourceChange&, std::size_t /*index*/, int /*thread*/) {}
  virtual void take_root(VertexId, const float* /*before*/, const float* /*now*/, int /*thread*/) {}
  virtual void take_others() {}
  virtual void settle(bool finish) = 0;
  // Marks the rows that a batch can reach by structure alone; sets: of vertices, by earlier stages.
  virtual void mark_reached(const VertexSets& sets, const BatchDelta& delta) = 0;

  // ---- parts (halo_trade.h), between take_others and settle
  virtual bool mails() const { return false; }  // whether changes may cross as sums
  // A ghost's message has moved, or, where before is now, its factor.
  virtual void take_arrived(VertexId, const float* /*before*/, const float* /*now*/) {}
  virtual void take_mail(VertexId, const std::int64_t* /*sums*/) {}  // into v's row
  // Changes of sources whose bits name parts, along edges to ghosts of these.
  virtual void mail_sources(const std::vector<std::uint64_t>& /*parts*/, MailRows&) const {}
  template <typename Visit>
  void each_target(VertexId u, Visit&& visit) const {
    flow_.visit_out(u, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < span.count; ++i) visit(span.neighbours[i]);
    });
  }

  // ---- undo and audits
  virtual bool sums_again() const { return false; }  // whether compute() gives the bits of a row that was changed
  virtual void undo() {}                             // the journal has been restored
  virtual void clear() {}                            // the state is built anew
  virtual std::size_t bytes() const {                // besides the rows
    std::size_t bytes = 0;
    for (const VertexSet* set : sets_) bytes += set->bytes();
    return bytes;
  }
  // ---- explanations: the terms that a row is the sum of, a row for each; false where it is no sum of terms
  virtual bool terms(const TermOperands&, std::int64_t* /*out*/) const { return false; }
  virtual EdgeTerms edge_terms(VertexId) const { return {}; }  // of a gather

  virtual bool agrees(const std::int64_t* live, const std::int64_t* fresh) const {
    return std::memcmp(live, fresh, facts.value_bytes) == 0;
  }
  void corrupt(VertexId v, int column) {  // the canary: off by one unit
    std::int64_t* row = table().row(v);
    facts.floats ? void(reinterpret_cast<float*>(row)[column] += 1.0f) : void(row[column] += 1);
  }

  const Facts facts;

 protected:
  RowTable<std::int64_t>& table() const { return work_.state.aggregates[at(k_)]; }
  std::int64_t* opened(VertexId v, int thread) const {  // v's row, about to change
    std::int64_t* row = table().row(v);
    if (work_.journal.saves(k_)) [[unlikely]]
      work_.journal.save_aggregate(k_, v, row, thread);
    return row;
  }
  // The engine's rows of these vertices again, `share` of them to a task; counted as read again.
  void refresh_rows(const std::vector<VertexId>& rows, std::int64_t share) const;
  // All of the engine's rows again, in storage order; sweeps(v): those that have to be looked at.
  void sweep_rows() const;
  bool sweeps(VertexId v) const;
  void count_swept() const;
  // Before rows of a compact state are read that the batch has not asked for (derive.cc): all that these rows of the
  // aggregation are made of, or all that any is.
  void derive_operands(const std::vector<VertexId>& rows) const;
  template <typename Read>
  void derive_operands(const std::vector<VertexId>& rows, Read&& read) const {  // of those for which read(v)
    if (!work_.compact()) return;
    std::vector<VertexId> chosen;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(chosen), read);
    derive_operands(chosen);
  }
  void derive_all() const;

  Workspace& work_;
  const int k_;
  const AggregationSpec& spec_;
  const Flow flow_;  // what it reads of edges, it reads through this
  Operands operands_;
  std::vector<VertexSet*> sets_;  // of one batch each
  int row_type_ = -1;             // rows of other vertices are zero; -1: all have one
};

struct OperatorKind {
  bool (*takes)(const Program& program, const AggregationSpec& spec);
  std::unique_ptr<Operator> (*make)(Workspace& work, int k);
};

template <typename Kind>
std::unique_ptr<Operator> make(Workspace& work, int k) {
  return std::make_unique<Kind>(work, k);
}

// The operator of aggregation k: of the first kind in registry.cc that takes it.
std::unique_ptr<Operator> make_operator(Workspace& work, int k);

}  // namespace livegnn
