#include "livegnn/arrivals.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "sampling_arrays.h"

namespace livegnn {
namespace {

Out<std::int64_t> copied(const std::vector<std::int64_t>& values) {
  NewArray<std::int64_t> out({values.size()});
  std::copy(values.begin(), values.end(), out.data());
  return out.release();
}

// src, dst, time, id and type of the events, ids of the edges removed, slots of the vertices removed; and begins anew.
using Int64 = Out<std::int64_t>;

std::tuple<Int64, Int64, Int64, Int64, Int64, Int64, Int64> take(Arrivals& arrivals) {
  const Events& events = arrivals.added();
  std::tuple taken(copied(events.src), copied(events.dst), copied(events.time), copied(events.id), copied(events.type),
                   copied(arrivals.removed()), copied(arrivals.vertices()));
  arrivals.clear();
  return taken;
}

}  // namespace

void bind_arrivals(nb::module_& m) {
  nb::class_<Arrivals, BatchFollower>(m, "Arrivals")
      .def(nb::init<const GraphStore&, std::vector<std::int32_t>>(), nb::arg("graph"),
           nb::arg("edge_types") = std::vector<std::int32_t>(), nb::keep_alive<1, 2>())
      .def("take", &take)
      .def("count", [](const Arrivals& arrivals) { return arrivals.added().size(); });
}

}  // namespace livegnn
