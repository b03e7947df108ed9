// UpdateBuffer. The wrapped Update fields keep what the caller gave: apply() checks it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "data.h"
#include "graph_arrays.h"
#include "livegnn/expiry.h"
#include "livegnn/graph.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using namespace graph_arrays;

Update make_update(UpdateKind kind, std::int64_t u, std::int64_t v = -1) {
  Update update{};
  update.kind = kind;
  update.u = u;
  update.v = v;
  return update;
}

// Refuses NaN and infinity where they come in; apply() would name the update, this names the call. Rows of `width`.
void check_finite(const UpdateBuffer& buffer, const char* where, const char* name, const float* values,
                  std::size_t count, std::size_t width) {
  std::size_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) bad += !std::isfinite(values[i]);
  if (bad == 0) return;
  const float* first = std::find_if_not(values, values + count, [](float x) { return std::isfinite(x); });
  const std::size_t place = first - values;
  const std::string row = count == width ? "" : "row " + std::to_string(place / width) + ", ";
  throw Error(ErrorKind::ValueInvalid,
              {.where = std::string(where) + ", update " + std::to_string(buffer.size()),
               .expected = std::string(name) + " finite",
               .got = std::to_string(*first) + " at " + row + "column " + std::to_string(place % width),
               .advice = "drop or fix the row"});
}

// The values are checked.
void give_row(UpdateBuffer& buffer, Update& update, const float* row, std::size_t width) {
  if (width > static_cast<std::size_t>(INT32_MAX)) {
    throw Error(ErrorKind::WidthMismatch, {.where = "updates",
                                           .expected = "a row of fewer than 2^31 floats",
                                           .got = std::to_string(width),
                                           .advice = "give one row of features"});
  }
  update.row = buffer.add_row({row, width});
  update.row_width = static_cast<std::int32_t>(width);
}

void add_edge(UpdateBuffer& buffer, std::int64_t u, std::int64_t v, std::optional<float> weight,
              std::optional<std::int64_t> time, std::optional<std::int32_t> type, std::optional<Row> attr) {
  Update update = make_update(UpdateKind::AddEdge, u, v);
  update.has_weight = weight.has_value();
  update.weight = weight.value_or(1.0f);
  update.time = time.value_or(kUnsetTime);
  update.type = type.value_or(kUnsetType);
  if (attr) {
    check_finite(buffer, "add_edge", "edge_attr", attr->data(), attr->size(), attr->size());
    give_row(buffer, update, attr->data(), attr->size());
  }
  buffer.add(update);
}

void add_edges(UpdateBuffer& buffer, Ids src, Ids dst, std::optional<In1<float>> weight,
               std::optional<In1<std::int64_t>> time, std::optional<In1<std::int32_t>> type, std::optional<Rows> attr) {
  const std::size_t count = src.size();
  check_lengths("add_edges", count, dst.size(), "dst");
  if (weight) check_lengths("add_edges", count, weight->size(), "weight");
  if (time) check_lengths("add_edges", count, time->size(), "time");
  if (type) check_lengths("add_edges", count, type->size(), "type");
  if (attr) {
    check_lengths("add_edges", count, attr->shape(0), "attr");
    check_finite(buffer, "add_edges", "edge_attr", attr->data(), attr->size(), attr->shape(1));
  }
  buffer.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    Update update = make_update(UpdateKind::AddEdge, src.data()[i], dst.data()[i]);
    update.has_weight = weight.has_value();
    if (weight) update.weight = weight->data()[i];
    if (time) update.time = time->data()[i];
    if (type) update.type = type->data()[i];
    if (attr) give_row(buffer, update, attr->data() + i * attr->shape(1), attr->shape(1));
    buffer.add(update);
  }
}

void remove_edge(UpdateBuffer& buffer, std::int64_t u, std::int64_t v, std::optional<std::int64_t> time,
                 std::optional<std::int32_t> type, std::optional<std::int64_t> edge_id, bool missing_ignore) {
  Update update = make_update(UpdateKind::RemoveEdge, u, v);
  update.time = time.value_or(kUnsetTime);
  update.type = type.value_or(kUnsetType);
  update.edge_id = edge_id.value_or(kNoEdge);
  update.missing_ignore = missing_ignore;
  buffer.add(update);
}

void remove_edges(UpdateBuffer& buffer, Ids src, Ids dst, bool missing_ignore, std::optional<In1<std::int32_t>> type) {
  check_lengths("remove_edges", src.size(), dst.size(), "dst");
  if (type) check_lengths("remove_edges", src.size(), type->size(), "type");
  buffer.reserve(src.size());
  for (std::size_t i = 0; i < src.size(); ++i) {
    Update update = make_update(UpdateKind::RemoveEdge, src.data()[i], dst.data()[i]);
    update.missing_ignore = missing_ignore;
    if (type) update.type = type->data()[i];
    buffer.add(update);
  }
}

void remove_edges_before(UpdateBuffer& buffer, std::int64_t time, std::optional<std::int32_t> type) {
  Update update = make_update(UpdateKind::RemoveEdgesBefore, -1);
  update.time = time;
  update.type = type.value_or(kUnsetType);
  buffer.add(update);
}

// types: UNSET for all edges. The buffer with the removals in it, and `now` after it.
std::tuple<UpdateBuffer, std::int64_t> buffer_with_expiry(const UpdateBuffer& buffer,
                                                          const std::vector<std::int32_t>& types,
                                                          const std::vector<std::int64_t>& ttls, std::int64_t now,
                                                          bool simple) {
  check_lengths("with_expiry", types.size(), ttls.size(), "ttls");
  std::vector<Lifetime> lifetimes;
  for (std::size_t i = 0; i < types.size(); ++i) lifetimes.push_back({types[i], ttls[i]});
  ExplicitBatch made = with_expiry(buffer, lifetimes, now, simple);
  return {std::move(made.buffer), made.now};
}

void set_weight(UpdateBuffer& buffer, std::int64_t u, std::int64_t v, float w, std::optional<std::int64_t> edge_id,
                std::optional<std::int32_t> type) {
  Update update = make_update(UpdateKind::SetWeight, u, v);
  update.has_weight = true;
  update.weight = w;
  update.type = type.value_or(kUnsetType);
  update.edge_id = edge_id.value_or(kNoEdge);
  buffer.add(update);
}

void set_weights(UpdateBuffer& buffer, Ids src, Ids dst, In1<float> w, std::optional<In1<std::int32_t>> type) {
  check_lengths("set_weights", src.size(), dst.size(), "dst");
  check_lengths("set_weights", src.size(), w.size(), "w");
  if (type) check_lengths("set_weights", src.size(), type->size(), "type");
  buffer.reserve(src.size());
  for (std::size_t i = 0; i < src.size(); ++i) {
    const std::optional<std::int32_t> one = type ? std::optional{type->data()[i]} : std::nullopt;
    set_weight(buffer, src.data()[i], dst.data()[i], w.data()[i], std::nullopt, one);
  }
}

void set_edge_attr(UpdateBuffer& buffer, std::int64_t u, std::int64_t v, Row attr, std::optional<std::int64_t> edge_id,
                   std::optional<std::int32_t> type) {
  Update update = make_update(UpdateKind::SetEdgeAttr, u, v);
  update.type = type.value_or(kUnsetType);
  update.edge_id = edge_id.value_or(kNoEdge);
  check_finite(buffer, "set_edge_attr", "attr", attr.data(), attr.size(), attr.size());
  give_row(buffer, update, attr.data(), attr.size());
  buffer.add(update);
}

void add_with_row(UpdateBuffer& buffer, UpdateKind kind, const char* where, std::int64_t u, const Row& x,
                  std::optional<std::int32_t> type) {
  check_finite(buffer, where, "x", x.data(), x.size(), x.size());
  Update update = make_update(kind, u);
  update.type = type.value_or(kUnsetType);
  give_row(buffer, update, x.data(), x.size());
  buffer.add(update);
}

void add_with_rows(UpdateBuffer& buffer, UpdateKind kind, const char* where, const Ids& ids, const Rows& rows,
                   std::optional<std::int32_t> type) {
  check_lengths(where, ids.size(), rows.shape(0), "rows");
  check_finite(buffer, where, "x", rows.data(), rows.size(), rows.shape(1));
  buffer.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Update update = make_update(kind, ids.data()[i]);
    update.type = type.value_or(kUnsetType);
    give_row(buffer, update, rows.data() + i * rows.shape(1), rows.shape(1));
    buffer.add(update);
  }
}

std::tuple<Out1<std::int64_t>, Out1<std::int64_t>> buffer_ids(const UpdateBuffer& buffer) {
  std::vector<std::int64_t> u, v;
  u.reserve(buffer.size());
  v.reserve(buffer.size());
  for (const Update& update : buffer.updates()) {
    u.push_back(update.u);
    v.push_back(update.v);
  }
  return {make_array(std::move(u)), make_array(std::move(v))};
}

void set_buffer_ids(UpdateBuffer& buffer, Ids u, Ids v) {
  check_lengths("set_ids", buffer.size(), u.size(), "u");
  check_lengths("set_ids", buffer.size(), v.size(), "v");
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    buffer.updates()[i].u = u.data()[i];
    buffer.updates()[i].v = v.data()[i];
  }
}

// ---- updates as columns, for logs

// One value an update; optional fields hold what Update holds when they are not given. row_width is -1 without a row;
// rows are joined in the order of the updates.
Columns buffer_columns(const UpdateBuffer& buffer) {
  std::vector<std::uint8_t> kind, missing_ignore, has_weight;
  std::vector<std::int32_t> type, row_width;
  std::vector<std::int64_t> u, v, time, edge_id;
  std::vector<float> weight, rows;
  for (const Update& update : buffer.updates()) {
    kind.push_back(static_cast<std::uint8_t>(update.kind));
    missing_ignore.push_back(update.missing_ignore);
    has_weight.push_back(update.has_weight);
    type.push_back(update.type);
    u.push_back(update.u);
    v.push_back(update.v);
    time.push_back(update.time);
    edge_id.push_back(update.edge_id);
    weight.push_back(update.weight);
    row_width.push_back(update.row < 0 ? -1 : update.row_width);
    if (update.row >= 0) rows.insert(rows.end(), buffer.row(update), buffer.row(update) + update.row_width);
  }
  Columns out;
  out["kind"] = make_array(std::move(kind));
  out["missing_ignore"] = make_array(std::move(missing_ignore));
  out["has_weight"] = make_array(std::move(has_weight));
  out["type"] = make_array(std::move(type));
  out["u"] = make_array(std::move(u));
  out["v"] = make_array(std::move(v));
  out["time"] = make_array(std::move(time));
  out["edge_id"] = make_array(std::move(edge_id));
  out["weight"] = make_array(std::move(weight));
  out["row_width"] = make_array(std::move(row_width));
  out["rows"] = make_array(std::move(rows));
  return out;
}

// Into an empty buffer. Checks what memory safety needs; apply() checks the rest.
void set_buffer_columns(UpdateBuffer& buffer, const Columns& arrays) {
  const auto kind = stored<In1<std::uint8_t>>(arrays, "kind"),
             has_weight = stored<In1<std::uint8_t>>(arrays, "has_weight"),
             missing_ignore = stored<In1<std::uint8_t>>(arrays, "missing_ignore");
  const auto type = stored<In1<std::int32_t>>(arrays, "type"),
             row_width = stored<In1<std::int32_t>>(arrays, "row_width");
  const auto u = stored<Ids>(arrays, "u"), v = stored<Ids>(arrays, "v"), time = stored<Ids>(arrays, "time"),
             edge_id = stored<Ids>(arrays, "edge_id");
  const auto weight = stored<Row>(arrays, "weight"), rows = stored<Row>(arrays, "rows");
  const std::size_t count = kind.size();
  for (const std::size_t size : {has_weight.size(), missing_ignore.size(), type.size(), row_width.size(), u.size(),
                                 v.size(), time.size(), edge_id.size(), weight.size()}) {
    check_lengths("from_arrays", count, size, "each column");
  }
  std::size_t floats = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (kind.data()[i] > static_cast<std::uint8_t>(UpdateKind::RemoveVertex)) {
      throw Error(ErrorKind::ValueInvalid, {.where = "from_arrays",
                                            .expected = "a kind of update from 0 to 7",
                                            .got = std::to_string(kind.data()[i]),
                                            .advice = "save the updates again"});
    }
    floats += static_cast<std::size_t>(std::max(row_width.data()[i], 0));
  }
  check_lengths("from_arrays", floats, rows.size(), "rows");
  buffer.clear();
  buffer.reserve(count);
  const float* row = rows.data();
  for (std::size_t i = 0; i < count; ++i) {
    Update update = make_update(static_cast<UpdateKind>(kind.data()[i]), u.data()[i], v.data()[i]);
    update.missing_ignore = missing_ignore.data()[i] != 0;
    update.has_weight = has_weight.data()[i] != 0;
    update.type = type.data()[i];
    update.time = time.data()[i];
    update.edge_id = edge_id.data()[i];
    update.weight = weight.data()[i];
    if (row_width.data()[i] >= 0) {
      const auto width = static_cast<std::size_t>(row_width.data()[i]);
      give_row(buffer, update, row, width);
      row += width;
    }
    buffer.add(update);
  }
}

void remove_vertices(UpdateBuffer& buffer, Ids ids, std::optional<std::int32_t> type) {
  buffer.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Update update = make_update(UpdateKind::RemoveVertex, ids.data()[i]);
    update.type = type.value_or(kUnsetType);
    buffer.add(update);
  }
}

// By update, its place among those that were given; of an expiry, that of the update behind it.
Out1<std::int64_t> given_places(const UpdateBuffer& buffer) {
  std::vector<std::int64_t> places;
  places.reserve(buffer.size());
  std::int64_t given = 0;
  for (const Update& update : buffer.updates()) {
    given += !update.is_expiry;
    places.push_back(std::max<std::int64_t>(given - 1, 0));
  }
  return make_array(std::move(places));
}

Out1<std::int32_t> buffer_types(const UpdateBuffer& buffer) {
  std::vector<std::int32_t> types;
  types.reserve(buffer.size());
  for (const Update& update : buffer.updates()) types.push_back(update.type);
  return make_array(std::move(types));
}

Out1<std::uint8_t> buffer_kinds(const UpdateBuffer& buffer) {
  std::vector<std::uint8_t> kinds;
  kinds.reserve(buffer.size());
  for (const Update& update : buffer.updates()) kinds.push_back(static_cast<std::uint8_t>(update.kind));
  return make_array(std::move(kinds));
}

void set_buffer_types(UpdateBuffer& buffer, In1<std::int32_t> types) {
  check_lengths("set_types", buffer.size(), types.size(), "types");
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer.updates()[i].type = types.data()[i];
}

}  // namespace

void bind_updates(nb::module_& m) {
  bind_enum<UpdateKind>(m, "UpdateKind");
  nb::class_<UpdateBuffer>(m, "UpdateBuffer", "Updates waiting to be applied, in order.")
      .def(nb::init<>())
      .def("__len__", &UpdateBuffer::size)
      .def("clear", &UpdateBuffer::clear)
      .def("extend", &UpdateBuffer::extend, "other"_a)
      .def("ids", &buffer_ids)
      .def("to_arrays", &buffer_columns)
      .def("from_arrays", &set_buffer_columns, "arrays"_a)
      .def("set_ids", &set_buffer_ids, nb::arg("u").noconvert(), nb::arg("v").noconvert())
      .def("kinds", &buffer_kinds)
      .def("given_places", &given_places)
      .def("types", &buffer_types)
      .def("set_types", &set_buffer_types, nb::arg("types").noconvert())
      .def("add_edge", &add_edge, "u"_a, "v"_a, "weight"_a = nb::none(), "time"_a = nb::none(), "type"_a = nb::none(),
           nb::arg("attr").noconvert() = nb::none())
      .def("add_edges", &add_edges, nb::arg("src").noconvert(), nb::arg("dst").noconvert(),
           nb::arg("weight").noconvert() = nb::none(), nb::arg("time").noconvert() = nb::none(),
           nb::arg("type").noconvert() = nb::none(), nb::arg("attr").noconvert() = nb::none())
      .def("remove_edge", &remove_edge, "u"_a, "v"_a, "time"_a = nb::none(), "type"_a = nb::none(),
           "edge_id"_a = nb::none(), "missing_ignore"_a = false)
      .def("remove_edges", &remove_edges, nb::arg("src").noconvert(), nb::arg("dst").noconvert(),
           "missing_ignore"_a = false, nb::arg("type").noconvert() = nb::none())
      .def("remove_edges_before", &remove_edges_before, "time"_a, "type"_a = nb::none())
      .def("with_expiry", &buffer_with_expiry, "types"_a, "ttls"_a, "now"_a, "simple"_a)
      .def("set_weight", &set_weight, "u"_a, "v"_a, "w"_a, "edge_id"_a = nb::none(), "type"_a = nb::none())
      .def("set_weights", &set_weights, nb::arg("src").noconvert(), nb::arg("dst").noconvert(),
           nb::arg("w").noconvert(), nb::arg("type").noconvert() = nb::none())
      .def("set_edge_attr", &set_edge_attr, "u"_a, "v"_a, nb::arg("attr").noconvert(), "edge_id"_a = nb::none(),
           "type"_a = nb::none())
      .def(
          "set_features",
          [](UpdateBuffer& b, std::int64_t u, Row x, std::optional<std::int32_t> type) {
            add_with_row(b, UpdateKind::SetFeatures, "set_features", u, x, type);
          },
          "u"_a, nb::arg("x").noconvert(), "type"_a = nb::none())
      .def(
          "set_features_rows",
          [](UpdateBuffer& b, Ids ids, Rows x, std::optional<std::int32_t> type) {
            add_with_rows(b, UpdateKind::SetFeatures, "set_features_rows", ids, x, type);
          },
          nb::arg("ids").noconvert(), nb::arg("x").noconvert(), "type"_a = nb::none())
      .def(
          "add_vertex",
          [](UpdateBuffer& b, std::int64_t u, Row x, std::optional<std::int32_t> type) {
            add_with_row(b, UpdateKind::AddVertex, "add_vertex", u, x, type);
          },
          "u"_a, nb::arg("x").noconvert(), "type"_a = nb::none())
      .def(
          "add_vertices",
          [](UpdateBuffer& b, Ids ids, Rows x, std::optional<std::int32_t> type) {
            add_with_rows(b, UpdateKind::AddVertex, "add_vertices", ids, x, type);
          },
          nb::arg("ids").noconvert(), nb::arg("x").noconvert(), "type"_a = nb::none())
      .def(
          "remove_vertex",
          [](UpdateBuffer& b, std::int64_t u, std::optional<std::int32_t> type) {
            Update update = make_update(UpdateKind::RemoveVertex, u);
            update.type = type.value_or(kUnsetType);
            b.add(update);
          },
          "u"_a, "type"_a = nb::none())
      .def("remove_vertices", &remove_vertices, nb::arg("ids").noconvert(), "type"_a = nb::none());
}

}  // namespace livegnn
