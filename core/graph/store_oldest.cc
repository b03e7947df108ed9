// Removals by time: only vertices whose oldest edges are due are visited.
#include <string>

#include "graph/journal.h"
#include "livegnn/graph.h"

namespace livegnn {

// A queue is built by the first removal that asks for it, and kept up from then on.
OldestEdges& GraphStore::oldest_of(std::int32_t type) {
  for (OldestEdges& each : oldest_) {
    if (each.type() == type) return each;
  }
  OldestEdges made(type);
  for (VertexId u = 0; u < slot_count_; ++u) {
    EdgeTime first = OldestEdges::kNever;
    visit_out(u, [&](const EdgeSpan& span) {
      for (std::int32_t i = 0; i < span.count && first == OldestEdges::kNever; ++i) {
        if (type == kUnsetType || span.types[i] == type) first = span.times[i];
      }
    });
    if (first != OldestEdges::kNever) made.note(u, first);
  }
  oldest_.push_back(std::move(made));
  return oldest_.back();
}

void GraphStore::note_oldest(std::span<const EdgeRecord> run) {
  for (OldestEdges& each : oldest_) {
    for (const EdgeRecord& edge : run) {
      if (each.type() == kUnsetType || each.type() == edge.type) each.note(edge.src, edge.time);
    }
  }
}

// The edges out of u with from <= time < before, of one type or of all, into scratch.
void GraphStore::collect_between(VertexId u, EdgeTime from, EdgeTime before, std::int32_t type) {
  std::vector<EdgeEntry>& found = scratch_->incident;
  found.clear();
  out_.visit_between(u, from, before, [&](const EdgeSpan& span, std::int32_t first, std::int32_t last) {
    for (std::int32_t i = first; i < last; ++i) {
      if (type == kUnsetType || span.types[i] == type) found.push_back(span.entry(i));
    }
  });
}

void GraphStore::remove_edges_before(const Update& update) {
  if (!options_.has_time) {
    throw Error(ErrorKind::ColumnMissing,
                {.expected = "a graph with times", .got = "one without", .advice = "create the graph with times"});
  }
  if (update.time == kUnsetTime) {
    throw Error(ErrorKind::ColumnMissing, {.expected = "a time", .got = "none", .advice = "give the time"});
  }
  check_filter(update);
  if (has_offloaded()) refuse_offloaded("every edge in memory");
  const EdgeTime before = update.time;
  OldestEdges& oldest = oldest_of(update.type);
  const bool whole_lists = update.type == kUnsetType && !options_.undirected;
  while (const auto due = oldest.next(before)) {
    const VertexId u = due->second;
    if (u >= slot_count_) {  // of a batch that was taken back
      oldest.settle(*due, OldestEdges::kNever);
      continue;
    }
    collect_between(u, due->first, before, update.type);
    for (const EdgeEntry& entry : scratch_->incident) {
      const EdgeRecord edge = EdgeRecord::of(u, entry);
      journal_removed(edge);
      if (!whole_lists) unlink(edge);
    }
    if (whole_lists) {
      out_.erase_before(u, before);
      for (const EdgeEntry& entry : scratch_->incident) in_->erase_before(entry.neighbour, before);
      edge_count_ -= static_cast<std::int64_t>(scratch_->incident.size());
    }
    oldest.settle(*due, out_.first_time_from(u, before));
  }
}

}  // namespace livegnn
