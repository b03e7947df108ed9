// Bulk load: check everything, count degrees, place edges by a counting sort per direction, all in parallel and with
// the same result for any number of threads.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>

#include "graph/journal.h"
#include "livegnn/graph.h"
#include "util/thread_pool.h"

namespace livegnn {

namespace {
using std::to_string;

constexpr int kThreadsMax = 64;

// what: the vertex or the edge at fault; nothing for all of them.
[[noreturn]] void refuse(ErrorKind kind, ErrorFacts what, const std::string& expected, const std::string& got,
                         const char* advice) {
  what.where = "load";
  what.expected = expected;
  what.got = got;
  what.advice = advice;
  throw Error(kind, std::move(what));
}

// Smallest i in [0, count) with bad(i), or count; the same for any number of threads.
template <typename Predicate>
std::int64_t first_bad(ThreadPool& threads, std::int64_t count, Predicate&& bad) {
  std::atomic<std::int64_t> first{count};
  threads.run_parts(count, [&](std::size_t, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (!bad(i)) continue;
      for (std::int64_t known = first.load(); i < known && !first.compare_exchange_weak(known, i);) {
      }
      return;
    }
  });
  return first.load();
}

void check_count(const char* name, std::size_t got, std::int64_t expected) {
  if (static_cast<std::int64_t>(got) == expected) return;
  const bool missing = got == 0 || expected == 0;
  refuse(missing ? ErrorKind::ColumnMissing : ErrorKind::WidthMismatch, {}, to_string(expected) + " values of " + name,
         to_string(got), "give exactly the columns that the graph was created with, one value per edge or vertex");
}

ErrorFacts edge_at(const EdgeColumnsView& edges, std::int64_t edge) {
  const std::int64_t src = edges.src[edge], dst = edges.dst[edge];
  return {.edge = {{src, dst}},
          .subject = "edge " + to_string(edge) + " (" + to_string(src) + " -> " + to_string(dst) + ")"};
}

ErrorFacts vertex_at(std::int64_t v) { return {.vertex = v, .subject = "vertex " + to_string(v)}; }
}  // namespace

void GraphStore::check_edge_columns(const GraphArrays& arrays, ThreadPool& threads) const {
  const EdgeColumnsView& edges = arrays.edges;
  const auto count = static_cast<std::int64_t>(edges.size());
  // Refuses the first edge that has a bad value among its `values`; `got` names it.
  const auto check = [&](std::int64_t values, auto&& bad, ErrorKind kind, const std::string& expected, auto&& got,
                         const char* advice) {
    const std::int64_t first = first_bad(threads, count * values, bad);
    if (first < count * values) refuse(kind, edge_at(edges, first / values), expected, got(first), advice);
  };
  const auto live = [&](std::int64_t v) {
    return v >= 0 && v < arrays.slot_count && (arrays.live.empty() || arrays.live[v] != 0);
  };
  check(
      1, [&](auto i) { return !live(edges.src[i]) || !live(edges.dst[i]); }, ErrorKind::VertexUnknown,
      "live vertex ids in 0 .. " + to_string(arrays.slot_count - 1),
      [&](auto i) { return to_string(live(edges.src[i]) ? edges.dst[i] : edges.src[i]); },
      "correct the edge or add the vertex");
  const auto type_of = [&](std::int64_t v) { return arrays.vertex_type[v]; };
  if (is_typed()) {
    check(
        1, [&](auto i) { return !fits_ends(edges.type[i], type_of(edges.src[i]), type_of(edges.dst[i])); },
        ErrorKind::ValueInvalid, "an edge type that joins its ends",
        [&](auto i) {
          return "edge type " + to_string(edges.type[i]) + " between vertex types " + to_string(type_of(edges.src[i])) +
                 " -> " + to_string(type_of(edges.dst[i]));
        },
        "correct the edge type");
  }
  const auto check_finite = [&](std::int64_t values, std::span<const float> column, const char* expected,
                                const char* advice) {
    check(
        values, [&](auto i) { return !std::isfinite(column[i]); }, ErrorKind::ValueInvalid, expected,
        [&](auto i) { return to_string(column[i]); }, advice);
  };
  check_finite(options_.has_weight, edges.weight, "a finite weight", "correct the weight");
  check_finite(options_.attr_width, edges.attr, "finite attributes", "clean the row");
  if (edges.id.empty()) return;
  check(
      1, [&](auto i) { return edges.id[i] <= (i > 0 ? edges.id[i - 1] : -1); }, ErrorKind::ValueInvalid,
      "ascending edge ids from 0", [&](auto i) { return to_string(edges.id[i]); }, "sort edges by id");
}

// Types of vertices: there where the graph is typed, known, and no features beyond their width.
void GraphStore::check_types(const GraphArrays& arrays, ThreadPool& threads) const {
  check_count("vertex_type", arrays.vertex_type.size(), is_typed() ? arrays.slot_count : 0);
  if (!is_typed()) return;
  const auto types = static_cast<std::int32_t>(options_.type_widths.size());
  const auto live = [&](std::int64_t v) { return arrays.live.empty() || arrays.live[v] != 0; };
  std::int64_t bad = first_bad(threads, arrays.slot_count, [&](auto v) {
    return live(v) && (arrays.vertex_type[v] < 0 || arrays.vertex_type[v] >= types);
  });
  if (bad < arrays.slot_count) {
    refuse(ErrorKind::ValueInvalid, vertex_at(bad), "a vertex type below " + to_string(types),
           to_string(arrays.vertex_type[bad]), "correct the type");
  }
  bad = first_bad(threads, arrays.slot_count, [&](auto v) {
    const std::int64_t width = live(v) ? width_of_type(arrays.vertex_type[v]) : options_.feature_width;
    const auto pads = [&](const auto* rows) {
      const auto* row = rows + v * options_.feature_width;
      return std::all_of(row + width, row + options_.feature_width, [](auto x) { return x == 0; });
    };
    return !(arrays.features_half.empty() ? pads(arrays.features.data()) : pads(arrays.features_half.data()));
  });
  if (bad < arrays.slot_count) {
    refuse(ErrorKind::WidthMismatch, vertex_at(bad), "zeros beyond the width of its type", "other values",
           "give rows of the width of their type");
  }
}

// Features: as many as there are slots, finite, and within what the store keeps them as.
void GraphStore::check_features(const GraphArrays& arrays, ThreadPool& threads) const {
  const std::span<const float> rows = arrays.features;
  const std::span<const std::uint16_t> halves = arrays.features_half;
  invariant(halves.empty() || (features_.is_half() && rows.empty()),
            "features in 16 bits for a store without, or twice");
  const std::size_t given = std::max(rows.size(), halves.size());
  check_count("features", given, arrays.slot_count * options_.feature_width);
  const auto values = static_cast<std::int64_t>(given);
  const FeatureDtype dtype = features_.dtype();
  const float range = range_of(dtype);
  const std::uint16_t exponent = exponent_bits(dtype);
  const std::int64_t bad = first_bad(threads, values, [&](auto i) {
    return halves.empty() ? !(std::fabs(rows[i]) < range) : (halves[i] & exponent) == exponent;
  });
  if (bad == values) return;
  float value = 0.0f;
  if (halves.empty()) {
    value = rows[bad];
  } else {
    decode(dtype, &value, &halves[bad], 1);
  }
  const ErrorFacts what = vertex_at(bad / options_.feature_width);
  const std::string got = to_string(value) + " in column " + to_string(bad % options_.feature_width);
  if (!std::isfinite(value)) refuse(ErrorKind::ValueInvalid, what, "finite features", got, "clean the row");
  refuse(ErrorKind::ValueInvalid, what, std::string("features within ") + dtype_name(dtype), got,
         "scale them down, or make the graph with a feature_dtype that holds them");
}

void GraphStore::check_arrays(const GraphArrays& arrays, ThreadPool& threads) const {
  if (slot_count_ != 0 || next_edge_id_ != 0) {
    refuse(ErrorKind::StateMismatch, {}, "an empty store", to_string(slot_count_) + " vertices", "load into a new one");
  }
  if (arrays.slot_count < 0 || arrays.slot_count > INT32_MAX) {
    refuse(ErrorKind::RangeOverflow, {}, "0 .. 2^31 - 1 vertices", to_string(arrays.slot_count), "split the graph");
  }
  const EdgeColumnsView& columns = arrays.edges;
  const auto edges = static_cast<std::int64_t>(columns.size());
  check_count("dst", columns.dst.size(), edges);
  if (!arrays.live.empty()) check_count("live", arrays.live.size(), arrays.slot_count);
  if (!columns.id.empty()) check_count("id", columns.id.size(), edges);
  check_count("weight", columns.weight.size(), options_.has_weight ? edges : 0);
  check_count("time", columns.time.size(), options_.has_time ? edges : 0);
  check_count("type", columns.type.size(), options_.has_type ? edges : 0);
  check_count("attr", columns.attr.size(), edges * options_.attr_width);
  check_features(arrays, threads);
  check_types(arrays, threads);
  check_edge_columns(arrays, threads);
}

void GraphStore::load_vertices(const GraphArrays& arrays, ThreadPool& threads) {
  resize_slots(static_cast<VertexId>(arrays.slot_count));
  threads.run_pieces(slot_count_, 4096, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t v = begin; v < end; ++v) {
      live_[v] = arrays.live.empty() || arrays.live[v] != 0;
      const std::int32_t width = live_[v] ? options_.feature_width : 0;
      const auto vertex = static_cast<VertexId>(v);
      if (arrays.features_half.empty()) {
        features_.write(vertex, arrays.features.data() + v * width, width);
      } else {
        features_.write(vertex, arrays.features_half.data() + v * width, width);
      }
      if (live_[v] && is_typed()) vertex_types_[v] = arrays.vertex_type[v];
    }
  });
  for (VertexId v = 0; v < slot_count_; ++v) vertex_count_ += live_[v];
}

// How many edges each vertex has in each thread's part of the input: cursors[part][v].
std::vector<std::vector<std::int64_t>> GraphStore::count_degrees(bool by_src, const EdgeColumnsView& edges,
                                                                 ThreadPool& threads) const {
  const std::int64_t* owner = (by_src ? edges.src : edges.dst).data();
  const std::int64_t* other = (by_src ? edges.dst : edges.src).data();
  std::vector<std::vector<std::int64_t>> cursors(static_cast<std::size_t>(threads.threads()));
  threads.run_parts(static_cast<std::int64_t>(edges.size()),
                    [&](std::size_t part, std::int64_t begin, std::int64_t end) {
                      std::vector<std::int64_t>& counts = cursors[part];
                      counts.assign(static_cast<std::size_t>(slot_count_), 0);
                      for (std::int64_t i = begin; i < end; ++i) {
                        ++counts[owner[i]];
                        if (options_.undirected && owner[i] != other[i]) ++counts[other[i]];
                      }
                    });
  return cursors;
}

// Gives every vertex its run of places; cursors become the place of each thread's first edge of a vertex.
void GraphStore::plan_lists(Adjacency& adjacency, std::vector<std::vector<std::int64_t>>& cursors,
                            ThreadPool& threads) const {
  std::vector<std::int32_t> degrees(static_cast<std::size_t>(slot_count_));
  for (VertexId v = 0; v < slot_count_; ++v) {
    std::int64_t degree = 0;
    for (const auto& counts : cursors) degree += counts[v];
    if (degree > INT32_MAX) {
      refuse(ErrorKind::RangeOverflow, vertex_at(v), "fewer than 2^31 edges per vertex", to_string(degree),
             "split the vertex");
    }
    degrees[v] = static_cast<std::int32_t>(degree);
  }
  adjacency.plan(degrees);
  threads.run_parts(slot_count_, [&](std::size_t, std::int64_t begin, std::int64_t end) {
    for (std::int64_t v = begin; v < end; ++v) {
      std::int64_t place = adjacency.place_of(static_cast<VertexId>(v));
      for (auto& counts : cursors) {
        const std::int64_t count = counts[v];
        counts[v] = place;
        place += count;
      }
    }
  });
}

// A list's edges come in input order, which is id order: thread t places its part of the edges behind those of t - 1.
void GraphStore::load_direction(Adjacency& adjacency, bool by_src, const EdgeColumnsView& edges, ThreadPool& threads) {
  std::vector<std::vector<std::int64_t>> cursors = count_degrees(by_src, edges, threads);
  plan_lists(adjacency, cursors, threads);
  const std::int64_t* owner = (by_src ? edges.src : edges.dst).data();
  const std::int64_t* other = (by_src ? edges.dst : edges.src).data();
  threads.run_parts(static_cast<std::int64_t>(edges.size()),
                    [&](std::size_t part, std::int64_t begin, std::int64_t end) {
                      std::vector<std::int64_t>& next = cursors[part];
                      BlockPool& pool = adjacency.pool();
                      constexpr std::int64_t kAhead = 16;
                      for (std::int64_t i = begin; i < end; ++i) {
                        if (i + kAhead < end) pool.prefetch(next[owner[i + kAhead]]);
                        const EdgeRecord edge = edges.edge(static_cast<std::size_t>(i));
                        pool.write(next[owner[i]]++, by_src ? edge.in_out_list() : edge.in_in_list());
                        if (options_.undirected && owner[i] != other[i])
                          pool.write(next[other[i]]++, edge.in_in_list());
                      }
                    });
  cursors.clear();
  adjacency.finish(threads);
}

void GraphStore::check_simple(ThreadPool& threads) const {
  const auto duplicate_of = [&](std::int64_t u) {
    std::vector<VertexId> found;
    visit_out(static_cast<VertexId>(u),
              [&](const EdgeSpan& span) { found.insert(found.end(), span.neighbours, span.neighbours + span.count); });
    std::sort(found.begin(), found.end());
    const auto twice = std::adjacent_find(found.begin(), found.end());
    return twice == found.end() ? kNoVertex : *twice;
  };
  const std::int64_t u = first_bad(threads, slot_count_, [&](auto v) { return duplicate_of(v) != kNoVertex; });
  if (u == slot_count_) return;
  refuse(ErrorKind::EdgeDuplicate, {}, "at most one edge between a pair in a simple graph",
         "a second " + to_string(u) + " -> " + to_string(duplicate_of(u)),
         "remove the duplicate or create the graph with simple=False");
}

void GraphStore::load(const GraphArrays& arrays, int threads_max) {
  ThreadPool threads(std::clamp(threads_max, 1, kThreadsMax), ThreadPool::kNoSpin);
  check_arrays(arrays, threads);
  const EdgeColumnsView& edges = arrays.edges;
  try {
    load_vertices(arrays, threads);
    load_direction(out_, true, edges, threads);
    if (options_.simple) check_simple(threads);
    if (!options_.undirected) load_direction(*in_, false, edges, threads);
    if (options_.attr_width > 0) {
      attributes_.reserve(static_cast<std::int64_t>(edges.size()));
      const auto width = static_cast<std::size_t>(options_.attr_width);
      for (std::size_t i = 0; i < edges.size(); ++i) attributes_.insert(edges.id_of(i), edges.attr.data() + i * width);
    }
  } catch (...) {
    reset();
    throw;
  }
  edge_count_ = static_cast<std::int64_t>(edges.size());
  const EdgeId past = edges.size() == 0 ? 0 : edges.id_of(edges.size() - 1) + 1;
  next_edge_id_ = std::max(arrays.next_edge_id, past);
  publish();
}

}  // namespace livegnn
