// UpdateBuffer. The wrapped Update fields keep what the caller gave: apply() checks it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
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

using Type = std::optional<std::int32_t>;  // of one update, and of many
using Types = std::optional<In1<std::int32_t>>;
using Time = std::optional<std::int64_t>;
using Times = std::optional<Ids>;
using Id = std::optional<std::int64_t>;

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
  Times v{};
  Types types{};
  std::optional<In1<float>> weight{};
  Times time{};
  std::optional<Rows> rows{};
  const char* rows_name = "x";
  Type type{};  // of all
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
  check(many.types, "type");
  check(many.rows, many.rows_name);
  const std::size_t width = many.rows ? many.rows->shape(1) : 0;
  if (many.rows) check_finite(buffer, many.where, many.rows_name, many.rows->data(), many.rows->size(), width);
  buffer.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    Update update{.kind = many.kind,
                  .missing_ignore = many.missing_ignore,
                  .has_weight = many.weight.has_value(),
                  .type = many.type.value_or(kUnsetType),
                  .u = many.u.data()[i]};
    if (many.v) update.v = many.v->data()[i];
    if (many.weight) update.weight = many.weight->data()[i];
    if (many.time) update.time = many.time->data()[i];
    if (many.types) update.type = many.types->data()[i];
    if (many.rows) give_row(buffer, update, many.rows->data() + i * width, width);
    buffer.add(update);
  }
}

// Of an edge that is there.
Update change_of(UpdateKind kind, std::int64_t u, std::int64_t v, Id edge_id, Type type) {
  return {.kind = kind, .type = type.value_or(kUnsetType), .u = u, .v = v, .edge_id = edge_id.value_or(kNoEdge)};
}

Update of_vertex(UpdateKind kind, std::int64_t u, Type type) {
  return {.kind = kind, .type = type.value_or(kUnsetType), .u = u};
}

void add_edge(UpdateBuffer& buffer, std::int64_t u, std::int64_t v, std::optional<float> weight, Time time, Type type,
              std::optional<Row> attr) {
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

void add_edges(UpdateBuffer& buffer, Ids src, Ids dst, std::optional<In1<float>> weight, Times time, Types type,
               std::optional<Rows> attr) {
  add_many(buffer, {"add_edges", UpdateKind::AddEdge, src, dst, type, weight, time, attr, "edge_attr"});
}

void remove_edge(UpdateBuffer& buffer, std::int64_t u, std::int64_t v, Time time, Type type, Id edge_id,
                 bool missing_ignore) {
  Update update = change_of(UpdateKind::RemoveEdge, u, v, edge_id, type);
  update.time = time.value_or(kUnsetTime);
  update.missing_ignore = missing_ignore;
  buffer.add(update);
}

void remove_edges(UpdateBuffer& buffer, Ids src, Ids dst, bool missing_ignore, Types type) {
  Many many{"remove_edges", UpdateKind::RemoveEdge, src, dst, type};
  many.missing_ignore = missing_ignore;
  add_many(buffer, many);
}

void remove_edges_before(UpdateBuffer& buffer, std::int64_t time, Type type) {
  buffer.add({.kind = UpdateKind::RemoveEdgesBefore, .type = type.value_or(kUnsetType), .time = time});
}

void set_weight(UpdateBuffer& buffer, std::int64_t u, std::int64_t v, float w, Id edge_id, Type type) {
  Update update = change_of(UpdateKind::SetWeight, u, v, edge_id, type);
  update.has_weight = true;
  update.weight = w;
  buffer.add(update);
}

void set_weights(UpdateBuffer& buffer, Ids src, Ids dst, In1<float> w, Types type) {
  add_many(buffer, {"set_weights", UpdateKind::SetWeight, src, dst, type, w});
}

void set_edge_attr(UpdateBuffer& buffer, std::int64_t u, std::int64_t v, Row attr, Id edge_id, Type type) {
  add_with_row(buffer, change_of(UpdateKind::SetEdgeAttr, u, v, edge_id, type), "set_edge_attr", "attr", attr);
}

void remove_vertex(UpdateBuffer& buffer, std::int64_t u, Type type) {
  buffer.add(of_vertex(UpdateKind::RemoveVertex, u, type));
}

void remove_vertices(UpdateBuffer& buffer, Ids ids, Type type) {
  add_many(buffer, {.where = "remove_vertices", .kind = UpdateKind::RemoveVertex, .u = ids, .type = type});
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

// visit(name, member, a value as it is stored) for the fields that are columns, one value an update. Optional ones hold
// what Update holds when they are not given.
template <typename Visit>
void each_field(Visit&& visit) {
  visit("kind", &Update::kind, std::uint8_t{});
  visit("missing_ignore", &Update::missing_ignore, std::uint8_t{});
  visit("has_weight", &Update::has_weight, std::uint8_t{});
  visit("type", &Update::type, std::int32_t{});
  visit("u", &Update::u, std::int64_t{});
  visit("v", &Update::v, std::int64_t{});
  visit("time", &Update::time, std::int64_t{});
  visit("edge_id", &Update::edge_id, std::int64_t{});
  visit("weight", &Update::weight, float{});
}

// With row_width, -1 without a row, and with the rows, joined in the order of the updates.
Columns buffer_columns(const UpdateBuffer& buffer) {
  const std::span<const Update> updates = buffer.updates();
  std::size_t floats = 0;
  for (const Update& update : updates) {
    if (update.row >= 0) floats += static_cast<std::size_t>(update.row_width);
  }
  std::vector<float> rows;
  rows.reserve(floats);
  for (const Update& update : updates) {
    if (update.row >= 0) rows.insert(rows.end(), buffer.row(update), buffer.row(update) + update.row_width);
  }
  const auto row_width = [](const Update& update) { return update.row < 0 ? -1 : update.row_width; };
  Columns out;
  each_field([&](const char* name, auto member, auto stored_as) {
    out[name] = make_array(column_of<decltype(stored_as)>(updates, member));
  });
  out["row_width"] = make_array(column_of<std::int32_t>(updates, row_width));
  out["rows"] = make_array(std::move(rows));
  return out;
}

// Who reads updates, for errors.
struct Reading {
  const char* where;
  const char* advice;
};

// Floats in the rows of these updates, whose row_width is -1 where there is none.
std::size_t floats_of(const std::vector<Update>& updates, const Reading& reading) {
  std::size_t floats = 0;
  for (const Update& update : updates) {
    if (update.kind > UpdateKind::RemoveVertex) {
      throw Error(ErrorKind::ValueInvalid, {.where = reading.where,
                                            .expected = "a kind of update from 0 to 7",
                                            .got = std::to_string(static_cast<int>(update.kind)),
                                            .advice = reading.advice});
    }
    floats += static_cast<std::size_t>(std::max(update.row_width, 0));
  }
  return floats;
}

// Those updates in place of what the buffer has. rows: all of theirs, one after the other, at any byte.
void set_updates(UpdateBuffer& buffer, std::vector<Update> updates, std::size_t floats, const void* rows) {
  buffer.clear();
  buffer.reserve(updates.size());
  buffer.reserve_rows(floats);
  const auto* from = static_cast<const char*>(rows);
  std::vector<float> row;
  for (Update& update : updates) {
    if (const std::int32_t width = std::exchange(update.row_width, 0); width >= 0) {
      row.resize(static_cast<std::size_t>(width));
      std::copy_n(from, row.size() * sizeof(float), reinterpret_cast<char*>(row.data()));
      from += row.size() * sizeof(float);
      give_row(buffer, update, row.data(), row.size());
    }
    buffer.add(update);
  }
}

// Checks what memory safety needs; apply() checks the rest.
void set_buffer_columns(UpdateBuffer& buffer, const Columns& arrays) {
  const auto row_width = stored<In1<std::int32_t>>(arrays, "row_width");
  const auto rows = stored<Row>(arrays, "rows");
  std::vector<Update> updates(row_width.size());
  each_field([&](const char* name, auto member, auto stored_as) {
    const auto column = stored<In1<decltype(stored_as)>>(arrays, name);
    check_lengths("from_arrays", updates.size(), column.size(), "each column");
    for (std::size_t i = 0; i < updates.size(); ++i) {
      auto& field = updates[i].*member;
      field = static_cast<std::remove_reference_t<decltype(field)>>(column.data()[i]);
    }
  });
  for (std::size_t i = 0; i < updates.size(); ++i) updates[i].row_width = row_width.data()[i];
  const std::size_t floats = floats_of(updates, {"from_arrays", "save the updates again"});
  check_lengths("from_arrays", floats, rows.size(), "rows");
  set_updates(buffer, std::move(updates), floats, rows.data());
}

// ---- updates as one block of bytes: their number, then their columns one after the other, then the rows

constexpr std::size_t kBlockHead = sizeof(std::int64_t);

std::size_t block_bytes_of_update() {
  std::size_t bytes = sizeof(std::int32_t);  // row_width
  each_field([&](const char*, auto, auto stored_as) { bytes += sizeof(stored_as); });
  return bytes;
}

nb::bytes buffer_block(const UpdateBuffer& buffer) {
  const std::span<const Update> updates = buffer.updates();
  std::size_t floats = 0;
  for (const Update& update : updates) floats += update.row < 0 ? 0 : static_cast<std::size_t>(update.row_width);
  auto [block, to] = new_bytes(kBlockHead + updates.size() * block_bytes_of_update() + floats * sizeof(float));
  auto put = [to = to](const void* from, std::size_t count) mutable {
    std::memcpy(to, from, count);
    to += count;
  };
  const auto count = static_cast<std::int64_t>(updates.size());
  put(&count, sizeof(count));
  each_field([&](const char*, auto member, auto stored_as) {
    for (const Update& update : updates) {
      stored_as = static_cast<decltype(stored_as)>(update.*member);
      put(&stored_as, sizeof(stored_as));
    }
  });
  for (const Update& update : updates) {
    const std::int32_t width = update.row < 0 ? -1 : update.row_width;
    put(&width, sizeof(width));
  }
  for (const Update& update : updates) {
    if (update.row >= 0) put(buffer.row(update), static_cast<std::size_t>(update.row_width) * sizeof(float));
  }
  return block;
}

// Checked as columns are.
void set_buffer_block(UpdateBuffer& buffer, In1<std::uint8_t> block) {
  constexpr Reading kReading{"from_block", "send the batch again"};
  const std::uint8_t* from = block.data();
  const auto get = [&](auto& value) {
    std::memcpy(&value, from, sizeof(value));
    from += sizeof(value);
  };
  std::int64_t count = -1;
  if (block.size() >= kBlockHead) get(count);
  const std::size_t each = block_bytes_of_update();
  if (count < 0 || static_cast<std::size_t>(count) > (block.size() - kBlockHead) / each) {
    throw Error(ErrorKind::ValueInvalid, {.where = kReading.where,
                                          .expected = "a whole block of updates",
                                          .got = std::to_string(block.size()) + " bytes",
                                          .advice = kReading.advice});
  }
  std::vector<Update> updates(static_cast<std::size_t>(count));
  each_field([&](const char*, auto member, auto stored_as) {
    for (Update& update : updates) {
      get(stored_as);
      auto& field = update.*member;
      field = static_cast<std::remove_reference_t<decltype(field)>>(stored_as);
    }
  });
  for (Update& update : updates) get(update.row_width);
  const std::size_t floats = floats_of(updates, kReading);
  const std::size_t left = block.size() - kBlockHead - updates.size() * each;
  check_lengths(kReading.where, floats * sizeof(float), left, "bytes of rows");
  set_updates(buffer, std::move(updates), floats, from);
}

// The updates that add and remove vertices, without features.
UpdateBuffer vertices_of(const UpdateBuffer& buffer) {
  UpdateBuffer found;
  for (Update update : buffer.updates()) {
    if (update.kind != UpdateKind::AddVertex && update.kind != UpdateKind::RemoveVertex) continue;
    if (update.kind == UpdateKind::AddVertex) give_row(found, update, nullptr, 0);  // of no width
    found.add(update);
  }
  return found;
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

// The two methods of a kind of update that gives vertices rows.
template <UpdateKind kKind>
void bind_rows(nb::class_<UpdateBuffer>& bound, const char* one, const char* many) {
  const auto add_one = [one](UpdateBuffer& buffer, std::int64_t u, Row x, Type type) {
    add_with_row(buffer, of_vertex(kKind, u, type), one, "x", x);
  };
  const auto add_all = [many](UpdateBuffer& buffer, Ids ids, Rows x, Type type) {
    add_many(buffer, {.where = many, .kind = kKind, .u = ids, .rows = x, .type = type});
  };
  bound.def(one, add_one, "u"_a, array("x"), "type"_a = nb::none())
      .def(many, add_all, array("ids"), array("x"), "type"_a = nb::none());
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
      .def("to_block", &buffer_block)
      .def("from_block", &set_buffer_block, array("block"))
      .def("vertices", &vertices_of)
      .def("set_ids", &set_buffer_ids, array("u"), array("v"))
      .def(
          "count",
          [](const UpdateBuffer& b, UpdateKind kind) {
            return std::count_if(b.updates().begin(), b.updates().end(),
                                 [&](const Update& update) { return update.kind == kind; });
          },
          "kind"_a)
      .def("kinds",
           [](const UpdateBuffer& b) { return make_array(column_of<std::uint8_t>(b.updates(), &Update::kind)); })
      .def("given_places", &given_places)
      .def("types",
           [](const UpdateBuffer& b) { return make_array(column_of<std::int32_t>(b.updates(), &Update::type)); })
      .def("set_types", &set_buffer_types, array("types"))
      .def("add_edge", &add_edge, "u"_a, "v"_a, "weight"_a = nb::none(), "time"_a = nb::none(), "type"_a = nb::none(),
           array("attr") = nb::none())
      .def("add_edges", &add_edges, array("src"), array("dst"), array("weight") = nb::none(),
           array("time") = nb::none(), array("type") = nb::none(), array("attr") = nb::none())
      .def("remove_edge", &remove_edge, "u"_a, "v"_a, "time"_a = nb::none(), "type"_a = nb::none(),
           "edge_id"_a = nb::none(), "missing_ignore"_a = false)
      .def("remove_edges", &remove_edges, array("src"), array("dst"), "missing_ignore"_a = false,
           array("type") = nb::none())
      .def("remove_edges_before", &remove_edges_before, "time"_a, "type"_a = nb::none())
      .def("with_expiry", &buffer_with_expiry, "types"_a, "ttls"_a, "now"_a, "simple"_a)
      .def("set_weight", &set_weight, "u"_a, "v"_a, "w"_a, "edge_id"_a = nb::none(), "type"_a = nb::none())
      .def("set_weights", &set_weights, array("src"), array("dst"), array("w"), array("type") = nb::none())
      .def("set_edge_attr", &set_edge_attr, "u"_a, "v"_a, array("attr"), "edge_id"_a = nb::none(),
           "type"_a = nb::none());
  bind_rows<UpdateKind::SetFeatures>(bound, "set_features", "set_features_rows");
  bind_rows<UpdateKind::AddVertex>(bound, "add_vertex", "add_vertices");
  bound.def("remove_vertex", &remove_vertex, "u"_a, "type"_a = nb::none())
      .def("remove_vertices", &remove_vertices, array("ids"), "type"_a = nb::none());
}

}  // namespace livegnn
