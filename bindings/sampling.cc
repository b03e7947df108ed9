// Reservoirs: tables of samples, and queries answered from them. Results are new arrays; everything but a look at a few
// numbers releases the GIL.
#include "livegnn/sampling.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <vector>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

template <typename T>
using Out = nb::ndarray<nb::numpy, T, nb::c_contig>;
using Ids = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Flags = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

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

nb::tuple sample(Reservoirs& reservoirs, const std::vector<std::int32_t>& tables, const Ids& seeds,
                 const std::vector<std::int32_t>& widths, bool edge_ids) {
  std::vector<std::int32_t> fan_outs;
  for (const std::int32_t table : tables) fan_outs.push_back(reservoirs.query(table).fan_out);
  Answer answer(seeds, fan_outs, widths, edge_ids);
  answer.request.tables = tables;
  std::int64_t version = 0;
  {
    nb::gil_scoped_release release;
    version = reservoirs.sample(answer.request);
  }
  return answer.release(version);
}

OneHop one_hop(std::int32_t hop, std::int32_t edge_type, int direction, int by, std::int32_t fan_out,
               std::int64_t ttl) {
  invariant(hop >= 1 && direction >= 0 && direction <= 2 && by >= 0 && by <= 2, "a one-hop query of no known kind");
  invariant(fan_out >= 1 && fan_out <= kFanOutMax && ttl >= 0, "a one-hop query out of range");
  return {hop, edge_type, static_cast<HopDirection>(direction), static_cast<SampleBy>(by), fan_out, ttl};
}

using HopNumbers = std::array<std::int64_t, 6>;  // hop, edge type, direction, by, fan-out, ttl

nb::tuple ad_hoc(const GraphStore& graph, const std::vector<HopNumbers>& numbers, std::uint64_t seed, std::int64_t now,
                 bool sort_all, const Ids& seeds, const std::vector<std::int32_t>& widths, bool edge_ids, int threads) {
  std::vector<OneHop> hops;
  std::vector<std::int32_t> fan_outs;
  for (const HopNumbers& n : numbers) {
    hops.push_back(one_hop(static_cast<std::int32_t>(n[0]), static_cast<std::int32_t>(n[1]), static_cast<int>(n[2]),
                           static_cast<int>(n[3]), static_cast<std::int32_t>(n[4]), n[5]));
    fan_outs.push_back(hops.back().fan_out);
  }
  Answer answer(seeds, fan_outs, widths, edge_ids);
  {
    nb::gil_scoped_release release;
    sample_ad_hoc(graph, hops, seed, now, sort_all ? AdHocMethod::SortAll : AdHocMethod::Index, answer.request,
                  threads);
  }
  return answer.release(graph.version());
}

void bind_reservoirs(nb::module_& m) {
  nb::class_<Reservoirs, BatchFollower>(m, "Reservoirs")
      .def(
          "__init__",
          [](Reservoirs* self, const GraphStore& graph, std::uint64_t seed, int threads, bool features,
             bool track_changes, const Flags& owned) {
            std::vector<std::uint8_t> buckets(owned.data(), owned.data() + owned.size());
            invariant(buckets.empty() || buckets.size() == kBuckets, "flags of owned buckets of the wrong number");
            new (self) Reservoirs(graph, {seed, threads, features, track_changes}, std::move(buckets));
          },
          "graph"_a, "seed"_a, "threads"_a, "features"_a, "track_changes"_a, nb::arg("owned").noconvert(),
          nb::keep_alive<1, 2>())
      .def(
          "add_table",
          [](Reservoirs& r, std::int32_t hop, std::int32_t edge_type, int direction, int by, std::int32_t fan_out,
             std::int64_t ttl) {
            const OneHop query = one_hop(hop, edge_type, direction, by, fan_out, ttl);
            nb::gil_scoped_release release;
            return r.add_table(query);
          },
          "hop"_a, "edge_type"_a, "direction"_a, "by"_a, "fan_out"_a, "ttl"_a)
      .def("drop_table", &Reservoirs::drop_table, "table"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("sample", &sample, "tables"_a, nb::arg("seeds").noconvert(), "widths"_a, "edge_ids"_a)
      .def(
          "view",
          [](const Reservoirs& r, std::int32_t table, VertexId v) {
            const SampleView row = r.view(table, v);
            return nb::make_tuple(copied(row.neighbours), copied(row.edge_ids));
          },
          "table"_a, "vertex"_a, "Neighbours and edge ids of one sample; the caller keeps batches away.")
      .def("version", &Reservoirs::version)
      .def("now", &Reservoirs::now)
      .def("set_now", &Reservoirs::set_now, "now"_a)
      .def("refills", &Reservoirs::refills)
      .def("digest", &Reservoirs::digest, nb::call_guard<nb::gil_scoped_release>())
      .def("check_invariants", &Reservoirs::check_invariants, nb::call_guard<nb::gil_scoped_release>())
      .def("bytes", [](const Reservoirs& r) {
        const SamplingBytes b = r.bytes();
        nb::dict out;
        out["rows_live"] = b.rows_live;
        out["rows_reserved"] = b.rows_reserved;
        out["pointers"] = b.pointers;
        out["features"] = b.features;
        out["expiry"] = b.expiry;
        return out;
      });
}

}  // namespace

void bind_sampling(nb::module_& m) {
  bind_reservoirs(m);
  m.def("sample_ad_hoc", &ad_hoc, "graph"_a, "hops"_a, "seed"_a, "now"_a, "sort_all"_a, nb::arg("seeds").noconvert(),
        "widths"_a, "edge_ids"_a, "threads"_a);
}

}  // namespace livegnn
