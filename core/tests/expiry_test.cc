// Batches with the removals of expired edges written into them, against a model that applies one update after the
// other and lets edges expire as the definition says.
#include "livegnn/expiry.h"

#include <random>
#include <set>
#include <string>

#include "tests/graph_model.h"

namespace livegnn::testing {
namespace {

struct ExpiringModel {
  GraphModel graph;
  std::vector<Lifetime> lifetimes;
  EdgeTime now = kUnsetTime;

  void expire() {
    std::erase_if(graph.edges, [&](const auto& edge) {
      for (const Lifetime& each : lifetimes) {
        const bool lives_so = each.type == kUnsetType || each.type == edge.second.type;
        if (lives_so && now > kUnsetTime + each.ttl && edge.second.time <= now - each.ttl) return true;
      }
      return false;
    });
  }
  // Index of the first refused update, or nothing; then all of them are in.
  std::optional<std::size_t> apply(const UpdateBuffer& batch) {
    ExpiringModel next = *this;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Update& update = batch.updates()[i];
      if (update.kind == UpdateKind::AddEdge) next.now = std::max(next.now, update.time);
      next.expire();
      if (!next.graph.apply_one(batch, update)) return i;
      next.expire();
    }
    ++next.graph.version;
    *this = next;
    return std::nullopt;
  }
};

class Streams {
 public:
  explicit Streams(std::uint32_t seed) : random_(seed) {
    GraphOptions& o = model_.graph.options;
    o.feature_width = 1;
    o.has_time = true;
    o.has_type = (seed & 1) != 0;
    o.has_weight = (seed & 2) != 0;
    o.undirected = (seed & 4) != 0;
    o.simple = (seed & 8) != 0;
    o.attr_width = seed % 5 == 0 ? 2 : 0;
    o.block_edges_max = 2 + static_cast<std::int32_t>(seed % 3);
    model_.lifetimes = o.has_type ? std::vector<Lifetime>{{0, 4}, {2, 9}} : std::vector<Lifetime>{{kUnsetType, 6}};
    store_ = std::make_unique<GraphStore>(o);
    UpdateBuffer vertices;
    for (int v = 0; v < 6; ++v) {
      Update update{};
      update.kind = UpdateKind::AddVertex;
      update.u = v;
      give_row(vertices, update, 1);
      vertices.add(update);
    }
    CHECK(!model_.apply(vertices));
    store_->apply(vertices);
  }

  void run(int batches) {
    for (int i = 0; i < batches; ++i) {
      UpdateBuffer batch;
      for (int left = draw(4) == 0 ? 300 : draw(8); left > 0; --left) draw_update(batch, left > 50);
      step(batch);
      time_ += draw(3);
    }
  }

 private:
  int draw(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  void give_row(UpdateBuffer& batch, Update& update, std::int32_t width) {
    const Row row(static_cast<std::size_t>(width), static_cast<float>(draw(5)));
    update.row = batch.add_row(row);
    update.row_width = width;
  }
  void draw_update(UpdateBuffer& batch, bool adds) {
    const GraphOptions& o = model_.graph.options;
    const int dice = adds && !o.simple ? 0 : draw(10);
    Update update{};
    update.u = draw(6), update.v = draw(6);
    update.kind = dice < 6 ? UpdateKind::AddEdge : dice < 9 ? UpdateKind::RemoveEdge : UpdateKind::SetWeight;
    if (update.kind == UpdateKind::SetWeight && !o.has_weight) update.kind = UpdateKind::RemoveEdge;
    update.missing_ignore = update.kind == UpdateKind::RemoveEdge && draw(8) > 0;
    if (update.kind == UpdateKind::AddEdge) {
      update.time = time_ + draw(4) - (draw(4) == 0 ? 12 : 0);  // some are late, and some too late
      if (draw(3) == 0) ++time_;
      if (o.has_type) update.type = draw(3);
      update.has_weight = o.has_weight;
      if (o.attr_width > 0) give_row(batch, update, o.attr_width);
      if (o.simple && model_.graph.find({.kind = UpdateKind::AddEdge, .u = update.u, .v = update.v}) != kNoEdge) {
        update.kind = UpdateKind::RemoveEdge;
        update.row = -1;
      }
    }
    update.has_weight = o.has_weight && update.kind != UpdateKind::RemoveEdge;
    batch.add(update);
  }

  // Taken back, and in pieces: the same graph; refused: as before, and the update is named by the place it was given.
  void step(const UpdateBuffer& batch) {
    const EdgeTime before = model_.now;
    const std::uint64_t digest = store_->digest();
    const GraphModel start = model_.graph;
    const ExplicitBatch whole = written(batch, before);
    const std::optional<std::size_t> refused = model_.apply(batch);
    if (refused) {
      try {
        store_->apply(whole.buffer);
        CHECK(!"the store took what the model refuses");
      } catch (const Error& error) {
        CHECK(std::string(error.what()).starts_with("[apply] update " + std::to_string(*refused) + " ("));
      }
      CHECK(store_->digest() == digest);
      return check_equal(*store_, start);
    }
    CHECK(whole.now == model_.now);
    const ExplicitBatch again = written(whole.buffer, before);  // a log's entry, replayed
    CHECK(again.buffer.size() == whole.buffer.size());
    const BatchDelta delta = store_->apply(whole.buffer);
    check_equal(*store_, model_.graph);
    if (draw(2) == 0) return;
    store_->undo(delta);
    check_equal(*store_, start);
    CHECK(store_->digest() == digest);
    EdgeTime now = before;
    for (std::size_t at = 0; at < batch.size();) {
      UpdateBuffer piece = batch;
      const std::size_t size = std::min(batch.size() - at, static_cast<std::size_t>(1 + draw(5)));
      const std::vector<Update> taken(batch.updates().begin() + at, batch.updates().begin() + at + size);
      piece.clear_updates();
      for (const Update& update : taken) piece.add(update);
      const ExplicitBatch one = written(piece, now);
      store_->apply(one.buffer);
      now = one.now;
      at += size;
    }
    CHECK(now == model_.now);
    model_.graph.version = store_->version();
    check_equal(*store_, model_.graph);
  }

  ExplicitBatch written(const UpdateBuffer& batch, EdgeTime now) const {
    return with_expiry(batch, model_.lifetimes, now, model_.graph.options.simple);
  }

  std::mt19937 random_;
  ExpiringModel model_;
  std::unique_ptr<GraphStore> store_;
  int time_ = 0;
};

TEST(expiry_in_batches_equals_expiry_update_by_update) {
  for (std::uint32_t seed = 0; seed < 48; ++seed) Streams(seed).run(40);
}

TEST(the_clock_does_not_wrap) {
  CHECK(first_alive(100, 10) == 91);
  CHECK(first_alive(kUnsetTime, 1) == kUnsetTime + 1);
  CHECK(first_alive(kUnsetTime + 5, kTtlMax) == kUnsetTime + 1);
  CHECK(first_alive(INT64_MAX, kTtlMax) == INT64_MAX - kTtlMax + 1);
  CHECK(first_alive(kUnsetTime + 3, 2) == kUnsetTime + 2);
}

}  // namespace
}  // namespace livegnn::testing

LIVEGNN_TEST_MAIN
