// Temporal sampling over static CSR, beside TemporalSampler: what a store that never changes could do with the same
// care, and what TGL does (per-thread vectors that grow, then a concatenation); TemporalSampler itself is measured
// here, too, without Python around it. Run by benchmarks/temporal/sampling.py.
//
//   csr_sampling FILE STRATEGY THREADS REPEATS FANOUT...
//
// FILE, int64: vertices, edges, batches, targets a batch; src, dst, time by edge; vertex, time by target.
// Prints a line for each sampler: its name, edges sampled in one pass over the batches, the median seconds of a pass,
// and a checksum: sum over sampled edges of (edge id * 31 + source row) * (2 * place + 1).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "livegnn/detail/graph_memory.h"
#include "livegnn/detail/prefetch.h"
#include "livegnn/graph.h"
#include "livegnn/temporal.h"
#include "temporal/draw.h"
#include "util/thread_pool.h"

namespace {

using livegnn::draw_part;
using livegnn::prefetch_line;
using Numbers = std::span<const std::int64_t>;

struct Csr {  // in the store's own columns, so that both lie in huge pages
  livegnn::Column<std::int64_t> ptr, ids, times;
  livegnn::Column<std::int32_t> neighbours;
};

Csr csr_of(std::int64_t vertices, Numbers src, Numbers dst, Numbers time) {
  Csr made;
  const auto edges = static_cast<std::int64_t>(src.size());
  made.ptr.reserve(vertices + 1);
  made.ids.reserve(edges);
  made.times.reserve(edges);
  made.neighbours.reserve(edges);
  std::vector<std::int64_t> order(src.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return dst[a] != dst[b] ? dst[a] < dst[b] : time[a] != time[b] ? time[a] < time[b] : a < b;
  });
  std::fill_n(made.ptr.data(), vertices + 1, 0);
  for (std::int64_t place = 0; place < edges; ++place) {
    const std::int64_t edge = order[place];
    ++made.ptr[dst[edge] + 1];
    made.ids[place] = edge;
    made.times[place] = time[edge];
    made.neighbours[place] = static_cast<std::int32_t>(src[edge]);
  }
  std::partial_sum(made.ptr.data(), made.ptr.data() + vertices + 1, made.ptr.data());
  return made;
}

struct Hop {
  std::vector<std::int64_t> values;  // only ever grows; the spans lie in it
  std::span<std::int64_t> next_targets, next_times, ptr, ids, rows;
};

// hop(k, targets, times, key) for each hop, whose targets are the rows that the one before has written.
template <typename HopOf>
void each_hop(const std::vector<Hop>& hops, Numbers targets, Numbers times, std::uint64_t call, HopOf&& hop) {
  for (std::size_t k = 0; k < hops.size(); ++k) {
    hop(k, targets, times, draw_part(0, call, k));
    targets = hops[k].next_targets;
    times = hops[k].next_times;
  }
}

struct Search {
  const std::int64_t* base;
  std::int64_t time, first;
  std::int32_t left;
  std::int32_t count;
};

// In the style of core/temporal: two passes, searches in lockstep, exact places, memory that is used again.
class StaticSampler {
 public:
  StaticSampler(const Csr& csr, std::vector<std::int32_t> fan_outs, bool recent, int threads)
      : csr_(csr),
        fan_outs_(std::move(fan_outs)),
        recent_(recent),
        pool_(threads),
        hops_(fan_outs_.size()),
        scratch_(static_cast<std::size_t>(threads)) {}

  const std::vector<Hop>& sample(Numbers vertices, Numbers times, std::uint64_t call) {
    each_hop(hops_, vertices, times, call, [this](auto... of) { hop(of...); });
    return hops_;
  }

 private:
  static constexpr std::int64_t kSlice = 256, kTogether = 16;
  struct Scratch {
    std::vector<std::uint32_t> ranks, left;
    std::vector<std::int64_t> places;
  };

  std::int32_t taken(std::int32_t count, std::int32_t fan_out) const { return std::min(count, fan_out); }

  void hop(std::size_t k, Numbers targets, Numbers times, std::uint64_t key) {
    const auto count = static_cast<std::int64_t>(targets.size());
    const std::int64_t slices = (count + kSlice - 1) / kSlice;
    found_.resize(targets.size());
    starts_.assign(static_cast<std::size_t>(slices), 0);
    pool_.run(slices, [&](std::int64_t s, int) {
      const std::int64_t first = s * kSlice, last = std::min(first + kSlice, count);
      find(targets, times, first, last);
      for (std::int64_t i = first; i < last; ++i) starts_[s] += taken(found_[i].count, fan_outs_[k]);
    });
    std::int64_t edges = 0;
    for (std::int64_t& start : starts_) edges += std::exchange(start, edges);
    Hop& made = hops_[k];
    const auto b = targets.size(), e = static_cast<std::size_t>(edges);
    if (made.values.size() < 3 * b + 1 + 5 * e) made.values.resize(4 * b + 1 + 5 * e);
    std::int64_t* at = made.values.data();
    const auto part = [&at](std::size_t n) {
      at += n;
      return std::span<std::int64_t>(at - n, n);
    };
    made.next_targets = part(b + e);
    made.next_times = part(b + e);
    made.ptr = part(b + 1);
    made.ids = part(e);
    made.rows = part(2 * e);
    std::copy(targets.begin(), targets.end(), made.next_targets.begin());
    std::copy(times.begin(), times.end(), made.next_times.begin());
    pool_.run(slices, [&](std::int64_t s, int thread) {
      const std::int64_t first = s * kSlice, last = std::min(first + kSlice, count);
      write(made, first, last, starts_[s], b, fan_outs_[k], key, scratch_[static_cast<std::size_t>(thread)]);
    });
    made.ptr[b] = edges;
  }

  void find(Numbers targets, Numbers times, std::int64_t first, std::int64_t last) {
    constexpr std::int64_t kAhead = 32;
    for (std::int64_t i = first; i < std::min(first + kAhead, last); ++i) prefetch_line(&csr_.ptr[targets[i]]);
    for (std::int64_t i = first; i < last; ++i) {
      if (i + kAhead < last) prefetch_line(&csr_.ptr[targets[i + kAhead]]);
      const std::int64_t begin = csr_.ptr[targets[i]];
      const auto count = static_cast<std::int32_t>(csr_.ptr[targets[i] + 1] - begin);
      found_[i] = {csr_.times.data() + begin, times[i], begin, count, count};
      prefetch_line(found_[i].base + std::max(count - 1, 0));
      prefetch_line(found_[i].base + count / 2);
    }
    for (std::int64_t i = first; i < last; ++i) {
      Search& s = found_[i];
      if (s.left > 0 && s.base[s.left - 1] < s.time) {
        s.base += s.left - 1;
        s.left = 1;
      }
    }
    for (std::int32_t longest = 2; longest > 1;) {
      longest = 0;
      for (std::int64_t i = first; i < last; ++i) {
        Search& s = found_[i];
        const std::int32_t half = s.left / 2;
        s.base += s.base[half - (half > 0)] < s.time ? half : 0;
        s.left -= half;
        prefetch_line(s.base + s.left / 2 - (s.left > 1));
        longest = std::max(longest, s.left);
      }
    }
    for (std::int64_t i = first; i < last; ++i) {
      Search& s = found_[i];
      if (s.count > 0) s.count = static_cast<std::int32_t>(s.base - csr_.times.data() - s.first) + (*s.base < s.time);
    }
  }

  void write(Hop& made, std::int64_t first, std::int64_t last, std::int64_t edge, std::size_t b, std::int32_t fan_out,
             std::uint64_t key, Scratch& scratch) const {
    std::int64_t* rows = made.rows.data() + made.ids.size();
    const std::int64_t begin = edge;
    for (std::int64_t group = first; group < last; group += kTogether) {
      const std::int64_t end = std::min(group + kTogether, last);
      scratch.places.clear();
      const std::int64_t group_edge = edge;
      for (std::int64_t i = group; i < end; ++i) {
        const std::int32_t count = found_[i].count, take = taken(count, fan_out);
        made.ptr[static_cast<std::size_t>(i)] = edge;
        for (std::int32_t k = 0; k < take; ++k) rows[edge + k] = i;
        edge += take;
        if (recent_ || take == count) {
          const std::int64_t place = found_[i].first + count - take;
          prefetch(place);
          prefetch(place + std::max(take - 1, 0));
          for (std::int32_t k = 0; k < take; ++k) scratch.places.push_back(place + k);
          continue;
        }
        scratch.ranks.resize(static_cast<std::size_t>(take));
        livegnn::draw_distinct({key, static_cast<std::uint64_t>(i)}, static_cast<std::uint32_t>(count),
                               static_cast<std::uint32_t>(take), scratch.ranks.data(), scratch.left);
        for (const std::uint32_t rank : scratch.ranks) {
          prefetch(found_[i].first + rank);
          scratch.places.push_back(found_[i].first + rank);
        }
      }
      std::int64_t* src = made.next_targets.data() + b + group_edge;
      std::int64_t* times = made.next_times.data() + b + group_edge;
      std::int64_t* ids = made.ids.data() + group_edge;
      const std::int64_t* place = scratch.places.data();
      const std::int64_t n = edge - group_edge;
      for (std::int64_t k = 0; k < n; ++k) src[k] = csr_.neighbours[place[k]];
      for (std::int64_t k = 0; k < n; ++k) times[k] = csr_.times[place[k]];
      for (std::int64_t k = 0; k < n; ++k) ids[k] = csr_.ids[place[k]];
    }
    for (std::int64_t e = begin; e < edge; ++e) made.rows[e] = static_cast<std::int64_t>(b) + e;
  }

  void prefetch(std::int64_t place) const {
    prefetch_line(&csr_.neighbours[place]);
    prefetch_line(&csr_.times[place]);
    prefetch_line(&csr_.ids[place]);
  }

  const Csr& csr_;
  std::vector<std::int32_t> fan_outs_;
  bool recent_;
  livegnn::ThreadPool pool_;
  std::vector<Hop> hops_;
  std::vector<Search> found_;
  std::vector<std::int64_t> starts_;
  std::vector<Scratch> scratch_;
};

// As TGL samples: a part of the targets per thread, each into vectors of its own that grow; then these joined up.
class GrowingSampler {
 public:
  GrowingSampler(const Csr& csr, std::vector<std::int32_t> fan_outs, bool recent, int threads)
      : csr_(csr), fan_outs_(std::move(fan_outs)), recent_(recent), pool_(threads), hops_(fan_outs_.size()) {}

  const std::vector<Hop>& sample(Numbers vertices, Numbers times, std::uint64_t call) {
    each_hop(hops_, vertices, times, call, [this](auto... of) { hop(of...); });
    return hops_;
  }

 private:
  struct Part {
    std::vector<std::int64_t> src, times, ids, rows;
    std::vector<std::uint32_t> ranks, left;
  };

  void hop(std::size_t k, Numbers targets, Numbers times, std::uint64_t key) {
    const auto b = static_cast<std::int64_t>(targets.size());
    std::vector<Part> parts(static_cast<std::size_t>(pool_.threads()));
    const auto count = static_cast<std::int64_t>(parts.size());
    pool_.run(count, [&](std::int64_t p, int) {
      for (std::int64_t i = b * p / count; i < b * (p + 1) / count; ++i) {
        one(i, targets[i], times[i], fan_outs_[k], key, parts[static_cast<std::size_t>(p)]);
      }
    });
    std::size_t e = 0;
    for (const Part& part : parts) e += part.src.size();
    Hop& made = hops_[k];
    made.values = std::vector<std::int64_t>(2 * targets.size() + 5 * e);
    std::int64_t* at = made.values.data();
    const auto joined = [&](Numbers head, auto member) {
      std::int64_t* start = at;
      at = std::copy(head.begin(), head.end(), at);
      for (const Part& part : parts) at = std::copy((part.*member).begin(), (part.*member).end(), at);
      return std::span<std::int64_t>(start, at);
    };
    made.next_targets = joined(targets, &Part::src);
    made.next_times = joined(times, &Part::times);
    made.ids = joined({}, &Part::ids);
    std::iota(at, at + e, b);
    made.rows = {at, 2 * e};
    at += e;
    joined({}, &Part::rows);
  }

  void one(std::int64_t row, std::int64_t v, std::int64_t time, std::int32_t fan_out, std::uint64_t key,
           Part& part) const {
    const std::int64_t* first = csr_.times.data() + csr_.ptr[v];
    const auto count =
        static_cast<std::int32_t>(std::lower_bound(first, csr_.times.data() + csr_.ptr[v + 1], time) - first);
    const std::int32_t take = std::min(count, fan_out);
    if (!recent_ && take < count) {
      part.ranks.resize(static_cast<std::size_t>(take));
      livegnn::draw_distinct({key, static_cast<std::uint64_t>(row)}, static_cast<std::uint32_t>(count),
                             static_cast<std::uint32_t>(take), part.ranks.data(), part.left);
    }
    for (std::int32_t k = 0; k < take; ++k) {
      const std::int64_t rank = recent_ || take == count ? count - take + k : part.ranks[static_cast<std::size_t>(k)];
      const std::int64_t place = csr_.ptr[v] + rank;
      part.src.push_back(csr_.neighbours[place]);
      part.times.push_back(csr_.times[place]);
      part.ids.push_back(csr_.ids[place]);
      part.rows.push_back(row);
    }
  }

  const Csr& csr_;
  std::vector<std::int32_t> fan_outs_;
  bool recent_;
  livegnn::ThreadPool pool_;
  std::vector<Hop> hops_;
};

// TemporalSampler on a store of the same edges.
class StoreSampler {
 public:
  StoreSampler(const livegnn::GraphStore& store, std::vector<std::int32_t> fan_outs, bool recent, int threads)
      : hops_(fan_outs.size()) {
    livegnn::TemporalOptions options;
    options.fan_outs = std::move(fan_outs);
    options.by = recent ? livegnn::TemporalBy::Recent : livegnn::TemporalBy::Uniform;
    options.threads = threads;
    sampler_ = std::make_unique<livegnn::TemporalSampler>(store, options);
  }

  const std::vector<Hop>& sample(Numbers vertices, Numbers times, std::uint64_t call) {
    for (livegnn::TemporalHopArrays& hop : made_) sampler_->buffers()->give(std::move(hop.memory));
    made_ = sampler_->sample(vertices, times, call, 0, nullptr);
    for (std::size_t k = 0; k < made_.size(); ++k) {
      hops_[k].ids = made_[k].edge_ids;
      hops_[k].rows = made_[k].edge_index;
    }
    return hops_;
  }

 private:
  std::unique_ptr<livegnn::TemporalSampler> sampler_;
  std::vector<livegnn::TemporalHopArrays> made_;
  std::vector<Hop> hops_;
};

template <typename Sampler>
void measure(const char* name, Sampler sampler, Numbers vertices, Numbers times, std::size_t batches, int repeats) {
  const std::size_t size = vertices.size() / batches;
  std::vector<double> seconds;
  std::uint64_t sum = 0;
  std::int64_t edges = 0;
  for (int pass = 0; pass < repeats; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t i = 0; i < batches; ++i) {
      const std::vector<Hop>& hops = sampler.sample(vertices.subspan(i * size, size), times.subspan(i * size, size), i);
      if (pass > 0) continue;
      for (const Hop& hop : hops) {  // the first pass warms up, and is not timed
        edges += static_cast<std::int64_t>(hop.ids.size());
        for (std::size_t e = 0; e < hop.ids.size(); ++e) {
          sum += static_cast<std::uint64_t>(hop.ids[e] * 31 + hop.rows[e]) * (2 * e + 1);
        }
      }
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (pass > 0) seconds.push_back(passed.count());
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf("%s %lld %.9f %llu\n", name, static_cast<long long>(edges), seconds[seconds.size() / 2],
              static_cast<unsigned long long>(sum));
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 6) {
    std::fprintf(stderr, "usage: csr_sampling FILE recent|uniform THREADS REPEATS FANOUT...\n");
    return 2;
  }
  std::ifstream file(arguments[1], std::ios::binary | std::ios::ate);
  std::vector<std::int64_t> values(static_cast<std::size_t>(file.tellg()) / sizeof(std::int64_t));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(std::int64_t)));
  const auto edges = static_cast<std::size_t>(values[1]), batches = static_cast<std::size_t>(values[2]);
  const std::size_t targets = batches * static_cast<std::size_t>(values[3]);
  const Numbers all(values);
  const Csr csr =
      csr_of(values[0], all.subspan(4, edges), all.subspan(4 + edges, edges), all.subspan(4 + 2 * edges, edges));
  const Numbers vertices = all.subspan(4 + 3 * edges, targets), times = all.subspan(4 + 3 * edges + targets, targets);
  const bool recent = std::strcmp(arguments[2], "recent") == 0;
  const int threads = std::atoi(arguments[3]), repeats = std::atoi(arguments[4]) + 1;
  std::vector<std::int32_t> fan_outs;
  for (int i = 5; i < count; ++i) fan_outs.push_back(std::atoi(arguments[i]));
  measure("static", StaticSampler(csr, fan_outs, recent, threads), vertices, times, batches, repeats);
  livegnn::GraphOptions options;
  options.has_time = true;
  livegnn::GraphStore store(options);
  store.load({values[0],
              {},
              {},
              {all.subspan(4, edges), all.subspan(4 + edges, edges), {}, {}, all.subspan(4 + 2 * edges, edges)}},
             1);
  measure("livegnn", StoreSampler(store, fan_outs, recent, threads), vertices, times, batches, repeats);
  measure("growing", GrowingSampler(csr, fan_outs, recent, threads), vertices, times, batches, repeats);
  return 0;
}
