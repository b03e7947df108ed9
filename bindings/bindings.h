// One function per area; each adds its classes and functions to the module livegnn._core.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

namespace livegnn {

class Engine;
enum class FeatureDtype : std::uint8_t;
FeatureDtype dtype_named(const std::string& name);  // graph.cc; throws Error(ValueInvalid)

void bind_updates(nanobind::module_& m);              // updates.cc: UpdateBuffer
void bind_graph(nanobind::module_& m);                // graph.cc: GraphStore, and UpdateBuffer before it
void bind_edges(nanobind::module_& m);                // edges.cc: finding single edges, and those at some vertices
void bind_program(nanobind::module_& m);              // program.cc: compiled models
void bind_halo(nanobind::module_& m);                 // halo.cc: one part of a graph that is cut
void bind_engine(nanobind::module_& m);               // engine.cc: the engine and what_if
void bind_explain(nanobind::class_<Engine>& engine);  // explain.cc: what explanations read
void bind_sampling(nanobind::module_& m);             // sampling.cc: tables of samples
void bind_sampling_workers(nanobind::module_& m);     // sampling_workers.cc: partitions, subscriptions, serving tables
void bind_partitions(nanobind::module_& m);           // partitions.cc: parts for vertices of a stream
void bind_temporal(nanobind::module_& m);             // temporal.cc: temporal sampling, and pins
void bind_arrivals(nanobind::module_& m);             // arrivals.cc: what batches brought
void bind_feature_cache(nanobind::module_& m);  // feature_cache.cc: feature caches, and the rows that batches change

}  // namespace livegnn
