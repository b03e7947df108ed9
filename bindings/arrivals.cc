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

Out<std::int64_t> column(const std::vector<EdgeEvent>& events, std::int64_t EdgeEvent::* field) {
  NewArray<std::int64_t> out({events.size()});
  std::ranges::transform(events, out.data(), field);
  return out.release();
}

// src, dst, time, id and type of the events, ids of the edges removed, slots of the vertices removed; and begins anew.
auto take(Arrivals& arrivals) {
  const std::vector<EdgeEvent>& events = arrivals.added();
  std::tuple taken(column(events, &EdgeEvent::src), column(events, &EdgeEvent::dst), column(events, &EdgeEvent::time),
                   column(events, &EdgeEvent::id), column(events, &EdgeEvent::type), array_of(arrivals.removed()),
                   array_of(arrivals.vertices()));
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
