// Reservoirs: tables of samples, and queries answered from them. Results are new arrays; everything but a look at a few
// numbers releases the GIL.
#include "livegnn/sampling.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings.h"
#include "data.h"
#include "gil.h"
#include "sampling_arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

Answer::Arrays sample(Reservoirs& reservoirs, const std::vector<std::int32_t>& tables, const Ids& seeds,
                      const std::vector<std::int32_t>& widths, bool edge_ids, bool edge_data) {
  std::vector<std::int32_t> fanouts;
  for (const std::int32_t table : tables) fanouts.push_back(reservoirs.query(table).fanout);
  Answer answer(seeds, fanouts, widths, edge_ids, edge_data ? reservoirs.edge_columns() : EdgeColumns{}, true);
  answer.request.tables = tables;
  std::int64_t version = 0;
  {
    GilRelease release;
    version = reservoirs.sample(answer.request);
  }
  return answer.release(version);
}

void check(const OneHop& hop) {
  invariant(hop.hop >= 1 && hop.fanout >= 1 && hop.fanout <= kFanoutMax && hop.ttl >= 0,
            "a one-hop query out of range");
}

Answer::Arrays ad_hoc(const GraphStore& graph, const std::vector<OneHop>& hops, std::uint64_t seed, std::int64_t now,
                      const Ids& seeds, const std::vector<std::int32_t>& widths, bool sort_all, bool edge_ids,
                      bool edge_data, int threads) {
  std::vector<std::int32_t> fanouts;
  for (const OneHop& hop : hops) {
    check(hop);
    fanouts.push_back(hop.fanout);
  }
  Answer answer(seeds, fanouts, widths, edge_ids, edge_data ? edge_columns_of(graph.options()) : EdgeColumns{});
  {
    GilRelease release;
    sample_ad_hoc(graph, hops, seed, now, sort_all ? AdHocMethod::SortAll : AdHocMethod::Index, answer.request,
                  threads);
  }
  return answer.release(graph.version());
}

void bind_reservoirs(nb::module_& m) {
  nb::class_<Reservoirs, BatchFollower>(m, "Reservoirs")
      .def(
          "__init__",
          [](Reservoirs* self, const GraphStore& graph, std::uint64_t seed, int threads, bool features,
             bool track_changes, bool edge_data, const Flags& owned) {
            std::vector<std::uint8_t> buckets(owned.data(), owned.data() + owned.size());
            invariant(buckets.empty() || buckets.size() == kBuckets, "flags of owned buckets of the wrong number");
            new (self) Reservoirs(graph, {seed, threads, features, track_changes, edge_data}, std::move(buckets));
          },
          "graph"_a, "seed"_a, "threads"_a, nb::kw_only(), "features"_a, "track_changes"_a, "edge_data"_a,
          nb::arg("owned").noconvert(), nb::keep_alive<1, 2>())
      .def(
          "add_table",
          [](Reservoirs& r, const OneHop& query) {
            check(query);
            GilRelease release;
            return r.add_table(query);
          },
          "query"_a)
      .def("drop_table", &Reservoirs::drop_table, "table"_a, nb::call_guard<GilRelease>())
      .def("sample", &sample, "tables"_a, nb::arg("seeds").noconvert(), "widths"_a, nb::kw_only(), "edge_ids"_a,
           "edge_data"_a)
      .def(
          "view",
          [](const Reservoirs& r, std::int32_t table, VertexId v) {
            const SampleView row = r.view(table, v);
            return std::tuple(copied(row.neighbours), copied(row.edge_ids));
          },
          "table"_a, "vertex"_a, "Neighbours and edge ids of one sample; the caller keeps batches away.")
      .def("version", &Reservoirs::version)
      .def("now", &Reservoirs::now)
      .def("set_now", &Reservoirs::set_now, "now"_a)
      .def("refills", &Reservoirs::refills)
      .def("digest", &Reservoirs::digest, nb::call_guard<GilRelease>())
      .def("check_invariants", &Reservoirs::check_invariants, nb::call_guard<GilRelease>())
      .def("bytes", [](const Reservoirs& r) {
        const SamplingBytes b = r.bytes();
        nb::typed<nb::dict, nb::str, std::size_t> out;
        out["rows_live"] = b.rows_live;
        out["rows_reserved"] = b.rows_reserved;
        out["pointers"] = b.pointers;
        out["features"] = b.features;
        out["edges"] = b.edges;
        out["expiry"] = b.expiry;
        return out;
      });
}

}  // namespace

void bind_sampling(nb::module_& m) {
  bind_enum<SampleBy>(m, "SampleBy");
  bind_enum<HopDirection>(m, "HopDirection");
  bind_struct<OneHop, 4, &OneHop::hop, &OneHop::direction, &OneHop::by, &OneHop::fanout, &OneHop::edge_type,
              &OneHop::ttl>(m, "OneHop");
  bind_struct<EdgeColumns, 0, &EdgeColumns::weight, &EdgeColumns::time, &EdgeColumns::attr_width>(m, "EdgeColumns");
  bind_reservoirs(m);
  m.def("sample_ad_hoc", &ad_hoc, "graph"_a, "hops"_a, "seed"_a, "now"_a, nb::arg("seeds").noconvert(), "widths"_a,
        nb::kw_only(), "sort_all"_a, "edge_ids"_a, "edge_data"_a, "threads"_a);
}

}  // namespace livegnn
