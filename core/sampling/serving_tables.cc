// Tables of a serving worker. A step's rows are made beside the tables and then put in, so that readers wait for
// pointers and copies of features, not for the making of rows.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

#include "livegnn/sampling_workers.h"
#include "sampling/edge_rows.h"
#include "sampling/read.h"
#include "sampling/version_lock.h"

namespace livegnn {

namespace {
// Samples of one one-hop query: vertex -> row.
struct SampleTable {
  SampleTable(std::int32_t fanout, std::int32_t words) : most(fanout), pool(fanout, RowColumns::Ids, words) {}

  std::int32_t most;  // entries of a row
  RowPool pool;
  EdgeIdMap rows;  // Row* by vertex

  std::int32_t fanout() const { return most; }
  static Row* row_of(std::int64_t value) {
    return value == EdgeIdMap::kNone ? nullptr : reinterpret_cast<Row*>(static_cast<std::intptr_t>(value));
  }
  void prefetch_row(VertexId v) const { rows.prefetch(v); }
  const Row* row(VertexId v) const { return row_of(rows.find(v)); }
  Row* exchange(VertexId v, Row* row) {  // for one that is put in, or for none; the row that was there, or nullptr
    if (row == nullptr) return row_of(rows.erase(v));
    const auto value = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(row));
    if (std::int64_t* place = rows.place_of(v)) return row_of(std::exchange(*place, value));
    rows.insert(v, value);
    return nullptr;
  }
};

struct StagedSample {
  std::int32_t table;
  VertexId vertex;
  Row* row;  // nullptr: the vertex's is to go
};
}  // namespace

struct ServingTables::Impl {
  EdgeColumns columns;
  FeatureRows features;
  std::vector<SampleTable> tables{};
  std::vector<std::uint8_t> seeds = std::vector<std::uint8_t>(kBuckets, 0);  // buckets whose vertices may be asked for
  std::int64_t version = 0;
  bool broken = false;   // memory ended in the middle of a step
  ServingBytes bytes{};  // as of the version
  mutable VersionLock lock{};

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
    invariant(number >= 0 && number < std::ssize(tables), "a table of samples that is not there");
    return tables[number];
  }

  void stage(const Push& push, std::vector<StagedSample>& staged) {
    const auto words = static_cast<std::size_t>(columns.words());
    invariant(push.table.size() == push.vertex.size() && push.count.size() == push.vertex.size() &&
                  push.neighbours.size() == push.edge_ids.size() && push.dropped_table.size() == push.dropped.size(),
              "arrays of one message differ in length");
    invariant(push.edge_rows.size() == push.edge_ids.size() * words, "a push with values of edges of the wrong width");
    std::size_t first = 0;
    for (std::size_t i = 0; i < push.vertex.size(); ++i) {
      SampleTable& samples = table(push.table[i]);
      const std::int32_t count = push.count[i];
      const auto entries = static_cast<std::size_t>(count);
      invariant(count >= 1 && count <= samples.fanout() && first + entries <= push.neighbours.size(),
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
    invariant(first == push.neighbours.size(), "a push with entries of no row");
    invariant(push.features.size() == push.feature_vertex.size() * static_cast<std::size_t>(features.width()),
              "a push with features of the wrong width");
    for (std::size_t i = 0; i < push.dropped.size(); ++i) {
      table(push.dropped_table[i]);
      staged.push_back({push.dropped_table[i], push.dropped[i], nullptr});
    }
  }

  void put_in(std::vector<StagedSample>& staged) {  // what was there is staged then
    for (StagedSample& each : staged) {
      const bool goes = each.row == nullptr;
      each.row = table(each.table).exchange(each.vertex, each.row);
      invariant(!goes || each.row != nullptr, "a push drops a sample that is not there");
    }
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
// The values of one hop's edges, from the rows of the vertices that they were sampled for.
void read_words(const SampleTable& table, const SampleRequest& request, std::size_t hop, const std::int64_t* parents,
                const LevelRange& range) {
  const EdgeColumns& columns = request.edge_columns;
  for (std::int64_t i = 0; i < range.count; i += table.fanout()) {
    const std::int64_t parent = *parents++;
    const Row* row = parent < 0 ? nullptr : table.row(static_cast<VertexId>(parent));
    for (std::int32_t at = 0; at < table.fanout(); ++at) {
      const bool there = row != nullptr && at < row->count;
      read_edge_row(columns, there ? row->words() + at * columns.words() : nullptr,
                    request.edge_values(hop, range.first + i + at));
    }
  }
}
}  // namespace

ServingTables::ServingTables(std::vector<std::int32_t> fanouts, std::int32_t feature_width, EdgeColumns columns)
    : impl_(new Impl{columns, FeatureRows(feature_width)}) {
  for (const std::int32_t fanout : fanouts) impl_->tables.emplace_back(fanout, columns.words());
  impl_->note_bytes();
}

ServingTables::~ServingTables() = default;

void ServingTables::apply(std::span<const Push> pushes, std::span<const std::uint8_t> seeds, std::int64_t version) {
  Impl& impl = *impl_;
  invariant(!impl.broken, "memory ended in the middle of an earlier step; make the serving worker anew");
  invariant(seeds.size() == kBuckets, "flags of seed buckets of the wrong number");
  std::vector<StagedSample> staged;
  const auto give_back = [&] {
    for (const StagedSample& each : staged) {
      if (each.row != nullptr) impl.table(each.table).pool.free(each.row);
    }
  };
  try {  // out of readers' sight
    for (const Push& push : pushes) impl.stage(push, staged);
  } catch (...) {
    give_back();
    throw;
  }
  const std::unique_lock held(impl.lock);
  impl.broken = true;  // unless all of this comes through; readers wait meanwhile
  impl.put_in(staged);
  for (const Push& push : pushes) impl.put_features(push);
  impl.seeds.assign(seeds.begin(), seeds.end());
  impl.version = version;
  give_back();
  impl.note_bytes();
  impl.broken = false;
}

std::int64_t ServingTables::sample(const SampleRequest& request) const {
  const Impl& impl = *impl_;
  const std::shared_lock held(impl.lock);
  invariant(!impl.broken, "memory ended in the middle of an earlier step; make the serving worker anew");
  std::vector<const SampleTable*> tables;
  QueryShape shape;
  for (const std::int32_t number : request.tables) {
    tables.push_back(&impl_->table(number));
    shape.add_hop(tables.back()->fanout());
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
  const auto fill = [&](std::size_t hop, const std::int64_t* parents, const LevelRange& range) {
    read_hop(*tables[hop], request, hop, parents, range);
    if (request.edge_columns.words() > 0) read_words(*tables[hop], request, hop, parents, range);
  };
  const auto count = static_cast<std::int64_t>(request.seeds.size());
  const std::int64_t block = shape.block_seeds();
  for (std::int64_t first = 0; first < count; first += block) {
    read_block(impl.features, request, shape, first, std::min(count, first + block), fill);
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
      const Row* row = table.row(v);
      const auto count = static_cast<std::size_t>(row->count);
      all.add(static_cast<std::int32_t>(t), v, {{row->neighbours(), count}, {row->ids(), count}});
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

std::int32_t ServingTables::fanout(std::int32_t table) const { return impl_->table(table).fanout(); }

ServingBytes ServingTables::bytes() const {
  const std::shared_lock held(impl_->lock);
  return impl_->bytes;
}

}  // namespace livegnn
