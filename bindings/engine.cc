// Programs, the engine and what_if. Every call that works through many rows releases the GIL.
#include "livegnn/engine.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
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

void bind_program(nb::module_& m) {
  nb::class_<Program>(m, "Program")
      .def(nb::init<>())
      .def_rw("input_width", &Program::input_width)
      .def_rw("output_width", &Program::output_width)
      .def_rw("register_widths", &Program::register_widths)
      .def_rw("register_parents", &Program::register_parents)
      .def_rw("register_offsets", &Program::register_offsets)
      .def_rw("input_consumers", &Program::input_consumers)
      .def("aggregation_widths",
           [](const Program& p) {
             std::vector<int> widths;
             for (const AggregationSpec& spec : p.aggregations) widths.push_back(spec.width);
             return widths;
           })
      .def(
          "add_weight",
          [](Program& p, Matrix w) {
            WeightSpec spec{
                static_cast<int>(w.shape(0)), static_cast<int>(w.shape(1)), {w.data(), w.data() + w.size()}};
            p.weights.push_back(std::move(spec));
            return p.weights.size() - 1;
          },
          nb::arg("weight").noconvert())
      .def(
          "add_vector",
          [](Program& p, Vector v) {
            p.vectors.emplace_back(v.data(), v.data() + v.size());
            return p.vectors.size() - 1;
          },
          nb::arg("vector").noconvert())
      .def(
          "add_context",
          [](Program& p, bool weighted, bool self_loops, float fill, int relation) {
            p.contexts.push_back({weighted, self_loops, fill, relation});
            return p.contexts.size() - 1;
          },
          "weighted"_a, "self_loops"_a, "fill"_a, "relation"_a)
      .def(
          "add_aggregation",
          [](Program& p, std::string name, int width, int stage, int norm, bool weighted, bool self_loops, float fill,
             int context, int message_table, int root, int root_table, float root_coefficient,
             std::vector<int> consumers, int reduce, int relation, int gather) {
            p.aggregations.push_back({std::move(name), width, stage, static_cast<Norm>(norm), weighted, self_loops,
                                      fill, context, message_table, static_cast<Root>(root), root_table,
                                      root_coefficient, std::move(consumers), static_cast<Reduce>(reduce), relation,
                                      gather});
          },
          "name"_a, "width"_a, "stage"_a, "norm"_a, "weighted"_a, "self_loops"_a, "fill"_a, "context"_a,
          "message_table"_a, "root"_a, "root_table"_a, "root_coefficient"_a, "consumers"_a, "reduce"_a, "relation"_a,
          "gather"_a)
      .def(
          "add_gather",
          [](Program& p, int kind, int heads, int loops, bool fill_mean, float fill) {
            GatherSpec spec;
            spec.kind = static_cast<Gathering>(kind);
            spec.heads = heads;
            spec.loops = static_cast<Loops>(loops);
            spec.fill_mean = fill_mean;
            spec.fill = fill;
            p.gathers.push_back(std::move(spec));
            return p.gathers.size() - 1;
          },
          "kind"_a, "heads"_a, "loops"_a, "fill_mean"_a, "fill"_a)
      .def(
          "gather_loads",
          [](Program& p, int gather, bool source_input, bool target_input, bool attributes, bool weights) {
            GatherSpec& spec = p.gathers.at(static_cast<std::size_t>(gather));
            spec.source_input = source_input;
            spec.target_input = target_input;
            spec.attributes = attributes;
            spec.weights = weights;
          },
          "gather"_a, "source_input"_a, "target_input"_a, "attributes"_a, "weights"_a)
      .def(
          "add_stored",
          [](Program& p, std::string name, int width, int stage, int root_of, std::vector<int> consumers,
             std::vector<int> source_of, std::vector<int> target_of) {
            p.stored.push_back({std::move(name), width, stage, root_of, std::move(consumers), std::move(source_of),
                                std::move(target_of)});
          },
          "name"_a, "width"_a, "stage"_a, "root_of"_a, "consumers"_a, "source_of"_a, "target_of"_a)
      .def("add_stage", [](Program& p) { p.stages.emplace_back(); })
      .def(
          "add_instruction",
          [](Program& p, int stage, int gather, int op, int out, int a, int b, int index, int index2, int width,
             int offset, int kind, float x, float y) {
            std::vector<Instruction>& steps = gather < 0 ? p.stages.at(static_cast<std::size_t>(stage))
                                                         : p.gathers.at(static_cast<std::size_t>(gather)).steps;
            steps.push_back({static_cast<Op>(op), out, a, b, index, index2, width, offset, kind, x, y});
          },
          "stage"_a, "gather"_a, "op"_a, "out"_a, "a"_a, "b"_a, "index"_a, "index2"_a, "width"_a, "offset"_a, "kind"_a,
          "p"_a, "q"_a);
}

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

EngineOptions options_of(int strategy, int path, bool exact, bool compact, int threads, int fanout, std::uint64_t seed,
                         std::vector<std::vector<int>> exponents) {
  return {static_cast<Strategy>(strategy),
          static_cast<Path>(path),
          exact,
          compact,
          threads,
          fanout,
          seed,
          std::move(exponents)};
}

nb::class_<Engine> bind_engine_class(nb::module_& m) {
  return nb::class_<Engine>(m, "NativeEngine")
      .def_static(
          "create",
          [](const GraphStore& graph, const Program& program, int strategy, int path, bool exact, bool compact,
             int threads, int fanout, std::uint64_t seed, std::vector<std::vector<int>> exponents) {
            const EngineOptions options =
                options_of(strategy, path, exact, compact, threads, fanout, seed, std::move(exponents));
            nb::gil_scoped_release release;
            return Engine::create(graph, program, options);
          },
          "graph"_a, "program"_a, "strategy"_a, "path"_a, "exact"_a, "compact"_a, "threads"_a, "fanout"_a, "seed"_a,
          "scale_exponents"_a, nb::keep_alive<0, 1>())
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
  engine.def("digest", &Engine::digest, nb::call_guard<nb::gil_scoped_release>())
      .def("staged_vertices", [](const Engine& e) { return id_array(e.staged_vertices()); })
      .def("scale_exponents", &Engine::scale_exponents)
      .def("output_width", &Engine::output_width)
      .def("threads", &Engine::threads)
      .def("corrupt_for_test", &Engine::corrupt_for_test, "aggregation"_a, "vertex"_a, "column"_a)
      .def("bytes", [](const Engine& e) {
        const StateBytes b = e.bytes();
        nb::dict out;
        out["aggregates"] = b.aggregates;
        out["messages"] = b.messages;
        out["stored"] = b.stored;
        out["contexts"] = b.contexts;
        out["outputs"] = b.outputs;
        out["scratch"] = b.scratch;
        return out;
      });
}

}  // namespace

void bind_engine(nb::module_& m) {
  bind_program(m);
  bind_changes(m);
  nb::class_<Engine> engine = bind_engine_class(m);
  bind_engine_facts(engine);
  m.def(
      "apply_batch",
      [](GraphStore& graph, const std::vector<Engine*>& engines, const UpdateBuffer& batch) {
        nb::gil_scoped_release release;
        return apply_batch(graph, engines, batch);
      },
      "graph"_a, "engines"_a, "batch"_a);
  nb::class_<WhatIf>(m, "NativeWhatIf")
      .def(nb::init<GraphStore&, Engine&, const UpdateBuffer&>(), "graph"_a, "engine"_a, "batch"_a,
           nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::call_guard<nb::gil_scoped_release>())
      .def("close", &WhatIf::close, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace livegnn
