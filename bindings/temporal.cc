// TemporalSampler and its pins. The arrays of a hop are views of one buffer, which goes back to the sampler when the
// last of them is gone.
#include "livegnn/temporal.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
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

struct HeldBuffer {
  std::shared_ptr<TemporalBuffers> buffers;
  TemporalBuffers::Buffer buffer;
};

using Int64s = Out<std::int64_t>;

// In the order of TemporalHop's fields; the last three only of graphs that have them.
using Hop = std::tuple<Int64s, Int64s, Int64s, Int64s, Int64s, Int64s, Int64s, Int64s, Int64s, std::optional<Int64s>,
                       std::optional<Int64s>, std::optional<Out<float>>>;

Hop hop_arrays(TemporalHopArrays& hop, const GraphOptions& has, const std::shared_ptr<TemporalBuffers>& buffers) {
  auto held = std::make_unique<HeldBuffer>(HeldBuffer{buffers, std::move(hop.memory)});
  nb::capsule owner(held.get(), [](void* p) noexcept {
    const std::unique_ptr<HeldBuffer> last(static_cast<HeldBuffer*>(p));
    last->buffers->give(std::move(last->buffer));
  });
  held.release();
  const auto array = [&owner](std::span<std::int64_t> values) { return Int64s(values.data(), {values.size()}, owner); };
  const Int64s edge_index(hop.edge_index.data(), {2, hop.edge_index.size() / 2}, owner);
  return {array(hop.targets),
          array(hop.target_times),
          array(hop.ptr),
          array(hop.src),
          array(hop.edge_ids),
          array(hop.times),
          edge_index,
          array(hop.next_targets),
          array(hop.next_times),
          has.type_widths.empty() ? std::nullopt : std::optional(array(hop.next_types)),
          has.has_type ? std::optional(array(hop.edge_types)) : std::nullopt,
          has.has_weight ? std::optional(Out<float>(hop.weights.data(), {hop.src.size()}, owner)) : std::nullopt};
}

nb::typed<nb::list, Hop> sample_hops(TemporalSampler& sampler, const Ids& vertices, const Ids& times,
                                     std::uint64_t call, std::int32_t snapshot, const TemporalPin* pin) {
  invariant(vertices.size() == times.size(), "targets and times of different lengths");
  std::vector<TemporalHopArrays> hops =
      without_gil([&] { return sampler.sample(span_of(vertices), span_of(times), call, snapshot, pin); });
  nb::typed<nb::list, Hop> out;
  for (TemporalHopArrays& hop : hops) {
    out.append(nb::cast(hop_arrays(hop, sampler.graph().options(), sampler.buffers())));
  }
  return out;
}

Hop sample_rows(TemporalSampler& sampler, const Ids& vertices, const Ids& times, const Ids& rows, std::size_t hop,
                std::uint64_t call, std::int32_t snapshot) {
  invariant(vertices.size() == times.size() && vertices.size() == rows.size(), "targets of different lengths");
  TemporalHopArrays made = without_gil(
      [&] { return sampler.sample_rows(span_of(vertices), span_of(times), span_of(rows), {hop, call, snapshot}); });
  return hop_arrays(made, sampler.graph().options(), sampler.buffers());
}

std::tuple<Int64s, Int64s, Int64s> walks(TemporalSampler& sampler, const Ids& vertices, const Ids& times,
                                         std::int64_t length, std::uint64_t call, const TemporalPin* pin) {
  invariant(vertices.size() == times.size() && length >= 1, "walks of no length, or without a time each");
  TemporalWalkArrays made =
      without_gil([&] { return sampler.walks(span_of(vertices), span_of(times), length, call, pin); });
  const std::size_t rows = vertices.size();
  return {array_of(std::move(made.vertices), rows, length + 1), array_of(std::move(made.times), rows, length),
          array_of(std::move(made.edge_ids), rows, length)};
}

Out<float> pinned_features(const TemporalPin& pin, const Ids& slots, std::size_t width) {
  NewArray<float> rows({slots.size(), width});
  for (std::size_t row = 0; row < slots.size(); ++row) {
    const std::int64_t v = slots.data()[row];
    if (!pin.is_live(v)) {
      throw Error(ErrorKind::VertexUnknown, {.where = "features",
                                             .expected = "vertices of version " + std::to_string(pin.version()),
                                             .got = std::to_string(v) + " at row " + std::to_string(row),
                                             .advice = "read the graph for newer ones",
                                             .vertex = v});
    }
    pin.read_features(static_cast<VertexId>(v), rows.data() + row * width, static_cast<std::int32_t>(width));
  }
  return rows.release();
}

Out<float> pinned_attrs(const TemporalPin& pin, const Ids& edges, std::size_t width) {
  NewArray<float> rows({edges.size(), width});
  for (std::size_t row = 0; row < edges.size(); ++row) {
    const float* found = pin.edge_attr(edges.data()[row]);
    if (found == nullptr) {
      throw Error(ErrorKind::EdgeMissing, {.where = "edge_attrs",
                                           .expected = "edges of version " + std::to_string(pin.version()),
                                           .got = std::to_string(edges.data()[row]) + " at row " + std::to_string(row),
                                           .advice = "leave it out"});
    }
    std::copy(found, found + width, rows.data() + row * width);
  }
  return rows.release();
}

Out<float> event_weights(const GraphStore& graph, const Ids& dst, const Ids& time, const Ids& ids,
                         const TemporalPin* pin) {
  invariant(dst.size() == ids.size() && time.size() == ids.size(), "edges without a destination and time each");
  NewArray<float> weights({ids.size()});
  read_event_weights(graph, span_of(dst), span_of(time), span_of(ids), pin, weights.data());
  return weights.release();
}

// Of slots that are live in the pinned version.
Out<std::int32_t> pinned_types(const TemporalPin& pin, const Ids& slots) {
  NewArray<std::int32_t> types({slots.size()});
  std::ranges::transform(span_of(slots), types.data(), [&](std::int64_t v) { return pin.vertex_type(v); });
  return types.release();
}

// 1 where the pin keeps a row of its own; nothing where it keeps none.
Out<std::uint8_t> kept_rows(const TemporalPin& pin, const Ids& ids, bool edges) {
  if (!pin.keeps_rows()) return NewArray<std::uint8_t>({0}).release();
  NewArray<std::uint8_t> kept({ids.size()});
  std::ranges::transform(span_of(ids), kept.data(), [&](std::int64_t id) { return pin.keeps_row(id, edges); });
  return kept.release();
}

}  // namespace

void bind_temporal(nb::module_& m) {
  m.def("row_without_time", [](const Ids& times) { return row_without_time(span_of(times)); }, "times"_array);
  nb::class_<TemporalPin, BatchFollower>(m, "TemporalPin")
      .def(nb::init<const GraphStore&>(), "graph"_a, nb::keep_alive<1, 2>())
      .def_prop_ro("version", &TemporalPin::version)
      .def("features", &pinned_features, "slots"_array, "width"_a)
      .def("edge_attrs", &pinned_attrs, "edges"_array, "width"_a)
      .def("types", &pinned_types, "slots"_array)
      .def("kept", &kept_rows, "ids"_array, "edges"_a)
      .def("bytes", &TemporalPin::bytes);
  m.def("event_weights", &event_weights, "graph"_a, "dst"_array, "time"_array, "ids"_array, "pin"_a = nb::none());
  bind_enum<TemporalBy>(m, "TemporalBy");
  using O = TemporalOptions;
  bind_struct<O, 2, &O::fan_outs, &O::by, &O::inclusive, &O::window, &O::snapshots, &O::prop_time, &O::replace,
              &O::unique, &O::edge_types, &O::seed, &O::threads>(m, "TemporalOptions");
  nb::class_<TemporalSampler>(m, "TemporalSampler")
      .def(nb::init<const GraphStore&, TemporalOptions>(), "graph"_a, "options"_a, nb::keep_alive<1, 2>())
      .def("sample", &sample_hops, "vertices"_array, "times"_array, "call"_a, "snapshot"_a, "pin"_a = nb::none())
      .def("sample_rows", &sample_rows, "vertices"_array, "times"_array, "rows"_array, "hop"_a, "call"_a, "snapshot"_a)
      .def("walks", &walks, "vertices"_array, "times"_array, "length"_a, "call"_a, "pin"_a = nb::none());
}

}  // namespace livegnn
