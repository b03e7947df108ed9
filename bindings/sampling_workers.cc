// Partitions, subscriptions and serving tables. Reasons and pushes cross the border as tuples of arrays, in the order
// of their fields; everything but a look at a few numbers releases the GIL.
#include "livegnn/sampling_workers.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "data.h"
#include "gil.h"
#include "sampling_arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using Masks = In<std::uint64_t>;

// ---- across the border: structs of columns as tuples of arrays, in the order of their fields

using ReasonArrays = std::tuple<Numbers, Numbers, Numbers, Numbers>;
using PushArrays = std::tuple<Numbers, Numbers, Numbers, Numbers, Ids, Rows, Numbers, Numbers, Numbers, Rows, Numbers>;

template <typename Columns, typename Arrays>
Columns columns_of(const Arrays& arrays) {
  return std::apply([](const auto&... array) { return Columns{vector_of(array)...}; }, arrays);
}

auto give(const Reasons& reasons) {
  return std::tuple(array_of(reasons.table), array_of(reasons.vertex), array_of(reasons.serving),
                    array_of(reasons.change));
}

auto give(const Push& push, std::int32_t width, std::int32_t words) {
  return std::tuple(array_of(push.table), array_of(push.vertex), array_of(push.count), array_of(push.neighbours),
                    array_of(push.edge_ids), array_of(push.edge_rows, push.edge_ids.size(), words),
                    array_of(push.dropped_table), array_of(push.dropped), array_of(push.feature_vertex),
                    array_of(push.features, push.feature_vertex.size(), width), array_of(push.features_dropped));
}

// ---- partitions

std::tuple<UpdateBuffer, std::int64_t, std::int64_t> partition(const UpdateBuffer& batch, const Flags& owned,
                                                               EdgePolicy policy, std::int64_t next_edge_id,
                                                               bool attributes) {
  PartitionedUpdates part =
      without_gil([&] { return partition_updates(batch, span_of(owned), policy, next_edge_id, attributes); });
  return {std::move(part.buffer), part.next_edge_id, part.latest};
}

void bind_features(nb::module_& m) {
  nb::class_<FeatureRows>(m, "FeatureRows", "Features of some vertices, a row each.")
      .def(
          "__init__",
          [](FeatureRows* rows, std::int32_t width, const std::string& dtype) {
            new (rows) FeatureRows(width, dtype_named(dtype));
          },
          "width"_a, "dtype"_a)
      .def(
          "load",
          [](FeatureRows& rows, const Numbers& vertices, const Rows& values) {
            invariant(vertices.size() == values.shape(0), "rows of features for another number of vertices");
            for (std::size_t i = 0; i < vertices.size(); ++i) {
              rows.set(vertices.data()[i], {values.data() + i * values.shape(1), values.shape(1)});
            }
          },
          "vertices"_array, "rows"_array)
      .def(
          "follow",
          [](FeatureRows& rows, const UpdateBuffer& batch, const Flags& owned) {
            return array_of(rows.follow(batch, span_of(owned)));
          },
          "batch"_a, "owned"_array, "Applies a batch; the vertices whose features changed.")
      .def("arrays",
           [](const FeatureRows& rows) {
             const std::vector<VertexId> vertices = rows.vertices();
             const auto width = static_cast<std::size_t>(rows.width());
             NewArray<float> values({vertices.size(), width});
             for (std::size_t i = 0; i < vertices.size(); ++i) {
               const float* row = rows.find(vertices[i]);
               std::copy(row, row + width, values.data() + i * width);
             }
             return std::tuple(array_of(vertices), values.release());
           })
      .def("bytes", &FeatureRows::bytes);
}

// ---- subscriptions

void make_subscriptions(Subscriptions* place, const GraphStore& graph, const Reservoirs& reservoirs,
                        const FeatureRows& features, std::vector<SubscribedTable> tables,
                        const In<std::uint16_t>& owners, int worker, int workers) {
  new (place) Subscriptions(graph, reservoirs, features, std::move(tables), vector_of(owners), worker, workers);
}

void bind_subscriptions(nb::module_& m) {
  nb::class_<Subscriptions, BatchFollower>(m, "Subscriptions")
      .def("__init__", &make_subscriptions, "graph"_a, "reservoirs"_a, "features"_a, "tables"_a, "owners"_array,
           "worker"_a, "workers"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
      .def(
          "features_changed", [](Subscriptions& s, const Numbers& vertices) { s.features_changed(span_of(vertices)); },
          "vertices"_array)
      .def(
          "route", [](Subscriptions& s, const Masks& serving) { s.route(span_of(serving)); }, "serving"_array)
      .def(
          "take", [](Subscriptions& s, const ReasonArrays& reasons) { s.take(columns_of<Reasons>(reasons)); },
          "reasons"_a)
      .def("advance",
           [](Subscriptions& s) {
             const std::vector<Reasons> out = without_gil([&] { return s.advance(); });
             nb::typed<nb::list, decltype(give(Reasons{}))> given;
             for (const Reasons& reasons : out) given.append(nb::cast(give(reasons)));
             return given;
           })
      .def("finish", &Subscriptions::finish, nb::call_guard<GilRelease>())
      .def(
          "push",
          [](const Subscriptions& s, int serving, std::int32_t width, std::int32_t words) {
            return give(s.push(serving), width, words);
          },
          "serving"_a, "width"_a, "words"_a)
      .def_prop_ro("hops", &Subscriptions::hops)
      .def("counts", [](const Subscriptions& s) { return give(s.counts()); })
      .def(
          "restore",
          [](Subscriptions& s, const ReasonArrays& counts, const Masks& serving) {
            s.restore(columns_of<Reasons>(counts), span_of(serving));
          },
          "counts"_a, "serving"_array)
      .def("bytes", &Subscriptions::bytes);
}

// ---- serving

void apply(ServingTables& tables, const std::vector<PushArrays>& arrays, const Flags& seeds, std::int64_t version) {
  std::vector<Push> pushes;
  for (const PushArrays& each : arrays) pushes.push_back(columns_of<Push>(each));
  GilRelease release;
  tables.apply(pushes, span_of(seeds), version);
}

void bind_serving(nb::module_& m) {
  nb::class_<ServingTables>(m, "ServingTables")
      .def(nb::init<std::vector<std::int32_t>, std::int32_t, EdgeColumns>(), "fanouts"_a, "feature_width"_a,
           "edge_columns"_a)
      .def("apply", &apply, "pushes"_a, "seeds"_array, "version"_a)
      .def("sample", &sample<const ServingTables>, "tables"_a, "seeds"_array, "widths"_a, nb::kw_only(), "edge_ids"_a,
           "edge_data"_a)
      .def("version", &ServingTables::version)
      .def(
          "contents",
          [](const ServingTables& t, std::int32_t width) {
            return give(t.contents(), width, t.edge_columns().words());
          },
          "width"_a)
      .def("bytes", [](const ServingTables& t) {
        using B = ServingBytes;
        return numbers_of<&B::rows, &B::index, &B::features>(t.bytes());
      });
}

Out<std::int32_t> buckets(const Ids& vertices) {
  NewArray<std::int32_t> found({vertices.size()});
  for (std::size_t i = 0; i < vertices.size(); ++i) {
    const std::int64_t v = vertices.data()[i];
    found.data()[i] = v < 0 || v > INT32_MAX ? -1 : bucket_of(static_cast<VertexId>(v));
  }
  return found.release();
}

}  // namespace

void bind_sampling_workers(nb::module_& m) {
  m.attr("BUCKETS") = kBuckets;
  m.attr("SERVING_MAX") = kServingMax;
  bind_enum<EdgePolicy>(m, "EdgePolicy");
  using T = SubscribedTable;
  bind_struct<T, 2, &T::reservoir, &T::hop, &T::feeds, &T::seed_types>(m, "SubscribedTable");
  m.def("buckets", &buckets, "vertices"_array, "The bucket of each vertex, -1 for what is no id.");
  m.def("partition", &partition, "batch"_a, "owned"_array, nb::arg("policy").noconvert(), "next_edge_id"_a,
        nb::kw_only(), "attributes"_a,
        "What a partition takes of a batch, the next edge id after it, and its largest time.");
  nb::class_<BatchTap, BatchFollower>(m, "BatchTap")
      .def(nb::init<std::vector<std::int32_t>>(), "weighted_types"_a)
      .def("latest", [](const BatchTap& tap) { return UpdateBuffer(tap.latest()); });
  bind_features(m);
  bind_subscriptions(m);
  bind_serving(m);
}

}  // namespace livegnn
