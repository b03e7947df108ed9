// FeatureIndex, RowCopier, ChangedRows, and attributes by edge id. Rows of a cache come as bytes, (n, row bytes) uint8,
// so that every dtype is one; the caller sees to it that ids, places and slots are within them.
#include "livegnn/feature_cache.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "data.h"
#include "gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = In<std::int64_t>;
using Slots = In<std::int32_t>;
using Rows = nb::ndarray<const std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using RowsOut = nb::ndarray<std::uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;

template <typename T>
std::span<const T> span_of(const In<T>& array) {
  return {array.data(), array.size()};
}

template <typename T>
Out<T> array_of(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Out<T>(kept->data(), {kept->size()}, owner);
}

std::tuple<std::int64_t, Out<std::int32_t>, Out<std::int64_t>, std::int64_t> lookup(FeatureIndex& index, const Ids& ids,
                                                                                    std::int64_t row_count,
                                                                                    RowCopier& threads) {
  std::vector<std::int32_t> places(ids.size());
  std::vector<std::int64_t> missed;
  std::int64_t bad = -1;
  {
    GilRelease release;
    bad = index.lookup(span_of(ids), row_count, places, threads);
    if (bad < 0) missed = index.missed();
  }
  return {bad, array_of(std::move(places)), array_of(std::move(missed)), index.missed_places()};
}

std::tuple<Out<std::int32_t>, std::int64_t> commit(FeatureIndex& index, const Slots& places,
                                                   std::int64_t admitted_max) {
  Admission done;
  {
    GilRelease release;
    done = index.commit(span_of(places), admitted_max);
  }
  return {array_of(std::move(done.slots)), done.evicted};
}

void check_rows(const Rows& rows, const RowsOut& out, std::size_t count) {
  invariant(rows.shape(1) == out.shape(1) && rows.shape(1) > 0, "rows of another width, or of none");
  invariant(out.shape(0) >= count, "fewer rows than are to be copied");
}

void gather(RowCopier& copier, const Rows& rows, const Ids& ids, const RowsOut& out) {
  check_rows(rows, out, ids.size());
  GilRelease release;
  copier.gather(rows.data(), rows.shape(1), span_of(ids), out.data());
}

void join(RowCopier& copier, const Rows& cached, const Rows& fresh, const Slots& places, const RowsOut& out) {
  check_rows(cached, out, places.size());
  invariant(fresh.shape(1) == out.shape(1), "rows of another width");
  GilRelease release;
  copier.join(cached.data(), fresh.data(), out.shape(1), span_of(places), out.data());
}

void scatter(RowCopier& copier, const Rows& fresh, const Slots& slots, const RowsOut& cached) {
  invariant(fresh.shape(1) == cached.shape(1) && fresh.shape(0) >= slots.size() && fresh.shape(1) > 0,
            "rows of another width, or too few");
  GilRelease release;
  copier.scatter(fresh.data(), cached.shape(1), span_of(slots), cached.data());
}

// ---- attributes by edge id

// The store knows which edges are in memory, not which are in a file.
[[noreturn]] void refuse_offloaded(const GraphStore& store, std::int64_t id) {
  throw Error(ErrorKind::EdgeOffloaded,
              {.where = "edge_attrs",
               .expected = "ids of edges in memory",
               .got = std::to_string(id) + ", which was removed, or is in a file with others from before " +
                      std::to_string(store.offloaded_before()),
               .advice = "reload the graph, or leave it out"});
}

void check_edge_there(const GraphStore& store, std::int64_t id, const float* attr) {
  const bool given = id >= 0 && id < store.next_edge_id();
  if (given && (attr != nullptr || store.options().attr_width == 0)) return;
  if (given && store.has_offloaded()) refuse_offloaded(store, id);
  throw Error(ErrorKind::EdgeMissing,
              {.where = "edge_attrs",
               .expected = "ids of edges that are there, below " + std::to_string(store.next_edge_id()) + " (version " +
                           std::to_string(store.version()) + ")",
               .got = std::to_string(id) + (given ? ", which was removed" : ""),
               .advice = given ? "leave it out" : "add the edge first"});
}

// (k, A). A graph without attributes gives rows of width 0, and does not know which edges were removed.
nb::ndarray<nb::numpy, float, nb::ndim<2>, nb::c_contig> edge_attrs(const GraphStore& store, const Ids& ids) {
  const auto width = static_cast<std::size_t>(store.options().attr_width);
  auto* rows = new std::vector<float>(ids.size() * width);
  nb::capsule owner(rows, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  {
    GilRelease release;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const float* attr = store.loaded_attr(ids.data()[i]);
      check_edge_there(store, ids.data()[i], attr);
      if (width > 0) std::memcpy(rows->data() + i * width, attr, width * sizeof(float));
    }
  }
  return {rows->data(), {ids.size(), width}, owner};
}

// (k,) 1 where the edge is there, in memory.
Out<std::uint8_t> edges_there(const GraphStore& store, const Ids& ids) {
  std::vector<std::uint8_t> there(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t id = ids.data()[i];
    const bool given = id >= 0 && id < store.next_edge_id();
    there[i] = given && (store.options().attr_width == 0 || store.loaded_attr(id) != nullptr);
  }
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
      .def("lookup", &lookup, nb::arg("ids").noconvert(), "row_count"_a, "threads"_a)
      .def("commit", &commit, nb::arg("places").noconvert(), "admitted_max"_a)
      .def(
          "find", [](const FeatureIndex& index, const Ids& ids) { return array_of(index.find(span_of(ids))); },
          nb::arg("ids").noconvert())
      .def(
          "drop", [](FeatureIndex& index, const Ids& ids) { return index.drop(span_of(ids)); },
          nb::arg("ids").noconvert())
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
          nb::arg("ids").noconvert(), nb::arg("uses").noconvert())
      .def("__len__", &FeatureIndex::size)
      .def("bytes", &FeatureIndex::bytes)
      .def("check_invariants", &FeatureIndex::check_invariants);
}

}  // namespace

void bind_feature_cache(nb::module_& m) {
  nb::class_<RowCopier>(m, "RowCopier", "Copies rows between arrays of bytes, by several threads.")
      .def(nb::init<int>(), "threads"_a)
      .def("gather", &gather, nb::arg("rows").noconvert(), nb::arg("ids").noconvert(), nb::arg("out").noconvert())
      .def("join", &join, nb::arg("cached").noconvert(), nb::arg("fresh").noconvert(), nb::arg("places").noconvert(),
           nb::arg("out").noconvert())
      .def("scatter", &scatter, nb::arg("fresh").noconvert(), nb::arg("slots").noconvert(),
           nb::arg("cached").noconvert());
  bind_index(m);
  m.def("edge_attrs", &edge_attrs, "graph"_a, nb::arg("ids").noconvert());
  m.def("edges_there", &edges_there, "graph"_a, nb::arg("ids").noconvert());
  nb::class_<ChangedRows, BatchFollower>(m, "ChangedRows", "What batches did to a graph's rows since they were taken.")
      .def(nb::init<const GraphStore&, bool>(), "graph"_a, "edges"_a, nb::keep_alive<1, 2>())
      .def("take", [](ChangedRows& changed) {
        ChangedRows::Taken taken = changed.take();
        return std::tuple(array_of(std::move(taken.ids)), array_of(std::move(taken.gone)));
      });
}

}  // namespace livegnn
