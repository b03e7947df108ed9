// Compiled models, which the compiler in Python builds from these enumerations and structs.
#include "livegnn/program.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings.h"
#include "data.h"
#include "gil.h"
#include "graph_arrays.h"
#include "livegnn/error.h"
#include "livegnn/row_program.h"

namespace nb = nanobind;

namespace livegnn {
namespace {

using Matrix = graph_arrays::Rows;

void bind_kinds(nb::module_& m) {
  bind_enum<Op>(m, "Op");
  bind_enum<ActivationKind>(m, "ActivationKind");
  bind_enum<Norm>(m, "Norm");
  bind_enum<Reduce>(m, "Reduce");
  bind_enum<Root>(m, "Root");
  bind_enum<Gathering>(m, "Gathering");
  bind_enum<Loops>(m, "Loops");
  bind_enum<Scaling>(m, "Scaling");
}

void bind_instruction(nb::module_& m) {
  using S = Instruction;
  bind_struct<S, 1, &S::op, &S::out, &S::a, &S::b, &S::c, &S::index, &S::index2, &S::width, &S::offset, &S::activation,
              &S::heads, &S::p, &S::q, &S::type>(m, "Instruction");
}

// What is reduced over edges.
void bind_aggregations(nb::module_& m) {
  using C = DegreeNormSpec;
  bind_struct<C, 0, &C::weighted, &C::self_loops, &C::fill, &C::relation, &C::outgoing, &C::scaling, &C::reversed>(
      m, "DegreeNormSpec");
  using A = AttentionSpec;
  bind_struct<A, 3, &A::source_table, &A::target_table, &A::message_table, &A::slope, &A::own_loop, &A::skip_loops>(
      m, "AttentionSpec");
  using G = EdgeReduceSpec;
  bind_struct<G, 2, &G::kind, &G::steps, &G::heads, &G::loops, &G::fill_mean, &G::fill, &G::typed, &G::sums_sources,
              &G::source_input, &G::target_input, &G::attributes, &G::weights>(m, "EdgeReduceSpec");
  using S = AggregationSpec;
  bind_struct<S, 3, &S::name, &S::width, &S::stage, &S::norm, &S::weighted, &S::self_loops, &S::context,
              &S::message_table, &S::root, &S::root_table, &S::root_coefficient, &S::consumers, &S::reduce,
              &S::relation, &S::relations, &S::gather, &S::attention, &S::heads, &S::target, &S::reversed>(
      m, "AggregationSpec");
}

void bind_rows(nb::module_& m) {
  using S = StoredSpec;
  bind_struct<S, 3, &S::name, &S::width, &S::stage, &S::consumers>(m, "StoredSpec");
  nb::class_<WeightSpec>(m, "WeightSpec")
      .def(
          "__init__",
          [](WeightSpec* made, const Matrix& w) {
            new (made)
                WeightSpec{static_cast<int>(w.shape(0)), static_cast<int>(w.shape(1)), {w.data(), w.data() + w.size()}};
          },
          nb::arg("weight").noconvert());
}

auto run(const RowProgram& program, const Matrix& in) {
  invariant(in.shape(1) == static_cast<std::size_t>(program.input_width()), "rows of another width");
  graph_arrays::Out2<float> out = graph_arrays::new_rows(in.shape(0), program.output_width());
  {
    GilRelease release;
    program.run(in.data(), static_cast<int>(in.shape(0)), out.data());
  }
  return out;
}

}  // namespace

void bind_program(nb::module_& m) {
  bind_kinds(m);
  bind_instruction(m);
  bind_aggregations(m);
  bind_rows(m);
  using P = Program;
  bind_struct<P, 15, &P::input_width, &P::output_width, &P::register_widths, &P::register_parents, &P::register_offsets,
              &P::weights, &P::vectors, &P::contexts, &P::aggregations, &P::gathers, &P::attentions, &P::stored,
              &P::stages, &P::input_consumers, &P::typed>(m, "Program")
      .def("aggregation_widths", [](const Program& p) {
        std::vector<int> widths;
        for (const AggregationSpec& spec : p.aggregations) widths.push_back(spec.width);
        return widths;
      });
  nb::class_<RowProgram>(m, "RowProgram", "A row-local model, run on rows that are given.")
      .def(nb::init<Program>(), nb::arg("program"))
      .def("run", &run, nb::arg("rows").noconvert());
}

}  // namespace livegnn
