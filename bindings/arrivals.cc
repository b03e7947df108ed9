#include "livegnn/arrivals.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "bindings.h"
#include "graph_arrays.h"

namespace livegnn {
namespace {

namespace nb = nanobind;
using graph_arrays::make_array;

// src, dst, time, id and type of the events, ids of the edges removed, slots of the vertices removed; and begins anew.
auto take(Arrivals& arrivals) {
  const Events& events = arrivals.added();
  std::tuple taken(make_array(events.src), make_array(events.dst), make_array(events.time), make_array(events.id),
                   make_array(events.type), make_array(arrivals.removed()), make_array(arrivals.vertices()));
  arrivals.clear();
  return taken;
}

}  // namespace

void bind_arrivals(nanobind::module_& m) {
  nb::class_<Arrivals, BatchFollower>(m, "Arrivals")
      .def(nb::init<const GraphStore&, std::vector<std::int32_t>>(), nb::arg("graph"),
           nb::arg("edge_types") = std::vector<std::int32_t>(), nb::keep_alive<1, 2>())
      .def("take", &take)
      .def("count", [](const Arrivals& arrivals) { return arrivals.added().size(); });
}

}  // namespace livegnn
