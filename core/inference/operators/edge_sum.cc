// Sums of messages that are computed edge by edge and read nothing of their target: fixed-point sums like others, a
// function of the graph. So a batch replaces the messages of its edges and of moved sources' out-edges, each worked out
// as it was and as it is, and no other in-edge of a target is looked at.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "inference/column_maxima.h"
#include "inference/operators/edge_operator.h"
#include "inference/view.h"

namespace livegnn {

namespace {

constexpr std::int64_t kReplacedPerShard = 256;  // messages; fewer are not worth waking a thread
constexpr std::int64_t kScaleRows = 512;         // vertices of a task
constexpr std::int64_t kRowsAtOnce = 64;

class EdgeSum final : public EdgeOperator {
 public:
  EdgeSum(Workspace& work, int k);

  void choose_scales(const State& state) override;
  void compute(const State& state, const VertexRange& range, bool sampled, int thread, RowSink& sink) const override;
  void settle(bool finish) override;
  bool terms(const TermOperands& given, std::int64_t* out) const override;

 private:
  class BatchMessages;
  void add_message(std::int64_t* sums, const MessageEdge& edge, const float* message) const;
  bool may_replace() const {
    const EngineOptions& options = work_.options;
    return options.strategy == Strategy::Incremental && !options.constrained &&
           (options.force_path == Path::None || options.force_path == Path::Push);
  }
  bool replaces();
  void replace_messages();
};

EdgeSum::EdgeSum(Workspace& work, int k)
    : EdgeOperator(work, k,
                   {.stride = round_up(work.aggregation(k).width, 8),
                    .value_bytes = at(work.aggregation(k).width) * sizeof(std::int64_t),
                    .dear = true,
                    .passes = false,
                    .mean = work.source().gathers[at(work.aggregation(k).gather)].kind == Gathering::Mean}) {
  for (const int t : operands_.sources) work.row_users[at(t)].keep_before = may_replace();
}

void EdgeSum::add_message(std::int64_t* sums, const MessageEdge& edge, const float* message) const {
  const float* up = work_.scales[at(k_)].up.data();
  if (work_.kernels.add_head(sums, message, edge.share, up, work_.limit, spec_.width)) return;
  const double times = work_.times_range(k_, message, edge.share);
  if (!std::isfinite(times)) work_.not_finite(k_, edge.dst);
  work_.out_of_range(k_, edge.src, times);
}

void EdgeSum::compute(const State& state, const VertexRange& range, bool sampled, int thread, RowSink& sink) const {
  std::vector<std::int64_t> block(at(std::min(range.last - range.first, kRowsAtOnce)) * at(stride()));
  EdgeMessages messages(work_, edges_, state, thread);
  for (std::int64_t first = range.first; first < range.last; first += kRowsAtOnce) {
    const std::int64_t last = std::min(range.last, first + kRowsAtOnce);
    std::fill(block.begin(), block.end(), 0);
    std::int64_t open = first;  // edges come in the order of the rows
    const auto add = [&](const MessageEdge& edge, const float* message, const float*) {
      while (range[open] != edge.dst) ++open;
      add_message(block.data() + (open - first) * stride(), edge, message);
    };
    for (std::int64_t i = first; i < last; ++i) {
      visit_messages(range[i], sampled, [&](const MessageEdge& edge) { messages.add(edge, add); });
    }
    messages.flush(add);
    for (std::int64_t i = first; i < last; ++i) {
      std::int64_t* to = sink.open(range[i]);
      if (to == nullptr) continue;
      std::memcpy(to, block.data() + (i - first) * stride(), at(stride()) * sizeof(std::int64_t));
      sink.close(range[i], to);
    }
  }
}

bool EdgeSum::terms(const TermOperands& given, std::int64_t* out) const {
  std::fill_n(out, given.count * at(stride()), 0);
  for (std::size_t i = 0; i < given.count; ++i) {
    const MessageEdge edge{kNoVertex, kNoVertex, 1.0f, 1.0f, nullptr, 0};
    add_message(out + i * at(stride()), edge, given.messages.data() + i * at(spec_.width));
  }
  return true;
}

// By the largest message of each column, of all edges.
void EdgeSum::choose_scales(const State& state) {
  std::vector<ColumnMaxima> largest(at(work_.pool.threads()), ColumnMaxima(spec_.width));
  work_.in_shares(work_.graph.slot_count(), kScaleRows, [&](std::int64_t first, std::int64_t last, int thread) {
    EdgeMessages messages(work_, edges_, state, thread);
    const auto take = [&](const MessageEdge&, const float* message, const float*) {
      largest[at(thread)].take(message, 1.0f);
    };
    for (auto v = static_cast<VertexId>(first); v < last; ++v) {
      if (work_.graph.is_live(v)) visit_messages(v, false, [&](const MessageEdge& edge) { messages.add(edge, take); });
    }
    messages.flush(take);
  });
  for (const ColumnMaxima& found : largest) largest.front().take(found.values().data(), 1.0f);
  work_.set_scales(k_, largest.front().values(), 0);
}

// Not where all rows are asked for again, nor where nearly all messages move: each costs two. What weight an edge had
// before is not known of one whose attributes were set in the same batch.
bool EdgeSum::replaces() {
  if (!may_replace()) return false;
  if (edges_.weights && edges_.attributes && !work_.delta->reattributed.empty()) return false;
  if (work_.options.force_path == Path::Push) return true;
  return work_.restricted || 2 * work_.out_edges(flow_, moved_.collect()) <= work_.all_in_edges();
}

// Messages are replaced one by one, where that is less work. A mean may be another one with the same sum.
void EdgeSum::settle(bool) {
  if (replaces()) return replace_messages();
  for (const VertexId v : recompute()) {
    if (facts.mean) work_.mark_consumers(spec_.consumers, v, 0);
  }
}

// What an edge of the batch brings: the message that was along it, and the one that is.
class EdgeSum::BatchMessages {
 public:
  explicit BatchMessages(const EdgeSum& op) : op_(op) {
    const EdgeReduceSpec& spec = op.edges_;
    const BatchDelta& delta = *op.work_.delta;
    const std::size_t attr_width = at(op.work_.graph.options().attr_width);
    for (std::size_t i = 0; spec.attributes && i < delta.attrs_changed.size(); ++i) {
      attrs_before_.try_emplace(delta.attrs_changed[i], delta.attrs_before.data() + i * attr_width);
    }
    std::unordered_set<EdgeId> gone;
    for (const EdgeRecord& edge : delta.removed) {
      gone.insert(edge.id);
      count_ += counts(turned(edge)) ? 1 : 0;
      leaves(turned(edge));
    }
    for (const EdgeRecord& edge : delta.added) {
      insert_own(turned(edge));
      comes(turned(edge), edge.weight);
    }
    for (std::size_t i = 0; spec.weights && i < delta.reweighted.size(); ++i) {
      const EdgeRecord edge = turned(delta.reweighted[i].before);
      insert_own(edge);
      leaves(edge);
      comes(edge, delta.reweighted[i].weight_after);
    }
    if (!spec.attributes) return;
    for (const EdgeRecord& edge : delta.reattributed) {  // of edges that came or went since, too, and perhaps twice
      if (gone.contains(edge.id) || op.work_.graph.edge_attr(edge.id) == nullptr) continue;
      if (!insert_own(turned(edge))) continue;
      leaves(turned(edge));
      comes(turned(edge), edge.weight);
    }
  }
  const std::vector<MessageEdge>& edges() const { return edges_; }  // one or two messages of each
  std::int64_t count() const { return count_; }                     // of edges
  bool has(EdgeId id, VertexId src, VertexId dst) const { return !own_.empty() && own_.contains(key(id, src, dst)); }

 private:
  // An undirected edge is there both ways, under one id.
  static std::int64_t key(EdgeId id, VertexId src, VertexId dst) { return 2 * id + (src < dst ? 1 : 0); }

  bool insert_own(const EdgeRecord& edge) { return own_.insert(key(edge.id, edge.src, edge.dst)).second; }
  EdgeRecord turned(const EdgeRecord& edge) const { return op_.flow_.turned(edge); }
  bool counts(const EdgeRecord& edge) const {
    return op_.filter_.counts(edge.src, edge.dst, edge.type) && op_.work_.wants(op_.k_, edge.dst);
  }
  const float* attr_now(const EdgeRecord& edge) const {
    return op_.edges_.attributes ? op_.work_.graph.edge_attr(edge.id) : nullptr;
  }
  void leaves(const EdgeRecord& edge) {
    if (!counts(edge)) return;
    const auto before = attrs_before_.find(edge.id);
    const float* attr = before != attrs_before_.end() ? before->second : attr_now(edge);
    edges_.push_back({edge.src, edge.dst, edge.weight, 1.0f, attr, edge.type, true, edge.id});
  }
  void comes(const EdgeRecord& edge, float weight) {
    if (!counts(edge)) return;
    ++count_;
    edges_.push_back({edge.src, edge.dst, weight, 1.0f, attr_now(edge), edge.type, false, edge.id});
  }

  const EdgeSum& op_;
  std::unordered_map<EdgeId, const float*> attrs_before_;
  std::unordered_set<std::int64_t> own_;  // keys of edges that are there, whose messages are among edges_
  std::vector<MessageEdge> edges_;
  std::int64_t count_ = 0;
};

// Integer sums do not depend on the order, so each shard takes the targets that fall to it.
void EdgeSum::replace_messages() {
  StageStats& stats = work_.stats[at(spec_.stage)];
  const std::vector<VertexId>& sources = moved_.collect();
  work_.derive(operands_.sources, sources);
  const BatchMessages own(*this);
  stats.path = Path::Push;
  const bool few = work_.out_edges(flow_, sources) + static_cast<std::int64_t>(own.edges().size()) < kReplacedPerShard;
  const std::int64_t shards = few ? 1 : work_.pool.threads();
  std::vector<std::int64_t> moved(at(shards), 0);  // edges whose messages do, of sources that do
  const auto run = [&](std::int64_t shard, int thread) {
    const auto here = [&](VertexId v) {
      return shards == 1 || mix(static_cast<std::uint64_t>(v)) % at(shards) == at(shard);
    };
    EdgeMessages messages(work_, edges_, work_.state, thread);
    const auto take = [&](const MessageEdge& edge, const float* message, const float*) {
      work_.mark_consumers(spec_.consumers, edge.dst, thread);
      std::int64_t* sums = opened(edge.dst, thread);
      if (!edge.before) return add_message(sums, edge, message);
      work_.kernels.sub_head(sums, message, edge.share, work_.scales[at(k_)].up.data(), work_.limit, spec_.width);
    };
    for (const MessageEdge& edge : own.edges()) {
      if (here(edge.dst)) messages.add(edge, take);
    }
    for (const VertexId u : sources) {
      visit_counted_out(flow_, filter_, u, [&](const EdgeSpan& span, std::int32_t i) {
        const VertexId v = span.neighbours[i];
        if (!here(v) || !work_.wants(k_, v) || own.has(span.ids[i], u, v)) return;
        ++moved[at(shard)];
        MessageEdge edge = message_edge(work_.graph, edges_, span, i, u, v);
        edge.before = true;
        messages.add(edge, take);
        edge.before = false;
        messages.add(edge, take);
      });
    }
    messages.flush(take);
  };
  if (shards == 1) {
    run(0, 0);
  } else {
    work_.pool.run(shards, run);
  }
  stats.edges += std::accumulate(moved.begin(), moved.end(), own.count());
}

}  // namespace

OperatorKind edge_sum() {
  return {[](const Program& program, const AggregationSpec& spec) {
            return spec.gather >= 0 && program.gathers[at(spec.gather)].sums_sources;
          },
          make<EdgeSum>};
}

}  // namespace livegnn
