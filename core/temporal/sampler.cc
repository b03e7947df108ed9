// A hop in two passes over slices of its targets, in parallel: the first finds each past and counts what will be taken,
// so that every edge's place in the answer is known and one allocation has the exact size; the second copies.
#include <numeric>
#include <string>

#include "livegnn/temporal.h"
#include "temporal/draw.h"
#include "temporal/past.h"
#include "temporal/rows.h"
#include "temporal/write.h"
#include "util/thread_pool.h"

namespace livegnn {

namespace {
constexpr std::int64_t kRowsMax = std::int64_t{1} << 31;  // of a hop: its targets and its edges
// Targets of a slice: so many that their memory is on its way together, and their pasts stay in the near cache.
constexpr std::int64_t kSliceMin = 64, kSliceMax = 256;

void check_targets(const GraphStore& graph, std::span<const std::int64_t> vertices, const TemporalPin* pin,
                   const char* where) {
  for (std::size_t row = 0; row < vertices.size(); ++row) {
    const std::int64_t v = vertices[row];
    const bool live =
        pin != nullptr ? pin->is_live(v) : v >= 0 && v < graph.slot_count() && graph.is_live(static_cast<VertexId>(v));
    if (live) [[likely]]
      continue;
    throw Error(v < 0 ? ErrorKind::ValueInvalid : ErrorKind::VertexUnknown,
                {.where = where,
                 .expected = v < 0 ? "vertex ids of at least 0" : "live vertices as targets",
                 .got = std::to_string(v) + " at row " + std::to_string(row),
                 .advice = v < 0 ? "fix the id" : "add the vertex first",
                 .vertex = v});
  }
}
}  // namespace

struct TemporalSampler::Impl {
  // Several slices for each thread, so that none waits long for another's last.
  std::int64_t slice_of(std::int64_t count) const {
    return pool.threads() == 1 ? kSliceMax : std::clamp(count / (4 * pool.threads()), kSliceMin, kSliceMax);
  }
  TemporalHopArrays hop(const Targets& targets, std::span<const std::int64_t> rows, const HopPlace& place,
                        const TemporalPin* pin);
  std::int64_t find(const Targets& targets, const TakeRule& taken, const PastFinder& finder);
  void write(TemporalHopArrays& made, const TakeRule& taken, std::uint64_t part_key,
             std::span<const std::int64_t> rows);
  void name_types(TemporalHopArrays& made, const TemporalPin* pin) const;
  TemporalHopArrays arrays(std::int64_t targets, std::int64_t edges) const;

  const GraphStore& graph;
  const TemporalOptions options;
  const EdgeTypeFilter filter{graph, options.edge_types};
  ThreadPool pool{options.threads};
  std::shared_ptr<TemporalBuffers> buffers = std::make_shared<TemporalBuffers>();
  std::mutex one_call{};
  // of the hop at work
  std::int64_t slice_size = kSliceMax;
  std::vector<PastSlice> slices{};
  std::vector<std::int64_t> slice_edges{};
  std::vector<FindScratch> searches{static_cast<std::size_t>(pool.threads())};  // by thread
  std::vector<WriteScratch> scratch{static_cast<std::size_t>(pool.threads())};
  RowTableOfPairs pairs{};
};

std::ptrdiff_t row_without_time(std::span<const std::int64_t> times) {
  const auto found = std::find(times.begin(), times.end(), INT64_MIN);
  return found == times.end() ? -1 : found - times.begin();
}

TemporalSampler::TemporalSampler(const GraphStore& graph, TemporalOptions options)
    : impl_(new Impl{graph, std::move(options)}) {
  invariant(graph.options().has_time || impl_->options.window == 0, "a window in a graph without times");
}

TemporalSampler::~TemporalSampler() = default;

const std::shared_ptr<TemporalBuffers>& TemporalSampler::buffers() const { return impl_->buffers; }
const GraphStore& TemporalSampler::graph() const { return impl_->graph; }

// First pass: how many edges in all; slice_edges becomes where each slice's edges begin.
std::int64_t TemporalSampler::Impl::find(const Targets& targets, const TakeRule& taken, const PastFinder& finder) {
  const auto count = static_cast<std::int64_t>(targets.size());
  slice_size = slice_of(count);
  const std::int64_t slice_count = (count + slice_size - 1) / slice_size;
  const auto part = [&](std::int64_t index) {
    return targets.part(index * slice_size, std::min(slice_size, count - index * slice_size));
  };
  if (slices.size() < static_cast<std::size_t>(slice_count)) slices.resize(slice_count);
  slice_edges.resize(slice_count);
  pool.run(slice_count, [&](std::int64_t index, int thread) {
    finder.find(part(index), slices[index], searches[thread]);
    std::int64_t edges = 0;
    for (const Past& past : slices[index].pasts) edges += taken.of(past.count);
    slice_edges[index] = edges;
  });
  for (std::int64_t index = 0; index < slice_count; ++index) finder.check_loaded(part(index), slices[index], "sample");
  std::int64_t total = 0;
  for (std::int64_t& edges : slice_edges) total += std::exchange(edges, total);
  return total;
}

TemporalHopArrays TemporalSampler::Impl::arrays(std::int64_t targets, std::int64_t edges) const {
  const auto b = static_cast<std::size_t>(targets), e = static_cast<std::size_t>(edges);
  TemporalHopArrays made;
  const GraphOptions& has = graph.options();
  const std::size_t columns = 3 + (options.unique ? 2 : options.prop_time ? 1 : 0) + (has.has_type ? 1 : 0);
  const std::size_t next_types = graph.is_typed() ? b + e : 0, weights = has.has_weight ? (e + 1) / 2 : 0;
  made.memory = buffers->take(2 * (b + e) + b + 1 + columns * e + next_types + weights);
  std::int64_t* at = made.memory.values.get();
  const auto part = [&at](std::size_t count) {
    at += count;
    return std::span<std::int64_t>(at - count, count);
  };
  made.next_targets = part(b + e);
  made.next_times = part(b + e);
  made.targets = made.next_targets.first(b);
  made.target_times = made.next_times.first(b);
  made.ptr = part(b + 1);
  made.edge_ids = part(e);
  made.edge_index = part(2 * e);
  made.src = options.unique ? part(e) : made.next_targets.subspan(b);
  made.times = options.unique || options.prop_time ? part(e) : made.next_times.subspan(b);
  if (has.has_type) made.edge_types = part(e);
  made.next_types = part(next_types);
  if (weights > 0) made.weights = {reinterpret_cast<float*>(part(weights).data()), e};
  return made;
}

// Second pass.
void TemporalSampler::Impl::write(TemporalHopArrays& made, const TakeRule& taken, std::uint64_t part_key,
                                  std::span<const std::int64_t> rows) {
  pool.run(static_cast<std::int64_t>(slice_edges.size()), [&](std::int64_t index, int thread) {
    SliceWriter writer{graph.in_lists().pool(), slices[index], taken,          index * slice_size,
                       slice_edges[index],      made,          scratch[thread]};
    writer.write(options.by == TemporalBy::Uniform, part_key, rows);
    if (!options.unique) writer.source_rows();
    if (options.prop_time && !options.unique) writer.root_times();
    slices[index].clear_longs();
  });
  made.ptr[made.targets.size()] = static_cast<std::int64_t>(made.src.size());
}

TemporalHopArrays TemporalSampler::Impl::hop(const Targets& targets, std::span<const std::int64_t> rows,
                                             const HopPlace& place, const TemporalPin* pin) {
  const std::int32_t fan_out = options.fan_outs[place.hop], newest = options.by == TemporalBy::Recent ? fan_out : -1;
  const PastFinder finder{graph, {options, place.snapshot}, filter, pin, newest};
  const std::uint64_t part = (static_cast<std::uint64_t>(place.snapshot) << 16) + place.hop;
  const TakeRule taken{fan_out, options.replace && options.by == TemporalBy::Uniform};
  const std::int64_t edges = find(targets, taken, finder);
  const std::int64_t row_count = edges + static_cast<std::int64_t>(targets.size());
  if (row_count > kRowsMax) {
    throw Error(ErrorKind::ValueInvalid, {.where = "sample",
                                          .expected = "an answer of at most 2^31 rows",
                                          .got = std::to_string(row_count),
                                          .advice = "ask for fewer targets or a smaller fan-out"});
  }
  TemporalHopArrays made = arrays(static_cast<std::int64_t>(targets.size()), edges);
  std::ranges::copy(targets.vertices, made.targets.begin());
  std::ranges::copy(targets.times, made.target_times.begin());
  write(made, taken, draw_part(options.seed, place.call, part), rows);
  if (!graph.options().has_time) {  // an edge is then at its target's time
    const std::span<const std::int64_t> dst = made.edge_index.subspan(made.src.size());
    for (std::size_t edge = 0; edge < dst.size(); ++edge) made.times[edge] = made.target_times[dst[edge]];
  }
  if (options.unique) pairs.name_rows(made, options.prop_time);
  name_types(made, pin);
  return made;
}

// Types of the next targets; and weights as the pinned version has them.
void TemporalSampler::Impl::name_types(TemporalHopArrays& made, const TemporalPin* pin) const {
  if (graph.is_typed()) {
    made.next_types = made.next_types.first(made.next_targets.size());
    for (std::size_t row = 0; row < made.next_types.size(); ++row) {
      const auto v = static_cast<VertexId>(made.next_targets[row]);
      made.next_types[row] = pin != nullptr ? pin->vertex_type(v) : graph.vertex_type(v);
    }
  }
  if (pin == nullptr || !pin->keeps_weights()) return;
  for (std::size_t edge = 0; edge < made.weights.size(); ++edge) {
    made.weights[edge] = pin->weight(made.edge_ids[edge], made.weights[edge]);
  }
}

std::vector<TemporalHopArrays> TemporalSampler::sample(std::span<const std::int64_t> vertices,
                                                       std::span<const std::int64_t> times, std::uint64_t call,
                                                       std::int32_t snapshot, const TemporalPin* pin) {
  const std::lock_guard one(impl_->one_call);
  check_targets(impl_->graph, vertices, pin, "sample");
  const TemporalOptions& options = impl_->options;
  std::vector<TemporalHopArrays> hops;
  hops.reserve(options.fan_outs.size());
  for (std::size_t hop = 0; hop < options.fan_outs.size(); ++hop) {
    const Targets targets =
        hop == 0 ? Targets{vertices, times} : Targets{hops[hop - 1].next_targets, hops[hop - 1].next_times};
    hops.push_back(impl_->hop(targets, {}, {hop, call, snapshot}, pin));
  }
  return hops;
}

TemporalHopArrays TemporalSampler::sample_rows(std::span<const std::int64_t> vertices,
                                               std::span<const std::int64_t> times, std::span<const std::int64_t> rows,
                                               const HopPlace& place) {
  const std::lock_guard one(impl_->one_call);
  invariant(place.hop < impl_->options.fan_outs.size(), "a hop that the sampler does not have");
  check_targets(impl_->graph, vertices, nullptr, "sample");
  return impl_->hop({vertices, times}, rows, place, nullptr);
}

// All walks of a slice step by step, so that the lists of one step are on their way together.
TemporalWalkArrays TemporalSampler::walks(std::span<const std::int64_t> vertices, std::span<const std::int64_t> times,
                                          std::int64_t length, std::uint64_t call, const TemporalPin* pin) {
  const std::lock_guard one(impl_->one_call);
  check_targets(impl_->graph, vertices, pin, "walks");
  const auto count = static_cast<std::int64_t>(vertices.size());
  TemporalWalkArrays made;
  made.vertices.assign(vertices.size() * static_cast<std::size_t>(length + 1), -1);
  made.edge_ids.assign(vertices.size() * static_cast<std::size_t>(length), -1);
  made.times.assign(made.edge_ids.size(), 0);
  const PastFinder finder{impl_->graph, {impl_->options, 0}, impl_->filter, pin, -1};
  const bool timed = impl_->graph.options().has_time;
  const std::int64_t slice_size = impl_->slice_of(count);
  impl_->pool.run((count + slice_size - 1) / slice_size, [&](std::int64_t index, int thread) {
    const std::int64_t first = index * slice_size, last = std::min(first + slice_size, count);
    std::vector<std::int64_t> rows(last - first), at(vertices.begin() + first, vertices.begin() + last),
        now(times.begin() + first, times.begin() + last);
    std::iota(rows.begin(), rows.end(), first);
    for (const std::int64_t row : rows) made.vertices[row * (length + 1)] = vertices[row];
    PastSlice slice;
    for (std::int64_t step = 0; step < length && !rows.empty(); ++step) {
      finder.find({at, now}, slice, impl_->searches[thread]);
      finder.check_loaded({at, now}, slice, "walks");
      const std::uint64_t key = draw_part(impl_->options.seed, call, kWalkPart + static_cast<std::uint64_t>(step));
      std::size_t going = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const Past& past = slice.pasts[i];
        if (past.count == 0) continue;
        Draw draw(key, static_cast<std::uint64_t>(rows[i]));
        const EdgeEntry edge = edge_at(finder.pool, slice, past, draw.rank(static_cast<std::uint32_t>(past.count)));
        const std::int64_t place = rows[i] * length + step;
        made.edge_ids[place] = edge.id;
        if (timed) now[i] = edge.time;  // else the walk stays at its target's
        made.times[place] = now[i];
        made.vertices[rows[i] * (length + 1) + step + 1] = edge.neighbour;
        rows[going] = rows[i];
        at[going] = edge.neighbour;
        now[going++] = now[i];
      }
      rows.resize(going);
      at.resize(going);
      now.resize(going);
    }
  });
  return made;
}

}  // namespace livegnn
