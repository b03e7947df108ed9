// TemporalSampler and its pins. The arrays of a hop are views of one buffer, which goes back to the sampler when the
// last of them is gone.
#include "livegnn/temporal.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

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

using Numbers = nb::ndarray<nb::numpy, std::int64_t, nb::c_contig>;
using Weights = nb::ndarray<nb::numpy, float, nb::c_contig>;

// In the order of TemporalHop's fields; the last three only of graphs that have them.
using Hop = std::tuple<Numbers, Numbers, Numbers, Numbers, Numbers, Numbers, Numbers, Numbers, Numbers,
                       std::optional<Numbers>, std::optional<Numbers>, std::optional<Weights>>;

Hop hop_arrays(TemporalHopArrays& hop, const GraphOptions& has, const std::shared_ptr<TemporalBuffers>& buffers) {
  auto held = std::make_unique<HeldBuffer>(HeldBuffer{buffers, std::move(hop.memory)});
  nb::capsule owner(held.get(), [](void* p) noexcept {
    const std::unique_ptr<HeldBuffer> last(static_cast<HeldBuffer*>(p));
    last->buffers->give(std::move(last->buffer));
  });
  held.release();
  const auto array = [&owner](std::span<std::int64_t> values) {
    return Numbers(values.data(), {values.size()}, owner);
  };
  const Numbers edge_index(hop.edge_index.data(), {2, hop.edge_index.size() / 2}, owner);
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
          has.has_weight ? std::optional(Weights(hop.weights.data(), {hop.src.size()}, owner)) : std::nullopt};
}

nb::typed<nb::list, Hop> sample(TemporalSampler& sampler, const Ids& vertices, const Ids& times, std::uint64_t call,
                                std::int32_t snapshot, const TemporalPin* pin) {
  invariant(vertices.size() == times.size(), "targets and times of different lengths");
  std::vector<TemporalHopArrays> hops;
  {
    GilRelease release;
    hops = sampler.sample({vertices.data(), vertices.size()}, {times.data(), times.size()}, call, snapshot, pin);
  }
  nb::typed<nb::list, Hop> out;
  for (TemporalHopArrays& hop : hops)
    out.append(nb::cast(hop_arrays(hop, sampler.graph().options(), sampler.buffers())));
  return out;
}

Hop sample_rows(TemporalSampler& sampler, const Ids& vertices, const Ids& times, const Ids& rows, std::size_t hop,
                std::uint64_t call, std::int32_t snapshot) {
  invariant(vertices.size() == times.size() && vertices.size() == rows.size(), "targets of different lengths");
  TemporalHopArrays made;
  {
    GilRelease release;
    made = sampler.sample_rows({vertices.data(), vertices.size()}, {times.data(), times.size()},
                               {rows.data(), rows.size()}, {hop, call, snapshot});
  }
  return hop_arrays(made, sampler.graph().options(), sampler.buffers());
}

Numbers table(std::vector<std::int64_t> values, std::size_t rows, std::size_t columns) {
  auto held = std::make_unique<std::vector<std::int64_t>>(std::move(values));
  std::int64_t* data = held->data();
  nb::capsule owner(held.get(), [](void* p) noexcept { delete static_cast<std::vector<std::int64_t>*>(p); });
  held.release();
  return Numbers(data, {rows, columns}, owner);
}

std::tuple<Numbers, Numbers, Numbers> walks(TemporalSampler& sampler, const Ids& vertices, const Ids& times,
                                            std::int64_t length, std::uint64_t call, const TemporalPin* pin) {
  invariant(vertices.size() == times.size() && length >= 1, "walks of no length, or without a time each");
  TemporalWalkArrays made;
  {
    GilRelease release;
    made = sampler.walks({vertices.data(), vertices.size()}, {times.data(), times.size()}, length, call, pin);
  }
  const std::size_t rows = vertices.size();
  const auto steps = static_cast<std::size_t>(length);
  return {table(std::move(made.vertices), rows, steps + 1), table(std::move(made.times), rows, steps),
          table(std::move(made.edge_ids), rows, steps)};
}

Out<float> pinned_features(const TemporalPin& pin, const Ids& slots, std::size_t width) {
  for (std::size_t row = 0; row < slots.size(); ++row) {
    if (pin.is_live(slots.data()[row])) continue;
    const std::int64_t v = slots.data()[row];
    throw Error(ErrorKind::VertexUnknown, {.where = "features",
                                           .expected = "vertices of version " + std::to_string(pin.version()),
                                           .got = std::to_string(v) + " at row " + std::to_string(row),
                                           .advice = "read the graph for newer ones",
                                           .vertex = v});
  }
  NewArray<float> rows({slots.size(), width});
  for (std::size_t row = 0; row < slots.size(); ++row) {
    const auto v = static_cast<VertexId>(slots.data()[row]);
    pin.read_features(v, rows.data() + row * width, static_cast<std::int32_t>(width));
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
  read_event_weights(graph, {dst.data(), dst.size()}, {time.data(), time.size()}, {ids.data(), ids.size()}, pin,
                     weights.data());
  return weights.release();
}

// Of slots that are live in the pinned version.
Out<std::int32_t> pinned_types(const TemporalPin& pin, const Ids& slots) {
  NewArray<std::int32_t> types({slots.size()});
  for (std::size_t row = 0; row < slots.size(); ++row) {
    types.data()[row] = pin.vertex_type(static_cast<VertexId>(slots.data()[row]));
  }
  return types.release();
}

// 1 where the pin keeps a row of its own; nothing where it keeps none.
Out<std::uint8_t> kept_rows(const TemporalPin& pin, const Ids& ids, bool edges) {
  if (!pin.keeps_rows()) return NewArray<std::uint8_t>({0}).release();
  NewArray<std::uint8_t> kept({ids.size()});
  for (std::size_t row = 0; row < ids.size(); ++row) {
    const std::int64_t id = ids.data()[row];
    kept.data()[row] = edges ? pin.keeps_attrs(id) : pin.keeps_features(static_cast<VertexId>(id));
  }
  return kept.release();
}

}  // namespace

void bind_temporal(nb::module_& m) {
  m.def(
      "row_without_time", [](const Ids& times) { return row_without_time({times.data(), times.size()}); },
      nb::arg("times").noconvert());
  nb::class_<TemporalPin, BatchFollower>(m, "TemporalPin")
      .def(nb::init<const GraphStore&>(), "graph"_a, nb::keep_alive<1, 2>())
      .def_prop_ro("version", &TemporalPin::version)
      .def("features", &pinned_features, nb::arg("slots").noconvert(), "width"_a)
      .def("edge_attrs", &pinned_attrs, nb::arg("edges").noconvert(), "width"_a)
      .def("types", &pinned_types, nb::arg("slots").noconvert())
      .def("kept", &kept_rows, nb::arg("ids").noconvert(), "edges"_a)
      .def("bytes", &TemporalPin::bytes);
  m.def("event_weights", &event_weights, "graph"_a, nb::arg("dst").noconvert(), nb::arg("time").noconvert(),
        nb::arg("ids").noconvert(), "pin"_a = nb::none());
  bind_enum<TemporalBy>(m, "TemporalBy");
  using O = TemporalOptions;
  bind_struct<O, 2, &O::fan_outs, &O::by, &O::inclusive, &O::window, &O::snapshots, &O::prop_time, &O::replace,
              &O::unique, &O::edge_types, &O::seed, &O::threads>(m, "TemporalOptions");
  nb::class_<TemporalSampler>(m, "TemporalSampler")
      .def(nb::init<const GraphStore&, TemporalOptions>(), "graph"_a, "options"_a, nb::keep_alive<1, 2>())
      .def("sample", &sample, nb::arg("vertices").noconvert(), nb::arg("times").noconvert(), "call"_a, "snapshot"_a,
           "pin"_a = nb::none())
      .def("sample_rows", &sample_rows, nb::arg("vertices").noconvert(), nb::arg("times").noconvert(),
           nb::arg("rows").noconvert(), "hop"_a, "call"_a, "snapshot"_a)
      .def("walks", &walks, nb::arg("vertices").noconvert(), nb::arg("times").noconvert(), "length"_a, "call"_a,
           "pin"_a = nb::none())
      .def("buffer_bytes", [](const TemporalSampler& sampler) { return sampler.buffers()->bytes(); });
}

}  // namespace livegnn
