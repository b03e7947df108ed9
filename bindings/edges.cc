// Finding edges in whole lists, those in files among them, for models with one row per edge. Ends are slots.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "gil.h"
#include "graph_arrays.h"
#include "livegnn/graph.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using namespace graph_arrays;

bool is_slot(const GraphStore& store, std::int64_t slot) { return slot >= 0 && slot < store.slot_count(); }

// Of each pair the edge with the id given, or the newest one: id (kNoEdge where there is none), weight and type.
// Without ids both ends must be live vertices; with them, an edge that was there may have gone with its ends.
std::tuple<Out1<std::int64_t>, Out1<float>, Out1<std::int32_t>> find_edges(const GraphStore& store, const Ids& src,
                                                                           const Ids& dst,
                                                                           const std::optional<Ids>& id) {
  check_lengths("edge_outputs", src.size(), dst.size(), "dst");
  if (id) check_lengths("edge_outputs", src.size(), id->size(), "id");
  std::vector<std::int64_t> ids(src.size());
  std::vector<float> weights(src.size());
  std::vector<std::int32_t> types(src.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t u = src.data()[i], v = dst.data()[i];
    if (!id) {
      checked_vertex(store, "edge_outputs", u);
      checked_vertex(store, "edge_outputs", v);
    }
    EdgeEntry found;
    if ((!id || id->data()[i] >= 0) && is_slot(store, u) && is_slot(store, v)) {
      found = store.newest_edge(static_cast<VertexId>(u), static_cast<VertexId>(v), id ? id->data()[i] : kNoEdge);
    }
    ids[i] = found.id;
    weights[i] = found.weight;
    types[i] = found.type;
  }
  return {make_array(std::move(ids)), make_array(std::move(weights)), make_array(std::move(types))};
}

// Attributes of edges that are there, (k, attr_width).
Out2<float> edge_attributes(const GraphStore& store, const Ids& ids) {
  const int width = store.options().attr_width;
  Out2<float> out = new_rows(ids.size(), width);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float* row = store.edge_attr(ids.data()[i]);
    invariant(row != nullptr, "an edge without its attributes");
    std::copy_n(row, width, out.data() + i * static_cast<std::size_t>(width));
  }
  return out;
}

Columns sorted_by_id(EdgeRun edges) {
  const auto key = [](const EdgeRecord& edge) { return std::tuple(edge.id, edge.src, edge.dst); };
  const auto same = [&](const EdgeRecord& a, const EdgeRecord& b) { return key(a) == key(b); };
  without_gil([&] {
    std::sort(edges.begin(), edges.end(), [&](const EdgeRecord& a, const EdgeRecord& b) { return key(a) < key(b); });
    edges.erase(std::unique(edges.begin(), edges.end(), same), edges.end());
    return 0;
  });
  return edge_arrays(edges);
}

// Every edge, in order of ids.
Columns edge_ends(const GraphStore& store) {
  EdgeRun edges = without_gil([&] {
    EdgeRun found;
    store.visit_edges([&](const EdgeRecord& edge) { found.push_back(edge); });
    return found;
  });
  return sorted_by_id(std::move(edges));
}

// The edges into and out of some vertices, each once, in order of ids; of undirected ones both directions.
Columns edges_at(const GraphStore& store, const Ids& slots) {
  EdgeRun found;
  for (const std::int64_t each : span_of(slots)) {
    invariant(is_slot(store, each), "edges were asked for at a slot that there is not");
    const auto v = static_cast<VertexId>(each);
    store.visit_out(v, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < span.count; ++i) found.push_back(EdgeRecord::of(v, span.entry(i)));
    });
    store.visit_in(v, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < span.count; ++i) {
        found.push_back(EdgeRecord::of(v, span.entry(i)));
        std::swap(found.back().src, found.back().dst);
      }
    });
  }
  return sorted_by_id(std::move(found));
}

}  // namespace

void bind_edges(nb::module_& m) {
  m.def("find_edges", &find_edges, "store"_a, array("src"), array("dst"), array("id").none() = nb::none());
  m.def("edge_attributes", &edge_attributes, "store"_a, array("ids"));
  m.def("edge_ends", &edge_ends, "store"_a);
  m.def("edges_at", &edges_at, "store"_a, array("slots"));
}

}  // namespace livegnn
