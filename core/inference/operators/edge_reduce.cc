// Messages computed edge by edge and reduced at the target: a row is computed again, over all its in-edges, when one of
// its operands has moved or an edge came, went or changed (NeutronRT, Algorithm 4, restricted to rows whose operands
// differ in bits). What depends on one end alone is a stored row, projected once per vertex.
//
// Edges are taken in their stored order, (time, id), which is a function of the history alone; sums are kept in double.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "dense/activations.h"
#include "inference/operators/edge_operator.h"
#include "inference/view.h"

namespace livegnn {

namespace {

constexpr double kSoftmaxFloor = 1e-16;  // added to a softmax's sum, as PyG does

class EdgeReduce final : public EdgeOperator {
 public:
  EdgeReduce(Workspace& work, int k) : EdgeOperator(work, k, facts_of(work.aggregation(k).width)) {}

  void compute(const State& state, const VertexRange& range, bool sampled, int thread, RowSink& sink) const override;
  void settle(bool) override { recompute(); }

 private:
  class Reducer;
  static Facts facts_of(int width) {
    const std::size_t bytes = at(round_up(width, 16)) * sizeof(float);
    return {.stride = static_cast<int>(bytes / sizeof(std::int64_t)),
            .value_bytes = at(width) * sizeof(float),
            .floats = true,
            .dear = true,
            .passes = false};
  }
};

// One thread's way through the in-edges of many vertices.
class EdgeReduce::Reducer {
 public:
  Reducer(const EdgeReduce& op, const State& state, int thread, RowSink& sink)
      : op_(op),
        spec_(op.edges_),
        messages_(op.work_, spec_, state, thread),
        sink_(sink),
        width_(op.spec_.width),
        sum_(at(round_up(width_, 16))),
        top_(at(spec_.heads)),
        total_(at(spec_.heads)),
        row_(at(round_up(width_, 16))) {}

  void add_vertex(VertexId v, bool sampled) {
    const int attr_width = op_.work_.graph.options().attr_width;
    std::vector<double> attributes(spec_.loops == Loops::Replace && spec_.attributes ? at(attr_width) : 0, 0.0);
    std::int64_t others = 0;
    op_.visit_messages(v, sampled, [&](const MessageEdge& edge) {
      for (std::size_t c = 0; c < attributes.size(); ++c) attributes[c] += static_cast<double>(edge.attr[c]);
      ++others;
      add_edge(edge);
    });
    if (spec_.loops == Loops::Replace) {
      loop_rows_.emplace_back(attributes.size());
      for (std::size_t c = 0; c < attributes.size(); ++c) {
        const double mean = others > 0 ? attributes[c] / static_cast<double>(others) : 0.0;
        loop_rows_.back()[c] = spec_.fill_mean ? static_cast<float>(mean) : spec_.fill;
      }
      add_edge({v, v, 1.0f, 1.0f, loop_rows_.back().data(), 0});
    } else if (others == 0) {
      finish();
      std::fill(row_.begin(), row_.end(), 0.0f);
      put(v);
    }
  }

  void finish();

 private:
  auto taker() {
    return [this](const MessageEdge& edge, const float* message, const float* score) {
      if (edge.dst != open_) {
        close();
        begin(edge.dst);
      }
      take(edge, message, score);
    };
  }

  // Whole chunks: what a row is does not depend on where a chunk ends.
  void add_edge(const MessageEdge& edge) {
    messages_.add(edge, taker());
    if (loop_rows_.size() > 1 && messages_.waiting() <= 1) loop_rows_.erase(loop_rows_.begin(), loop_rows_.end() - 1);
  }

  void begin(VertexId v) {
    open_ = v;
    edges_taken_ = 0;
    newest_ = -1;
    all_.clear();
    std::fill(sum_.begin(), sum_.end(), 0.0);
    std::fill(total_.begin(), total_.end(), 0.0);
    std::fill(top_.begin(), top_.end(), -std::numeric_limits<double>::infinity());
  }

  void take(const MessageEdge& edge, const float* message, const float* score) {
    const bool first = edges_taken_++ == 0;
    const auto add = op_.work_.kernels.add_scaled;
    switch (spec_.kind) {
      case Gathering::Sum:
        return add(sum_.data(), message, static_cast<double>(edge.share), width_);
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
      case Gathering::Median:
        all_.insert(all_.end(), message, message + width_);
        return;
      case Gathering::Newest:
        if (edge.id <= newest_) return;
        newest_ = edge.id;
        for (int c = 0; c < width_; ++c) row_[at(c)] = message[c] + 0.0f;
        return;
      case Gathering::Softmax:
        return take_softmax(message, score, first);
    }
  }

  void take_softmax(const float* message, const float* score, bool first) {
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
      op_.work_.kernels.add_scaled(sum, message + h * wide, power, wide);
    }
  }

  void close() {
    if (open_ == kNoVertex) return;
    const int wide = width_ / spec_.heads;
    if (spec_.kind == Gathering::Softmax) {
      for (int c = 0; c < width_; ++c)
        row_[at(c)] = static_cast<float>(sum_[at(c)] / (total_[at(c / wide)] + kSoftmaxFloor));
    } else if (spec_.kind == Gathering::Sum || spec_.kind == Gathering::Mean) {
      const double count = spec_.kind == Gathering::Mean ? static_cast<double>(edges_taken_) : 1.0;
      for (int c = 0; c < width_; ++c) row_[at(c)] = static_cast<float>(sum_[at(c)] / count);
    } else if (spec_.kind == Gathering::Median) {
      for (int c = 0; c < width_; ++c) row_[at(c)] = lower_median(c);
    }
    for (int c = 0; c < width_; ++c) {
      if (!std::isfinite(row_[at(c)])) op_.work_.not_finite(op_.k_, open_);
    }
    put(open_);
    open_ = kNoVertex;
  }

  float lower_median(int c) {
    column_.clear();
    for (std::size_t i = at(c); i < all_.size(); i += at(width_)) {
      if (!std::isfinite(all_[i])) op_.work_.not_finite(op_.k_, open_);  // NaN has no place in an order
      column_.push_back(all_[i]);
    }
    const auto middle = column_.begin() + (edges_taken_ - 1) / 2;
    std::nth_element(column_.begin(), middle, column_.end());
    return *middle + 0.0f;
  }

  void put(VertexId v) {
    std::int64_t* to = sink_.open(v);
    if (to == nullptr) return;
    std::memcpy(to, row_.data(), row_.size() * sizeof(float));
    sink_.close(v, to);
  }

  const EdgeReduce& op_;
  const EdgeReduceSpec& spec_;
  EdgeMessages messages_;
  RowSink& sink_;
  const int width_;
  std::vector<std::vector<float>> loop_rows_;  // attributes of loops among those that wait
  VertexId open_ = kNoVertex;                  // the vertex whose edges are being taken
  std::int64_t edges_taken_ = 0;
  EdgeId newest_ = -1;  // the largest id among them
  std::vector<double> sum_, top_, total_;
  std::vector<float> row_;
  std::vector<float> all_, column_;  // messages of a median
};

void EdgeReduce::Reducer::finish() {
  messages_.flush(taker());
  close();
}

void EdgeReduce::compute(const State& state, const VertexRange& range, bool sampled, int thread, RowSink& sink) const {
  Reducer reducer(*this, state, thread, sink);
  for (std::int64_t i = range.first; i < range.last; ++i) reducer.add_vertex(range[i], sampled);
  reducer.finish();
}

}  // namespace

OperatorKind edge_reduce() {
  return {[](const Program&, const AggregationSpec& spec) { return spec.gather >= 0; }, make<EdgeReduce>};
}

}  // namespace livegnn
