// Tables of a serving worker. A step's rows are made beside the tables and then put in, so that readers wait for
// pointers and copies of features, not for the making of rows.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "livegnn/sampling_workers.h"
#include "sampling/edge_rows.h"
#include "sampling/read.h"
#include "sampling/version_lock.h"

namespace livegnn {

namespace {
// Samples of one one-hop query: vertex -> row.
struct SampleTable {
  SampleTable(std::int32_t fanout_given, std::int32_t words)
      : fanout(fanout_given), pool(fanout, RowColumns::Ids, words) {}

  std::int32_t fanout;
  RowPool pool;
  EdgeIdMap rows;  // Row* by vertex

  static Row* row_of(std::int64_t value) { return reinterpret_cast<Row*>(static_cast<std::intptr_t>(value)); }
  static std::int64_t value_of(Row* row) { return static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(row)); }

  const Row* find(VertexId v) const {
    const std::int64_t value = rows.find(v);
    return value == EdgeIdMap::kNone ? nullptr : row_of(value);
  }
  Row* exchange(VertexId v, Row* row) {  // the row that was there, or nullptr
    if (std::int64_t* place = rows.place_of(v)) {
      Row* old = row_of(*place);
      *place = value_of(row);
      return old;
    }
    rows.insert(v, value_of(row));
    return nullptr;
  }
  Row* take_out(VertexId v) {
    const std::int64_t value = rows.erase(v);
    return value == EdgeIdMap::kNone ? nullptr : row_of(value);
  }
};

struct Staged {
  std::int32_t table;
  VertexId vertex;
  Row* row;
};
}  // namespace

struct ServingTables::Impl {
  Impl(const std::vector<std::int32_t>& fanouts, std::int32_t width, const EdgeColumns& wanted)
      : columns(wanted), features(width), seeds(kBuckets, 0) {
    tables.reserve(fanouts.size());
    for (const std::int32_t fanout : fanouts) tables.emplace_back(fanout, columns.words());
  }

  EdgeColumns columns;
  std::vector<SampleTable> tables;
  FeatureRows features;
  std::vector<std::uint8_t> seeds;  // buckets whose vertices may be asked for
  std::int64_t version = 0;
  bool broken = false;   // memory ended in the middle of a step
  ServingBytes bytes{};  // as of the version
  mutable VersionLock lock;

  void note_bytes() {
    ServingBytes sum{};
    for (const SampleTable& table : tables) {
      sum.rows += table.pool.live_bytes();
      sum.index += table.rows.bytes();
    }
    sum.features = features.bytes();
    bytes = sum;
  }

  SampleTable& table(std::int32_t number) {
    invariant(number >= 0 && static_cast<std::size_t>(number) < tables.size(), "a push for a table that is not there");
    return tables[static_cast<std::size_t>(number)];
  }

  void stage(const Push& push, std::vector<Staged>& staged) {
    const auto words = static_cast<std::size_t>(columns.words());
    invariant(push.edge_rows.size() == push.edge_ids.size() * words, "a push with values of edges of the wrong width");
    std::size_t first = 0;
    for (std::size_t i = 0; i < push.vertex.size(); ++i) {
      SampleTable& samples = table(push.table[i]);
      const std::int32_t count = push.count[i];
      const auto entries = static_cast<std::size_t>(count);
      invariant(count >= 1 && count <= samples.fanout && first + entries <= push.neighbours.size(),
                "a push with a row of the wrong length");
      Row* row = samples.pool.allocate(count);
      row->count = count;
      std::memcpy(row->neighbours(), push.neighbours.data() + first, entries * sizeof(VertexId));
      std::memcpy(row->ids(), push.edge_ids.data() + first, entries * sizeof(EdgeId));
      if (words > 0) {
        std::memcpy(row->words(), push.edge_rows.data() + first * words, entries * words * sizeof(float));
      }
      staged.push_back({push.table[i], push.vertex[i], row});
      first += entries;
    }
    invariant(first == push.neighbours.size() && first == push.edge_ids.size(), "a push with entries of no row");
    invariant(push.features.size() == push.feature_vertex.size() * static_cast<std::size_t>(features.width()),
              "a push with features of the wrong width");
    for (const std::int32_t number : push.dropped_table) table(number);
  }

  void put_in(std::vector<Staged>& staged) {
    for (Staged& each : staged) each.row = table(each.table).exchange(each.vertex, each.row);
  }

  void put_features(const Push& push) {
    const auto width = static_cast<std::size_t>(features.width());
    for (std::size_t i = 0; i < push.feature_vertex.size(); ++i) {
      features.set(push.feature_vertex[i], {push.features.data() + i * width, width});
    }
    for (const VertexId v : push.features_dropped) {
      invariant(features.find(v) != nullptr, "a push drops features that are not there");
      features.erase(v);
    }
  }
};

namespace {
// The tables as read.h wants them: one per hop of a query.
struct ServingSource {
  std::vector<const SampleTable*> tables;
  const FeatureRows& feature_rows;

  void prefetch_row(std::size_t hop, VertexId v) const { tables[hop]->rows.prefetch(v); }
  const Row* row(std::size_t hop, VertexId v) const { return tables[hop]->find(v); }
  void prefetch_features(VertexId v) const { feature_rows.prefetch(v); }
  bool read_features(VertexId v, std::int32_t width, float* out) const {
    const float* row = feature_rows.find(v);
    if (row != nullptr) std::memcpy(out, row, static_cast<std::size_t>(width) * sizeof(float));
    return row != nullptr;
  }
};

// The values of the sampled edges, from the rows of the vertices that they were sampled for.
void read_words(const ServingSource& source, const SampleRequest& request, const QueryShape& shape, std::int64_t first,
                std::int64_t last) {
  const EdgeColumns& columns = request.edge_columns;
  const std::int64_t* parents = request.seeds.data() + first;
  for (std::size_t hop = 0; hop < request.vertices.size(); ++hop) {
    const std::int64_t fanout = source.tables[hop]->fanout;
    const LevelRange range = shape.range(hop + 1, first, last);
    for (std::int64_t i = 0; i < range.count; i += fanout) {
      const std::int64_t parent = *parents++;
      const Row* row = parent < 0 ? nullptr : source.tables[hop]->find(static_cast<VertexId>(parent));
      for (std::int64_t at = 0; at < fanout; ++at) {
        const bool there = row != nullptr && at < row->count;
        read_edge_row(columns, there ? row->words() + at * columns.words() : nullptr,
                      request.edge_values(hop, range.first + i + at));
      }
    }
    parents = request.vertices[hop] + range.first;
  }
}
}  // namespace

ServingTables::ServingTables(std::vector<std::int32_t> fanouts, std::int32_t feature_width, EdgeColumns columns)
    : impl_(std::make_unique<Impl>(fanouts, feature_width, columns)) {
  impl_->note_bytes();
}

ServingTables::~ServingTables() = default;

void ServingTables::apply(std::span<const Push> pushes, std::span<const std::uint8_t> seeds, std::int64_t version) {
  Impl& impl = *impl_;
  invariant(!impl.broken, "memory ended in the middle of an earlier step; make the serving worker anew");
  invariant(seeds.size() == kBuckets, "flags of seed buckets of the wrong number");
  std::vector<Staged> staged, dropped;
  const auto give_back = [&](const std::vector<Staged>& gone) {
    for (const Staged& each : gone) {
      if (each.row != nullptr) impl.table(each.table).pool.free(each.row);
    }
  };
  try {  // out of readers' sight
    for (const Push& push : pushes) impl.stage(push, staged);
  } catch (...) {
    give_back(staged);
    throw;
  }
  const std::unique_lock held(impl.lock);
  impl.broken = true;  // unless all of this comes through; readers wait meanwhile
  impl.put_in(staged);
  for (const Push& push : pushes) {
    for (std::size_t i = 0; i < push.dropped.size(); ++i) {
      Row* row = impl.table(push.dropped_table[i]).take_out(push.dropped[i]);
      invariant(row != nullptr, "a push drops a sample that is not there");
      dropped.push_back({push.dropped_table[i], push.dropped[i], row});
    }
    impl.put_features(push);
  }
  impl.seeds.assign(seeds.begin(), seeds.end());
  impl.version = version;
  give_back(staged);
  give_back(dropped);
  impl.note_bytes();
  impl.broken = false;
}

std::int64_t ServingTables::sample(const SampleRequest& request) const {
  const Impl& impl = *impl_;
  const std::shared_lock held(impl.lock);
  invariant(!impl.broken, "memory ended in the middle of an earlier step; make the serving worker anew");
  ServingSource source{{}, impl.features};
  std::vector<std::int32_t> fanouts;
  for (const std::int32_t table : request.tables) {
    source.tables.push_back(&impl_->table(table));
    fanouts.push_back(source.tables.back()->fanout);
  }
  for (const std::int64_t seed : request.seeds) {
    const bool in_range = seed >= 0 && seed <= INT32_MAX;
    const auto v = static_cast<VertexId>(in_range ? seed : 0);
    const bool mine = in_range && impl.seeds[static_cast<std::size_t>(bucket_of(v))] != 0;
    if (mine && impl.features.find(v) != nullptr) continue;
    const bool here = mine || !in_range;
    throw Error(ErrorKind::VertexUnknown, {.where = "sample",
                                           .expected = "seeds that are live vertices of this serving worker (version " +
                                                       std::to_string(impl.version) + ")",
                                           .got = std::to_string(seed) + (here ? "" : ", which others own"),
                                           .advice = here ? "add the vertex first" : "ask through the front end",
                                           .vertex = seed});
  }
  const QueryShape shape(fanouts);
  const auto count = static_cast<std::int64_t>(request.seeds.size());
  const std::int64_t block = shape.block_seeds();
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t last = std::min(count, first + block);
    read_block(source, request, fanouts, shape, first, last);
    if (request.edge_columns.words() > 0) read_words(source, request, shape, first, last);
  }
  return impl.version;
}

std::int64_t ServingTables::version() const {
  const std::shared_lock held(impl_->lock);
  return impl_->version;
}

Push ServingTables::contents() const {
  const std::shared_lock held(impl_->lock);
  Push all;
  for (std::size_t t = 0; t < impl_->tables.size(); ++t) {
    const SampleTable& table = impl_->tables[t];
    std::vector<VertexId> vertices;
    table.rows.visit([&](EdgeId v, std::int64_t) { vertices.push_back(static_cast<VertexId>(v)); });
    std::sort(vertices.begin(), vertices.end());
    for (const VertexId v : vertices) {
      const Row* row = table.find(v);
      all.table.push_back(static_cast<std::int32_t>(t));
      all.vertex.push_back(v);
      all.count.push_back(row->count);
      all.neighbours.insert(all.neighbours.end(), row->neighbours(), row->neighbours() + row->count);
      all.edge_ids.insert(all.edge_ids.end(), row->ids(), row->ids() + row->count);
      all.edge_rows.insert(all.edge_rows.end(), row->words(), row->words() + row->count * impl_->columns.words());
    }
  }
  all.feature_vertex = impl_->features.vertices();
  for (const VertexId v : all.feature_vertex) {
    const float* row = impl_->features.find(v);
    all.features.insert(all.features.end(), row, row + impl_->features.width());
  }
  return all;
}

EdgeColumns ServingTables::edge_columns() const { return impl_->columns; }

std::vector<std::int32_t> ServingTables::fanouts() const {
  std::vector<std::int32_t> found;
  for (const SampleTable& table : impl_->tables) found.push_back(table.fanout);
  return found;
}

ServingBytes ServingTables::bytes() const {
  const std::shared_lock held(impl_->lock);
  return impl_->bytes;
}

}  // namespace livegnn
