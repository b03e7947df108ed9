// What explanations read of an engine (livegnn/explain.h), as arrays.
#include "livegnn/explain.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "gil.h"
#include "graph_arrays.h"
#include "livegnn/engine.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using namespace graph_arrays;

using OldRows = std::tuple<int, Out1<std::int64_t>, Out2<float>>;  // a number, slots, and their rows

Out2<std::int64_t> words(std::vector<std::int64_t> values, std::size_t rows, int stride) {
  return give<Out2<std::int64_t>>(std::move(values), {rows, static_cast<std::size_t>(stride)});
}

Columns records(const EdgeRun& edges) {
  Columns out = edge_arrays(edges);
  out["weight"] = make_array(column_of<float>(edges, &EdgeRecord::weight));
  out["type"] = make_array(column_of<std::int32_t>(edges, &EdgeRecord::type));
  return out;
}

OldRows rows_of(const ReplacedRows& replaced) {
  std::vector<std::int64_t> slots(replaced.vertices.begin(), replaced.vertices.end());
  const std::size_t count = slots.size();
  return {replaced.number, make_array(std::move(slots)),
          give<Out2<float>>(std::vector<float>(replaced.rows), {count, static_cast<std::size_t>(replaced.width)})};
}

std::vector<OldRows> all_rows_of(const std::vector<ReplacedRows>& tables) {
  std::vector<OldRows> out;
  for (const ReplacedRows& replaced : tables) out.push_back(rows_of(replaced));
  return out;
}

using Replaced = nb::typed<nb::dict, nb::str, nb::any>;

std::optional<Replaced> recorded(const Engine& engine) {
  const BatchRecord record = engine.recorded();
  if (!record.sound) return std::nullopt;
  Replaced out;
  out["tables"] = all_rows_of(record.tables);
  out["contexts"] = all_rows_of(record.contexts);
  out["features"] = rows_of(record.features);
  out["added"] = records(record.added);
  out["removed"] = records(record.removed);
  Columns reweighted = records(column_of<EdgeRecord>(record.reweighted, &EdgeReweighted::before));
  reweighted["weight_after"] = make_array(column_of<float>(record.reweighted, &EdgeReweighted::weight_after));
  out["reweighted"] = reweighted;
  return out;
}

std::optional<Out2<std::int64_t>> terms(const Engine& engine, int k, const Rows& messages, const Row& factors,
                                        const Row& weights, const Rows& scores, const Row& shift) {
  const std::size_t count = messages.shape(0);
  const int stride = engine.aggregate_stride(k);
  std::vector<std::int64_t> out(count * static_cast<std::size_t>(stride));
  const TermOperands given{count,
                           {messages.data(), messages.size()},
                           span_of(factors),
                           span_of(weights),
                           {scores.data(), scores.size()},
                           span_of(shift)};
  if (!engine.terms(k, given, out.data())) return std::nullopt;
  return words(std::move(out), count, stride);
}

}  // namespace

void bind_explain(nb::class_<Engine>& engine) {
  engine
      .def(
          "stored_rows",
          [](const Engine& e, int table, const Ids& slots, int width) {
            Out2<float> out = new_rows(slots.size(), width);
            e.stored_rows(table, span_of(slots), out.data());
            return out;
          },
          "table"_a, nb::arg("slots").noconvert(), "width"_a)
      .def(
          "factors",
          [](const Engine& e, int context, const Ids& slots) {
            Out2<float> out = new_rows(slots.size(), 2);
            e.factors(context, span_of(slots), out.data());
            return out;
          },
          "context"_a, nb::arg("slots").noconvert())
      .def(
          "aggregate_rows",
          [](const Engine& e, int k, const Ids& slots) {
            const int stride = e.aggregate_stride(k);
            std::vector<std::int64_t> out(slots.size() * static_cast<std::size_t>(stride));
            e.aggregate_rows(k, span_of(slots), out.data());
            return words(std::move(out), slots.size(), stride);
          },
          "k"_a, nb::arg("slots").noconvert())
      .def("terms", &terms, "k"_a, array("messages"), array("factors"), array("weights"), array("scores"),
           array("shift"))
      .def(
          "edge_terms",
          [](const Engine& e, int k, std::int64_t slot, int width) {
            EdgeTerms found = e.edge_terms(k, static_cast<VertexId>(slot));
            const std::size_t count = found.edges.size();
            return std::tuple(records(found.edges),
                              give<Out2<float>>(std::move(found.messages), {count, static_cast<std::size_t>(width)}));
          },
          "k"_a, "slot"_a, "width"_a)
      .def(
          "record", [](Engine& e, const std::vector<int>& tables, bool on) { e.record(tables, on); }, "tables"_a,
          "on"_a)
      .def("recorded", &recorded);
}

}  // namespace livegnn
