// Compiled models, as the compiler in Python builds them.
#include "livegnn/program.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void bind_constants(nb::class_<Program>& program) {
  program
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
          nb::arg("vector").noconvert());
}

// What is reduced over edges.
void bind_aggregations(nb::class_<Program>& program) {
  program
      .def(
          "add_context",
          [](Program& p, bool weighted, bool self_loops, float fill, int relation, bool outgoing, int scaling) {
            p.contexts.push_back({weighted, self_loops, fill, relation, outgoing, static_cast<Scaling>(scaling)});
            return p.contexts.size() - 1;
          },
          "weighted"_a, "self_loops"_a, "fill"_a, "relation"_a, "outgoing"_a, "scaling"_a)
      .def(
          "add_aggregation",
          [](Program& p, std::string name, int width, int stage, int norm, bool weighted, bool self_loops, float fill,
             int context, int message_table, int root, int root_table, float root_coefficient,
             std::vector<int> consumers, int reduce, int relation, std::vector<int> relations, int gather,
             int attention, int heads, int target) {
            p.aggregations.push_back({std::move(name),
                                      width,
                                      stage,
                                      static_cast<Norm>(norm),
                                      weighted,
                                      self_loops,
                                      fill,
                                      context,
                                      message_table,
                                      static_cast<Root>(root),
                                      root_table,
                                      root_coefficient,
                                      std::move(consumers),
                                      static_cast<Reduce>(reduce),
                                      relation,
                                      std::move(relations),
                                      gather,
                                      attention,
                                      heads,
                                      target});
          },
          "name"_a, "width"_a, "stage"_a, "norm"_a, "weighted"_a, "self_loops"_a, "fill"_a, "context"_a,
          "message_table"_a, "root"_a, "root_table"_a, "root_coefficient"_a, "consumers"_a, "reduce"_a, "relation"_a,
          "relations"_a, "gather"_a, "attention"_a, "heads"_a, "target"_a);
}

// Messages computed edge by edge, and the rows that are kept for aggregations.
void bind_gathers(nb::class_<Program>& program) {
  program
      .def(
          "add_gather",
          [](Program& p, int kind, int heads, int loops, bool fill_mean, float fill, bool sums_sources) {
            GatherSpec spec;
            spec.kind = static_cast<Gathering>(kind);
            spec.heads = heads;
            spec.loops = static_cast<Loops>(loops);
            spec.fill_mean = fill_mean;
            spec.fill = fill;
            spec.sums_sources = sums_sources;
            p.gathers.push_back(std::move(spec));
            return p.gathers.size() - 1;
          },
          "kind"_a, "heads"_a, "loops"_a, "fill_mean"_a, "fill"_a, "sums_sources"_a)
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
             std::vector<int> source_of, std::vector<int> target_of, std::vector<int> attention_source_of,
             std::vector<int> attention_target_of) {
            p.stored.push_back({std::move(name), width, stage, root_of, std::move(consumers), std::move(source_of),
                                std::move(target_of), std::move(attention_source_of), std::move(attention_target_of)});
          },
          "name"_a, "width"_a, "stage"_a, "root_of"_a, "consumers"_a, "source_of"_a, "target_of"_a,
          "attention_source_of"_a, "attention_target_of"_a);
}

void bind_attentions(nb::class_<Program>& program) {
  program.def(
      "add_attention",
      [](Program& p, float slope, bool own_loop, bool skip_loops, int source_table, int target_table,
         int message_table) {
        p.attentions.push_back({slope, own_loop, skip_loops, source_table, target_table, message_table});
        return p.attentions.size() - 1;
      },
      "slope"_a, "own_loop"_a, "skip_loops"_a, "source_table"_a, "target_table"_a, "message_table"_a);
}

}  // namespace

void bind_program(nb::module_& m) {
  nb::class_<Program> program(m, "Program");
  program.def(nb::init<>())
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
      .def("add_stage", [](Program& p) { p.stages.emplace_back(); })
      .def(
          "add_instruction",
          [](Program& p, int stage, int gather, int op, int out, int a, int b, int index, int index2, int width,
             int offset, int kind, float x, float y, int type) {
            std::vector<Instruction>& steps = gather < 0 ? p.stages.at(static_cast<std::size_t>(stage))
                                                         : p.gathers.at(static_cast<std::size_t>(gather)).steps;
            steps.push_back({static_cast<Op>(op), out, a, b, index, index2, width, offset, kind, x, y, type});
            if (type < 0) return;
            (gather < 0 ? p.typed : p.gathers.at(static_cast<std::size_t>(gather)).typed) = true;
          },
          "stage"_a, "gather"_a, "op"_a, "out"_a, "a"_a, "b"_a, "index"_a, "index2"_a, "width"_a, "offset"_a, "kind"_a,
          "p"_a, "q"_a, "type"_a);
  bind_constants(program);
  bind_aggregations(program);
  bind_gathers(program);
  bind_attentions(program);
}

}  // namespace livegnn
