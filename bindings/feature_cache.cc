// FeatureIndex, RowCopier, ChangedRows, and attributes by edge id. Rows of a cache come as bytes, (n, row bytes) uint8,
// so that every dtype is one; the caller sees to it that ids, places and slots are within them.
#include "livegnn/feature_cache.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "data.h"
#include "gil.h"
#include "sampling_arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using ByteRows = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ByteRowsOut = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::tuple<std::int64_t, Out<std::int32_t>, Out<std::int64_t>, std::int64_t> lookup(FeatureIndex& index, const Ids& ids,
                                                                                    std::int64_t row_count,
                                                                                    RowCopier& threads) {
  std::vector<std::int32_t> places(ids.size());
  const std::int64_t bad = without_gil([&] { return index.lookup(span_of(ids), row_count, places, threads); });
  std::vector<std::int64_t> missed;
  if (bad < 0) missed = index.missed();
  return {bad, array_of(std::move(places)), array_of(std::move(missed)), index.missed_places()};
}

std::tuple<Out<std::int32_t>, std::int64_t> commit(FeatureIndex& index, const Numbers& places,
                                                   std::int64_t admitted_max) {
  Admission done = without_gil([&] { return index.commit(span_of(places), admitted_max); });
  return {array_of(std::move(done.slots)), done.evicted};
}

void check_rows(const ByteRows& rows, const ByteRowsOut& out, std::size_t count) {
  invariant(rows.shape(1) == out.shape(1) && rows.shape(1) > 0, "rows of another width, or of none");
  invariant(out.shape(0) >= count, "fewer rows than are to be copied");
}

void gather(RowCopier& copier, const ByteRows& rows, const Ids& ids, const ByteRowsOut& out) {
  check_rows(rows, out, ids.size());
  GilRelease release;
  copier.gather(rows.data(), rows.shape(1), span_of(ids), out.data());
}

void join(RowCopier& copier, const ByteRows& cached, const ByteRows& fresh, const Numbers& places,
          const ByteRowsOut& out) {
  check_rows(cached, out, places.size());
  invariant(fresh.shape(1) == out.shape(1), "rows of another width");
  GilRelease release;
  copier.join(cached.data(), fresh.data(), out.shape(1), span_of(places), out.data());
}

void scatter(RowCopier& copier, const ByteRows& fresh, const Numbers& slots, const ByteRowsOut& cached) {
  invariant(fresh.shape(1) == cached.shape(1) && fresh.shape(0) >= slots.size() && fresh.shape(1) > 0,
            "rows of another width, or too few");
  GilRelease release;
  copier.scatter(fresh.data(), cached.shape(1), span_of(slots), cached.data());
}

// ---- attributes by edge id

// Whether the edge is there, in memory. A graph without attributes does not know which edges were removed.
bool is_there(const GraphStore& store, std::int64_t id, const float* attr) {
  return id >= 0 && id < store.next_edge_id() && (attr != nullptr || store.options().attr_width == 0);
}

// The store knows which edges are in memory, not which are in a file.
[[noreturn]] void refuse_edge(const GraphStore& store, std::int64_t id) {
  const bool given = id >= 0 && id < store.next_edge_id();
  if (given && store.has_offloaded()) {
    throw Error(ErrorKind::EdgeOffloaded,
                {.where = "edge_attrs",
                 .expected = "ids of edges in memory",
                 .got = std::to_string(id) + ", which was removed, or is in a file with others from before " +
                        std::to_string(store.offloaded_before()),
                 .advice = "reload the graph, or leave it out"});
  }
  throw Error(ErrorKind::EdgeMissing,
              {.where = "edge_attrs",
               .expected = "ids of edges that are there, below " + std::to_string(store.next_edge_id()) + " (version " +
                           std::to_string(store.version()) + ")",
               .got = std::to_string(id) + (given ? ", which was removed" : ""),
               .advice = given ? "leave it out" : "add the edge first"});
}

// (k, A); A is 0 in a graph without attributes.
Out<float> edge_attrs(const GraphStore& store, const Ids& ids) {
  const auto width = static_cast<std::size_t>(store.options().attr_width);
  NewArray<float> rows({ids.size(), width});
  {
    GilRelease release;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const float* attr = store.loaded_attr(ids.data()[i]);
      if (!is_there(store, ids.data()[i], attr)) refuse_edge(store, ids.data()[i]);
      std::copy_n(attr, width, rows.data() + i * width);
    }
  }
  return rows.release();
}

// (k,) 1 where the edge is there, in memory.
Out<std::uint8_t> edges_there(const GraphStore& store, const Ids& ids) {
  std::vector<std::uint8_t> there(ids.size());
  std::ranges::transform(span_of(ids), there.begin(),
                         [&](std::int64_t id) { return is_there(store, id, store.loaded_attr(id)); });
  return array_of(std::move(there));
}

void bind_index(nb::module_& m) {
  bind_enum<CachePolicy>(m, "CachePolicy");
  nb::class_<FeatureIndex>(m, "FeatureIndex", "Which ids are cached in which slots; the caller holds the lock.")
      .def(
          "__init__",
          [](FeatureIndex* self, CachePolicy policy, std::int32_t capacity, bool dense) {
            invariant(capacity >= 1, "a cache without room");
            new (self) FeatureIndex(policy, capacity, dense);
          },
          nb::arg("policy").noconvert(), "capacity"_a, "dense"_a)
      .def("lookup", &lookup, "ids"_array, "row_count"_a, "threads"_a)
      .def("commit", &commit, "places"_array, "admitted_max"_a)
      .def(
          "find", [](const FeatureIndex& index, const Ids& ids) { return array_of(index.find(span_of(ids))); },
          "ids"_array)
      .def(
          "drop", [](FeatureIndex& index, const Ids& ids) { return index.drop(span_of(ids)); }, "ids"_array)
      .def("contents",
           [](const FeatureIndex& index) {
             CacheContents found = index.contents();
             return std::tuple(array_of(std::move(found.ids)), array_of(std::move(found.uses)));
           })
      .def(
          "install",
          [](FeatureIndex& index, const Ids& ids, const Ids& uses) {
            return array_of(index.install(span_of(ids), span_of(uses)));
          },
          "ids"_array, "uses"_array)
      .def("__len__", &FeatureIndex::size)
      .def("bytes", &FeatureIndex::bytes)
      .def("check_invariants", &FeatureIndex::check_invariants);
}

}  // namespace

void bind_feature_cache(nb::module_& m) {
  nb::class_<RowCopier>(m, "RowCopier", "Copies rows between arrays of bytes, by several threads.")
      .def(nb::init<int>(), "threads"_a)
      .def("gather", &gather, "rows"_array, "ids"_array, "out"_array)
      .def("join", &join, "cached"_array, "fresh"_array, "places"_array, "out"_array)
      .def("scatter", &scatter, "fresh"_array, "slots"_array, "cached"_array);
  bind_index(m);
  m.def("edge_attrs", &edge_attrs, "graph"_a, "ids"_array);
  m.def("edges_there", &edges_there, "graph"_a, "ids"_array);
  nb::class_<ChangedRows, BatchFollower>(m, "ChangedRows", "What batches did to a graph's rows since they were taken.")
      .def(nb::init<const GraphStore&, bool>(), "graph"_a, "edges"_a, nb::keep_alive<1, 2>())
      .def("take", [](ChangedRows& changed) {
        RowChanges taken = changed.take();
        return std::tuple(array_of(std::move(taken.ids)), array_of(std::move(taken.gone)));
      });
}

}  // namespace livegnn
