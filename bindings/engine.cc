// The engine and what_if. Every call that works through many rows releases the GIL.
#include "livegnn/engine.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using Ids = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatRows = nb::ndarray<nb::numpy, float, nb::ndim<2>, nb::c_contig>;
using IdArray = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>, nb::c_contig>;

template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig> own(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>(kept->data(), {kept->size()}, owner);
}

FloatRows rows(std::size_t count, std::size_t width) {
  auto* values = new float[count * width + 1];
  nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return FloatRows(values, {count, width}, owner);
}

IdArray id_array(const std::vector<VertexId>& vertices) {
  return own(std::vector<std::int64_t>(vertices.begin(), vertices.end()));
}

std::span<const std::int64_t> span_of(const Ids& ids) { return {ids.data(), ids.size()}; }

nb::object extremes_of(const ExtremeStats& stats) {
  if (!stats.present) return nb::none();
  nb::dict out;
  out["no_deletion"] = stats.no_deletion;
  out["no_effect"] = stats.no_effect;
  out["covered"] = stats.covered;
  out["exposed"] = stats.exposed;
  out["resilient"] = stats.resilient;
  out["reread_bytes"] = stats.reread_bytes;
  return out;
}

nb::dict stage_dict(const StageStats& stats) {
  static constexpr const char* kPaths[] = {"none", "push", "pull", "sweep"};
  nb::dict out;
  out["affected"] = stats.affected;
  out["edges"] = stats.edges;
  out["scanned"] = stats.scanned;
  out["reread"] = stats.reread;
  out["path"] = kPaths[static_cast<int>(stats.path)];
  out["transform_seconds"] = stats.transform_seconds;
  out["aggregate_seconds"] = stats.aggregate_seconds;
  out["extremes"] = extremes_of(stats.extremes);
  return out;
}

void bind_changes(nb::module_& m) {
  nb::class_<Changes>(m, "NativeChanges")
      .def("vertices",
           [](Changes& c) {
             c.arrange();
             return id_array(c.vertices);
           })
      .def("count",
           [](Changes& c) {
             c.arrange();
             return c.vertices.size();
           })
      .def("stages",
           [](const Changes& c) {
             nb::list all;
             for (const StageStats& stats : c.stages) all.append(stage_dict(stats));
             return all;
           })
      .def("seconds",
           [](const Changes& c) { return nb::make_tuple(c.topology_seconds, c.publish_seconds, c.total_seconds); });
}

EngineOptions options_of(int strategy, int path, bool exact, bool compact, bool on_demand, bool constrained,
                         int threads, int fanout, std::uint64_t seed, std::vector<std::vector<int>> exponents,
                         std::size_t memory_limit, std::string spill_folder) {
  return {static_cast<Strategy>(strategy),
          static_cast<Path>(path),
          exact,
          compact,
          on_demand,
          constrained,
          threads,
          fanout,
          seed,
          std::move(exponents),
          memory_limit,
          std::move(spill_folder)};
}

nb::class_<Engine> bind_engine_class(nb::module_& m) {
  return nb::class_<Engine>(m, "NativeEngine")
      .def_static(
          "create",
          [](const GraphStore& graph, const Program& program, int strategy, int path, bool exact, bool compact,
             bool on_demand, bool constrained, int threads, int fanout, std::uint64_t seed,
             std::vector<std::vector<int>> exponents, std::size_t memory_limit, std::string spill_folder) {
            const EngineOptions options =
                options_of(strategy, path, exact, compact, on_demand, constrained, threads, fanout, seed,
                           std::move(exponents), memory_limit, std::move(spill_folder));
            nb::gil_scoped_release release;
            return Engine::create(graph, program, options);
          },
          "graph"_a, "program"_a, "strategy"_a, "path"_a, "exact"_a, "compact"_a, "on_demand"_a, "constrained"_a,
          "threads"_a, "fanout"_a, "seed"_a, "scale_exponents"_a, "memory_limit"_a, "spill_folder"_a,
          nb::keep_alive<0, 1>())
      .def(
          "read",
          [](const Engine& e, Ids ids) {
            FloatRows out = rows(ids.size(), static_cast<std::size_t>(e.output_width()));
            {
              nb::gil_scoped_release release;
              e.read(span_of(ids), out.data());
            }
            return out;
          },
          nb::arg("ids").noconvert())
      .def(
          "read_versioned",
          [](const Engine& e, Ids ids) {
            FloatRows out = rows(ids.size(), static_cast<std::size_t>(e.output_width()));
            std::int64_t version = 0;
            {
              nb::gil_scoped_release release;
              version = e.read(span_of(ids), out.data());
            }
            return nb::make_tuple(out, version);
          },
          nb::arg("ids").noconvert())
      .def(
          "read_staged",
          [](const Engine& e, Ids ids) {
            FloatRows out = rows(ids.size(), static_cast<std::size_t>(e.output_width()));
            e.read_staged(span_of(ids), out.data());
            return out;
          },
          nb::arg("ids").noconvert())
      .def(
          "recompute",
          [](const Engine& e, std::int64_t slots) {
            FloatRows out = rows(static_cast<std::size_t>(slots), static_cast<std::size_t>(e.output_width()));
            {
              nb::gil_scoped_release release;
              e.recompute(out.data());
            }
            return out;
          },
          "slots"_a)
      .def("verify", [](const Engine& e) {
        Mismatch mismatch;
        {
          nb::gil_scoped_release release;
          mismatch = e.verify();
        }
        return mismatch.found ? nb::cast(mismatch.what) : nb::none();
      });
}

// What an engine says of itself.
void bind_engine_facts(nb::class_<Engine>& engine) {
  engine
      .def(
          "demand",
          [](Engine& e, Ids ids) {
            DemandStats stats;
            {
              nb::gil_scoped_release release;
              stats = e.demand(span_of(ids));
            }
            return nb::make_tuple(stats.rows, stats.edges, stats.whole);
          },
          nb::arg("ids").noconvert())
      .def("settle", &Engine::settle, nb::call_guard<nb::gil_scoped_release>())
      .def("pending", &Engine::pending);
  engine.def("digest", &Engine::digest, nb::call_guard<nb::gil_scoped_release>())
      .def("staged_vertices", [](const Engine& e) { return id_array(e.staged_vertices()); })
      .def_prop_ro("version", &Engine::version)
      .def("scale_exponents", &Engine::scale_exponents)
      .def("output_width", &Engine::output_width)
      .def("threads", &Engine::threads)
      .def("corrupt_for_test", &Engine::corrupt_for_test, "aggregation"_a, "vertex"_a, "column"_a)
      .def("bytes",
           [](const Engine& e) {
             const StateBytes b = e.bytes();
             nb::dict out;
             out["aggregates"] = b.aggregates;
             out["messages"] = b.messages;
             out["stored"] = b.stored;
             out["contexts"] = b.contexts;
             out["outputs"] = b.outputs;
             out["scratch"] = b.scratch;
             return out;
           })
      .def("paging", [](const Engine& e) -> nb::object {
        const std::optional<PagingStats> stats = e.paging();
        if (!stats) return nb::none();
        return nb::make_tuple(stats->limit, stats->resident, stats->files, stats->hubs, stats->brought, stats->dropped);
      });
}

// Reads under way in other threads keep a snapshot that is closed alive.
struct NativeSnapshot {
  std::shared_ptr<Snapshot> held;
};

void bind_snapshot(nb::module_& m) {
  nb::class_<NativeSnapshot>(m, "NativeSnapshot")
      .def(
          "__init__",
          [](NativeSnapshot* made, Engine& engine) {
            nb::gil_scoped_release release;  // a publication at work may hold it up
            new (made) NativeSnapshot{std::make_shared<Snapshot>(engine)};
          },
          "engine"_a, nb::keep_alive<1, 2>())
      .def_prop_ro("version", [](const NativeSnapshot& s) { return s.held ? s.held->version() : -1; })
      .def_prop_ro("vertex_count", [](const NativeSnapshot& s) { return s.held ? s.held->vertex_count() : -1; })
      .def(
          "read",
          [](const NativeSnapshot& s, Ids ids) -> nb::object {
            const std::shared_ptr<Snapshot> held = s.held;
            if (!held) return nb::none();
            FloatRows out = rows(ids.size(), static_cast<std::size_t>(held->width()));
            {
              nb::gil_scoped_release release;
              held->read(span_of(ids), out.data());
            }
            return nb::cast(out);
          },
          nb::arg("ids").noconvert())
      .def("close", [](NativeSnapshot& s) {
        std::shared_ptr<Snapshot> dropped = std::move(s.held);
        nb::gil_scoped_release release;
        dropped.reset();
      });
}

}  // namespace

void bind_engine(nb::module_& m) {
  nb::class_<BatchFollower>(m, "BatchFollower");
  bind_changes(m);
  nb::class_<Engine> engine = bind_engine_class(m);
  bind_engine_facts(engine);
  bind_snapshot(m);
  m.def(
      "apply_batch",
      [](GraphStore& graph, const std::vector<Engine*>& engines, const std::vector<BatchFollower*>& followers,
         const UpdateBuffer& batch, nb::object before_publish) {
        std::function<void()> hook;
        if (!before_publish.is_none()) {
          hook = [&before_publish] {
            nb::gil_scoped_acquire acquire;
            before_publish();
          };
        }
        nb::gil_scoped_release release;
        return apply_batch(graph, engines, followers, batch, hook);
      },
      "graph"_a, "engines"_a, "followers"_a, "batch"_a, "before_publish"_a = nb::none());
  nb::class_<WhatIf>(m, "NativeWhatIf")
      .def(nb::init<GraphStore&, Engine&, const UpdateBuffer&>(), "graph"_a, "engine"_a, "batch"_a,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::call_guard<nb::gil_scoped_release>())
      .def("close", &WhatIf::close, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace livegnn
