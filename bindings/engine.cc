// The engine and what_if. Every call that works through many rows releases the GIL.
#include "livegnn/engine.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "data.h"
#include "gil.h"
#include "graph_arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using namespace graph_arrays;

// What work() returns, without Python's lock.
template <typename Work>
auto released(Work&& work) {
  GilRelease release;
  return work();
}

using StageFacts = nb::typed<nb::dict, nb::str, nb::any>;

StageFacts stage_dict(const StageStats& stats) {
  static constexpr const char* kPaths[] = {"none", "push", "pull", "sweep"};
  using S = StageStats;
  using M = MinMaxStats;
  nb::dict out =
      dict_of<&S::affected, &S::edges, &S::scanned, &S::reread, &S::transform_seconds, &S::aggregate_seconds>(stats);
  out["path"] = kPaths[static_cast<int>(stats.path)];
  out["extremes"] = nb::none();
  if (stats.extremes.present) {
    out["extremes"] =
        dict_of<&M::no_deletion, &M::no_effect, &M::covered, &M::exposed, &M::resilient, &M::reread_bytes>(
            stats.extremes);
  }
  return out;
}

// (slots, how many of them are gone, is_new, before, after), which the first caller gets; none where they were not
// kept.
using Moves = std::tuple<Out1<std::int64_t>, std::size_t, Out1<std::uint8_t>, Out2<float>, Out2<float>>;

std::optional<Moves> take_moves(Changes& c) {
  if (!c.moves) return std::nullopt;
  OutputMoves moves = std::move(*std::exchange(c.moves, nullptr));
  const std::size_t count = moves.vertices.size();
  const auto rows = [&](std::unique_ptr<float[]> values) {
    float* kept = values.release();
    nb::capsule owner(kept, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    return Out2<float>(kept, {count, moves.width}, owner);
  };
  return Moves(id_array(moves.vertices), moves.gone, make_array(std::move(moves.is_new)), rows(std::move(moves.before)),
               rows(std::move(moves.after)));
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
      .def("take_moves", &take_moves)
      .def("edges_added", [](const Changes& c) { return edge_arrays(c.edges_added); })
      .def("edges_reattributed", [](const Changes& c) { return edge_arrays(c.edges_reattributed); })
      .def("edges_reweighted", [](const Changes& c) { return edge_arrays(c.edges_reweighted); })
      .def("stages",
           [](const Changes& c) {
             nb::typed<nb::list, StageFacts> all;
             for (const StageStats& stats : c.stages) all.append(stage_dict(stats));
             return all;
           })
      .def("seconds",
           [](const Changes& c) { return std::tuple(c.topology_seconds, c.publish_seconds, c.total_seconds); });
}

void bind_options(nb::module_& m) {
  bind_enum<Strategy>(m, "Strategy");
  bind_enum<Path>(m, "Path");
  using O = EngineOptions;
  bind_struct<O, 0, &O::strategy, &O::force_path, &O::compact, &O::on_demand, &O::constrained, &O::lists_edges,
              &O::threads, &O::fanout, &O::seed, &O::scale_exponents, &O::memory_limit, &O::spill_folder>(
      m, "EngineOptions");
}

Out2<float> read(const Engine& e, const Ids& ids) {
  Out2<float> out = new_rows(ids.size(), e.output_width());
  released([&] { return e.read(span_of(ids), out.data()); });
  return out;
}

std::tuple<Out2<float>, std::int64_t> read_versioned(const Engine& e, const Ids& ids) {
  Out2<float> out = new_rows(ids.size(), e.output_width());
  const std::int64_t version = released([&] { return e.read(span_of(ids), out.data()); });
  return {out, version};
}

Out2<float> read_staged(const Engine& e, const Ids& ids) {
  Out2<float> out = new_rows(ids.size(), e.output_width());
  e.read_staged(span_of(ids), out.data());
  return out;
}

Out2<float> recompute(const Engine& e, std::int64_t slots) {
  Out2<float> out = new_rows(static_cast<std::size_t>(slots), e.output_width());
  released([&] { e.recompute(out.data()); });
  return out;
}

std::tuple<std::int64_t, std::int64_t, bool> demand(Engine& e, const Ids& ids) {
  const DemandStats stats = released([&] { return e.demand(span_of(ids)); });
  return {stats.rows, stats.edges, stats.whole};
}

void bind_engine_class(nb::module_& m) {
  nb::class_<Engine> engine(m, "NativeEngine");
  engine
      .def_static("create", &Engine::create, "graph"_a, "program"_a, "options"_a, nb::keep_alive<0, 1>(),
                  nb::call_guard<GilRelease>())
      .def_static(
          "create_part",
          [](const GraphStore& graph, Program program, EngineOptions options, Halo& halo) {
            options.halo = &halo;
            return Engine::create(graph, std::move(program), options);
          },
          "graph"_a, "program"_a, "options"_a, "halo"_a, nb::keep_alive<0, 1>(), nb::keep_alive<0, 4>(),
          nb::call_guard<GilRelease>())
      .def("read", &read, nb::arg("ids").noconvert())
      .def("read_versioned", &read_versioned, nb::arg("ids").noconvert())
      .def("read_staged", &read_staged, nb::arg("ids").noconvert())
      .def("recompute", &recompute, "slots"_a)
      .def("verify", &Engine::verify, nb::call_guard<GilRelease>())
      .def("demand", &demand, nb::arg("ids").noconvert())
      .def("flush", &Engine::flush, nb::call_guard<GilRelease>())
      .def("pending", &Engine::pending)
      .def("digest", &Engine::digest, nb::call_guard<GilRelease>())
      .def("staged_vertices", [](const Engine& e) { return id_array(e.staged_vertices()); })
      .def("note_changes", &Engine::note_changes)
      .def("keep_moves", &Engine::keep_moves, "rows_max"_a)
      .def(
          "changed_since",
          [](const Engine& e, std::int64_t place) {
            const auto found = e.changed_since(place);
            return found ? std::optional(id_array(*found)) : std::nullopt;
          },
          "place"_a)
      .def_prop_ro("version", &Engine::version)
      .def("scale_exponents", &Engine::scale_exponents)
      .def("corrupt_for_test", &Engine::corrupt_for_test, "aggregation"_a, "vertex"_a, "column"_a)
      .def("bytes",
           [](const Engine& e) {
             using B = StateBytes;
             const nb::typed<nb::dict, nb::str, std::size_t> out =
                 dict_of<&B::aggregates, &B::messages, &B::stored, &B::contexts, &B::outputs, &B::scratch>(e.bytes());
             return out;
           })
      .def("paging", [](const Engine& e) {
        const auto facts = [](const PagingStats& p) {
          return std::tuple(p.limit, p.resident, p.files, p.hubs, p.brought, p.dropped);
        };
        const std::optional<PagingStats> stats = e.paging();
        return stats ? std::optional(facts(*stats)) : std::nullopt;
      });
  bind_explain(engine);
  bind_part(m, engine);
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
            GilRelease release;  // a publication at work may hold it up
            new (made) NativeSnapshot{std::make_shared<Snapshot>(engine)};
          },
          "engine"_a, nb::keep_alive<1, 2>())
      .def_prop_ro("version", [](const NativeSnapshot& s) { return s.held ? s.held->version() : -1; })
      .def_prop_ro("vertex_count", [](const NativeSnapshot& s) { return s.held ? s.held->vertex_count() : -1; })
      .def(
          "read",
          [](const NativeSnapshot& s, const Ids& ids) -> std::optional<Out2<float>> {
            const std::shared_ptr<Snapshot> held = s.held;
            if (!held) return std::nullopt;
            Out2<float> out = new_rows(ids.size(), held->width());
            released([&] { held->read(span_of(ids), out.data()); });
            return out;
          },
          nb::arg("ids").noconvert())
      .def("close", [](NativeSnapshot& s) {
        std::shared_ptr<Snapshot> dropped = std::move(s.held);
        GilRelease release;
        dropped.reset();
      });
}

}  // namespace

void bind_engine(nb::module_& m) {
  nb::class_<BatchFollower>(m, "BatchFollower");
  bind_options(m);
  bind_changes(m);
  bind_engine_class(m);
  bind_snapshot(m);
  m.def(
      "apply_batch",
      [](GraphStore& graph, const std::vector<Engine*>& engines, const std::vector<BatchFollower*>& followers,
         const UpdateBuffer& batch, const std::optional<nb::typed<nb::callable, nb::object()>>& before_publish) {
        std::function<void()> hook;
        if (before_publish) {
          hook = [&before_publish] {
            nb::gil_scoped_acquire acquire;
            (*before_publish)();
          };
        }
        GilRelease release;
        return apply_batch(graph, engines, followers, batch, hook);
      },
      "graph"_a, "engines"_a, "followers"_a, "batch"_a, "before_publish"_a = nb::none());
  nb::class_<WhatIf>(m, "NativeWhatIf")
      .def(nb::init<GraphStore&, Engine&, const UpdateBuffer&>(), "graph"_a, "engine"_a, "batch"_a,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::call_guard<GilRelease>())
      .def("close", &WhatIf::close, nb::call_guard<GilRelease>());
}

}  // namespace livegnn
