// UpdateBuffer and GraphStore. Arrays come in with exact dtypes and go out as copies; work on whole graphs and batches
// releases the GIL. The wrapped Update fields keep what the caller gave: apply() checks it.
#include "livegnn/graph.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

template <typename T>
using In1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out1 = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;
template <typename T>
using Out2 = nb::ndarray<nb::numpy, T, nb::ndim<2>, nb::c_contig>;
using Ids = In1<std::int64_t>;
using Row = In1<float>;
using Rows = In2<float>;

// ---- arrays

template <typename T>
Out1<T> make_array(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Out1<T>(kept->data(), {kept->size()}, owner);
}

Out2<float> make_rows(std::vector<float> values, std::size_t count, std::size_t width) {
  auto* kept = new std::vector<float>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return Out2<float>(kept->data(), {count, width}, owner);
}

template <typename T>
std::span<const T> span_of(const In1<T>& array) {
  return {array.data(), array.size()};
}
template <typename T>
std::span<const T> span_of(const std::optional<In1<T>>& array) {
  return array ? std::span<const T>{array->data(), array->size()} : std::span<const T>{};
}

void check_lengths(const char* where, std::size_t expected, std::size_t got, const char* name) {
  if (expected == got) return;
  throw Error(ErrorKind::WidthMismatch, std::string("[") + where + "] expected " + std::to_string(expected) +
                                            " values of " + name + ", got " + std::to_string(got) +
                                            "; give arrays of one length");
}

// ---- updates

Update make_update(UpdateKind kind, std::int64_t u, std::int64_t v = -1) {
  Update update{};
  update.kind = kind;
  update.u = u;
  update.v = v;
  return update;
}

// Refuses NaN and infinity where they come in; apply() would name the update, this names the call.
void check_finite(const UpdateBuffer& buffer, const char* where, const float* values, std::size_t count) {
  std::size_t bad = 0;
  for (std::size_t i = 0; i < count; ++i) bad += !std::isfinite(values[i]);
  if (bad == 0) return;
  const float* first = std::find_if_not(values, values + count, [](float x) { return std::isfinite(x); });
  throw Error(ErrorKind::ValueInvalid, std::string("[") + where + ", update " + std::to_string(buffer.size()) +
                                           "] expected finite values, got " + std::to_string(*first) + " at place " +
                                           std::to_string(first - values) + "; clean the values");
}

// The values are checked.
void give_row(UpdateBuffer& buffer, Update& update, const float* row, std::size_t width) {
  if (width > static_cast<std::size_t>(INT32_MAX)) {
    throw Error(ErrorKind::WidthMismatch, "[updates] expected a row of fewer than 2^31 floats, got " +
                                              std::to_string(width) + "; give one row of features");
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
    check_finite(buffer, "add_edge", attr->data(), attr->size());
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
    check_finite(buffer, "add_edges", attr->data(), attr->size());
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

void remove_edges_before(UpdateBuffer& buffer, std::int64_t time) {
  Update update = make_update(UpdateKind::RemoveEdgesBefore, -1);
  update.time = time;
  buffer.add(update);
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
  check_finite(buffer, "set_edge_attr", attr.data(), attr.size());
  give_row(buffer, update, attr.data(), attr.size());
  buffer.add(update);
}

void add_with_row(UpdateBuffer& buffer, UpdateKind kind, const char* where, std::int64_t u, const Row& x,
                  std::optional<std::int32_t> type) {
  check_finite(buffer, where, x.data(), x.size());
  Update update = make_update(kind, u);
  update.type = type.value_or(kUnsetType);
  give_row(buffer, update, x.data(), x.size());
  buffer.add(update);
}

void add_with_rows(UpdateBuffer& buffer, UpdateKind kind, const char* where, const Ids& ids, const Rows& rows,
                   std::optional<std::int32_t> type) {
  check_lengths(where, ids.size(), rows.shape(0), "rows");
  check_finite(buffer, where, rows.data(), rows.size());
  buffer.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Update update = make_update(kind, ids.data()[i]);
    update.type = type.value_or(kUnsetType);
    give_row(buffer, update, rows.data() + i * rows.shape(1), rows.shape(1));
    buffer.add(update);
  }
}

nb::tuple buffer_ids(const UpdateBuffer& buffer) {
  std::vector<std::int64_t> u, v;
  u.reserve(buffer.size());
  v.reserve(buffer.size());
  for (const Update& update : buffer.updates()) {
    u.push_back(update.u);
    v.push_back(update.v);
  }
  return nb::make_tuple(make_array(std::move(u)), make_array(std::move(v)));
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
nb::dict buffer_columns(const UpdateBuffer& buffer) {
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
  nb::dict out;
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

// The array of that name; its dtype and shape are part of the format.
template <typename Array>
Array stored(const nb::dict& arrays, const char* name) {
  if (!arrays.contains(name)) throw nb::key_error(name);
  Array array;
  if (!nb::try_cast<Array>(arrays[name], array, false)) {
    throw nb::type_error((std::string("[from_arrays] expected the dtype and shape that to_arrays() gave for ") + name +
                          ", got another; save it again")
                             .c_str());
  }
  return array;
}

// Into an empty buffer. Checks what memory safety needs; apply() checks the rest.
void set_buffer_columns(UpdateBuffer& buffer, nb::dict arrays) {
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
      throw Error(ErrorKind::ValueInvalid, "[from_arrays] expected a kind of update from 0 to 7, got " +
                                               std::to_string(kind.data()[i]) + "; save the updates again");
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

void bind_update_buffer(nb::module_& m) {
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
      .def("remove_edges_before", &remove_edges_before, "time"_a)
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

// ---- reading the store

VertexId checked_vertex(const GraphStore& store, const char* where, std::int64_t id) {
  if (id >= 0 && id < store.slot_count() && store.is_live(static_cast<VertexId>(id))) return static_cast<VertexId>(id);
  const std::string removed = id >= 0 && id < store.slot_count() ? ", which was removed" : "";
  throw Error(ErrorKind::VertexUnknown, std::string("[") + where + "] expected live vertices in 0 .. " +
                                            std::to_string(store.slot_count() - 1) + " (version " +
                                            std::to_string(store.version()) + "), got " + std::to_string(id) + removed +
                                            "; add the vertex first");
}

// Edges as columns, in whatever order they are added; arranged by id if asked.
struct EdgeColumns {
  std::vector<std::int64_t> src, dst, id, time;
  std::vector<float> weight, attr;
  std::vector<std::int32_t> type;

  void reserve(std::size_t count, const GraphOptions& options) {
    src.reserve(count);
    dst.reserve(count);
    id.reserve(count);
    if (options.has_weight) weight.reserve(count);
    if (options.has_time) time.reserve(count);
    if (options.has_type) type.reserve(count);
  }

  void add(const GraphOptions& options, VertexId u, VertexId v, EdgeId edge_id, float w, EdgeTime t,
           std::int32_t kind) {
    src.push_back(u);
    dst.push_back(v);
    id.push_back(edge_id);
    if (options.has_weight) weight.push_back(w);
    if (options.has_time) time.push_back(t);
    if (options.has_type) type.push_back(kind);
  }

  void sort_by_id() {
    std::vector<std::int64_t> order(id.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return id[a] < id[b]; });
    const auto arrange = [&](auto& column) {
      if (column.empty()) return;
      auto sorted = column;
      for (std::size_t i = 0; i < order.size(); ++i) sorted[i] = column[order[i]];
      column.swap(sorted);
    };
    arrange(src);
    arrange(dst);
    arrange(id);
    arrange(weight);
    arrange(time);
    arrange(type);
  }

  void collect_attr(const GraphStore& store) {
    const std::int32_t width = store.options().attr_width;
    attr.reserve(id.size() * static_cast<std::size_t>(width));
    for (const EdgeId each : id) {
      const float* row = store.edge_attr(each);
      attr.insert(attr.end(), row, row + width);
    }
  }

  void give(nb::dict& out, const GraphOptions& options) {
    const std::size_t count = id.size();
    out["id"] = make_array(std::move(id));
    if (options.has_weight) out["weight"] = make_array(std::move(weight));
    if (options.has_time) out["time"] = make_array(std::move(time));
    if (options.has_type) out["type"] = make_array(std::move(type));
    if (options.attr_width > 0) {
      out["attr"] = make_rows(std::move(attr), count, static_cast<std::size_t>(options.attr_width));
    }
  }
};

EdgeColumns collect_edges(const GraphStore& store) {
  EdgeColumns columns;
  columns.reserve(static_cast<std::size_t>(store.edge_count()), store.options());
  store.visit_edges([&](VertexId u, VertexId v, EdgeId id, float weight, EdgeTime time, std::int32_t type) {
    columns.add(store.options(), u, v, id, weight, time, type);
  });
  columns.sort_by_id();
  if (store.options().attr_width > 0) columns.collect_attr(store);
  return columns;
}

nb::dict edges(const GraphStore& store) {
  EdgeColumns columns;
  {
    nb::gil_scoped_release release;
    columns = collect_edges(store);
  }
  nb::dict out;
  out["src"] = make_array(std::move(columns.src));
  out["dst"] = make_array(std::move(columns.dst));
  columns.give(out, store.options());
  return out;
}

nb::dict neighbours(const GraphStore& store, const char* where, std::int64_t vertex, bool outgoing) {
  const VertexId v = checked_vertex(store, where, vertex);
  EdgeColumns columns;
  const auto visitor = [&](const EdgeSpan& span) {
    for (std::int32_t i = 0; i < span.count; ++i) {
      columns.add(store.options(), span.neighbours[i], v, span.ids[i], span.weights ? span.weights[i] : 1.0f,
                  span.times ? span.times[i] : 0, span.types ? span.types[i] : 0);
    }
  };
  if (outgoing) {
    store.visit_out(v, visitor);
  } else {
    store.visit_in(v, visitor);
  }
  if (store.options().attr_width > 0) columns.collect_attr(store);
  nb::dict out;
  out[outgoing ? "dst" : "src"] = make_array(std::move(columns.src));
  columns.give(out, store.options());
  return out;
}

Out1<std::int64_t> degrees(const GraphStore& store, const char* where, const Ids& ids, bool outgoing) {
  std::vector<std::int64_t> found(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const VertexId v = checked_vertex(store, where, ids.data()[i]);
    found[i] = outgoing ? store.out_degree(v) : store.in_degree(v);
  }
  return make_array(std::move(found));
}

// width: floats of each row to give, all of them unless said.
Out2<float> features(const GraphStore& store, Ids ids, std::optional<std::int32_t> wanted) {
  const auto widest = static_cast<std::size_t>(store.options().feature_width);
  const std::size_t width = wanted ? std::min(static_cast<std::size_t>(*wanted), widest) : widest;
  std::vector<float> rows(ids.size() * width);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const VertexId v = checked_vertex(store, "features", ids.data()[i]);
    if (width > 0) std::memcpy(rows.data() + i * width, store.feature_row(v), width * sizeof(float));
  }
  return make_rows(std::move(rows), ids.size(), width);
}

void check_edge_there(const GraphStore& store, std::int64_t id, const float* attr) {
  const bool given = id >= 0 && id < store.next_edge_id();
  if (given && (attr != nullptr || store.options().attr_width == 0)) return;
  throw Error(ErrorKind::EdgeMissing, "[edge_attrs] expected ids of edges that are there, below " +
                                          std::to_string(store.next_edge_id()) + " (version " +
                                          std::to_string(store.version()) + "), got " + std::to_string(id) +
                                          (given ? ", which was removed; leave it out" : "; add the edge first"));
}

// A graph without attributes gives rows of width 0, and does not know which edges were removed.
Out2<float> edge_attrs(const GraphStore& store, Ids ids) {
  const auto width = static_cast<std::size_t>(store.options().attr_width);
  std::vector<float> rows(ids.size() * width);
  {
    nb::gil_scoped_release release;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const float* attr = store.edge_attr(ids.data()[i]);
      check_edge_there(store, ids.data()[i], attr);
      if (width > 0) std::memcpy(rows.data() + i * width, attr, width * sizeof(float));
    }
  }
  return make_rows(std::move(rows), ids.size(), width);
}

Out1<bool> has_edge_attrs(const GraphStore& store, Ids ids) {
  auto* found = new bool[ids.size() + 1];
  nb::capsule owner(found, [](void* p) noexcept { delete[] static_cast<bool*>(p); });
  const bool any = store.options().attr_width == 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t id = ids.data()[i];
    found[i] = id >= 0 && id < store.next_edge_id() && (any || store.edge_attr(id) != nullptr);
  }
  return Out1<bool>(found, {ids.size()}, owner);
}

std::vector<std::int32_t> types_of_all(const GraphStore& store) {
  std::vector<std::int32_t> types(static_cast<std::size_t>(store.slot_count()));
  for (VertexId v = 0; v < store.slot_count(); ++v) types[static_cast<std::size_t>(v)] = store.vertex_type(v);
  return types;
}

Out1<std::int32_t> slot_types(const GraphStore& store, const Ids& slots) {
  std::vector<std::int32_t> types(slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    types[i] = store.vertex_type(checked_vertex(store, "slot_types", slots.data()[i]));
  }
  return make_array(std::move(types));
}

std::vector<std::uint8_t> live_flags(const GraphStore& store) {
  std::vector<std::uint8_t> flags(static_cast<std::size_t>(store.slot_count()));
  for (VertexId v = 0; v < store.slot_count(); ++v) flags[static_cast<std::size_t>(v)] = store.is_live(v);
  return flags;
}

Out1<bool> live(const GraphStore& store) {
  const std::vector<std::uint8_t> flags = live_flags(store);
  auto* values = new bool[flags.size() + 1];
  nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<bool*>(p); });
  for (std::size_t i = 0; i < flags.size(); ++i) values[i] = flags[i] != 0;
  return Out1<bool>(values, {flags.size()}, owner);
}

nb::dict memory(const GraphStore& store) {
  GraphMemory total{};
  {
    nb::gil_scoped_release release;
    total = store.memory();
  }
  nb::dict out;
  out["edges_live"] = total.edges_live;
  out["edges_reserved"] = total.edges_reserved;
  out["index"] = total.index;
  out["vertices"] = total.vertices;
  out["features"] = total.features;
  out["attributes"] = total.attributes;
  return out;
}

// ---- whole graphs

void load(GraphStore& store, Rows x, Ids src, Ids dst, std::optional<In1<float>> weight,
          std::optional<In1<std::int64_t>> time, std::optional<In1<std::int32_t>> type, std::optional<Rows> attr,
          int threads, std::optional<In1<std::int32_t>> vertex_type) {
  check_lengths("load", static_cast<std::size_t>(store.options().feature_width), x.shape(1), "each feature row");
  if (attr) {
    check_lengths("load", static_cast<std::size_t>(store.options().attr_width), attr->shape(1), "each attribute row");
  }
  GraphArrays input;
  input.slot_count = static_cast<std::int64_t>(x.shape(0));
  input.features = {x.data(), x.size()};
  input.src = span_of(src);
  input.dst = span_of(dst);
  input.weight = span_of(weight);
  input.time = span_of(time);
  input.type = span_of(type);
  if (attr) input.attr = {attr->data(), attr->size()};
  input.vertex_type = span_of(vertex_type);
  nb::gil_scoped_release release;
  store.restore(input, threads);
}

nb::dict to_arrays(const GraphStore& store) {
  nb::dict out = edges(store);
  const auto width = static_cast<std::size_t>(store.options().feature_width);
  const auto slots = static_cast<std::size_t>(store.slot_count());
  std::vector<float> rows(slots * width);
  for (std::size_t v = 0; v < slots && width > 0; ++v) {
    std::memcpy(rows.data() + v * width, store.feature_row(static_cast<VertexId>(v)), width * sizeof(float));
  }
  out["features"] = make_rows(std::move(rows), slots, width);
  out["live"] = make_array(live_flags(store));
  if (store.is_typed()) out["vertex_type"] = make_array(types_of_all(store));
  out["counters"] = make_array(std::vector<std::int64_t>{store.version(), store.next_edge_id()});
  return out;
}

void from_arrays(GraphStore& store, nb::dict arrays) {
  const GraphOptions& options = store.options();
  const auto x = stored<Rows>(arrays, "features");
  const auto live_slots = stored<In1<std::uint8_t>>(arrays, "live");
  const auto counters = stored<Ids>(arrays, "counters");
  const auto src = stored<Ids>(arrays, "src"), dst = stored<Ids>(arrays, "dst"), id = stored<Ids>(arrays, "id");
  std::optional<In1<float>> weight;
  std::optional<In1<std::int64_t>> time;
  std::optional<In1<std::int32_t>> type, vertex_type;
  std::optional<Rows> attr;
  if (store.is_typed()) vertex_type = stored<In1<std::int32_t>>(arrays, "vertex_type");
  if (options.has_weight) weight = stored<In1<float>>(arrays, "weight");
  if (options.has_time) time = stored<In1<std::int64_t>>(arrays, "time");
  if (options.has_type) type = stored<In1<std::int32_t>>(arrays, "type");
  if (options.attr_width > 0) attr = stored<Rows>(arrays, "attr");
  check_lengths("from_arrays", 2, counters.size(), "counters");
  check_lengths("from_arrays", x.shape(0), live_slots.size(), "live");
  GraphArrays input;
  input.slot_count = static_cast<std::int64_t>(x.shape(0));
  input.features = {x.data(), x.size()};
  input.live = span_of(live_slots);
  input.src = span_of(src);
  input.dst = span_of(dst);
  input.id = span_of(id);
  input.weight = span_of(weight);
  input.time = span_of(time);
  input.type = span_of(type);
  if (attr) input.attr = {attr->data(), attr->size()};
  input.vertex_type = span_of(vertex_type);
  input.next_edge_id = counters.data()[1];
  const std::int64_t version = counters.data()[0];
  nb::gil_scoped_release release;
  store.restore(input, 1);
  store.set_version(version);
}

void make_store(GraphStore* place, std::int32_t feature_width, bool has_weight, bool has_time, bool has_type,
                std::int32_t attr_width, bool undirected, bool simple, std::int32_t block_edges_max,
                std::vector<std::int32_t> type_widths, const std::vector<std::int32_t>& src_types,
                const std::vector<std::int32_t>& dst_types) {
  check_lengths("graph", src_types.size(), dst_types.size(), "dst_types");
  GraphOptions options;
  options.feature_width = feature_width;
  options.has_weight = has_weight;
  options.has_time = has_time;
  options.has_type = has_type;
  options.attr_width = attr_width;
  options.undirected = undirected;
  options.simple = simple;
  options.block_edges_max = block_edges_max;
  options.type_widths = std::move(type_widths);
  for (std::size_t i = 0; i < src_types.size(); ++i) options.edge_ends.push_back({src_types[i], dst_types[i]});
  new (place) GraphStore(options);
}

// The sum of all out-neighbours' ids: what a scan of the whole graph costs, for benchmarks/store.py.
std::int64_t scan_out_sum(const GraphStore& store) {
  std::int64_t sum = 0;
  for (VertexId u = 0; u < store.slot_count(); ++u) {
    store.visit_out(u, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < span.count; ++i) sum += span.neighbours[i];
    });
  }
  return sum;
}

void bind_store(nb::module_& m) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<GraphStore>(m, "GraphStore", "The dynamic graph; one writer, callers hold the lock.")
      .def("__init__", &make_store, "feature_width"_a, "has_weight"_a, "has_time"_a, "has_type"_a, "attr_width"_a,
           "undirected"_a, "simple"_a, "block_edges_max"_a = 128, "type_widths"_a = std::vector<std::int32_t>{},
           "src_types"_a = std::vector<std::int32_t>{}, "dst_types"_a = std::vector<std::int32_t>{})
      .def("load", &load, nb::arg("features").noconvert(), nb::arg("src").noconvert(), nb::arg("dst").noconvert(),
           nb::arg("weight").noconvert() = nb::none(), nb::arg("time").noconvert() = nb::none(),
           nb::arg("type").noconvert() = nb::none(), nb::arg("attr").noconvert() = nb::none(), "threads"_a = 1,
           nb::arg("vertex_type").noconvert() = nb::none())
      .def("set_apply_threads", &GraphStore::set_apply_threads, "threads"_a)
      .def(
          "apply", [](GraphStore& store, const UpdateBuffer& buffer) { store.apply(buffer); }, "buffer"_a, Release())
      .def_prop_ro("version", &GraphStore::version)
      .def_prop_ro("slot_count", &GraphStore::slot_count)
      .def_prop_ro("vertex_count", &GraphStore::vertex_count)
      .def_prop_ro("edge_count", &GraphStore::edge_count)
      .def_prop_ro("next_edge_id", &GraphStore::next_edge_id)
      .def("live", &live)
      .def("features", &features, nb::arg("ids").noconvert(), "width"_a = nb::none())
      .def("edge_attrs", &edge_attrs, nb::arg("ids").noconvert())
      .def("has_edge_attrs", &has_edge_attrs, nb::arg("ids").noconvert())
      .def("vertex_types", [](const GraphStore& store) { return make_array(types_of_all(store)); })
      .def("slot_types", &slot_types, nb::arg("slots").noconvert())
      .def("edges", &edges)
      .def(
          "out_neighbours",
          [](const GraphStore& s, std::int64_t u) { return neighbours(s, "out_neighbours", u, true); }, "u"_a)
      .def(
          "in_neighbours", [](const GraphStore& s, std::int64_t v) { return neighbours(s, "in_neighbours", v, false); },
          "v"_a)
      .def(
          "out_degree", [](const GraphStore& s, Ids ids) { return degrees(s, "out_degree", ids, true); },
          nb::arg("ids").noconvert())
      .def(
          "in_degree", [](const GraphStore& s, Ids ids) { return degrees(s, "in_degree", ids, false); },
          nb::arg("ids").noconvert())
      .def("scan_out_sum", &scan_out_sum, Release())
      .def("memory", &memory)
      .def("compact", &GraphStore::compact, Release())
      .def("digest", &GraphStore::digest, Release())
      .def("check_invariants", &GraphStore::check_invariants, Release())
      .def("to_arrays", &to_arrays)
      .def("from_arrays", &from_arrays, "arrays"_a);
}

}  // namespace

void bind_graph(nb::module_& m) {
  bind_update_buffer(m);
  bind_store(m);
}

}  // namespace livegnn
