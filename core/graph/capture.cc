#include <algorithm>
#include <cstring>

#include "livegnn/graph_capture.h"
#include "util/thread_pool.h"

namespace livegnn {

namespace {
constexpr std::size_t kPieceBytes = std::size_t{1} << 20, kPageBytes = 4096, kParallelPieces = 8;

template <typename Parts, typename Work>
void each_part(const Parts& parts, int threads, Work&& work) {
  ThreadPool pool(parts.size() < kParallelPieces ? 1 : threads, ThreadPool::kNoSpin);
  pool.run(static_cast<std::int64_t>(parts.size()),
           [&](std::int64_t at, int) { work(parts[static_cast<std::size_t>(at)]); });
}
}  // namespace

std::vector<CopyPlan::Part> CopyPlan::pieces() const {
  std::vector<Part> pieces;
  for (const Part& part : parts_) {
    for (std::size_t at = 0; at < part.bytes; at += kPieceBytes) {
      pieces.push_back(
          {part.to + at, part.from == nullptr ? nullptr : part.from + at, std::min(kPieceBytes, part.bytes - at)});
    }
  }
  return pieces;
}

void CopyPlan::touch(int threads) const {
  each_part(pieces(), threads, [](const Part& piece) {
    for (std::size_t at = 0; at < piece.bytes; at += kPageBytes) piece.to[at] = std::byte{0};
  });
}

void CopyPlan::run(int threads) const {
  each_part(pieces(), threads, [](const Part& piece) { std::memcpy(piece.to, piece.from, piece.bytes); });
}

GraphCapture::GraphCapture(const GraphStore& store)
    : options_(store.options_),
      pool_(store.out_.pool().columns(), options_.block_edges_max),
      features_(store.features_.dtype(), store.features_.stride()),
      attributes_(options_.attr_width) {
  note(store, room_);
  room_.add(runs_, Column<CapturedRun>(), store.slot_count_ + store.out_.entry_count() / options_.block_edges_max);
}

void GraphCapture::note(const GraphStore& store, CopyPlan& plan) {
  pool_.copy_from(store.out_.pool(), plan);
  features_.copy_from(store.features_, store.slot_count_, plan);
  plan.add(live_, store.live_, store.slot_count_);
  if (store.is_typed()) plan.add(vertex_types_, store.vertex_types_, store.slot_count_);
  if (options_.attr_width > 0) attributes_.copy_from(store.attributes_, plan);
}

void GraphCapture::take(const GraphStore& store, int threads) {
  CopyPlan plan(CopyPlan::Room::Exact);
  note(store, plan);
  plan.run(threads);
  version_ = store.version_;
  edge_count_ = store.edge_count_;
  next_edge_id_ = store.next_edge_id_;
  slot_count_ = store.slot_count_;
  note_runs(store.out_);
}

void GraphCapture::note_runs(const Adjacency& lists) {
  run_count_ = 0;
  const auto note_run = [&](VertexId owner, std::int64_t place, std::int32_t count) {
    runs_.reserve(run_count_ + 1);
    runs_[run_count_++] = {place, owner, count};
  };
  for (VertexId v = 0; v < slot_count_; ++v) {
    const Adjacency::View view = lists.view(v);
    if (view.count == 0) continue;
    if (view.chain == nullptr) {
      note_run(v, view.place, view.count);
    } else {
      view.chain->each_block([&](const BlockChain::Block& block) { note_run(v, block.place, block.count); });
    }
  }
}

EdgeRun GraphCapture::edges() const {
  EdgeRun edges;
  edges.reserve(static_cast<std::size_t>(edge_count_));
  for (std::int64_t at = 0; at < run_count_; ++at) {
    const CapturedRun& run = runs_[at];
    const EdgeSpan span = pool_.span(run.place, run.count);
    for (std::int32_t i = 0; i < span.count; ++i) {
      if (options_.undirected && span.neighbours[i] < run.owner) continue;  // the other end has it
      edges.push_back(EdgeRecord::of(run.owner, span.entry(i)));
    }
  }
  std::sort(edges.begin(), edges.end(), [](const EdgeRecord& a, const EdgeRecord& b) { return a.id < b.id; });
  return edges;
}

}  // namespace livegnn
