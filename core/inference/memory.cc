// A limit of memory (NeutronRT, section V.B): the rows of hubs stay, the others are in files and come when they are
// touched. Three quarters of the limit are for rows in memory, half of these for the hubs'; a quarter for deltas on
// their way. What a push would need beyond that, a sweep does without.
#include <algorithm>
#include <utility>

#include "inference/terms.h"

namespace livegnn {

namespace {

constexpr std::size_t kEntryBytes = 12;  // of a pushed edge, with its weight
constexpr std::int64_t kRowsPerTask = 512;

}  // namespace

template <typename Acc>
std::unique_ptr<Pager> EngineImpl<Acc>::make_pager() {
  if (options_.memory_limit == 0) return nullptr;
  const std::size_t rows_limit = options_.memory_limit - options_.memory_limit / 4;
  auto pager = std::make_unique<Pager>(options_.spill_folder, rows_limit);
  std::size_t row_bytes = at(round_up(output_width(), 16)) * sizeof(float);
  for (const AggregationSpec& spec : source().aggregations) row_bytes += at(aggregate_stride<Acc>(spec)) * sizeof(Acc);
  for (const StoredSpec& spec : source().stored) {
    row_bytes += compact() ? 0 : at(round_up(spec.width, 16)) * sizeof(float);
  }
  block_rows_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(rows_limit / 16 / row_bytes));
  const std::int64_t slots = graph_.slot_count();
  const std::int64_t hubs = std::min<std::int64_t>(slots, static_cast<std::int64_t>(rows_limit / 2 / row_bytes));
  std::vector<std::pair<std::int64_t, VertexId>> ranked(at(slots));  // by falling degree
  for (VertexId v = 0; v < slots; ++v) {
    ranked[at(v)] = {-(std::int64_t{graph_.in_degree(v)} + graph_.out_degree(v)), v};
  }
  std::nth_element(ranked.begin(), ranked.begin() + hubs, ranked.end());
  std::sort(ranked.begin(), ranked.begin() + hubs);
  std::vector<VertexId> first(at(hubs));
  for (std::int64_t i = 0; i < hubs; ++i) first[at(i)] = ranked[at(i)].second;
  pager->rank(first, slots);
  return pager;
}

// The rows that a stage loads and stores.
template <typename Acc>
void EngineImpl<Acc>::fetch_stage(int stage, const State<Acc>& state, std::int64_t first, std::int64_t last) const {
  for (const Instruction& step : source().stages[at(stage)]) {
    if (step.op == Op::LoadAggregate) state.aggregates[at(step.index)].fetch(first, last);
    if (step.op == Op::LoadStored || step.op == Op::StoreRow) state.stored[at(step.index)].fetch(first, last);
    if (step.op == Op::StoreMessage) state.stored[at(aggregation(step.index).message_table)].fetch(first, last);
  }
}

// Whether the deltas and edges of a push are within their share of the memory.
template <typename Acc>
bool EngineImpl<Acc>::fits_scratch(const Plan& plan, std::int64_t edges) const {
  if (pager_ == nullptr) return true;
  const std::size_t deltas = plan.sources.size() * at(plan.stride) * sizeof(std::int64_t);
  return deltas + at(edges) * kEntryBytes <= options_.memory_limit / 4;
}

// Whether the messages of a sum are too many to be in memory at once, so that going from target to target would bring
// a page for every edge.
template <typename Acc>
bool EngineImpl<Acc>::sums_in_blocks(int k) const {
  const AggregationSpec& spec = aggregation(k);
  if (pager_ == nullptr || !std::is_same_v<Acc, std::int64_t> || spec.on_edges() || spec.extreme() ||
      spec.message_table < 0)
    return false;
  const std::size_t row_bytes = at(round_up(spec.width, 16)) * sizeof(float);
  return at(graph_.slot_count()) * row_bytes > options_.memory_limit / 4;
}

// Whole sums, a block of targets at a time, and for each the sources block by block. begin(first, count): a block of
// targets; sum(v): where the sum of v goes, null where it has none; done(v, thread): it is whole.
template <typename Acc>
template <typename Begin, typename Sum, typename Done>
void EngineImpl<Acc>::sum_in_blocks(int k, const State<Acc>& state, Begin&& begin, Sum&& sum, Done&& done) const {
  const AggregationSpec& spec = aggregation(k);
  const std::size_t share = options_.memory_limit / 4;
  const std::int64_t slots = graph_.slot_count();
  const auto targets =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(share / state_.aggregates[at(k)].row_bytes()));
  const auto sources =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(share / (at(round_up(spec.width, 16)) * sizeof(float))));
  const auto each = [&](std::int64_t first, std::int64_t last, const auto& body) {
    pool_.run((last - first + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int thread) {
      const std::int64_t end = std::min(last, first + (task + 1) * kRowsPerTask);
      for (std::int64_t v = first + task * kRowsPerTask; v < end; ++v) body(static_cast<VertexId>(v), thread);
    });
  };
  for (std::int64_t first = 0; first < slots; first += targets) {
    const std::int64_t last = std::min(slots, first + targets);
    begin(first, last - first);
    for (std::int64_t from = 0; from < slots; from += sources) {
      for (std::int64_t part = from; part < std::min(slots, from + sources); part += block_rows_) {
        state.stored[at(spec.message_table)].fetch(part, std::min(slots, part + block_rows_));
      }
      each(first, last, [&](VertexId v, int) {
        Acc* acc = sum(v);
        if (acc == nullptr) return;
        if (from == 0) {
          std::memset(static_cast<void*>(acc), 0, state_.aggregates[at(k)].row_bytes());
          add_root_term(k, state, v, acc);
        }
        add_in_terms(k, state, v, acc,
                     [&](EdgeId, VertexId u) { return u >= from && u < from + sources ? 1.0f : 0.0f; });
      });
    }
    each(first, last, done);
  }
}

template <typename Acc>
void EngineImpl<Acc>::forward_in_blocks(int k, State<Acc>& state) const {
  sum_in_blocks(
      k, state, [](std::int64_t, std::int64_t) {},
      [&](VertexId v) { return has_sum(k, v) ? state.aggregates[at(k)].row(v) : nullptr; }, [](VertexId, int) {});
}

template <typename Acc>
void EngineImpl<Acc>::sweep_in_blocks(int k) {
  const int stride = state_.aggregates[at(k)].stride();
  Scratch<Acc> sums;
  std::int64_t first = 0;
  const auto sum_of = [&](VertexId v) { return has_row_to_sweep(k, v) ? sums.data() + (v - first) * stride : nullptr; };
  sum_in_blocks(
      k, state_,
      [&](std::int64_t begin, std::int64_t count) {
        first = begin;
        sums.need(at(count * stride));
      },
      sum_of,
      [&](VertexId v, int thread) {
        if (const Acc* sum = sum_of(v); sum != nullptr) keep_row(k, v, sum, thread);
      });
}

// The files are shared with a process that was forked off: what one writes, the other would read. And what could not be
// written to a disk is lost.
template <typename Acc>
void EngineImpl<Acc>::refuse_unsound_files() const {
  if (pager_ == nullptr) return;
  if (!pager_->made_here()) {
    throw Error(ErrorKind::SpillUnavailable,
                "[Engine] expected the process that made an engine with a memory limit, got one that was forked from "
                "it; make an engine in each process");
  }
  if (pager_->damaged()) {
    throw Error(ErrorKind::SpillUnavailable, "[Engine] expected rows to be written to " + pager_->folder() +
                                                 ", got an error of the disk; make the engine anew in another folder");
  }
}

template <typename Acc>
std::optional<PagingStats> EngineImpl<Acc>::paging() const {
  if (pager_ == nullptr) return std::nullopt;
  const PagerStats stats = pager_->stats();
  return PagingStats{options_.memory_limit, pager_->resident_now(), stats.files,
                     stats.pinned_rows,     stats.brought,          stats.dropped};
}

template class EngineImpl<std::int64_t>;
template class EngineImpl<float>;

}  // namespace livegnn
