// A limit of memory (NeutronRT, section V.B): the rows of hubs stay, the others are in files and come when they are
// touched. Three quarters of the limit are for rows in memory, half of these for the hubs'; a quarter for deltas on
// their way. What a push would need beyond that, a sweep does without.
#include <algorithm>
#include <utility>

#include "inference/engine_impl.h"

namespace livegnn {

std::unique_ptr<Pager> Workspace::make_pager() {
  if (options.memory_limit == 0) return nullptr;
  const std::size_t rows_limit = options.memory_limit - options.memory_limit / 4;
  auto made = std::make_unique<Pager>(options.spill_folder, rows_limit);
  std::size_t row_bytes = at(round_up(source().output_width, 16)) * sizeof(float);
  for (const auto& op : operators) row_bytes += at(op->stride()) * sizeof(std::int64_t);
  for (const StoredSpec& spec : source().stored) {
    row_bytes += compact() ? 0 : at(round_up(spec.width, 16)) * sizeof(float);
  }
  block_rows = std::max<std::int64_t>(1, static_cast<std::int64_t>(rows_limit / 16 / row_bytes));
  const std::int64_t slots_now = graph.slot_count();
  const std::int64_t hubs = std::min<std::int64_t>(slots_now, static_cast<std::int64_t>(rows_limit / 2 / row_bytes));
  std::vector<std::pair<std::int64_t, VertexId>> ranked(at(slots_now));  // by falling degree
  for (VertexId v = 0; v < slots_now; ++v) {
    ranked[at(v)] = {-(std::int64_t{graph.in_degree(v)} + graph.out_degree(v)), v};
  }
  std::nth_element(ranked.begin(), ranked.begin() + hubs, ranked.end());
  std::sort(ranked.begin(), ranked.begin() + hubs);
  std::vector<VertexId> first(at(hubs));
  for (std::int64_t i = 0; i < hubs; ++i) first[at(i)] = ranked[at(i)].second;
  made->rank(first, slots_now);
  return made;
}

// The files are shared with a process that was forked off: what one writes, the other would read. And what could not be
// written to a disk is lost.
void EngineImpl::refuse_unsound_files() const {
  if (work_.pager == nullptr) return;
  if (!work_.pager->made_here()) {
    throw Error(ErrorKind::SpillUnavailable, {.where = "Engine",
                                              .expected = "the process that made an engine with a memory limit",
                                              .got = "one that was forked from it",
                                              .advice = "make an engine in each process"});
  }
  if (work_.pager->damaged()) {
    throw Error(ErrorKind::SpillUnavailable, {.where = "Engine",
                                              .expected = "rows to be written to " + work_.pager->folder(),
                                              .got = "an error of the disk",
                                              .advice = "make the engine anew in another folder"});
  }
}

std::optional<PagingStats> EngineImpl::paging() const {
  if (work_.pager == nullptr) return std::nullopt;
  const PagerStats stats = work_.pager->stats();
  return PagingStats{work_.options.memory_limit,
                     work_.pager->resident_now(),
                     stats.files,
                     stats.pinned_rows,
                     stats.brought,
                     stats.dropped};
}

}  // namespace livegnn
