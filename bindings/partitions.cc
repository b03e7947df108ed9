// Lists of neighbours, and parts for vertices of a stream.
#include "livegnn/partitions.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "bindings.h"
#include "data.h"
#include "gil.h"
#include "livegnn/error.h"
#include "sampling_arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using Parts = In<std::uint16_t>;
using Lists = std::tuple<Ids, Numbers, Numbers>;

auto lists(const Ids& src, const Ids& dst, std::int32_t vertices) {
  invariant(src.size() == dst.size() && vertices >= 0, "edges have two ends each");
  UndirectedLists made = without_gil([&] { return undirected_lists(span_of(src), span_of(dst), vertices); });
  return std::tuple(array_of(std::move(made.starts)), array_of(std::move(made.neighbours)),
                    array_of(std::move(made.counts)));
}

// The parts of all vertices and the loads after the last.
auto place(const StreamOptions& options, const Lists& lists, const Numbers& order, const Ids& weights,
           const Parts& parts, const Ids& loads) {
  const auto& [starts, neighbours, counts] = lists;
  const Stream stream{span_of(starts), span_of(neighbours), span_of(counts), span_of(order), span_of(weights)};
  std::vector<std::uint16_t> placed = vector_of(parts);
  std::vector<std::int64_t> followed = vector_of(loads);
  const auto rows = static_cast<std::int64_t>(starts.size()) - 1, all = static_cast<std::int64_t>(placed.size());
  invariant(rows >= 0 && rows <= all && counts.size() == neighbours.size(), "lists of other vertices");
  invariant(weights.size() == 0 || weights.size() == placed.size(), "weights of other vertices");
  invariant(std::ranges::all_of(stream.order, [&](std::int32_t v) { return v >= 0 && v < rows; }), "no such list");
  invariant(std::ranges::all_of(stream.neighbours, [&](std::int32_t v) { return v >= 0 && v < all; }), "no such end");
  const auto is_part = [&](std::uint16_t p) { return p == kNoPart || p < followed.size(); };
  invariant(!followed.empty() && std::ranges::all_of(placed, is_part), "no such part");
  without_gil([&] { place_vertices(options, stream, placed, followed); });
  return std::tuple(array_of(std::move(placed)), array_of(std::move(followed)));
}

}  // namespace

void bind_partitions(nb::module_& m) {
  m.attr("NO_PART") = kNoPart;
  bind_enum<StreamRule>(m, "StreamRule");
  using O = StreamOptions;
  bind_struct<O, 4, &O::rule, &O::slack, &O::edges_per_load, &O::expected>(m, "StreamOptions");
  m.def("undirected_lists", &lists, "src"_array, "dst"_array, "vertices"_a,
        "Starts, neighbours over both directions, and how many edges lead to each.");
  m.def("place_vertices", &place, "options"_a, "lists"_a, "order"_array, "weights"_array, "parts"_array, "loads"_array,
        "The parts of all vertices, those of the order placed one after the other, and the loads.");
}

}  // namespace livegnn
