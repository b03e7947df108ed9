// Deltas of changed messages along their out-edges. Few edges: one thread, in the order of the sources. More: every
// edge goes into the bin of its destination, so that a bin's rows stay in a core's own cache and no two threads touch
// the same row. A large share of all edges: every row takes its own, by its in-edges. Before the last stage a bin's
// rows are finished at once, while they are there.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "inference/counted_edges.h"
#include "inference/workspace.h"

namespace livegnn {

// How the messages of one aggregation move in one batch.
struct PushPlan {
  Path path = Path::None;
  std::vector<VertexId> sources;
  std::vector<DeltaShape> moves;  // of each source's message; what is not pushed as a delta is Wide
};
inline constexpr std::int32_t kNarrow = 1 << 30;  // in a source's place

// What an operator does with one pushed edge.
template <typename Prefetch, typename PrefetchSource, typename Write>
struct PushWriter {
  Prefetch prefetch;               // (dst) and
  PrefetchSource prefetch_source;  // (source) come a few edges ahead of
  Write write;  // (dst, source, edge_weight, thread); returns whether dst is newly dirty. A source is
                // its place in the plan, with kNarrow where its move is
};
template <typename Prefetch, typename PrefetchSource, typename Write>
PushWriter(Prefetch, PrefetchSource, Write) -> PushWriter<Prefetch, PrefetchSource, Write>;

template <typename Writer>
class DeltaPush {
 public:
  DeltaPush(Workspace& work, int k, const PushPlan& plan, const CountedEdges& filter, const Writer& writer)
      : work_(work),
        k_(k),
        spec_(work.aggregation(k)),
        flow_(work.flow(k)),
        plan_(plan),
        filter_(filter),
        writer_(writer),
        first_(work.dirty[at(spec_.consumers.front())]) {}

  // finish: the next stage is the last one, and nothing but this push is still to come before it; it is run, too.
  void run(bool finish) {
    std::int64_t edges = 0;
    for (std::size_t i = 0; i < plan_.sources.size(); ++i) {
      if (plan_.moves[i] != DeltaShape::Zero) edges += flow_.out_degree(plan_.sources[i]);
    }
    if (edges == 0) return;
    invariant(plan_.sources.size() < at(kNarrow), "more sources than a place has bits");
    const bool shared = work_.pool.threads() > 1 && at(edges) * row_bytes() >= kSharedBytes;
    if (gathers(edges)) {
      push_gathered(finish);
    } else if (shared || edges >= kBinnedEdges) {
      push_binned(edges, finish);
    } else {
      push_serial(edges);
    }
  }

 private:
  static constexpr std::size_t kSharedBytes = 256 * 1024;  // rows to be touched from which on threads pay
  static constexpr std::int64_t kBinnedEdges = 4096;       // from which on a bin's locality pays on one thread, too
  static constexpr int kLeastShift = 6;                    // marks of 64 vertices fill whole cache lines
  static constexpr std::int64_t kEntriesPerBin = 128;
  static constexpr std::size_t kBinBytes = 256 * 1024;  // aggregate rows of one bin
  static constexpr std::int64_t kEarlyEdges = 512;
  static constexpr std::size_t kListsAhead = 4;
  static constexpr int kDistance = 8;  // edges between the prefetch of a row and its use
  // From so many percent of all edges on, to look at all of them is cheaper than to sort some. In a part sooner: bins
  // see its edges to ghosts, too.
  static constexpr std::int64_t kGathered = 70, kGatheredInPart = 50;
  static constexpr std::int64_t kGatheredRows = 256;
  static constexpr int kGatheredAhead = 16;  // edges, as kDistance
  static constexpr std::int32_t kNoSource = -1;

  std::size_t row_bytes() const { return work_.state.aggregates[at(k_)].row_bytes(); }
  const ResultRows& results() const { return work_.result_rows[at(spec_.consumers.front())]; }

  std::int32_t place_of(std::size_t i) const {
    return static_cast<std::int32_t>(i) | (plan_.moves[i] == DeltaShape::Narrow ? kNarrow : 0);
  }

  void prefetch_lists(std::size_t i, std::size_t last) const {  // of sources that come after i
    if (i + 2 * kListsAhead < last) flow_.prefetch_out(plan_.sources[i + 2 * kListsAhead]);
    if (i + kListsAhead < last) flow_.prefetch_out_edges(plan_.sources[i + kListsAhead]);
  }

  // body(source, dst, weight) for every out-edge of the changed sources to a row that is wanted.
  template <typename Body>
  void visit_pushed(Body&& body) const {
    const bool weighted = spec_.weighted, picky = work_.is_picky();
    for (std::size_t i = 0, last = plan_.sources.size(); i < last; ++i) {
      prefetch_lists(i, last);
      if (plan_.moves[i] == DeltaShape::Zero) continue;
      const std::int32_t source = place_of(i);
      visit_counted_out(flow_, filter_, plan_.sources[i], [&](const EdgeSpan& span, std::int32_t e) {
        if (picky && !work_.wants(k_, span.neighbours[e])) return;
        body(source, span.neighbours[e], weighted ? weight_of(span, e) : 1.0f);
      });
    }
  }

  // Writes entries first <= e < last, with what is after them (up to `ahead`) already asked for. early: what is asked
  // for now is still in the cache when the next stage runs.
  void write_entries(std::int64_t first, std::int64_t last, std::int64_t ahead, bool early, int thread) {
    const bool many = plan_.sources.size() > 16;  // too many for the first cache
    for (std::int64_t e = first; e < last; ++e) {
      if (e + kDistance < ahead) {
        const PushEntry& next = work_.push_entries[at(e + kDistance)];
        if (many && next.source != kNoSource) writer_.prefetch_source(next.source);
        writer_.prefetch(next.dst);
      }
      const PushEntry& entry = work_.push_entries[at(e)];
      if (entry.source == kNoSource) {  // its row changed before the push: listed again, among those of its part
        first_.relist(entry.dst, thread);
        if (early) results().prefetch(entry.dst);
      } else {
        if (writer_.write(entry.dst, entry.source, spec_.weighted ? work_.push_weights[at(e)] : 1.0f, thread) && early)
          results().prefetch(entry.dst);
      }
    }
  }

  void put_entry(std::int64_t slot, std::int32_t source, VertexId dst, float weight) {
    work_.push_entries[at(slot)] = {dst, source};
    if (spec_.weighted) work_.push_weights[at(slot)] = weight;
  }

  void need_entries(std::int64_t count) {
    if (work_.push_entries.size() < at(count)) work_.push_entries.resize(at(count));
    if (spec_.weighted && work_.push_weights.size() < at(count)) work_.push_weights.resize(at(count));
  }

  void push_serial(std::int64_t edges) {
    need_entries(edges);
    std::int64_t count = 0;
    visit_pushed([&](std::int32_t source, VertexId dst, float weight) { put_entry(count++, source, dst, weight); });
    if (work_.restricted) work_.stats[at(spec_.stage)].edges += count;
    for (std::int64_t e = 0; e < std::min<std::int64_t>(kDistance, count); ++e)
      writer_.prefetch(work_.push_entries[at(e)].dst);
    write_entries(0, count, count, edges < kEarlyEdges, 0);
  }

  // Whether so many edges are pushed that every row had better take its own in-edges, in storage order.
  bool gathers(std::int64_t edges) const {
    const std::int64_t percent = work_.trade != nullptr ? kGatheredInPart : kGathered;
    const std::int64_t least = work_.all_in_edges() * percent / 100 + work_.slots;
    return edges >= least && !work_.restricted && work_.pager == nullptr;
  }

  // Every row takes what the sources of its in-edges have for it. No edge is sorted, and those to ghosts are not seen.
  void push_gathered(bool finish) {
    if (finish) first_.unlist();
    std::vector<std::int32_t>& places = work_.source_places;
    if (places.size() < at(work_.slots)) places.resize(at(work_.slots), kNoSource);
    const struct Clearing {  // also where a message is out of range
      ~Clearing() {
        for (const VertexId u : sources) places[at(u)] = kNoSource;
      }
      const std::vector<VertexId>& sources;
      std::vector<std::int32_t>& places;
    } clearing{plan_.sources, places};
    for (std::size_t i = 0; i < plan_.sources.size(); ++i) {
      if (plan_.moves[i] != DeltaShape::Zero) places[at(plan_.sources[i])] = place_of(i);
    }
    work_.in_shares(work_.slots, kGatheredRows, [&](std::int64_t first, std::int64_t last, int thread) {
      for (; first < last; first += kGatheredRows) gather(first, std::min(first + kGatheredRows, last), finish, thread);
    });
    work_.finished = finish;
  }

  void gather(std::int64_t from, std::int64_t to, bool finish, int thread) {
    struct Waiting {
      VertexId dst;
      std::int32_t source;
      float weight;
    };
    Waiting waiting[kGatheredAhead];
    std::uint32_t in = 0, out = 0;
    const auto write_next = [&] {
      const Waiting& next = waiting[out++ % kGatheredAhead];
      if (writer_.write(next.dst, next.source, next.weight, thread) && finish) results().prefetch(next.dst);
    };
    const std::size_t listed = first_.list(thread).size();
    const bool weighted = spec_.weighted;
    for (auto v = static_cast<VertexId>(from); v < to; ++v) {
      if (finish && first_.contains(v)) first_.relist(v, thread);  // its row changed before the push
      if (v + 2 < to) flow_.prefetch_in(v + 2);
      if (!work_.graph.is_live(v) || work_.is_ghost(v)) continue;
      if (v + 1 < to) writer_.prefetch(v + 1);
      visit_counted_in(flow_, filter_, v, [&](const EdgeSpan& span, std::int32_t e) {
        const std::int32_t source = work_.source_places[at(span.neighbours[e])];
        if (source == kNoSource) return;
        writer_.prefetch_source(source);
        if (in - out == kGatheredAhead) write_next();
        waiting[in++ % kGatheredAhead] = {v, source, weighted ? weight_of(span, e) : 1.0f};
      });
    }
    while (out != in) write_next();
    if (finish) finish_rows(listed, thread);
  }

  // The rows that a thread has listed since `listed`, through the last stage.
  void finish_rows(std::size_t listed, int thread) {
    const std::vector<VertexId>& rows = first_.list(thread);
    const auto chunk = static_cast<std::size_t>(work_.program.chunk_rows());
    for (std::size_t first = listed; first < rows.size(); first += chunk) {
      work_.evaluate_rows(spec_.consumers.front(), rows.data() + first,
                          static_cast<int>(std::min(chunk, rows.size() - first)), first, thread);
    }
  }

  // Of the sources before each; one more at the end.
  std::vector<std::int64_t> edges_before() const {
    std::vector<std::int64_t> before(plan_.sources.size() + 1, 0);
    for (std::size_t i = 0; i < plan_.sources.size(); ++i) {
      before[i + 1] = before[i] + (plan_.moves[i] != DeltaShape::Zero ? flow_.out_degree(plan_.sources[i]) : 0);
    }
    return before;
  }

  // First source of each share, so that all have about the same number of edges; one more at the end.
  std::vector<std::size_t> share_sources(const std::vector<std::int64_t>& before, std::int64_t shares) const {
    std::vector<std::size_t> begins(at(shares + 1), 0);
    for (std::int64_t p = 1; p <= shares; ++p) {
      const std::int64_t target = before.back() * p / shares;
      begins[at(p)] = static_cast<std::size_t>(std::lower_bound(before.begin(), before.end(), target) - before.begin());
    }
    begins[at(shares)] = plan_.sources.size();
    return begins;
  }

  // Every edge of the changed sources goes into the bin of its destination. One pass over the adjacency counts each
  // bin's and keeps what it has read, but for edges to ghosts: to leave those out otherwise would cost a branch for
  // each edge that goes either way. Another pass, over what was kept, fills the bins.
  std::vector<std::int64_t> bin_entries(int shift, const std::vector<VertexId>& listed) {
    const std::int64_t bins = (static_cast<std::int64_t>(work_.slots) >> shift) + 1, shares = work_.pool.threads();
    const std::vector<std::int64_t> before = edges_before();
    const std::vector<std::size_t> begins = share_sources(before, shares);
    std::vector<std::int64_t> places(at(shares * bins), 0);
    const auto each_listed = [&](std::int64_t share, auto&& body) {
      const std::size_t first = listed.size() * at(share) / at(shares),
                        last = listed.size() * at(share + 1) / at(shares);
      for (std::size_t i = first; i < last; ++i) body(listed[i]);
    };
    need_kept(before.back());
    work_.pool.run(shares, [&](std::int64_t share, int) {
      std::int64_t* counts = places.data() + share * bins;
      each_listed(share, [&](VertexId v) { ++counts[v >> shift]; });
      keep_edges(begins[at(share)], begins[at(share + 1)], before[begins[at(share)]],
                 [&](VertexId dst, bool kept) { counts[dst >> shift] += kept ? 1 : 0; });
    });
    std::vector<std::int64_t> begin(at(bins + 1), 0);
    std::int64_t total = 0;
    for (std::int64_t bin = 0; bin < bins; ++bin) {
      begin[at(bin)] = total;
      for (std::int64_t share = 0; share < shares; ++share) {
        total += std::exchange(places[at(share * bins + bin)], total);
      }
    }
    begin[at(bins)] = total;
    need_entries(total);
    work_.pool.run(shares, [&](std::int64_t share, int) {
      std::int64_t* place = places.data() + share * bins;
      each_listed(share, [&](VertexId v) { put_entry(place[v >> shift]++, kNoSource, v, 1.0f); });
      std::int64_t next = before[begins[at(share)]];
      for (std::size_t i = begins[at(share)]; i < begins[at(share + 1)]; ++i) {
        const std::int32_t source = place_of(i);
        for (std::int32_t left = work_.kept_counts[i]; left > 0; --left, ++next) {
          const VertexId dst = work_.kept_targets[at(next)];
          put_entry(place[dst >> shift]++, source, dst, spec_.weighted ? work_.kept_weights[at(next)] : 1.0f);
        }
      }
    });
    return begin;
  }

  void need_kept(std::int64_t edges) {
    if (work_.kept_targets.size() < at(edges)) work_.kept_targets.resize(at(edges));
    if (spec_.weighted && work_.kept_weights.size() < at(edges)) work_.kept_weights.resize(at(edges));
    work_.kept_counts.resize(plan_.sources.size());
  }

  // Edges of the sources first <= i < last, from place `next` on; look(dst, whether it is kept) for each.
  template <typename Look>
  void keep_edges(std::size_t first, std::size_t last, std::int64_t next, Look&& look) {
    const SlotOwners* owners = work_.trade == nullptr ? nullptr : &work_.trade->halo().slot_owners();
    const bool weighted = spec_.weighted;
    VertexId* const targets = work_.kept_targets.data();
    for (std::size_t i = first; i < last; ++i) {
      prefetch_lists(i, last);
      const std::int64_t begin = next;
      if (plan_.moves[i] != DeltaShape::Zero) {
        visit_counted_out(flow_, filter_, plan_.sources[i], [&](const EdgeSpan& span, std::int32_t e) {
          const VertexId dst = span.neighbours[e];
          if (work_.restricted && !work_.wants(k_, dst)) return;
          const bool kept = owners == nullptr || !owners->is_ghost(at(dst));
          targets[next] = dst;
          if (weighted) work_.kept_weights[at(next)] = weight_of(span, e);
          look(dst, kept);
          next += kept ? 1 : 0;
        });
      }
      work_.kept_counts[i] = static_cast<std::int32_t>(next - begin);
    }
  }

  void push_binned(std::int64_t edges, bool finish) {
    const std::vector<VertexId> listed = finish ? first_.unlist() : std::vector<VertexId>();
    int shift = kLeastShift;  // rows of a bin: few enough for a core's cache, and enough edges in it to be worth it
    while ((row_bytes() << (shift + 1)) <= kBinBytes) ++shift;
    while ((static_cast<std::int64_t>(work_.slots) >> shift) > std::max<std::int64_t>(16, edges / kEntriesPerBin))
      ++shift;
    const std::vector<std::int64_t> begin = bin_entries(shift, listed);
    if (work_.restricted) work_.stats[at(spec_.stage)].edges += begin.back();
    const auto bins = static_cast<std::int64_t>(begin.size()) - 1;
    const std::int64_t tasks = std::min<std::int64_t>(bins, 8 * work_.pool.threads());
    work_.pool.run(tasks, [&](std::int64_t task, int thread) {  // neighbouring bins, so that prefetching runs on
      const std::int64_t from = begin.back() * task / tasks, to = begin.back() * (task + 1) / tasks;
      const auto first = std::lower_bound(begin.begin(), begin.end() - 1, from) - begin.begin();
      const auto last = std::lower_bound(begin.begin(), begin.end() - 1, to) - begin.begin();
      for (auto bin = first; bin < last; ++bin) {
        const std::size_t before = first_.list(thread).size();
        write_entries(begin[at(bin)], begin[at(bin + 1)], begin[at(last)], finish, thread);
        if (finish) finish_rows(before, thread);
      }
    });
    work_.finished = finish;
  }

  Workspace& work_;
  const int k_;
  const AggregationSpec& spec_;
  const Flow flow_;
  const PushPlan& plan_;
  const CountedEdges filter_;
  const Writer& writer_;
  VertexSet& first_;
};

}  // namespace livegnn
