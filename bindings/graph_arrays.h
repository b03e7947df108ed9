// Arrays that cross the border of the graph's bindings: in with exact dtypes, out as copies that Python owns.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data.h"
#include "livegnn/error.h"
#include "livegnn/graph.h"
#include "livegnn/types.h"

namespace livegnn::graph_arrays {

namespace nb = nanobind;

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
using Columns = nb::typed<nb::dict, nb::str, nb::ndarray<nb::numpy>>;  // by name
using Counts = nb::typed<nb::dict, nb::str, std::int64_t>;

// An argument that takes an array of exactly its dtype.
inline auto array(const char* name) { return nb::arg(name).noconvert(); }

// An array that keeps the values.
template <typename Array, typename T>
Array give(std::vector<T> values, std::initializer_list<std::size_t> shape) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return Array(reinterpret_cast<typename Array::Scalar*>(kept->data()), shape, owner);
}
template <typename T>
Out1<T> make_array(std::vector<T> values) {
  const std::size_t count = values.size();
  return give<Out1<T>>(std::move(values), {count});
}
inline Out1<std::int64_t> id_array(const std::vector<VertexId>& vertices) {
  return make_array(std::vector<std::int64_t>(vertices.begin(), vertices.end()));
}

// Bytes of Python, to be filled.
inline std::pair<nb::bytes, char*> new_bytes(std::size_t size) {
  nb::bytes made = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!made.is_valid()) throw nb::python_error();
  char* const begin = PyBytes_AsString(made.ptr());
  return {std::move(made), begin};
}

// One value of each item; `read` may be a member.
template <typename T, typename Items, typename Read>
std::vector<T> column_of(const Items& items, Read&& read) {
  std::vector<T> values;
  values.reserve(items.size());
  for (const auto& item : items) values.push_back(static_cast<T>(std::invoke(read, item)));
  return values;
}

template <auto... kMembers, typename Struct>
Counts counts_of(const Struct& counted) {
  Counts out;
  ((out[kName<kMembers>.data()] = counted.*kMembers), ...);
  return out;
}

// Ends and ids of edges.
inline Columns edge_arrays(const EdgeRun& edges) {
  Columns out;
  out["src"] = make_array(column_of<std::int64_t>(edges, &EdgeRecord::src));
  out["dst"] = make_array(column_of<std::int64_t>(edges, &EdgeRecord::dst));
  out["id"] = make_array(column_of<std::int64_t>(edges, &EdgeRecord::id));
  return out;
}

inline VertexId checked_vertex(const GraphStore& store, const char* where, std::int64_t id) {
  if (id >= 0 && id < store.slot_count() && store.is_live(static_cast<VertexId>(id))) return static_cast<VertexId>(id);
  const std::string removed = id >= 0 && id < store.slot_count() ? ", which was removed" : "";
  throw Error(ErrorKind::VertexUnknown, {.where = where,
                                         .expected = "live vertices in 0 .. " + std::to_string(store.slot_count() - 1) +
                                                     " (version " + std::to_string(store.version()) + ")",
                                         .got = std::to_string(id) + removed,
                                         .advice = "add the vertex first",
                                         .vertex = id});
}

// New rows, to be filled.
inline Out2<float> new_rows(std::size_t count, int width) {
  const auto columns = static_cast<std::size_t>(width);
  auto* values = new float[count * columns + 1];
  nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Out2<float>(values, {count, columns}, owner);
}

template <typename T>
std::span<const T> span_of(const In1<T>& array) {
  return {array.data(), array.size()};
}
template <typename Array>
std::span<const typename Array::Scalar> span_of(const std::optional<Array>& array) {
  if (!array) return {};
  return {array->data(), array->size()};
}

inline void check_lengths(const char* where, std::size_t expected, std::size_t got, const char* name) {
  if (expected == got) return;
  throw Error(ErrorKind::WidthMismatch, {.where = where,
                                         .expected = std::to_string(expected) + " values of " + name,
                                         .got = std::to_string(got),
                                         .advice = "give arrays of one length"});
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

inline bool is_given(const nb::dict& arrays, const char* name) {
  return arrays.contains(name) && !arrays[name].is_none();
}

template <typename Array>
std::optional<Array> stored_if(bool wanted, const nb::dict& arrays, const char* name) {
  if (!wanted) return std::nullopt;
  return stored<Array>(arrays, name);
}

}  // namespace livegnn::graph_arrays
