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

void add_with_row(UpdateBuffer& buffer, Update update, const char* where, const char* name, const Row& row) {
  check_finite(buffer, where, name, row.data(), row.size(), row.size());
  give_row(buffer, update, row.data(), row.size());
  buffer.add(update);
}

// Updates of one kind as columns; what has no column stays unset.
struct Many {
  const char* where;
  UpdateKind kind;
  Ids u;
  std::optional<Ids> v{}, time{};
  std::optional<In1<float>> weight{};
  std::optional<In1<std::int32_t>> type{};
  std::optional<Rows> rows{};
  const char* rows_name = "x";
  std::int32_t type_of_all = kUnsetType;
  bool missing_ignore = false;
};

void add_many(UpdateBuffer& buffer, const Many& many) {
  const std::size_t count = many.u.size();
  const auto check = [&](const auto& column, const char* name) {
    if (column) check_lengths(many.where, count, column->shape(0), name);
  };
  check(many.v, "dst");
  check(many.weight, "weight");
  check(many.time, "time");
  check(many.type, "type");
  check(many.rows, "rows");
  const std::size_t width = many.rows ? many.rows->shape(1) : 0;
  if (many.rows) check_finite(buffer, many.where, many.rows_name, many.rows->data(), many.rows->size(), width);
  buffer.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    Update update{.kind = many.kind,
                  .missing_ignore = many.missing_ignore,
                  .has_weight = many.weight.has_value(),
                  .type = many.type_of_all,
                  .u = many.u.data()[i]};
    if (many.v) update.v = many.v->data()[i];
    if (many.weight) update.weight = many.weight->data()[i];
    if (many.time) update.time = many.time->data()[i];
    if (many.type) update.type = many.type->data()[i];
    if (many.rows) give_row(buffer, update, many.rows->data() + i * width, width);
    buffer.add(update);
  }
}

void add_edge(UpdateBuffer& buffer, std::int64_t u, std::int64_t v, std::optional<float> weight,
              std::optional<std::int64_t> time, std::optional<std::int32_t> type, std::optional<Row> attr) {
  const Update update{.kind = UpdateKind::AddEdge,
                      .has_weight = weight.has_value(),
                      .type = type.value_or(kUnsetType),
                      .u = u,
                      .v = v,
                      .time = time.value_or(kUnsetTime),
                      .weight = weight.value_or(1.0f)};
  if (attr) return add_with_row(buffer, update, "add_edge", "edge_attr", *attr);
  buffer.add(update);
}

void remove_edge(UpdateBuffer& buffer, std::int64_t u, std::int64_t v, std::optional<std::int64_t> time,
                 std::optional<std::int32_t> type, std::optional<std::int64_t> edge_id, bool missing_ignore) {
  buffer.add({.kind = UpdateKind::RemoveEdge,
              .missing_ignore = missing_ignore,
              .type = type.value_or(kUnsetType),
              .u = u,
              .v = v,
              .time = time.value_or(kUnsetTime),
              .edge_id = edge_id.value_or(kNoEdge)});
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

// Of an edge that is there, for set_weight() and set_edge_attr().
Update change_of(UpdateKind kind, std::int64_t u, std::int64_t v, std::optional<std::int64_t> edge_id,
                 std::optional<std::int32_t> type) {
  return {.kind = kind, .type = type.value_or(kUnsetType), .u = u, .v = v, .edge_id = edge_id.value_or(kNoEdge)};
}

Update of_vertex(UpdateKind kind, std::int64_t u, std::optional<std::int32_t> type) {
  return {.kind = kind, .type = type.value_or(kUnsetType), .u = u};
}

std::tuple<Out1<std::int64_t>, Out1<std::int64_t>> buffer_ids(const UpdateBuffer& buffer) {
  return {make_array(column_of<std::int64_t>(buffer.updates(), &Update::u)),
          make_array(column_of<std::int64_t>(buffer.updates(), &Update::v))};
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
  const std::span<const Update> updates = buffer.updates();
  std::vector<float> rows;
  for (const Update& update : updates) {
    if (update.row >= 0) rows.insert(rows.end(), buffer.row(update), buffer.row(update) + update.row_width);
  }
  const auto row_width = [](const Update& update) { return update.row < 0 ? -1 : update.row_width; };
  Columns out;
  out["kind"] = make_array(column_of<std::uint8_t>(updates, &Update::kind));
  out["missing_ignore"] = make_array(column_of<std::uint8_t>(updates, &Update::missing_ignore));
  out["has_weight"] = make_array(column_of<std::uint8_t>(updates, &Update::has_weight));
  out["type"] = make_array(column_of<std::int32_t>(updates, &Update::type));
  out["u"] = make_array(column_of<std::int64_t>(updates, &Update::u));
  out["v"] = make_array(column_of<std::int64_t>(updates, &Update::v));
  out["time"] = make_array(column_of<std::int64_t>(updates, &Update::time));
  out["edge_id"] = make_array(column_of<std::int64_t>(updates, &Update::edge_id));
  out["weight"] = make_array(column_of<float>(updates, &Update::weight));
  out["row_width"] = make_array(column_of<std::int32_t>(updates, row_width));
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
    Update update{.kind = static_cast<UpdateKind>(kind.data()[i]),
                  .missing_ignore = missing_ignore.data()[i] != 0,
                  .has_weight = has_weight.data()[i] != 0,
                  .type = type.data()[i],
                  .u = u.data()[i],
                  .v = v.data()[i],
                  .time = time.data()[i],
                  .edge_id = edge_id.data()[i],
                  .weight = weight.data()[i]};
    if (row_width.data()[i] >= 0) {
      const auto width = static_cast<std::size_t>(row_width.data()[i]);
      give_row(buffer, update, row, width);
      row += width;
    }
    buffer.add(update);
  }
}

// By update, its place among those that were given; of an expiry, that of the update behind it.
Out1<std::int64_t> given_places(const UpdateBuffer& buffer) {
  std::int64_t given = 0;
  return make_array(column_of<std::int64_t>(buffer.updates(), [&](const Update& update) {
    given += !update.is_expiry;
    return std::max<std::int64_t>(given - 1, 0);
  }));
}

void set_buffer_types(UpdateBuffer& buffer, In1<std::int32_t> types) {
  check_lengths("set_types", buffer.size(), types.size(), "types");
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer.updates()[i].type = types.data()[i];
}

// Single updates, and many at once.
void bind_edges(nb::class_<UpdateBuffer>& bound) {
  using Times = std::optional<Ids>;
  using Weights = std::optional<In1<float>>;
  using Types = std::optional<In1<std::int32_t>>;
  bound
      .def("add_edge", &add_edge, "u"_a, "v"_a, "weight"_a = nb::none(), "time"_a = nb::none(), "type"_a = nb::none(),
           nb::arg("attr").noconvert() = nb::none())
      .def(
          "add_edges",
          [](UpdateBuffer& b, Ids src, Ids dst, Weights weight, Times time, Types type, std::optional<Rows> attr) {
            add_many(b, {"add_edges", UpdateKind::AddEdge, src, dst, time, weight, type, attr, "edge_attr"});
          },
          nb::arg("src").noconvert(), nb::arg("dst").noconvert(), nb::arg("weight").noconvert() = nb::none(),
          nb::arg("time").noconvert() = nb::none(), nb::arg("type").noconvert() = nb::none(),
          nb::arg("attr").noconvert() = nb::none())
      .def("remove_edge", &remove_edge, "u"_a, "v"_a, "time"_a = nb::none(), "type"_a = nb::none(),
           "edge_id"_a = nb::none(), "missing_ignore"_a = false)
      .def(
          "remove_edges",
          [](UpdateBuffer& b, Ids src, Ids dst, bool missing_ignore, Types type) {
            add_many(b, {.where = "remove_edges",
                         .kind = UpdateKind::RemoveEdge,
                         .u = src,
                         .v = dst,
                         .type = type,
                         .missing_ignore = missing_ignore});
          },
          nb::arg("src").noconvert(), nb::arg("dst").noconvert(), "missing_ignore"_a = false,
          nb::arg("type").noconvert() = nb::none())
      .def(
          "remove_edges_before",
          [](UpdateBuffer& b, std::int64_t time, std::optional<std::int32_t> type) {
            b.add({.kind = UpdateKind::RemoveEdgesBefore, .type = type.value_or(kUnsetType), .time = time});
          },
          "time"_a, "type"_a = nb::none())
      .def("with_expiry", &buffer_with_expiry, "types"_a, "ttls"_a, "now"_a, "simple"_a)
      .def(
          "set_weight",
          [](UpdateBuffer& b, std::int64_t u, std::int64_t v, float w, std::optional<std::int64_t> edge_id,
             std::optional<std::int32_t> type) {
            Update update = change_of(UpdateKind::SetWeight, u, v, edge_id, type);
            update.has_weight = true;
            update.weight = w;
            b.add(update);
          },
          "u"_a, "v"_a, "w"_a, "edge_id"_a = nb::none(), "type"_a = nb::none())
      .def(
          "set_weights",
          [](UpdateBuffer& b, Ids src, Ids dst, In1<float> w, Types type) {
            add_many(b, {"set_weights", UpdateKind::SetWeight, src, dst, {}, w, type});
          },
          nb::arg("src").noconvert(), nb::arg("dst").noconvert(), nb::arg("w").noconvert(),
          nb::arg("type").noconvert() = nb::none())
      .def(
          "set_edge_attr",
          [](UpdateBuffer& b, std::int64_t u, std::int64_t v, Row attr, std::optional<std::int64_t> edge_id,
             std::optional<std::int32_t> type) {
            const Update update = change_of(UpdateKind::SetEdgeAttr, u, v, edge_id, type);
            add_with_row(b, update, "set_edge_attr", "attr", attr);
          },
          "u"_a, "v"_a, nb::arg("attr").noconvert(), "edge_id"_a = nb::none(), "type"_a = nb::none());
}

// The two methods of a kind of update that gives vertices rows.
template <UpdateKind kKind>
void bind_rows(nb::class_<UpdateBuffer>& bound, const char* one, const char* many) {
  bound
      .def(
          one,
          [one](UpdateBuffer& b, std::int64_t u, Row x, std::optional<std::int32_t> type) {
            add_with_row(b, of_vertex(kKind, u, type), one, "x", x);
          },
          "u"_a, nb::arg("x").noconvert(), "type"_a = nb::none())
      .def(
          many,
          [many](UpdateBuffer& b, Ids ids, Rows x, std::optional<std::int32_t> type) {
            add_many(b, {.where = many, .kind = kKind, .u = ids, .rows = x, .type_of_all = type.value_or(kUnsetType)});
          },
          nb::arg("ids").noconvert(), nb::arg("x").noconvert(), "type"_a = nb::none());
}

}  // namespace

void bind_updates(nb::module_& m) {
  bind_enum<UpdateKind>(m, "UpdateKind");
  nb::class_<UpdateBuffer> bound(m, "UpdateBuffer", "Updates waiting to be applied, in order.");
  bound.def(nb::init<>())
      .def("__len__", &UpdateBuffer::size)
      .def("clear", &UpdateBuffer::clear)
      .def("extend", &UpdateBuffer::extend, "other"_a)
      .def("ids", &buffer_ids)
      .def("to_arrays", &buffer_columns)
      .def("from_arrays", &set_buffer_columns, "arrays"_a)
      .def("set_ids", &set_buffer_ids, nb::arg("u").noconvert(), nb::arg("v").noconvert())
      .def("kinds",
           [](const UpdateBuffer& b) { return make_array(column_of<std::uint8_t>(b.updates(), &Update::kind)); })
      .def("given_places", &given_places)
      .def("types",
           [](const UpdateBuffer& b) { return make_array(column_of<std::int32_t>(b.updates(), &Update::type)); })
      .def("set_types", &set_buffer_types, nb::arg("types").noconvert());
  bind_edges(bound);
  bind_rows<UpdateKind::SetFeatures>(bound, "set_features", "set_features_rows");
  bind_rows<UpdateKind::AddVertex>(bound, "add_vertex", "add_vertices");
  bound
      .def(
          "remove_vertex",
          [](UpdateBuffer& b, std::int64_t u, std::optional<std::int32_t> type) {
            b.add(of_vertex(UpdateKind::RemoveVertex, u, type));
          },
          "u"_a, "type"_a = nb::none())
      .def(
          "remove_vertices",
          [](UpdateBuffer& b, Ids ids, std::optional<std::int32_t> type) {
            add_many(b, {.where = "remove_vertices",
                         .kind = UpdateKind::RemoveVertex,
                         .u = ids,
                         .type_of_all = type.value_or(kUnsetType)});
          },
          nb::arg("ids").noconvert(), "type"_a = nb::none());
}

}  // namespace livegnn
