// Messages computed edge by edge: a row is computed again, over all its in-edges, when one of its operands has moved or
// an edge came, went or changed (NeutronRT, Algorithm 4, restricted to rows whose operands differ in bits). What
// depends on one end alone is a stored row, projected once per vertex.
//
// Edges are taken in their stored order, (time, id), which is a function of the history alone; sums are kept in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "dense/activations.h"
#include "inference/terms.h"

namespace livegnn {

namespace {

constexpr std::int64_t kRowsPerTask = 16;
constexpr double kSoftmaxFloor = 1e-16;  // added to a softmax's sum, as PyG does

}  // namespace

// One thread's way through the in-edges of many vertices, a chunk of edges at a time.
template <typename Acc>
class EngineImpl<Acc>::Gatherer {
 public:
  Gatherer(const EngineImpl& engine, int k, const State<Acc>& state, int thread)
      : engine_(engine),
        k_(k),
        spec_(engine.gather_spec(k)),
        aggregation_(engine.aggregation(k)),
        state_(state),
        registers_(engine.registers_[at(thread)]),
        chunk_(engine.program_.chunk_rows()),
        width_(engine.aggregation(k).width),
        attr_width_(engine.graph_.options().attr_width),
        sum_(at(round_up(width_, 16))),
        top_(at(spec_.heads)),
        total_(at(spec_.heads)),
        row_(at(round_up(width_, 16))) {
    registers_.prepare(engine.program_, chunk_);
    edges_.reserve(at(chunk_));
  }

  template <typename Admit, typename Sink>
  void add_vertex(VertexId v, Admit&& admit, Sink&& sink) {
    const GraphStore& graph = engine_.graph_;
    std::vector<double> attributes(spec_.loops == Loops::Replace && spec_.attributes ? at(attr_width_) : 0, 0.0);
    std::int64_t others = 0;
    graph.visit_in(v, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < span.count; ++i) {
        const VertexId u = span.neighbours[i];
        if (spec_.loops != Loops::Keep && u == v) continue;
        const std::int32_t type = span.types != nullptr ? span.types[i] : 0;
        if (!aggregation_.counts(type)) continue;
        const float share = admit(span.ids[i]);
        if (share == 0.0f) continue;
        const float* attr = spec_.attributes ? graph.edge_attr(span.ids[i]) : nullptr;
        for (std::size_t c = 0; c < attributes.size(); ++c) attributes[c] += static_cast<double>(attr[c]);
        ++others;
        add_edge({u, v, span.weights != nullptr ? span.weights[i] : 1.0f, share, attr, type}, sink);
      }
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
    flush(sink);
    close(sink);
  }

 private:
  struct Edge {
    VertexId src, dst;
    float weight, share;
    const float* attr;
    std::int32_t type;
  };

  template <typename Sink>
  void add_edge(const Edge& edge, Sink&& sink) {
    if (spec_.typed && !edges_.empty() && edges_.back().type != edge.type) flush(sink);
    edges_.push_back(edge);
    if (static_cast<int>(edges_.size()) == chunk_) flush(sink);
  }

  // Whole chunks: what a row is does not depend on where a chunk ends.
  template <typename Sink>
  void flush(Sink&& sink) {
    if (edges_.empty()) return;
    const int count = static_cast<int>(edges_.size());
    int message = -1, score = -1;
    for (const Instruction& step : spec_.steps) {
      if (step.type >= 0 && step.type != edges_.front().type) continue;
      if (step.op == Op::GatherMessage) {
        message = step.a;
      } else if (step.op == Op::GatherScore) {
        score = step.a;
      } else if (!load(step, count)) {
        execute(engine_.program_, step, registers_, count);
      }
    }
    for (int i = 0; i < count; ++i) {
      const Edge& edge = edges_[at(i)];
      if (edge.dst != open_) {
        close(sink);
        begin(edge.dst);
      }
      take(registers_.row(message, i), score < 0 ? nullptr : registers_.row(score, i), edge.share);
    }
    edges_.clear();
    if (loop_rows_.size() > 1) loop_rows_.erase(loop_rows_.begin(), loop_rows_.end() - 1);
  }

  void prefetch_end(int table, VertexId v, int width) const {
    if (table < 0) return engine_.graph_.features().prefetch(v, 0, width);
    prefetch_row(state_.stored[at(table)].row(v), at(width) * sizeof(float));
  }

  void load_end(int table, VertexId v, float* out, int width) const {
    if (table < 0) return engine_.graph_.read_features(v, out, width);
    std::memcpy(out, state_.stored[at(table)].row(v), at(width) * sizeof(float));
  }

  bool load(const Instruction& step, int count) {
    if (step.op != Op::LoadSource && step.op != Op::LoadTarget && step.op != Op::LoadAttributes &&
        step.op != Op::LoadWeight)
      return false;
    for (int i = 0; i < count; ++i) {
      const Edge& edge = edges_[at(i)];
      float* out = registers_.row(step.out, i);
      if (step.op == Op::LoadSource) {
        if (i + 6 < count) prefetch_end(step.index, edges_[at(i + 6)].src, step.width);
        load_end(step.index, edge.src, out, step.width);
      } else if (step.op == Op::LoadTarget) {
        load_end(step.index, edge.dst, out, step.width);
      } else if (step.op == Op::LoadAttributes) {
        std::memcpy(out, edge.attr, at(step.width) * sizeof(float));
      } else {
        out[0] = edge.weight;
      }
    }
    return true;
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
  const AggregationSpec& aggregation_;
  const State<Acc>& state_;
  Registers& registers_;
  const int chunk_, width_, attr_width_;
  std::vector<Edge> edges_;
  std::vector<std::vector<float>> loop_rows_;  // attributes of loops among edges_
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
    gatherer.add_vertex(rows[i], [&](EdgeId id) { return admit(rows[i], id); }, sink);
  }
  gatherer.finish(sink);
}

// Into the state's own rows, unconditionally.
template <typename Acc>
void EngineImpl<Acc>::gather_into(int k, State<Acc>& state, const VertexId* rows, std::int64_t count,
                                  int thread) const {
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

// Computes the rows again that this batch can have changed, and marks those that it has.
template <typename Acc>
void EngineImpl<Acc>::gather_moved(int k) {
  const AggregationSpec& spec = aggregation(k);
  const GatherSpec& gather = gather_spec(k);
  VertexSet& affected = touched_[at(k)].set;
  VertexSet& sources = moved_sources_[at(k)];
  for (VertexId v = slots_before_; v < slots_; ++v) affected.add(v);
  for (const VertexId v : delta_->features_changed) {
    if (gather.source_input) sources.add(v);
    if (gather.target_input) affected.add(v);
  }
  for (const VertexId u : sources.collect()) {
    if (gather.loops == Loops::Replace) affected.add(u);
    graph_.visit_out(u, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < span.count; ++i) {
        if (span.types != nullptr && !spec.counts(span.types[i])) continue;
        affected.add(span.neighbours[i]);
      }
    });
  }
  if (restricted_) affected.keep([&](VertexId v) { return wants(k, v); });
  const std::vector<VertexId>& rows = affected.collect();
  StageStats& stats = stats_[at(spec.stage)];
  for (const VertexId v : rows) stats.reread += graph_.in_degree(v);
  stats.edges += stats.reread;
  stats.path = Path::Pull;
  RowTable<Acc>& table = state_.aggregates[at(k)];
  const std::size_t bytes = value_bytes<Acc>(spec);
  const auto total = static_cast<std::int64_t>(rows.size());
  const auto run = [&](std::int64_t first, std::int64_t last, int thread) {
    gather_rows(
        k, state_, rows.data() + first, last - first, thread, [](VertexId, EdgeId) { return 1.0f; },
        [&](VertexId v, const float* row) {
          if (std::memcmp(table.row(v), row, bytes) == 0) return;
          if (journal_.on()) journal_.save_aggregate(state_, k, v, thread);
          std::memcpy(table.row(v), row, bytes);
          mark_consumers(spec.consumers, v, thread);
        });
  };
  in_shares(total, kRowsPerTask, run);
}

template <typename Acc>
void EngineImpl<Acc>::gather_sampled(int k, State<Acc>& state, const VertexId* rows, std::int64_t count,
                                     int thread) const {
  RowTable<Acc>& table = state.aggregates[at(k)];
  VertexId known = kNoVertex;
  InSample sample;
  gather_rows(
      k, state, rows, count, thread,
      [&](VertexId v, EdgeId id) {
        if (v != known) {
          sample = sample_in_edges(k, v);
          known = v;
        }
        return sample.admits(id);
      },
      [&](VertexId v, const float* row) { std::memcpy(table.row(v), row, value_bytes<Acc>(aggregation(k))); });
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
