// Arrays that the bindings of sampling take and give: inputs of exact dtype, results in new memory.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "livegnn/sampling.h"

namespace livegnn {

namespace nb = nanobind;

template <typename T>
using Out = nb::ndarray<nb::numpy, T, nb::c_contig>;
template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = In<std::int64_t>;
using Flags = In<std::uint8_t>;
using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::vector<T> vector_of(const In<T>& array) {
  return {array.data(), array.data() + array.size()};
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
    T* values = values_.release();
    nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return Out<T>(values, shape_.size(), shape_.data(), owner);
  }

 private:
  std::vector<std::size_t> shape_;
  std::unique_ptr<T[]> values_;
};

template <typename T>
nb::list release_all(std::vector<NewArray<T>>& arrays) {
  nb::list out;
  for (NewArray<T>& array : arrays) out.append(array.release());
  return out;
}

template <typename T>
Out<T> copied(std::span<const T> values) {
  NewArray<T> array({values.size()});
  std::copy(values.begin(), values.end(), array.data());
  return array.release();
}

// The arrays of an answer, as a request wants them.
class Answer {
 public:
  Answer(const Ids& seeds, const std::vector<std::int32_t>& fan_outs, const std::vector<std::int32_t>& widths,
         bool edge_ids) {
    request.seeds = {seeds.data(), seeds.size()};
    request.widths = widths;
    shape_ = {seeds.size()};
    add_features(0);
    for (std::size_t hop = 0; hop < fan_outs.size(); ++hop) {
      shape_.push_back(static_cast<std::size_t>(fan_outs[hop]));
      vertices_.emplace_back(shape_);
      request.vertices.push_back(vertices_.back().data());
      if (edge_ids) {
        ids_.emplace_back(shape_);
        request.edge_ids.push_back(ids_.back().data());
      }
      add_features(hop + 1);
    }
  }
  // (version, vertices per hop, edge ids per hop, features per level); the last two empty where not asked for.
  nb::tuple release(std::int64_t version) {
    return nb::make_tuple(version, release_all(vertices_), release_all(ids_), release_all(features_));
  }

  SampleRequest request;

 private:
  void add_features(std::size_t level) {
    if (request.widths.empty()) return;
    std::vector<std::size_t> rows = shape_;
    rows.push_back(static_cast<std::size_t>(request.widths.at(level)));
    features_.emplace_back(rows);
    request.features.push_back(features_.back().data());
  }

  std::vector<std::size_t> shape_;
  std::vector<NewArray<std::int64_t>> vertices_, ids_;
  std::vector<NewArray<float>> features_;
};

}  // namespace livegnn
