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

using Numbers = In<std::int32_t>;
using Masks = In<std::uint64_t>;

// ---- across the border

using ReasonArrays = std::tuple<Numbers, Numbers, Numbers, Numbers>;

void check_equal(bool equal) { invariant(equal, "arrays of one message differ in length"); }

Reasons reasons_of(const ReasonArrays& arrays) {
  const auto& [table, vertex, serving, change] = arrays;
  check_equal(table.size() == vertex.size() && table.size() == serving.size() && table.size() == change.size());
  return {vector_of(table), vector_of(vertex), vector_of(serving), vector_of(change)};
}

using GivenNumbers = Out<std::int32_t>;
using GivenReasons = std::tuple<GivenNumbers, GivenNumbers, GivenNumbers, GivenNumbers>;

GivenReasons give(const Reasons& reasons) {
  return {copied<std::int32_t>(reasons.table), copied<std::int32_t>(reasons.vertex),
          copied<std::int32_t>(reasons.serving), copied<std::int32_t>(reasons.change)};
}

using PushArrays = std::tuple<Numbers, Numbers, Numbers, Numbers, Ids, Rows, Numbers, Numbers, Numbers, Rows, Numbers>;

Push push_of(const PushArrays& arrays) {
  const auto& [table, vertex, count, neighbours, edge_ids, edge_rows, dropped_table, dropped, feature_vertex, features,
               gone] = arrays;
  check_equal(table.size() == vertex.size() && table.size() == count.size());
  check_equal(dropped_table.size() == dropped.size() && feature_vertex.size() == features.shape(0));
  check_equal(neighbours.size() == edge_ids.size() && edge_ids.size() == edge_rows.shape(0));
  return {vector_of(table),
          vector_of(vertex),
          vector_of(count),
          vector_of(neighbours),
          vector_of(edge_ids),
          {edge_rows.data(), edge_rows.data() + edge_rows.size()},
          vector_of(dropped_table),
          vector_of(dropped),
          vector_of(feature_vertex),
          {features.data(), features.data() + features.size()},
          vector_of(gone)};
}

using GivenPush = std::tuple<GivenNumbers, GivenNumbers, GivenNumbers, GivenNumbers, Out<std::int64_t>, Out<float>,
                             GivenNumbers, GivenNumbers, GivenNumbers, Out<float>, GivenNumbers>;

Out<float> rows_of(const std::vector<float>& values, std::size_t rows, std::int32_t width) {
  NewArray<float> array({rows, static_cast<std::size_t>(width)});
  std::copy(values.begin(), values.end(), array.data());
  return array.release();
}

GivenPush give(const Push& push, std::int32_t width, std::int32_t words) {
  return {copied<std::int32_t>(push.table),           copied<std::int32_t>(push.vertex),
          copied<std::int32_t>(push.count),           copied<std::int32_t>(push.neighbours),
          copied<std::int64_t>(push.edge_ids),        rows_of(push.edge_rows, push.edge_ids.size(), words),
          copied<std::int32_t>(push.dropped_table),   copied<std::int32_t>(push.dropped),
          copied<std::int32_t>(push.feature_vertex),  rows_of(push.features, push.feature_vertex.size(), width),
          copied<std::int32_t>(push.features_dropped)};
}

// ---- partitions

std::tuple<UpdateBuffer, std::int64_t, std::int64_t> partition(const UpdateBuffer& batch, const Flags& owned,
                                                               EdgePolicy policy, std::int64_t next_edge_id,
                                                               bool attributes) {
  PartitionedUpdates part;
  {
    GilRelease release;
    part = partition_updates(batch, {owned.data(), owned.size()}, policy, next_edge_id, attributes);
  }
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
      .def_prop_ro("width", &FeatureRows::width)
      .def("__len__", &FeatureRows::count)
      .def(
          "load",
          [](FeatureRows& rows, const Numbers& vertices, const Rows& values) {
            check_equal(vertices.size() == values.shape(0));
            for (std::size_t i = 0; i < vertices.size(); ++i) {
              rows.set(vertices.data()[i], {values.data() + i * values.shape(1), values.shape(1)});
            }
          },
          nb::arg("vertices").noconvert(), nb::arg("rows").noconvert())
      .def(
          "follow",
          [](FeatureRows& rows, const UpdateBuffer& batch, const Flags& owned) {
            return copied<std::int32_t>(rows.follow(batch, {owned.data(), owned.size()}));
          },
          "batch"_a, nb::arg("owned").noconvert(), "Applies a batch; the vertices whose features changed.")
      .def("arrays",
           [](const FeatureRows& rows) {
             const std::vector<VertexId> vertices = rows.vertices();
             const auto width = static_cast<std::size_t>(rows.width());
             NewArray<float> values({vertices.size(), width});
             for (std::size_t i = 0; i < vertices.size(); ++i) {
               const float* row = rows.find(vertices[i]);
               std::copy(row, row + width, values.data() + i * width);
             }
             return std::tuple(copied<std::int32_t>(vertices), values.release());
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
      .def("__init__", &make_subscriptions, "graph"_a, "reservoirs"_a, "features"_a, "tables"_a,
           nb::arg("owners").noconvert(), "worker"_a, "workers"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
           nb::keep_alive<1, 4>())
      .def(
          "features_changed",
          [](Subscriptions& s, const Numbers& vertices) { s.features_changed({vertices.data(), vertices.size()}); },
          nb::arg("vertices").noconvert())
      .def(
          "route", [](Subscriptions& s, const Masks& serving) { s.route({serving.data(), serving.size()}); },
          nb::arg("serving").noconvert())
      .def(
          "take", [](Subscriptions& s, const ReasonArrays& reasons) { s.take(reasons_of(reasons)); }, "reasons"_a)
      .def("advance",
           [](Subscriptions& s) {
             std::vector<Reasons> out;
             {
               GilRelease release;
               out = s.advance();
             }
             nb::typed<nb::list, GivenReasons> given;
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
            s.restore(reasons_of(counts), {serving.data(), serving.size()});
          },
          "counts"_a, nb::arg("serving").noconvert())
      .def("bytes", &Subscriptions::bytes);
}

// ---- serving

Answer::Arrays sample(const ServingTables& tables, const std::vector<std::int32_t>& numbers, const Ids& seeds,
                      const std::vector<std::int32_t>& widths, bool edge_ids, bool edge_data) {
  const std::vector<std::int32_t> all = tables.fanouts();
  std::vector<std::int32_t> fanouts;
  for (const std::int32_t number : numbers) {
    invariant(number >= 0 && static_cast<std::size_t>(number) < all.size(), "a table of samples that is not there");
    fanouts.push_back(all[static_cast<std::size_t>(number)]);
  }
  Answer answer(seeds, fanouts, widths, edge_ids, edge_data ? tables.edge_columns() : EdgeColumns{});
  answer.request.tables = numbers;
  std::int64_t version = 0;
  {
    GilRelease release;
    version = tables.sample(answer.request);
  }
  return answer.release(version);
}

void apply(ServingTables& tables, const std::vector<PushArrays>& arrays, const Flags& seeds, std::int64_t version) {
  std::vector<Push> pushes;
  for (const PushArrays& each : arrays) pushes.push_back(push_of(each));
  GilRelease release;
  tables.apply(pushes, {seeds.data(), seeds.size()}, version);
}

void bind_serving(nb::module_& m) {
  nb::class_<ServingTables>(m, "ServingTables")
      .def(nb::init<std::vector<std::int32_t>, std::int32_t, EdgeColumns>(), "fanouts"_a, "feature_width"_a,
           "edge_columns"_a)
      .def("apply", &apply, "pushes"_a, nb::arg("seeds").noconvert(), "version"_a)
      .def("sample", &sample, "tables"_a, nb::arg("seeds").noconvert(), "widths"_a, nb::kw_only(), "edge_ids"_a,
           "edge_data"_a)
      .def("version", &ServingTables::version)
      .def(
          "contents",
          [](const ServingTables& t, std::int32_t width) {
            return give(t.contents(), width, t.edge_columns().words());
          },
          "width"_a)
      .def("bytes", [](const ServingTables& t) {
        const ServingBytes b = t.bytes();
        nb::typed<nb::dict, nb::str, std::size_t> out;
        out["rows"] = b.rows;
        out["index"] = b.index;
        out["features"] = b.features;
        return out;
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
  m.def("buckets", &buckets, nb::arg("vertices").noconvert(), "The bucket of each vertex, -1 for what is no id.");
  m.def("partition", &partition, "batch"_a, nb::arg("owned").noconvert(), nb::arg("policy").noconvert(),
        "next_edge_id"_a, nb::kw_only(), "attributes"_a,
        "What a partition takes of a batch, the next edge id after it, and its largest time.");
  nb::class_<BatchTap, BatchFollower>(m, "BatchTap")
      .def(nb::init<std::vector<std::int32_t>>(), "weighted_types"_a)
      .def("latest", [](const BatchTap& tap) { return UpdateBuffer(tap.latest()); });
  bind_features(m);
  bind_subscriptions(m);
  bind_serving(m);
}

}  // namespace livegnn
