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

Answer::Arrays ad_hoc(const GraphStore& graph, const std::vector<OneHop>& hops, std::uint64_t seed, std::int64_t now,
                      const Ids& seeds, const std::vector<std::int32_t>& widths, bool sort_all, bool edge_ids,
                      bool edge_data, int threads) {
  std::vector<std::int32_t> fanouts;
  for (const OneHop& hop : hops) fanouts.push_back(hop.fanout);
  Answer answer(seeds, fanouts, widths, edge_ids, edge_data ? edge_columns_of(graph.options()) : EdgeColumns{});
  return answer.filled_by([&] {
    sample_ad_hoc(graph, hops, seed, now, sort_all, answer.request, threads);
    return graph.version();
  });
}

void bind_reservoirs(nb::module_& m) {
  nb::class_<Reservoirs, BatchFollower>(m, "Reservoirs")
      .def(
          "__init__",
          [](Reservoirs* self, const GraphStore& graph, std::uint64_t seed, int threads, bool features,
             bool track_changes, bool edge_data, const Flags& owned) {
            std::vector<std::uint8_t> buckets = vector_of(owned);
            invariant(buckets.empty() || buckets.size() == kBuckets, "flags of owned buckets of the wrong number");
            new (self) Reservoirs(graph, {seed, threads, features, track_changes, edge_data}, std::move(buckets));
          },
          "graph"_a, "seed"_a, "threads"_a, nb::kw_only(), "features"_a, "track_changes"_a, "edge_data"_a,
          "owned"_array, nb::keep_alive<1, 2>())
      .def("add_table", &Reservoirs::add_table, "query"_a, nb::call_guard<GilRelease>())
      .def("drop_table", &Reservoirs::drop_table, "table"_a, nb::call_guard<GilRelease>())
      .def("sample", &sample<Reservoirs>, "tables"_a, "seeds"_array, "widths"_a, nb::kw_only(), "edge_ids"_a,
           "edge_data"_a)
      .def("version", &Reservoirs::version)
      .def("now", &Reservoirs::now)
      .def("set_now", &Reservoirs::set_now, "now"_a)
      .def("refills", [](const Reservoirs& r) { return r.stats().refills; })
      .def("digest", &Reservoirs::digest, nb::call_guard<GilRelease>())
      .def("check_invariants", &Reservoirs::check_invariants, nb::call_guard<GilRelease>())
      .def("bytes", [](const Reservoirs& r) {
        using S = SamplingStats;
        return numbers_of<&S::rows_live, &S::rows_reserved, &S::pointers, &S::features, &S::edges, &S::expiry>(
            r.stats());
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
  m.def("sample_ad_hoc", &ad_hoc, "graph"_a, "hops"_a, "seed"_a, "now"_a, "seeds"_array, "widths"_a, nb::kw_only(),
        "sort_all"_a, "edge_ids"_a, "edge_data"_a, "threads"_a);
}

}  // namespace livegnn
