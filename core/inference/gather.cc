// Messages computed edge by edge: a row is computed again, over all its in-edges, when one of its operands has moved or
// an edge came, went or changed (NeutronRT, Algorithm 4, restricted to rows whose operands differ in bits). What
// depends on one end alone is a stored row, projected once per vertex.
//
// Edges are taken in their stored order, (time, id), which is a function of the history alone; sums are kept in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "dense/activations.h"
#include "inference/edge_messages.h"

namespace livegnn {

namespace {

constexpr std::int64_t kRowsPerTask = 16;
constexpr double kSoftmaxFloor = 1e-16;  // added to a softmax's sum, as PyG does

}  // namespace

// One thread's way through the in-edges of many vertices.
template <typename Acc>
class EngineImpl<Acc>::Gatherer {
 public:
  Gatherer(const EngineImpl& engine, int k, const State<Acc>& state, int thread)
      : engine_(engine),
        k_(k),
        spec_(engine.gather_spec(k)),
        messages_(engine, k, state, thread),
        width_(engine.aggregation(k).width),
        attr_width_(engine.graph_.options().attr_width),
        sum_(at(round_up(width_, 16))),
        top_(at(spec_.heads)),
        total_(at(spec_.heads)),
        row_(at(round_up(width_, 16))) {}

  template <typename Admit, typename Sink>
  void add_vertex(VertexId v, Admit&& admit, Sink&& sink) {
    std::vector<double> attributes(spec_.loops == Loops::Replace && spec_.attributes ? at(attr_width_) : 0, 0.0);
    std::int64_t others = 0;
    engine_.visit_messages(k_, v, admit, [&](const MessageEdge& edge) {
      for (std::size_t c = 0; c < attributes.size(); ++c) attributes[c] += static_cast<double>(edge.attr[c]);
      ++others;
      add_edge(edge, sink);
    });
    if (spec_.loops == Loops::Replace) {
      loop_rows_.emplace_back(attributes.size());
      for (std::size_t c = 0; c < attributes.size(); ++c) {
        const double mean = others > 0 ? attributes[c] / static_cast<double>(others) : 0.0;
        loop_rows_.back()[c] = spec_.fill_mean ? static_cast<float>(mean) : spec_.fill;
      }
      add_edge({v, v, 1.0f, 1.0f, loop_rows_.back().data(), 0}, sink);
    } else if (others == 0) {
      finish(sink);
      std::fill(row_.begin(), row_.end(), 0.0f);
      sink(v, row_.data());
    }
  }

  template <typename Sink>
  void finish(Sink&& sink) {
    messages_.flush(taker(sink));
    close(sink);
  }

 private:
  // Whole chunks: what a row is does not depend on where a chunk ends.
  template <typename Sink>
  void add_edge(const MessageEdge& edge, Sink&& sink) {
    messages_.add(edge, taker(sink));
    if (loop_rows_.size() > 1 && messages_.waiting() <= 1) loop_rows_.erase(loop_rows_.begin(), loop_rows_.end() - 1);
  }

  template <typename Sink>
  auto taker(Sink& sink) {
    return [this, &sink](const MessageEdge& edge, const float* message, const float* score) {
      if (edge.dst != open_) {
        close(sink);
        begin(edge.dst);
      }
      take(message, score, edge.share);
    };
  }

  void begin(VertexId v) {
    open_ = v;
    edges_taken_ = 0;
    std::fill(sum_.begin(), sum_.end(), 0.0);
    std::fill(total_.begin(), total_.end(), 0.0);
    std::fill(top_.begin(), top_.end(), -std::numeric_limits<double>::infinity());
  }

  void take(const float* message, const float* score, float share) {
    const bool first = edges_taken_++ == 0;
    const auto add = engine_.kernels_.add_scaled;
    switch (spec_.kind) {
      case Gathering::Sum:
        return add(sum_.data(), message, static_cast<double>(share), width_);
      case Gathering::Mean:
        return add(sum_.data(), message, 1.0, width_);
      case Gathering::Max:
        for (int c = 0; c < width_; ++c)
          row_[at(c)] = first || message[c] > row_[at(c)] ? message[c] + 0.0f : row_[at(c)];
        return;
      case Gathering::Min:
        for (int c = 0; c < width_; ++c)
          row_[at(c)] = first || message[c] < row_[at(c)] ? message[c] + 0.0f : row_[at(c)];
        return;
      case Gathering::Softmax:
        break;
    }
    const int wide = width_ / spec_.heads;
    for (int h = 0; h < spec_.heads; ++h) {
      const auto now = static_cast<double>(score[h]);
      double* sum = sum_.data() + h * wide;
      if (now > top_[at(h)]) {
        const double factor = first ? 0.0 : exact_exp(top_[at(h)] - now);
        top_[at(h)] = now;
        total_[at(h)] *= factor;
        for (int c = 0; c < wide; ++c) sum[c] *= factor;
      }
      const double power = exact_exp(now - top_[at(h)]);
      total_[at(h)] += power;
      add(sum, message + h * wide, power, wide);
    }
  }

  template <typename Sink>
  void close(Sink&& sink) {
    if (open_ == kNoVertex) return;
    const int wide = width_ / spec_.heads;
    if (spec_.kind == Gathering::Softmax) {
      for (int c = 0; c < width_; ++c)
        row_[at(c)] = static_cast<float>(sum_[at(c)] / (total_[at(c / wide)] + kSoftmaxFloor));
    } else if (spec_.kind == Gathering::Sum || spec_.kind == Gathering::Mean) {
      const double count = spec_.kind == Gathering::Mean ? static_cast<double>(edges_taken_) : 1.0;
      for (int c = 0; c < width_; ++c) row_[at(c)] = static_cast<float>(sum_[at(c)] / count);
    }
    for (int c = 0; c < width_; ++c) {
      if (!std::isfinite(row_[at(c)])) engine_.not_finite(k_, open_);
    }
    sink(open_, row_.data());
    open_ = kNoVertex;
  }

  const EngineImpl& engine_;
  const int k_;
  const GatherSpec& spec_;
  EdgeMessages messages_;
  const int width_, attr_width_;
  std::vector<std::vector<float>> loop_rows_;  // attributes of loops among those that wait
  VertexId open_ = kNoVertex;                  // the vertex whose edges are being taken
  std::int64_t edges_taken_ = 0;
  std::vector<double> sum_, top_, total_;
  std::vector<float> row_;
};

// sink(v, row) for every vertex of rows, over the in-edges that admit(id) gives a share other than 0.
template <typename Acc>
template <typename Admit, typename Sink>
void EngineImpl<Acc>::gather_rows(int k, const State<Acc>& state, const VertexId* rows, std::int64_t count, int thread,
                                  Admit&& admit, Sink&& sink) const {
  Gatherer gatherer(*this, k, state, thread);
  for (std::int64_t i = 0; i < count; ++i) {
    gatherer.add_vertex(rows[i], admit, sink);
  }
  gatherer.finish(sink);
}

// Into the state's own rows, unconditionally.
template <typename Acc>
void EngineImpl<Acc>::gather_into(int k, State<Acc>& state, const VertexId* rows, std::int64_t count,
                                  int thread) const {
  if (aggregation(k).summed) {
    return sum_edges(k, state, rows, count, thread, [](VertexId, EdgeId) { return 1.0f; });
  }
  RowTable<Acc>& table = state.aggregates[at(k)];
  gather_rows(
      k, state, rows, count, thread, [](VertexId, EdgeId) { return 1.0f; },
      [&](VertexId v, const float* row) { std::memcpy(table.row(v), row, value_bytes<Acc>(aggregation(k))); });
}

template <typename Acc>
void EngineImpl<Acc>::gather_all(int k, State<Acc>& state) const {
  const std::int64_t slots = graph_.slot_count();
  constexpr std::int64_t kRows = 8 * kRowsPerTask;
  pool_.run((slots + kRows - 1) / kRows, [&](std::int64_t task, int thread) {
    std::vector<VertexId> rows;
    for (std::int64_t v = task * kRows; v < std::min(slots, (task + 1) * kRows); ++v)
      rows.push_back(static_cast<VertexId>(v));
    gather_into(k, state, rows.data(), static_cast<std::int64_t>(rows.size()), thread);
  });
}

// The rows that this batch can have changed.
template <typename Acc>
const std::vector<VertexId>& EngineImpl<Acc>::rows_to_gather(int k) {
  const AggregationSpec& spec = aggregation(k);
  const GatherSpec& gather = gather_spec(k);
  VertexSet& affected = touched_[at(k)].set;
  for (VertexId v = slots_before_; v < slots_; ++v) affected.add(v);
  if (gather.target_input) {
    for (const VertexId v : delta_->features_changed) affected.add(v);
  }
  for (const VertexId u : moved_sources_[at(k)].collect()) {
    if (gather.loops == Loops::Replace) affected.add(u);
    graph_.visit_out(u, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < span.count; ++i) {
        if (span.types != nullptr && !spec.counts(span.types[i])) continue;
        affected.add(span.neighbours[i]);
      }
    });
  }
  if (restricted_) affected.keep([&](VertexId v) { return wants(k, v); });
  return affected.collect();
}

// Computes these rows again, and marks those that have changed.
template <typename Acc>
void EngineImpl<Acc>::gather_again(int k, const std::vector<VertexId>& rows) {
  const AggregationSpec& spec = aggregation(k);
  StageStats& stats = stats_[at(spec.stage)];
  std::int64_t reread = 0;
  for (const VertexId v : rows) reread += graph_.in_degree(v);
  stats.reread += reread;
  stats.edges += reread;
  stats.path = Path::Pull;
  RowTable<Acc>& table = state_.aggregates[at(k)];
  const std::size_t bytes = value_bytes<Acc>(spec);
  const auto run = [&](std::int64_t first, std::int64_t last, int thread) {
    if (spec.summed) return sum_again(k, rows.data() + first, last - first, thread);
    gather_rows(
        k, state_, rows.data() + first, last - first, thread, [](VertexId, EdgeId) { return 1.0f; },
        [&](VertexId v, const float* row) {
          if (std::memcmp(table.row(v), row, bytes) == 0) return;
          if (journal_.on()) journal_.save_aggregate(state_, k, v, thread);
          std::memcpy(table.row(v), row, bytes);
          mark_consumers(spec.consumers, v, thread);
        });
  };
  in_shares(static_cast<std::int64_t>(rows.size()), kRowsPerTask, run);
}

// Messages that read nothing of their target are replaced one by one, where that is less work.
template <typename Acc>
void EngineImpl<Acc>::gather_moved(int k) {
  if (gather_spec(k).source_input) {
    for (const VertexId v : delta_->features_changed) moved_sources_[at(k)].add(v);
  }
  if (aggregation(k).summed && replaces_messages(k)) return replace_messages(k);
  gather_again(k, rows_to_gather(k));
}

template <typename Acc>
void EngineImpl<Acc>::gather_sampled(int k, State<Acc>& state, const VertexId* rows, std::int64_t count,
                                     int thread) const {
  VertexId known = kNoVertex;
  InSample sample;
  const auto admit = [&](VertexId v, EdgeId id) {
    if (v != known) {
      sample = sample_in_edges(k, v);
      known = v;
    }
    return sample.admits(id);
  };
  if (aggregation(k).summed) return sum_edges(k, state, rows, count, thread, admit);
  RowTable<Acc>& table = state.aggregates[at(k)];
  gather_rows(k, state, rows, count, thread, admit,
              [&](VertexId v, const float* row) { std::memcpy(table.row(v), row, value_bytes<Acc>(aggregation(k))); });
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
