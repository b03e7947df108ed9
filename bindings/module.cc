// The module livegnn._core. Every livegnn::Error leaves it as the class of the same name in livegnn.errors.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>

#include "bindings.h"
#include "data.h"
#include "livegnn/cpu.h"
#include "livegnn/error.h"

namespace nb = nanobind;

namespace livegnn {
namespace {

// The facts that there are, by the names of errors.Facts.
nb::dict facts_of(const ErrorFacts& facts) {
  nb::dict given;
  const auto give = [&](const char* name, const std::string& text) {
    if (!text.empty()) given[name] = text;
  };
  give("where", facts.where);
  give("subject", facts.subject);
  give("expected", facts.expected);
  give("got", facts.got);
  give("advice", facts.advice);
  if (facts.update) given["update"] = *facts.update;
  if (facts.vertex) given["vertex"] = *facts.vertex;
  if (facts.edge) given["edge"] = *facts.edge;
  return given;
}

// Looked up when an error is raised, and not before: livegnn.errors need not be imported yet when this module is.
void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    const nb::object type = nb::module_::import_("livegnn.errors").attr(name_of(e.kind()).data());
    const nb::object made = type(e.what(), **facts_of(e.facts()));
    if (e.facts().engine) made.attr("refused_by") = *e.facts().engine;
    PyErr_SetObject(type.ptr(), made.ptr());
  }
}

}  // namespace
}  // namespace livegnn

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);  // a process may end while a thread or a module still holds an engine
  nb::register_exception_translator(livegnn::translate, nullptr);
  m.attr("__version__") = LIVEGNN_VERSION;
  m.def("cpu_features", &livegnn::cpu_features, "Instruction sets of this machine that kernels exist for.");
  livegnn::bind_graph(m);
  livegnn::bind_edges(m);
  livegnn::bind_program(m);
  livegnn::bind_halo(m);
  livegnn::bind_engine(m);
  livegnn::bind_sampling(m);
  livegnn::bind_sampling_workers(m);
  livegnn::bind_arrivals(m);
  livegnn::bind_partitions(m);
  livegnn::bind_temporal(m);
  livegnn::bind_feature_cache(m);
}
