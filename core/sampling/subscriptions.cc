// Counts of reasons and what their changes cause, hop by hop.
//
// A count is kept under (vertex, serving worker), and under the vertex a bit for each serving worker whose count is
// positive. What comes in for a table waits, unsorted, until its hop is due; then it is sorted and netted, and read
// along with the rows that the batch changed, both by ascending vertex. So everything that goes out is sorted, and the
// same whatever the order in which messages came.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "livegnn/sampling_workers.h"

namespace livegnn {

namespace {
constexpr std::uint64_t key_of(VertexId v, std::int32_t serving) {
  return static_cast<std::uint64_t>(v) * kServingMax + static_cast<std::uint64_t>(serving);
}

struct Delta {
  std::uint64_t key;
  std::int32_t change;
  VertexId vertex() const { return static_cast<VertexId>(key / kServingMax); }
  std::int32_t serving() const { return static_cast<std::int32_t>(key % kServingMax); }
};

// Sorted, one per key, none of zero.
void net(std::vector<Delta>& deltas) {
  std::sort(deltas.begin(), deltas.end(), [](const Delta& a, const Delta& b) { return a.key < b.key; });
  std::size_t kept = 0;
  for (std::size_t i = 0; i < deltas.size();) {
    Delta sum = deltas[i];
    for (++i; i < deltas.size() && deltas[i].key == sum.key; ++i) sum.change += deltas[i].change;
    if (sum.change != 0) deltas[kept++] = sum;
  }
  deltas.resize(kept);
}

template <typename Visitor>
void visit_bits(std::uint64_t mask, Visitor&& visitor) {
  for (; mask != 0; mask &= mask - 1) visitor(std::countr_zero(mask));
}

class CountTable {
 public:
  std::uint64_t mask(VertexId v) const {
    const std::int64_t* place = masks_.place_of(v);
    return place == nullptr ? 0 : std::bit_cast<std::uint64_t>(*place);
  }

  void change(const Delta& delta) {
    const auto key = static_cast<EdgeId>(delta.key);
    std::int64_t* count = counts_.place_of(key);
    const std::int64_t before = count == nullptr ? 0 : *count, after = before + delta.change;
    invariant(after >= 0, "a subscription lost a reason that it did not have");
    if (before > 0 && after > 0) {
      *count = after;
    } else if (after > 0) {
      counts_.insert(key, after);
      flip(delta);
    } else if (before > 0) {
      counts_.erase(key);
      flip(delta);
    }
  }

  void prefetch(const Delta& delta) const {
    counts_.prefetch(static_cast<EdgeId>(delta.key));
    masks_.prefetch(delta.vertex());
  }

  std::vector<Delta> all() const {
    std::vector<Delta> found;
    found.reserve(static_cast<std::size_t>(counts_.count()));
    counts_.visit([&](EdgeId key, std::int64_t count) {
      found.push_back({static_cast<std::uint64_t>(key), static_cast<std::int32_t>(count)});
    });
    net(found);
    return found;
  }

  std::size_t bytes() const { return counts_.bytes() + masks_.bytes(); }

 private:
  void flip(const Delta& delta) {
    const VertexId v = delta.vertex();
    const auto bit = std::bit_cast<std::int64_t>(1ull << delta.serving());
    std::int64_t* mask = masks_.place_of(v);
    if (mask == nullptr) {
      masks_.insert(v, bit);
    } else if ((*mask ^= bit) == 0) {
      masks_.erase(v);
    }
  }

  EdgeIdMap counts_;  // by key_of
  EdgeIdMap masks_;   // by vertex
};

void add_sample(Push& push, std::int32_t table, VertexId v, const SampleView& sample, const Reservoirs& reservoirs) {
  push.add(table, v, sample);
  const std::int32_t words = reservoirs.edge_columns().words();
  if (words == 0) return;
  for (const EdgeId id : sample.edge_ids) {
    const float* row = reservoirs.edge_row(id);
    push.edge_rows.insert(push.edge_rows.end(), row, row + words);
  }
}
}  // namespace

void Reasons::add(std::int32_t t, VertexId v, std::int32_t j, std::int32_t n) {
  table.push_back(t);
  vertex.push_back(v);
  serving.push_back(j);
  change.push_back(n);
}

void Push::add(std::int32_t t, VertexId v, const SampleView& sample) {
  table.push_back(t);
  vertex.push_back(v);
  count.push_back(static_cast<std::int32_t>(sample.neighbours.size()));
  neighbours.insert(neighbours.end(), sample.neighbours.begin(), sample.neighbours.end());
  edge_ids.insert(edge_ids.end(), sample.edge_ids.begin(), sample.edge_ids.end());
}

struct Subscriptions::Impl {
  const GraphStore& graph;
  const Reservoirs& reservoirs;
  const FeatureRows& features;
  std::vector<SubscribedTable> tables;
  std::vector<std::uint16_t> owners;
  int worker, workers;

  std::vector<std::uint64_t> serving = std::vector<std::uint64_t>(kBuckets, 0);  // of each bucket's seeds
  std::vector<CountTable> counts{};                                              // by table, then of features
  std::vector<std::vector<Delta>> pending{};  // likewise: what is still to be counted
  std::vector<VertexId> features_changed{};
  std::vector<std::int32_t>
      seed_type{};  // by slot: type + 1 of a vertex of mine whose seeds are counted, 0 if none are
  std::int32_t hops = 0;
  std::int32_t hop = 0;  // that was done last in this step
  bool in_step = false;
  bool of_batch = false;  // the reservoirs' changes are those of this step
  std::vector<Push> pushes = std::vector<Push>(kServingMax);

  std::size_t feature_place() const { return tables.size(); }
  bool is_mine(VertexId v) const { return owners[bucket_of(v)] == worker; }

  // visitor(place of its table, delta) for each of the reasons, which are of vertices of mine.
  template <typename Visitor>
  void visit(const Reasons& reasons, const Visitor& visitor) const {
    const std::size_t size = reasons.size();
    invariant(reasons.vertex.size() == size && reasons.serving.size() == size && reasons.change.size() == size,
              "arrays of one message differ in length");
    for (std::size_t i = 0; i < size; ++i) {
      const VertexId v = reasons.vertex[i];
      const std::int32_t j = reasons.serving[i];
      const std::int32_t table = reasons.table[i];
      invariant(
          table >= kFeatureReasons && table < std::ssize(tables) && v >= 0 && is_mine(v) && j >= 0 && j < kServingMax,
          "reasons for another worker");
      visitor(table == kFeatureReasons ? feature_place() : table, Delta{key_of(v, j), reasons.change[i]});
    }
  }

  void begin(bool batch) {
    invariant(!in_step, "a step began before the one before it had ended");
    in_step = true;
    of_batch = batch;
    hop = 0;
    features_changed.clear();
    for (Push& push : pushes) push = Push{};
  }

  // Reasons of v as a vertex of this type, which may be no seed of any query.
  void add_seed(VertexId v, std::int32_t type, std::uint64_t mask, std::int32_t change) {
    visit_bits(mask, [&](int j) {
      bool seed = false;
      for (std::size_t t = 0; t < tables.size(); ++t) {
        const std::vector<std::int32_t>& types = tables[t].seed_types;
        const bool here = std::any_of(types.begin(), types.end(),
                                      [&](std::int32_t each) { return each == kAnyType || each == type; });
        if (here) pending[t].push_back({key_of(v, j), change});
        seed = seed || here;
      }
      if (seed) pending[feature_place()].push_back({key_of(v, j), change});
    });
  }

  // Brings the seeds' reasons from the type that v was counted with to the one that it has now, if it is live.
  void recount(VertexId v) {
    const std::int32_t now = graph.is_live(v) ? graph.vertex_type(v) + 1 : 0;
    const std::int32_t before = std::exchange(seed_type[v], now);
    if (before == now) return;
    const std::uint64_t mask = serving[bucket_of(v)];
    if (before != 0) add_seed(v, before - 1, mask, -1);
    if (now != 0) add_seed(v, now - 1, mask, 1);
  }

  // visitor(v, place among `changed` or -1, mask before, mask after) for each vertex that is in one of the two.
  template <typename Vertex, typename Visitor>
  void visit_changes(std::size_t place, std::size_t changed, const Vertex& vertex_of, const Visitor& visitor) {
    std::vector<Delta>& deltas = pending[place];
    net(deltas);
    CountTable& table = counts[place];
    constexpr std::size_t kAhead = 8;
    std::size_t d = 0, c = 0;
    while (d < deltas.size() || c < changed) {
      const VertexId by_delta = d < deltas.size() ? deltas[d].vertex() : INT32_MAX;
      const VertexId v = c < changed ? std::min(by_delta, vertex_of(c)) : by_delta;
      const std::int64_t at = c < changed && vertex_of(c) == v ? static_cast<std::int64_t>(c++) : -1;
      const std::uint64_t before = table.mask(v);
      for (; d < deltas.size() && deltas[d].vertex() == v; ++d) {
        if (d + kAhead < deltas.size()) table.prefetch(deltas[d + kAhead]);
        table.change(deltas[d]);
      }
      visitor(v, at, before, table.mask(v));
    }
    deltas.clear();
  }

  std::vector<Delta> advance_table(std::size_t place);
  // Mine wait here; what others own goes out under this number of a table.
  void pass_on(const std::vector<Delta>& caused, std::size_t place, std::int32_t number, std::vector<Reasons>& out) {
    for (const Delta& delta : caused) {
      const int owner = owners[bucket_of(delta.vertex())];
      if (owner == worker) {
        pending[place].push_back(delta);
      } else {
        out[owner].add(number, delta.vertex(), delta.serving(), delta.change);
      }
    }
  }
};

// The row of the table in docs/sampling-workers.md that fits each vertex; returns what is to be passed on.
std::vector<Delta> Subscriptions::Impl::advance_table(std::size_t place) {
  const std::int32_t reservoir = tables[place].reservoir, number = static_cast<std::int32_t>(place);
  std::vector<SampleChange> changed;
  if (of_batch) changed = reservoirs.changes(reservoir);
  std::vector<Delta> caused;
  const auto cause = [&](const SampleView& sample, std::uint64_t mask, std::int32_t change) {
    visit_bits(mask, [&](int j) {
      for (const VertexId entry : sample.neighbours) caused.push_back({key_of(entry, j), change});
    });
  };
  const auto visit = [&](VertexId v, std::int64_t at, std::uint64_t was, std::uint64_t is) {
    const std::uint64_t joined = is & ~was, left = was & ~is, stayed = at < 0 ? 0 : was & is;
    if ((joined | left | stayed) == 0) return;
    const SampleView now = at < 0 ? reservoirs.view(reservoir, v) : changed[at].after;
    const SampleView before = at < 0 ? now : changed[at].before;
    visit_bits(joined | stayed, [&](int j) {
      if (!now.neighbours.empty()) add_sample(pushes[j], number, v, now, reservoirs);
    });
    visit_bits(left | (now.neighbours.empty() ? stayed : 0), [&](int j) {
      if (before.neighbours.empty()) return;
      pushes[j].dropped_table.push_back(number);
      pushes[j].dropped.push_back(v);
    });
    cause(before, left | stayed, -1);
    cause(now, joined | stayed, 1);
  };
  visit_changes(place, changed.size(), [&](std::size_t c) { return changed[c].vertex; }, visit);
  net(caused);
  return caused;
}

Subscriptions::Subscriptions(const GraphStore& graph, const Reservoirs& reservoirs, const FeatureRows& features,
                             std::vector<SubscribedTable> tables, std::vector<std::uint16_t> owners, int worker,
                             int workers)
    : impl_(new Impl{graph, reservoirs, features, std::move(tables), std::move(owners), worker, workers}) {
  Impl& impl = *impl_;
  invariant(impl.owners.size() == kBuckets, "owners of buckets of the wrong number");
  invariant(worker >= 0 && worker < workers, "a sampling worker's number is out of range");
  for (const std::uint16_t owner : impl.owners) invariant(owner < workers, "a bucket of no worker");
  impl.counts.resize(impl.tables.size() + 1);
  impl.pending.resize(impl.tables.size() + 1);
  for (const SubscribedTable& table : impl.tables) {
    impl.hops = std::max(impl.hops, table.hop);
    for (const std::int32_t fed : table.feeds) {
      invariant(fed >= 0 && fed < std::ssize(impl.tables) && impl.tables[fed].hop == table.hop + 1,
                "a table feeds one that is not of the next hop");
    }
  }
  impl.seed_type.resize(graph.slot_count());
  for (VertexId v = 0; v < graph.slot_count(); ++v) {
    if (graph.is_live(v) && impl.is_mine(v)) impl.seed_type[v] = graph.vertex_type(v) + 1;
  }
}

Subscriptions::~Subscriptions() = default;

std::int32_t Subscriptions::hops() const { return impl_->hops; }

// ---- a step

void Subscriptions::follow(const BatchDelta&, const UpdateBuffer& batch) {
  Impl& impl = *impl_;
  impl.begin(true);
  impl.seed_type.resize(std::max<std::size_t>(impl.seed_type.size(), impl.graph.slot_count()));
  for (const Update& update : batch.updates()) {
    if (update.kind != UpdateKind::AddVertex && update.kind != UpdateKind::RemoveVertex) continue;
    const auto v = static_cast<VertexId>(update.u);
    if (impl.is_mine(v)) impl.recount(v);
  }
}

void Subscriptions::features_changed(std::span<const VertexId> vertices) {
  invariant(impl_->in_step && impl_->of_batch && impl_->hop == 0, "changed features outside of a batch");
  impl_->features_changed.assign(vertices.begin(), vertices.end());
}

void Subscriptions::route(std::span<const std::uint64_t> serving) {
  Impl& impl = *impl_;
  invariant(serving.size() == kBuckets, "serving workers of buckets of the wrong number");
  impl.begin(false);
  for (VertexId v = 0; v < impl.graph.slot_count(); ++v) {
    if (impl.seed_type[v] == 0) continue;
    const int bucket = bucket_of(v);
    impl.add_seed(v, impl.seed_type[v] - 1, impl.serving[bucket] & ~serving[bucket], -1);
    impl.add_seed(v, impl.seed_type[v] - 1, serving[bucket] & ~impl.serving[bucket], 1);
  }
  impl.serving.assign(serving.begin(), serving.end());
}

void Subscriptions::take(const Reasons& reasons) {
  Impl& impl = *impl_;
  invariant(impl.in_step && impl.hop > 0, "reasons came in before the first hop was done");
  impl.visit(reasons, [&](std::size_t place, const Delta& delta) {
    invariant(place == impl.feature_place() || impl.tables[place].hop == impl.hop + 1, "reasons for another hop");
    impl.pending[place].push_back(delta);
  });
}

std::vector<Reasons> Subscriptions::advance() {
  Impl& impl = *impl_;
  invariant(impl.in_step && impl.hop < impl.hops, "a step went on after its last hop");
  ++impl.hop;
  std::vector<Reasons> out(static_cast<std::size_t>(impl.workers));
  for (std::size_t place = 0; place < impl.tables.size(); ++place) {
    if (impl.tables[place].hop != impl.hop) continue;
    const std::vector<Delta> caused = impl.advance_table(place);
    for (const std::int32_t fed : impl.tables[place].feeds) impl.pass_on(caused, fed, fed, out);
    impl.pass_on(caused, impl.feature_place(), kFeatureReasons, out);
  }
  return out;
}

void Subscriptions::finish() {
  Impl& impl = *impl_;
  invariant(impl.in_step && impl.hop == impl.hops, "a step ended before its last hop");
  const auto width = static_cast<std::size_t>(impl.features.width());
  const auto visit = [&](VertexId v, std::int64_t at, std::uint64_t was, std::uint64_t is) {
    const float* row = impl.features.find(v);
    visit_bits((is & ~was) | (at < 0 ? 0 : was & is), [&](int j) {
      invariant(row != nullptr, "features are needed of a vertex that has none");
      Push& push = impl.pushes[j];
      push.feature_vertex.push_back(v);
      push.features.insert(push.features.end(), row, row + width);
    });
    visit_bits(was & ~is, [&](int j) { impl.pushes[j].features_dropped.push_back(v); });
  };
  const std::vector<VertexId>& changed = impl.features_changed;
  impl.visit_changes(impl.feature_place(), changed.size(), [&](std::size_t c) { return changed[c]; }, visit);
  impl.in_step = false;
}

const Push& Subscriptions::push(int serving) const {
  invariant(!impl_->in_step && serving >= 0 && serving < kServingMax, "a push was asked for in the middle of a step");
  return impl_->pushes[serving];
}

// ---- state

Reasons Subscriptions::counts() const {
  Reasons found;
  for (std::size_t place = 0; place < impl_->counts.size(); ++place) {
    const std::int32_t number = place == impl_->feature_place() ? kFeatureReasons : static_cast<std::int32_t>(place);
    for (const Delta& delta : impl_->counts[place].all()) {
      found.add(number, delta.vertex(), delta.serving(), delta.change);
    }
  }
  return found;
}

void Subscriptions::restore(const Reasons& counts, std::span<const std::uint64_t> serving) {
  Impl& impl = *impl_;
  invariant(serving.size() == kBuckets, "serving workers of buckets of the wrong number");
  impl.serving.assign(serving.begin(), serving.end());
  impl.visit(counts, [&](std::size_t place, const Delta& delta) { impl.counts[place].change(delta); });
}

std::size_t Subscriptions::bytes() const {
  std::size_t sum = 0;
  for (const CountTable& table : impl_->counts) sum += table.bytes();
  return sum + impl_->seed_type.capacity() * sizeof(std::int32_t);
}

}  // namespace livegnn
