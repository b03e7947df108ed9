// GraphStore. Arrays come in with exact dtypes and go out as copies; work on whole graphs and batches releases the GIL.
#include "livegnn/graph.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <new>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "gil.h"
#include "graph_arrays.h"
#include "livegnn/graph_capture.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using namespace graph_arrays;

// ---- reading the store

// Edges as columns, in memory that arrays can keep.
struct EdgeColumns {
  std::vector<std::int64_t> src, dst, id, time;
  std::vector<float> weight, attr;
  std::vector<std::int32_t> type;

  // attr_of: the attribute row of an edge id.
  template <typename AttrOf>
  EdgeColumns(const GraphOptions& options, const EdgeRun& edges, AttrOf&& attr_of)
      : src(column_of<std::int64_t>(edges, &EdgeRecord::src)),
        dst(column_of<std::int64_t>(edges, &EdgeRecord::dst)),
        id(column_of<std::int64_t>(edges, &EdgeRecord::id)) {
    if (options.has_weight) weight = column_of<float>(edges, &EdgeRecord::weight);
    if (options.has_time) time = column_of<std::int64_t>(edges, &EdgeRecord::time);
    if (options.has_type) type = column_of<std::int32_t>(edges, &EdgeRecord::type);
    if (options.attr_width == 0) return;
    attr.reserve(edges.size() * static_cast<std::size_t>(options.attr_width));
    for (const EdgeRecord& edge : edges) {
      const float* row = attr_of(edge.id);
      attr.insert(attr.end(), row, row + options.attr_width);
    }
  }

  EdgeColumns(const GraphStore& store, const EdgeRun& edges)
      : EdgeColumns(store.options(), edges, [&](EdgeId edge) { return store.loaded_attr(edge); }) {}

  Columns give(const GraphOptions& options, bool with_src = true, bool with_dst = true) && {
    const std::size_t count = id.size();
    Columns out;
    if (with_src) out["src"] = make_array(std::move(src));
    if (with_dst) out["dst"] = make_array(std::move(dst));
    out["id"] = make_array(std::move(id));
    if (options.has_weight) out["weight"] = make_array(std::move(weight));
    if (options.has_time) out["time"] = make_array(std::move(time));
    if (options.has_type) out["type"] = make_array(std::move(type));
    const auto width = static_cast<std::size_t>(options.attr_width);
    if (width > 0) out["attr"] = graph_arrays::give<Out2<float>>(std::move(attr), {count, width});
    return out;
  }
};

// The edges that `visit` shows to a visitor, by id.
template <typename Visit>
Columns collected(const GraphStore& store, Visit&& visit) {
  EdgeColumns columns = without_gil([&] {
    EdgeRun edges;
    visit([&](const EdgeRecord& edge) { edges.push_back(edge); });
    std::sort(edges.begin(), edges.end(), [](const EdgeRecord& a, const EdgeRecord& b) { return a.id < b.id; });
    return EdgeColumns(store, edges);
  });
  return std::move(columns).give(store.options());
}

Columns edges(const GraphStore& store) {
  return collected(store, [&](auto&& visitor) { store.visit_loaded_edges(visitor); });
}

Columns edges_before(const GraphStore& store, std::int64_t before) {
  return collected(store, [&](auto&& visitor) { store.visit_edges_before(before, visitor); });
}

Columns neighbours(const GraphStore& store, const char* where, std::int64_t vertex, bool outgoing) {
  const VertexId v = checked_vertex(store, where, vertex);
  EdgeRun edges;
  store.visit_loaded(v, outgoing, [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) edges.push_back(EdgeRecord::of(v, span.entry(i)));
  });
  if (!outgoing) {
    for (EdgeRecord& edge : edges) std::swap(edge.src, edge.dst);
  }
  return EdgeColumns(store, edges).give(store.options(), !outgoing, outgoing);
}

// What a method of the store says of each of some live vertices.
template <typename T, auto kRead>
auto reader(const char* where) {
  return [where](const GraphStore& store, Ids ids) {
    const auto read = [&](std::int64_t id) { return (store.*kRead)(checked_vertex(store, where, id)); };
    return make_array(column_of<T>(span_of(ids), read));
  };
}

template <typename T, typename Read>
std::vector<T> read_slots(const GraphStore& store, Read&& read) {
  return column_of<T>(std::views::iota(VertexId{0}, store.slot_count()), read);
}

// width: floats of each row to give, all of them unless said.
Out2<float> features(const GraphStore& store, Ids ids, std::optional<std::int32_t> wanted) {
  const auto widest = static_cast<std::size_t>(store.options().feature_width);
  const std::size_t width = wanted ? std::min(static_cast<std::size_t>(*wanted), widest) : widest;
  std::vector<float> rows(ids.size() * width);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const VertexId v = checked_vertex(store, "features", ids.data()[i]);
    store.read_features(v, rows.data() + i * width, static_cast<std::int32_t>(width));
  }
  return give<Out2<float>>(std::move(rows), {ids.size(), width});
}

std::vector<std::int32_t> types_of_all(const GraphStore& store) {
  return read_slots<std::int32_t>(store, [&](VertexId v) { return store.vertex_type(v); });
}

std::vector<std::uint8_t> live_flags(const GraphStore& store) {
  return read_slots<std::uint8_t>(store, [&](VertexId v) { return store.is_live(v); });
}

Counts memory(const GraphStore& store) {
  const GraphMemory total = without_gil([&] { return store.memory(); });
  return counts_of<&GraphMemory::edges_live, &GraphMemory::edges_reserved, &GraphMemory::index, &GraphMemory::vertices,
                   &GraphMemory::features, &GraphMemory::attributes>(total);
}

Counts block_stats(const GraphStore& store, bool outgoing) {
  const BlockStats stats = without_gil([&] { return store.block_stats(outgoing); });
  return counts_of<&BlockStats::lists, &BlockStats::blocks, &BlockStats::blocks_max, &BlockStats::edges,
                   &BlockStats::places>(stats);
}

// ---- edges in files

// Columns of edges that come in, held as long as their view is read. Ids may be missing.
struct EdgesIn {
  Ids src, dst;
  std::optional<Ids> id, time;
  std::optional<In1<float>> weight;
  std::optional<In1<std::int32_t>> type;
  std::optional<Rows> attr;
  EdgeColumnsView view;

  EdgesIn(const GraphOptions& options, const nb::dict& arrays)
      : src(stored<Ids>(arrays, "src")),
        dst(stored<Ids>(arrays, "dst")),
        id(stored_if<Ids>(is_given(arrays, "id"), arrays, "id")),
        time(stored_if<Ids>(options.has_time, arrays, "time")),
        weight(stored_if<In1<float>>(options.has_weight, arrays, "weight")),
        type(stored_if<In1<std::int32_t>>(options.has_type, arrays, "type")),
        attr(stored_if<Rows>(options.attr_width > 0, arrays, "attr")),
        view{span_of(src), span_of(dst), span_of(id), span_of(weight), span_of(time), span_of(type), span_of(attr)} {}
};

void reload(GraphStore& store, const Columns& arrays, std::int64_t before) {
  const EdgesIn edges(store.options(), arrays);
  GilRelease release;
  store.reload(edges.view, before);
}

// parts: gives the columns of one file after the other, and None at the end.
void copy_offloaded(GraphStore& store, const std::string& where, const std::string& folder,
                    const nb::typed<nb::callable, std::optional<Columns>()>& parts) {
  std::optional<EdgesIn> held;
  const GilRelease release;
  store.copy_offloaded(where, folder, [&](EdgeColumnsView& view) {
    const nb::gil_scoped_acquire acquire;
    held.reset();
    const nb::object part = parts();
    if (part.is_none()) return false;
    held.emplace(store.options(), nb::cast<Columns>(part));
    view = held->view;
    return true;
  });
}

// What a saved graph keeps of them: counts by vertex, and before, count, id_max, digest.
Columns offloaded_arrays(const GraphStore& store) {
  const OffloadedEdges& away = store.offloaded();
  Columns out;
  out["out"] = make_array(std::vector<std::int32_t>(away.out));
  out["in"] = make_array(std::vector<std::int32_t>(away.in));
  out["counters"] = make_array(
      std::vector<std::int64_t>{away.before, away.count, away.id_max, static_cast<std::int64_t>(away.digest)});
  return out;
}

void restore_offloaded(GraphStore& store, const Columns& arrays) {
  const auto out = stored<In1<std::int32_t>>(arrays, "out"), in = stored<In1<std::int32_t>>(arrays, "in");
  const auto counters = stored<Ids>(arrays, "counters");
  check_lengths("from_arrays", 4, counters.size(), "counters");
  const std::int64_t* values = counters.data();
  store.restore_offloaded({values[0],
                           values[1],
                           values[2],
                           static_cast<std::uint64_t>(values[3]),
                           {in.data(), in.data() + in.size()},
                           {out.data(), out.data() + out.size()}});
}

// ---- whole graphs

// Feature rows as they come in: float32, or the store's own 16 bits.
using FeatureRowsIn = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void give_features(const GraphStore& store, const FeatureRowsIn& rows, GraphArrays& input) {
  input.slot_count = static_cast<std::int64_t>(rows.shape(0));
  if (rows.dtype() == nb::dtype<float>()) {
    input.features = {static_cast<const float*>(rows.data()), rows.size()};
  } else if (store.features().is_half() && rows.dtype() == nb::dtype<std::uint16_t>()) {
    input.features_half = {static_cast<const std::uint16_t*>(rows.data()), rows.size()};
  } else {
    throw nb::type_error("[load] expected features of the store's dtype, (V, F), got others; convert them");
  }
}

// edge ids count from 0 where none are given; live: all are where there are no flags.
void load(GraphStore& store, const Columns& arrays, int threads, std::int64_t next_edge_id) {
  const GraphOptions& options = store.options();
  const auto x = stored<FeatureRowsIn>(arrays, "features");
  const EdgesIn edges(options, arrays);
  const auto live = stored_if<In1<std::uint8_t>>(arrays.contains("live"), arrays, "live");
  const auto vertex_type = stored_if<In1<std::int32_t>>(store.is_typed(), arrays, "vertex_type");
  check_lengths("load", static_cast<std::size_t>(options.feature_width), x.shape(1), "each feature row");
  if (edges.attr) {
    check_lengths("load", static_cast<std::size_t>(options.attr_width), edges.attr->shape(1), "each attribute row");
  }
  if (live) check_lengths("load", x.shape(0), live->size(), "live");
  GraphArrays input;
  give_features(store, x, input);
  input.live = span_of(live);
  input.edges = edges.view;
  input.next_edge_id = next_edge_id;
  input.vertex_type = span_of(vertex_type);
  GilRelease release;
  store.load(input, threads);
}

// All rows without their padding, as they are stored.
template <typename T>
std::vector<T> stored_rows(const GraphCapture& graph, const T* table) {
  const auto width = static_cast<std::size_t>(graph.options().feature_width);
  const auto slots = static_cast<std::size_t>(graph.slot_count());
  const auto stride = static_cast<std::size_t>(graph.features().stride());
  std::vector<T> rows(slots * width);
  for (std::size_t v = 0; v < slots; ++v) std::copy_n(table + v * stride, width, rows.data() + v * width);
  return rows;
}

template <typename T, typename Read>
std::vector<T> of_slots(const GraphCapture& graph, Read&& read) {
  return column_of<T>(std::views::iota(VertexId{0}, graph.slot_count()), read);
}

Columns captured_arrays(const GraphCapture& graph) {
  const GraphOptions& options = graph.options();
  EdgeColumns edges =
      without_gil([&] { return EdgeColumns(options, graph.edges(), [&](EdgeId edge) { return graph.attr(edge); }); });
  Columns out = std::move(edges).give(options);
  const std::size_t slots = static_cast<std::size_t>(graph.slot_count());
  const std::size_t width = static_cast<std::size_t>(options.feature_width);
  const auto rows = [&]<typename T>(const T* table) {
    return give<Out2<T>>(without_gil([&] { return stored_rows(graph, table); }), {slots, width});
  };
  if (graph.features().is_half()) {
    out["features"] = rows(graph.features().halves());
  } else {
    out["features"] = rows(graph.features().floats());
  }
  out["live"] = make_array(of_slots<std::uint8_t>(graph, [&](VertexId v) { return graph.is_live(v); }));
  if (!options.type_widths.empty()) {
    out["vertex_type"] = make_array(of_slots<std::int32_t>(graph, [&](VertexId v) { return graph.vertex_type(v); }));
  }
  out["counters"] = make_array(std::vector<std::int64_t>{graph.version(), graph.next_edge_id()});
  return out;
}

Columns to_arrays(const GraphStore& store) {
  GraphCapture captured(store);
  without_gil([&] { captured.take(store, 1); });
  return captured_arrays(captured);
}

void from_arrays(GraphStore& store, const Columns& arrays) {
  for (const char* name : {"live", "id"}) {
    if (!arrays.contains(name)) throw nb::key_error(name);
  }
  const auto counters = stored<Ids>(arrays, "counters");
  check_lengths("from_arrays", 2, counters.size(), "counters");
  load(store, arrays, 1, counters.data()[1]);
  store.set_version(counters.data()[0]);
}

}  // namespace

FeatureDtype dtype_named(const std::string& name) {
  for (const FeatureDtype dtype : {FeatureDtype::Float32, FeatureDtype::Float16, FeatureDtype::Bfloat16}) {
    if (name == dtype_name(dtype)) return dtype;
  }
  throw Error(ErrorKind::ValueInvalid, {.where = "graph",
                                        .expected = "feature_dtype float32, float16 or bfloat16",
                                        .got = name,
                                        .advice = "name one of them"});
}

namespace {

void make_store(GraphStore* place, std::int32_t feature_width, bool has_weight, bool has_time, bool has_type,
                std::int32_t attr_width, bool undirected, bool simple, std::int32_t block_edges_max,
                std::vector<std::int32_t> type_widths, const std::vector<std::int32_t>& src_types,
                const std::vector<std::int32_t>& dst_types, const std::string& feature_dtype) {
  check_lengths("graph", src_types.size(), dst_types.size(), "dst_types");
  GraphOptions options;
  options.feature_width = feature_width;
  options.has_weight = has_weight;
  options.has_time = has_time;
  options.has_type = has_type;
  options.attr_width = attr_width;
  options.undirected = undirected;
  options.simple = simple;
  options.block_edges_max = block_edges_max;
  options.feature_dtype = dtype_named(feature_dtype);
  options.type_widths = std::move(type_widths);
  for (std::size_t i = 0; i < src_types.size(); ++i) options.edge_ends.push_back({src_types[i], dst_types[i]});
  new (place) GraphStore(options);
}

// The sum of all out-neighbours' ids: what a scan of the whole graph costs, for benchmarks/engine/store.py.
std::int64_t scan_out_sum(const GraphStore& store) {
  std::int64_t sum = 0;
  for (VertexId u = 0; u < store.slot_count(); ++u) {
    store.visit_out(u, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < span.count; ++i) sum += span.neighbours[i];
    });
  }
  return sum;
}

// The same of a CSR: what an array that never changes takes.
std::int64_t scan_csr_sum(Ids starts, nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> csr) {
  const std::int64_t* at = starts.data();
  const std::int32_t* neighbours = csr.data();
  std::int64_t sum = 0;
  for (std::size_t u = 0; u + 1 < starts.size(); ++u) {
    for (std::int64_t i = at[u]; i < at[u + 1]; ++i) sum += neighbours[i];
  }
  return sum;
}

void bind_offloaded(nb::class_<GraphStore>& bound) {
  bound.def("edges_before", &edges_before, "before"_a)
      .def("offload_before", &GraphStore::offload_before, "before"_a, nb::call_guard<GilRelease>())
      .def("reload", &reload, "arrays"_a, "before"_a)
      .def("copy_offloaded", &copy_offloaded, "where"_a, "folder"_a, "parts"_a)
      .def("drop_copies", &GraphStore::drop_copies)
      .def_prop_ro("has_copies", &GraphStore::has_copies)
      .def_prop_ro("offloaded_count", [](const GraphStore& store) { return store.offloaded().count; })
      .def(
          "offloaded_out",
          [](const GraphStore& s, std::int64_t u) { return s.offloaded_out(checked_vertex(s, "out_neighbours", u)); },
          "u"_a)
      .def(
          "offloaded_in",
          [](const GraphStore& s, std::int64_t v) { return s.offloaded_in(checked_vertex(s, "in_neighbours", v)); },
          "v"_a)
      .def("offloaded_arrays", &offloaded_arrays)
      .def("restore_offloaded", &restore_offloaded, "arrays"_a);
}

void bind_store(nb::module_& m) {
  using Release = nb::call_guard<GilRelease>;
  nb::class_<GraphStore> bound(m, "GraphStore", "The dynamic graph; one writer, callers hold the lock.");
  bound
      .def("__init__", &make_store, nb::kw_only(), "feature_width"_a = 0, "has_weight"_a = false, "has_time"_a = false,
           "has_type"_a = false, "attr_width"_a = 0, "undirected"_a = false, "simple"_a = false,
           "block_edges_max"_a = 128, "type_widths"_a = std::vector<std::int32_t>{},
           "src_types"_a = std::vector<std::int32_t>{}, "dst_types"_a = std::vector<std::int32_t>{},
           "feature_dtype"_a = "float32")
      .def("load", &load, "arrays"_a, "threads"_a, "next_edge_id"_a)
      .def("set_apply_threads", &GraphStore::set_apply_threads, "threads"_a)
      .def(
          "apply",
          [](GraphStore& store, const UpdateBuffer& buffer) {
            store.apply_into(buffer, nullptr);
            store.publish();
          },
          "buffer"_a, Release())
      .def_prop_ro("version", &GraphStore::version)
      .def_prop_ro("slot_count", &GraphStore::slot_count)
      .def_prop_ro("vertex_count", &GraphStore::vertex_count)
      .def_prop_ro("edge_count", &GraphStore::edge_count)
      .def_prop_ro("published_version", &GraphStore::published_version)
      .def_prop_ro("published_slot_count", &GraphStore::published_slot_count)
      .def_prop_ro("published_vertex_count", &GraphStore::published_vertex_count)
      .def_prop_ro("published_edge_count", &GraphStore::published_edge_count)
      .def_prop_ro("next_edge_id", &GraphStore::next_edge_id)
      .def("live",
           [](const GraphStore& s) {
             return give<Out1<bool>>(live_flags(s), {static_cast<std::size_t>(s.slot_count())});
           })
      .def("features", &features, array("ids"), "width"_a = nb::none())
      .def("vertex_types", [](const GraphStore& store) { return make_array(types_of_all(store)); })
      .def("slot_types", reader<std::int32_t, &GraphStore::vertex_type>("slot_types"), array("slots"))
      .def("edges", &edges)
      .def(
          "out_neighbours",
          [](const GraphStore& s, std::int64_t u) { return neighbours(s, "out_neighbours", u, true); }, "u"_a)
      .def(
          "in_neighbours", [](const GraphStore& s, std::int64_t v) { return neighbours(s, "in_neighbours", v, false); },
          "v"_a)
      .def("out_degree", reader<std::int64_t, &GraphStore::out_degree>("out_degree"), array("ids"))
      .def("in_degree", reader<std::int64_t, &GraphStore::in_degree>("in_degree"), array("ids"))
      .def("scan_out_sum", &scan_out_sum, Release())
      .def("memory", &memory)
      .def("block_stats", &block_stats, "outgoing"_a)
      .def("compact", &GraphStore::compact, Release())
      .def("digest", &GraphStore::digest, Release())
      .def("check_invariants", &GraphStore::check_invariants, Release())
      .def("to_arrays", &to_arrays)
      .def("from_arrays", &from_arrays, "arrays"_a);
  bind_offloaded(bound);
  nb::class_<GraphCapture>(m, "GraphCapture", "A store at one version, copied in three steps: see graph_capture.h.")
      .def(nb::init<const GraphStore&>(), "store"_a)
      .def("make_room", &GraphCapture::make_room, "threads"_a, Release())
      .def("take", &GraphCapture::take, "store"_a, "threads"_a, Release())
      .def("to_arrays", &captured_arrays);
}

}  // namespace

void bind_graph(nb::module_& m) {
  bind_updates(m);
  bind_store(m);
  m.def("scan_csr_sum", &scan_csr_sum, array("starts"), array("neighbours"));
}

}  // namespace livegnn
