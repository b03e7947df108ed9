// Arrays that cross the border of sampling: inputs of exact dtype, results in new memory.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "data.h"
#include "gil.h"
#include "livegnn/sampling.h"

namespace livegnn {

namespace nb = nanobind;

template <typename T>
using Out = nb::ndarray<nb::numpy, T, nb::c_contig>;
template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = In<std::int64_t>;
using Numbers = In<std::int32_t>;
using Flags = In<std::uint8_t>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// An argument that is an array: nanobind would copy one of another dtype.
inline auto operator""_array(const char* name, std::size_t) { return nb::arg(name).noconvert(); }

template <typename T>
std::span<const T> span_of(const In<T>& array) {
  return {array.data(), array.size()};
}

template <typename Array>
auto vector_of(const Array& array) {
  return std::vector<std::remove_const_t<typename Array::Scalar>>(array.data(), array.data() + array.size());
}

// The values themselves, as rows of this width where one is given.
template <typename T, typename... Width>
Out<T> array_of(std::vector<T> values, std::size_t rows, Width... width) {
  auto held = std::make_unique<std::vector<T>>(std::move(values));
  T* data = held->data();
  nb::capsule owner(held.get(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  held.release();
  return Out<T>(data, {rows, static_cast<std::size_t>(width)...}, owner);
}

template <typename T>
Out<T> array_of(std::vector<T> values) {
  const std::size_t count = values.size();
  return array_of(std::move(values), count);
}

// Numbers by the names of their fields.
template <auto... kFields, typename Struct>
auto numbers_of(const Struct& values) {
  nb::typed<nb::dict, nb::str, std::size_t> numbers;
  ((numbers[kName<kFields>.data()] = values.*kFields), ...);
  return numbers;
}

// Values that a query fills, not set before: filling them is the query's work.
template <typename T>
class NewArray {
 public:
  explicit NewArray(std::vector<std::size_t> shape) : shape_(std::move(shape)) {
    std::size_t count = 1;
    for (const std::size_t n : shape_) count *= n;
    values_.reset(new T[count]);
  }
  T* data() const { return values_.get(); }
  Out<T> release() {
    nb::capsule owner(values_.get(), [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return Out<T>(values_.release(), shape_.size(), shape_.data(), owner);
  }

 private:
  std::vector<std::size_t> shape_;
  std::unique_ptr<T[]> values_;
};

template <typename T>
nb::typed<nb::list, Out<T>> release_all(std::vector<NewArray<T>>& arrays) {
  nb::typed<nb::list, Out<T>> out;
  for (NewArray<T>& array : arrays) out.append(array.release());
  return out;
}

// The arrays of an answer, as a request wants them.
class Answer {
 public:
  // by_id: the edges' values are found by their ids, which are filled even where they are not asked for
  Answer(const Ids& seeds, const std::vector<std::int32_t>& fanouts, const std::vector<std::int32_t>& widths,
         bool edge_ids, const EdgeColumns& columns, bool by_id = false)
      : with_ids_(edge_ids) {
    request.seeds = span_of(seeds);
    request.widths = widths;
    request.edge_columns = columns;
    shape_ = {seeds.size()};
    add_features(0);
    for (std::size_t hop = 0; hop < fanouts.size(); ++hop) {
      shape_.push_back(static_cast<std::size_t>(fanouts[hop]));
      request.vertices.push_back(vertices_.emplace_back(shape_).data());
      if (edge_ids || (by_id && columns.words() > 0)) request.edge_ids.push_back(ids_.emplace_back(shape_).data());
      if (columns.weight) request.edge_weights.push_back(weights_.emplace_back(shape_).data());
      if (columns.time) request.edge_times.push_back(times_.emplace_back(shape_).data());
      if (columns.attr_width > 0) request.edge_attrs.push_back(add_rows(attrs_, columns.attr_width));
      add_features(hop + 1);
    }
  }
  using Int64s = nb::typed<nb::list, Out<std::int64_t>>;
  using Floats = nb::typed<nb::list, Out<float>>;
  using Arrays = std::tuple<std::int64_t, Int64s, Int64s, Floats, Floats, Int64s, Floats>;

  // read() fills what is requested and returns the version. Gives (version, vertices per hop, edge ids per hop,
  // features per level, weights, times and attributes per hop); lists are empty where not asked for.
  template <typename Read>
  Arrays filled_by(const Read& read) {
    const std::int64_t version = without_gil(read);
    if (!with_ids_) ids_.clear();
    return {version,
            release_all(vertices_),
            release_all(ids_),
            release_all(features_),
            release_all(weights_),
            release_all(times_),
            release_all(attrs_)};
  }

  SampleRequest request;

 private:
  void add_features(std::size_t level) {
    if (!request.widths.empty()) request.features.push_back(add_rows(features_, request.widths.at(level)));
  }

  float* add_rows(std::vector<NewArray<float>>& arrays, std::int32_t width) const {
    std::vector<std::size_t> rows = shape_;
    rows.push_back(static_cast<std::size_t>(width));
    return arrays.emplace_back(std::move(rows)).data();
  }

  std::vector<std::size_t> shape_;
  bool with_ids_;
  std::vector<NewArray<std::int64_t>> vertices_, ids_, times_;
  std::vector<NewArray<float>> features_, weights_, attrs_;
};

// An answer from tables: Reservoirs, which find the values of edges by their ids, or ServingTables.
template <typename Tables>
Answer::Arrays sample(Tables& tables, const std::vector<std::int32_t>& numbers, const Ids& seeds,
                      const std::vector<std::int32_t>& widths, bool edge_ids, bool edge_data) {
  std::vector<std::int32_t> fanouts;
  for (const std::int32_t number : numbers) fanouts.push_back(tables.fanout(number));
  Answer answer(seeds, fanouts, widths, edge_ids, edge_data ? tables.edge_columns() : EdgeColumns{},
                std::is_same_v<Tables, Reservoirs>);
  answer.request.tables = numbers;
  return answer.filled_by([&] { return tables.sample(answer.request); });
}

}  // namespace livegnn
