// Sums of messages that are computed edge by edge and read nothing of their target: fixed-point sums like others, a
// function of the graph. So a batch replaces the messages of its edges and of moved sources' out-edges, each worked out
// as it was and as it is, and no other in-edge of a target is looked at.
#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "inference/column_maxima.h"
#include "inference/edge_messages.h"

namespace livegnn {

namespace {
constexpr std::int64_t kReplacedPerShard = 256;  // messages; fewer are not worth waking a thread
constexpr std::int64_t kScaleRows = 512;         // vertices of a task
constexpr std::int64_t kRowsAgain = 64;          // whose sums as they were are kept at a time
}  // namespace

template <typename Acc>
void EngineImpl<Acc>::add_message(int k, Acc* sums, const MessageEdge& edge, const float* message) const {
  if constexpr (std::is_same_v<Acc, std::int64_t>) {
    const int width = aggregation(k).width;
    const float* up = scales_[at(k)].up.data();
    if (kernels_.add_head(sums, message, edge.share, up, limit_, width)) return;
    const double times = times_range(k, message, edge.share);
    if (!std::isfinite(times)) not_finite(k, edge.dst);
    out_of_range(k, edge.src, times);
  }
}

// These rows of the state again; those that come out otherwise are marked. A mean does so, too, where it is of fewer or
// more edges.
template <typename Acc>
void EngineImpl<Acc>::sum_again(int k, const VertexId* rows, std::int64_t count, int thread) {
  RowTable<Acc>& table = state_.aggregates[at(k)];
  const auto stride = at(table.stride());
  std::vector<Acc> before(at(std::min(count, kRowsAgain)) * stride);
  for (; count > 0; rows += kRowsAgain, count -= kRowsAgain) {
    const std::int64_t block = std::min(count, kRowsAgain);
    for (std::int64_t i = 0; i < block; ++i) {
      if (journal_.on()) journal_.save_aggregate(state_, k, rows[i], thread);
      std::copy_n(table.row(rows[i]), stride, before.data() + at(i) * stride);
    }
    sum_edges(k, state_, rows, block, thread, [](VertexId, EdgeId) { return 1.0f; });
    for (std::int64_t i = 0; i < block; ++i) {
      const Acc* row = table.row(rows[i]);
      if (aggregation(k).norm == Norm::Mean || !std::equal(row, row + stride, before.data() + at(i) * stride))
        mark_consumers(aggregation(k).consumers, rows[i], thread);
    }
  }
}

// The largest message of each column, of all edges.
template <typename Acc>
std::vector<float> EngineImpl<Acc>::largest_messages(int k, const State<Acc>& state) const {
  const int width = aggregation(k).width;
  std::vector<ColumnMaxima> largest(at(pool_.threads()), ColumnMaxima(width));
  const std::int64_t slots = graph_.slot_count();
  pool_.run((slots + kScaleRows - 1) / kScaleRows, [&](std::int64_t task, int thread) {
    EdgeMessages messages(*this, k, state, thread);
    const auto take = [&](const MessageEdge&, const float* message, const float*) {
      largest[at(thread)].take(message, 1.0f);
    };
    for (std::int64_t v = task * kScaleRows; v < std::min(slots, (task + 1) * kScaleRows); ++v) {
      visit_messages(
          k, static_cast<VertexId>(v), [](VertexId, EdgeId) { return 1.0f; },
          [&](const MessageEdge& edge) { messages.add(edge, take); });
    }
    messages.flush(take);
  });
  for (const ColumnMaxima& found : largest) largest.front().take(found.values().data(), 1.0f);
  return largest.front().values();
}

// Not where all rows are asked for again, nor where nearly all messages move: each costs two. What weight an edge had
// before is not known of one whose attributes were set in the same batch.
template <typename Acc>
bool EngineImpl<Acc>::replaces_messages(int k) {
  if (!may_replace_messages()) return false;
  if (gather_spec(k).weights && gather_spec(k).attributes && !delta_->reattributed.empty()) return false;
  if (options_.force_path == Path::Push) return true;
  return restricted_ || 2 * out_edges(moved_sources_[at(k)].collect()) <= all_in_edges();
}

// What an edge of the batch brings: the message that was along it, and the one that is.
template <typename Acc>
class EngineImpl<Acc>::BatchMessages {
 public:
  BatchMessages(const EngineImpl& engine, int k) {
    const GatherSpec& spec = engine.gather_spec(k);
    const BatchDelta& delta = *engine.delta_;
    const std::size_t attr_width = at(engine.graph_.options().attr_width);
    std::unordered_map<EdgeId, const float*> attrs_before;
    for (std::size_t i = 0; spec.attributes && i < delta.attrs_changed.size(); ++i) {
      attrs_before.try_emplace(delta.attrs_changed[i], delta.attrs_before.data() + i * attr_width);
    }
    const auto attr_before = [&](const EdgeRecord& edge) -> const float* {
      if (!spec.attributes) return nullptr;
      const auto found = attrs_before.find(edge.id);
      return found != attrs_before.end() ? found->second : engine.graph_.edge_attr(edge.id);
    };
    const auto attr_now = [&](const EdgeRecord& edge) {
      return spec.attributes ? engine.graph_.edge_attr(edge.id) : nullptr;
    };
    const auto hears = [&](const EdgeRecord& edge) {
      return engine.hears(k, edge.src, edge.dst, edge.type) && engine.wants(k, edge.dst);
    };
    const auto leaves = [&](const EdgeRecord& edge) {
      if (hears(edge)) edges_.push_back({edge.src, edge.dst, edge.weight, 1.0f, attr_before(edge), edge.type, true});
    };
    const auto comes = [&](const EdgeRecord& edge, float weight) {
      if (!hears(edge)) return;
      ++count_;
      edges_.push_back({edge.src, edge.dst, weight, 1.0f, attr_now(edge), edge.type, false});
    };
    std::unordered_set<EdgeId> gone;
    for (const EdgeRecord& edge : delta.removed) {
      gone.insert(edge.id);
      count_ += hears(edge) ? 1 : 0;
      leaves(edge);
    }
    for (const EdgeRecord& edge : delta.added) {
      own_.insert(key(edge.id, edge.src, edge.dst));
      comes(edge, edge.weight);
    }
    if (spec.weights) {
      for (const EdgeReweighted& edge : delta.reweighted) {
        own_.insert(key(edge.before.id, edge.before.src, edge.before.dst));
        leaves(edge.before);
        comes(edge.before, edge.weight_after);
      }
    }
    if (!spec.attributes) return;
    for (const EdgeRecord& edge : delta.reattributed) {  // of edges that came or went since, too, and perhaps twice
      if (gone.contains(edge.id) || engine.graph_.edge_attr(edge.id) == nullptr) continue;
      if (!own_.insert(key(edge.id, edge.src, edge.dst)).second) continue;
      leaves(edge);
      comes(edge, edge.weight);
    }
  }
  const std::vector<MessageEdge>& edges() const { return edges_; }  // one or two messages of each
  std::int64_t count() const { return count_; }                     // of edges
  bool has(EdgeId id, VertexId src, VertexId dst) const { return !own_.empty() && own_.contains(key(id, src, dst)); }

 private:
  // An undirected edge is there both ways, under one id.
  static std::int64_t key(EdgeId id, VertexId src, VertexId dst) { return 2 * id + (src < dst ? 1 : 0); }

  std::unordered_set<std::int64_t> own_;  // keys of edges that are there, whose messages are among edges_
  std::vector<MessageEdge> edges_;
  std::int64_t count_ = 0;
};

// Integer sums do not mind the order, so each shard takes the targets that fall to it.
template <typename Acc>
void EngineImpl<Acc>::replace_messages(int k) {
  const AggregationSpec& spec = aggregation(k);
  const GatherSpec& gather = gather_spec(k);
  StageStats& stats = stats_[at(spec.stage)];
  const std::vector<VertexId>& sources = moved_sources_[at(k)].collect();
  const BatchMessages own(*this, k);
  stats.path = Path::Push;
  RowTable<Acc>& table = state_.aggregates[at(k)];
  const bool few = out_edges(sources) + static_cast<std::int64_t>(own.edges().size()) < kReplacedPerShard;
  const std::int64_t shards = few ? 1 : pool_.threads();
  std::vector<std::int64_t> moved(at(shards), 0);  // edges whose messages do, of sources that do
  const auto run = [&](std::int64_t shard, int thread) {
    const auto here = [&](VertexId v) {
      return shards == 1 || mix(static_cast<std::uint64_t>(v)) % at(shards) == at(shard);
    };
    EdgeMessages messages(*this, k, state_, thread);
    const auto take = [&](const MessageEdge& edge, const float* message, const float*) {
      if (journal_.on()) journal_.save_aggregate(state_, k, edge.dst, thread);
      mark_consumers(spec.consumers, edge.dst, thread);
      Acc* sums = table.row(edge.dst);
      if (!edge.before) return add_message(k, sums, edge, message);
      if constexpr (std::is_same_v<Acc, std::int64_t>)
        kernels_.sub_head(sums, message, edge.share, scales_[at(k)].up.data(), limit_, spec.width);
    };
    for (const MessageEdge& edge : own.edges()) {
      if (here(edge.dst)) messages.add(edge, take);
    }
    for (const VertexId u : sources) {
      graph_.visit_out(u, [&](const EdgeSpan& span) {
        for (std::int32_t i = 0; i < span.count; ++i) {
          const VertexId v = span.neighbours[i];
          const std::int32_t type = span.types != nullptr ? span.types[i] : 0;
          if (!here(v) || !hears(k, u, v, type) || !wants(k, v) || own.has(span.ids[i], u, v)) continue;
          const float* attr = gather.attributes ? graph_.edge_attr(span.ids[i]) : nullptr;
          ++moved[at(shard)];
          MessageEdge edge{u, v, span.weights != nullptr ? span.weights[i] : 1.0f, 1.0f, attr, type, true};
          messages.add(edge, take);
          edge.before = false;
          messages.add(edge, take);
        }
      });
    }
    messages.flush(take);
  };
  if (shards == 1) {
    run(0, 0);
  } else {
    pool_.run(shards, run);
  }
  stats.edges += std::accumulate(moved.begin(), moved.end(), own.count());
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
