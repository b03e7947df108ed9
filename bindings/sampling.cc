// Reservoirs: tables of samples, and queries answered from them. Results are new arrays; everything but a look at a few
// numbers releases the GIL.
#include "livegnn/sampling.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <vector>

#include "bindings.h"
#include "sampling_arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

nb::tuple sample(Reservoirs& reservoirs, const std::vector<std::int32_t>& tables, const Ids& seeds,
                 const std::vector<std::int32_t>& widths, bool edge_ids) {
  std::vector<std::int32_t> fan_outs;
  for (const std::int32_t table : tables) fan_outs.push_back(reservoirs.query(table).fan_out);
  Answer answer(seeds, fan_outs, widths, edge_ids);
  answer.request.tables = tables;
  std::int64_t version = 0;
  {
    nb::gil_scoped_release release;
    version = reservoirs.sample(answer.request);
  }
  return answer.release(version);
}

OneHop one_hop(std::int32_t hop, std::int32_t edge_type, int direction, int by, std::int32_t fan_out,
               std::int64_t ttl) {
  invariant(hop >= 1 && direction >= 0 && direction <= 2 && by >= 0 && by <= 2, "a one-hop query of no known kind");
  invariant(fan_out >= 1 && fan_out <= kFanOutMax && ttl >= 0, "a one-hop query out of range");
  return {hop, edge_type, static_cast<HopDirection>(direction), static_cast<SampleBy>(by), fan_out, ttl};
}

using HopNumbers = std::array<std::int64_t, 6>;  // hop, edge type, direction, by, fan-out, ttl

nb::tuple ad_hoc(const GraphStore& graph, const std::vector<HopNumbers>& numbers, std::uint64_t seed, std::int64_t now,
                 bool sort_all, const Ids& seeds, const std::vector<std::int32_t>& widths, bool edge_ids, int threads) {
  std::vector<OneHop> hops;
  std::vector<std::int32_t> fan_outs;
  for (const HopNumbers& n : numbers) {
    hops.push_back(one_hop(static_cast<std::int32_t>(n[0]), static_cast<std::int32_t>(n[1]), static_cast<int>(n[2]),
                           static_cast<int>(n[3]), static_cast<std::int32_t>(n[4]), n[5]));
    fan_outs.push_back(hops.back().fan_out);
  }
  Answer answer(seeds, fan_outs, widths, edge_ids);
  {
    nb::gil_scoped_release release;
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
             bool track_changes, const Flags& owned) {
            std::vector<std::uint8_t> buckets(owned.data(), owned.data() + owned.size());
            invariant(buckets.empty() || buckets.size() == kBuckets, "flags of owned buckets of the wrong number");
            new (self) Reservoirs(graph, {seed, threads, features, track_changes}, std::move(buckets));
          },
          "graph"_a, "seed"_a, "threads"_a, "features"_a, "track_changes"_a, nb::arg("owned").noconvert(),
          nb::keep_alive<1, 2>())
      .def(
          "add_table",
          [](Reservoirs& r, std::int32_t hop, std::int32_t edge_type, int direction, int by, std::int32_t fan_out,
             std::int64_t ttl) {
            const OneHop query = one_hop(hop, edge_type, direction, by, fan_out, ttl);
            nb::gil_scoped_release release;
            return r.add_table(query);
          },
          "hop"_a, "edge_type"_a, "direction"_a, "by"_a, "fan_out"_a, "ttl"_a)
      .def("drop_table", &Reservoirs::drop_table, "table"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("sample", &sample, "tables"_a, nb::arg("seeds").noconvert(), "widths"_a, "edge_ids"_a)
      .def(
          "view",
          [](const Reservoirs& r, std::int32_t table, VertexId v) {
            const SampleView row = r.view(table, v);
            return nb::make_tuple(copied(row.neighbours), copied(row.edge_ids));
          },
          "table"_a, "vertex"_a, "Neighbours and edge ids of one sample; the caller keeps batches away.")
      .def("version", &Reservoirs::version)
      .def("now", &Reservoirs::now)
      .def("set_now", &Reservoirs::set_now, "now"_a)
      .def("refills", &Reservoirs::refills)
      .def("digest", &Reservoirs::digest, nb::call_guard<nb::gil_scoped_release>())
      .def("check_invariants", &Reservoirs::check_invariants, nb::call_guard<nb::gil_scoped_release>())
      .def("bytes", [](const Reservoirs& r) {
        const SamplingBytes b = r.bytes();
        nb::dict out;
        out["rows_live"] = b.rows_live;
        out["rows_reserved"] = b.rows_reserved;
        out["pointers"] = b.pointers;
        out["features"] = b.features;
        out["expiry"] = b.expiry;
        return out;
      });
}

}  // namespace

void bind_sampling(nb::module_& m) {
  bind_reservoirs(m);
  m.def("sample_ad_hoc", &ad_hoc, "graph"_a, "hops"_a, "seed"_a, "now"_a, "sort_all"_a, nb::arg("seeds").noconvert(),
        "widths"_a, "edge_ids"_a, "threads"_a);
}

}  // namespace livegnn
