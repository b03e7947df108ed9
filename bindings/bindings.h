// One function per area; each adds its classes and functions to the module livegnn._core.
#pragma once

#include <nanobind/nanobind.h>

namespace livegnn {

void bind_graph(nanobind::module_& m);   // graph.cc: UpdateBuffer, GraphStore
void bind_engine(nanobind::module_& m);  // engine.cc: programs and the engine

}  // namespace livegnn
