// One batch for the store and everything attached to it: all or none.
#include <exception>

#include "inference/vertex_lists.h"
#include "livegnn/engine.h"

namespace livegnn {

void Changes::arrange() { sort_unique(vertices); }

void MinMaxStats::count(bool deletion, bool holder_left, bool changed, std::int64_t bytes) {
  if (!deletion) {
    ++no_deletion;
  } else if (bytes > 0) {
    ++exposed;
  } else if (holder_left) {
    ++covered;
  } else {
    ++no_effect;
  }
  if (!changed) ++resilient;
  reread_bytes += bytes;
}

void MinMaxStats::add(const MinMaxStats& other) {
  no_deletion += other.no_deletion;
  no_effect += other.no_effect;
  covered += other.covered;
  exposed += other.exposed;
  resilient += other.resilient;
  reread_bytes += other.reread_bytes;
}

namespace {

// An edge whose attributes were set may have gone in the same batch.
void list_edges(const GraphStore& graph, const BatchDelta& delta, Changes& changes) {
  changes.edges_added = delta.added;
  changes.edges_reattributed = delta.reattributed;
  std::erase_if(changes.edges_reattributed,
                [&](const EdgeRecord& edge) { return graph.newest_edge(edge.src, edge.dst, edge.id).id == kNoEdge; });
  for (const EdgeReweighted& edge : delta.reweighted) changes.edges_reweighted.push_back(edge.before);
}

// Writes into the exception that is being handled which engine it came from.
void name_engine(std::size_t place) {
  try {
    throw;
  } catch (Error& error) {
    error.name_engine(place);
  } catch (...) {  // of the machine, not of an engine's rows
  }
}

}  // namespace

std::vector<Changes> apply_batch(GraphStore& graph, std::span<Engine* const> engines,
                                 std::span<BatchFollower* const> followers, const UpdateBuffer& batch,
                                 const std::function<void()>& before_publish) {
  for (const Engine* engine : engines) engine->prefetch(batch);
  const BatchDelta delta = graph.apply(batch);
  try {
    for (const BatchFollower* follower : followers) follower->check(delta);
  } catch (...) {
    graph.undo(delta);
    throw;
  }
  std::size_t prepared = 0, reached = 0;
  try {
    for (; prepared < engines.size(); ++prepared) engines[prepared]->prepare(delta);
  } catch (...) {
    name_engine(prepared);
    for (std::size_t i = 0; i <= prepared; ++i) engines[i]->abort();
    graph.undo(delta);
    throw;
  }
  try {
    for (; reached < engines.size(); ++reached) engines[reached]->propagate(delta);
    if (before_publish) before_publish();
  } catch (...) {
    if (reached < engines.size()) name_engine(reached);
    // State is a function of the graph: with the graph as before, a run from scratch gives every bit back.
    graph.undo(delta);
    for (std::size_t i = 0; i < engines.size(); ++i) {
      if (i > reached) {
        engines[i]->abort();
        continue;
      }
      try {
        engines[i]->rebuild();
      } catch (const Error&) {  // on demand, of what was pending before; the engine tries again when it is asked
      }
    }
    throw;
  }
  // The batch stands: if a follower fails now, the others keep up.
  std::exception_ptr failure;
  for (BatchFollower* follower : followers) {
    try {
      follower->follow(delta, batch);
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  std::vector<Changes> changes;
  changes.reserve(engines.size());
  for (Engine* engine : engines) {
    changes.push_back(engine->publish());
    if (engine->lists_edges()) list_edges(graph, delta, changes.back());
  }
  graph.publish();
  if (failure) std::rethrow_exception(failure);
  return changes;
}

WhatIf::WhatIf(GraphStore& graph, Engine& engine, const UpdateBuffer& batch) : graph_(graph), engine_(engine) {
  delta_ = graph_.apply(batch);
  engine_.begin_journal();
  open_ = true;
  try {
    engine_.prepare(delta_);
    engine_.propagate(delta_);
  } catch (...) {
    close();
    throw;
  }
}

void WhatIf::close() {
  if (!open_) return;
  open_ = false;
  engine_.restore_journal();
  graph_.undo(delta_);
}

WhatIf::~WhatIf() { close(); }

}  // namespace livegnn
