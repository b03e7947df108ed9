// Random batches on small graphs with tiny blocks against the model: content, order, net effect, refusals, undo.
#include <random>
#include <set>
#include <string>

#include "tests/graph_model.h"

namespace livegnn::testing {
namespace {

class Driver {
 public:
  Driver(const GraphOptions& options, std::uint32_t seed) : random_(seed) { model_.options = options; }

  void run(int vertices, int edges, int batches) {
    load(vertices, edges);
    for (int i = 0; i < batches; ++i) step();
    while (!history_.empty()) undo();
    check_equal(*store_, model_);
    CHECK(store_->digest() == digest_loaded_);
  }

 private:
  int draw(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  float value() { return static_cast<float>(draw(7)) - 3.0f; }
  Row row(std::int32_t width) {
    Row values(static_cast<std::size_t>(width));
    for (float& x : values) x = value();
    return values;
  }
  std::int64_t vertex() {  // hubs at the low ids, now and then one that is not there
    const int slots = std::max<int>(model_.slot_count, 1);
    if (draw(150) == 0) return draw(2) == 0 ? -1 : slots + draw(2);
    return draw(2) == 0 ? draw(std::min(slots, 3)) : draw(slots);
  }

  void load(int vertices, int edges) {
    const GraphOptions& o = model_.options;
    Row features, weight, attr;
    std::vector<std::int64_t> src, dst, time;
    std::vector<std::int32_t> type;
    for (int v = 0; v < vertices; ++v) {
      const Row x = model_.vertices[v] = row(o.feature_width);
      features.insert(features.end(), x.begin(), x.end());
    }
    model_.slot_count = vertices;
    std::set<std::pair<int, int>> pairs;
    for (int i = 0; i < edges; ++i) {
      const int u = draw(2) == 0 ? draw(std::min(vertices, 3)) : draw(vertices), v = draw(vertices);
      if (o.simple && !pairs.insert(o.undirected && v < u ? std::pair(v, u) : std::pair(u, v)).second) continue;
      ModelEdge e{u,
                  v,
                  o.has_weight ? value() : 1.0f,
                  o.has_time ? draw(20) - 5 : 0,
                  o.has_type ? draw(3) : 0,
                  row(o.attr_width)};
      model_.edges[model_.next_edge_id++] = e;
      src.push_back(u), dst.push_back(v);
      if (o.has_weight) weight.push_back(e.weight);
      if (o.has_time) time.push_back(e.time);
      if (o.has_type) type.push_back(e.type);
      attr.insert(attr.end(), e.attr.begin(), e.attr.end());
    }
    store_ = std::make_unique<GraphStore>(o);
    store_->load({vertices, features, {}, {src, dst, {}, weight, time, type, attr}}, 1 + draw(3));
    check_equal(*store_, model_);
    digest_loaded_ = store_->digest();
  }

  void give_row(UpdateBuffer& batch, Update& update, std::int32_t width) {
    if (draw(100) == 0) ++width;
    Row values = row(width);
    if (width > 0 && draw(150) == 0) values[0] = NAN;
    update.row = batch.add_row(values);
    update.row_width = width;
  }

  void pick_edge(Update& update) {  // mostly one that is there
    update.u = vertex(), update.v = vertex();
    if (model_.edges.empty() || draw(10) == 0) return;
    auto it = model_.edges.begin();
    std::advance(it, draw(static_cast<int>(model_.edges.size())));
    update.u = it->second.u, update.v = it->second.v;
    if (model_.options.undirected && draw(2) == 0) std::swap(update.u, update.v);
    if (draw(5) == 0) update.edge_id = it->first;
    if (draw(8) == 0 && model_.options.has_time) update.time = it->second.time;
    if (draw(8) == 0 && model_.options.has_type) update.type = it->second.type;
  }

  Update draw_update(UpdateBuffer& batch) {
    const GraphOptions& o = model_.options;
    Update update{};
    const int dice = draw(100);
    if (dice < 38) {
      update.kind = UpdateKind::AddEdge;
      update.u = vertex(), update.v = draw(12) == 0 ? update.u : vertex();
      update.has_weight = o.has_weight != (draw(200) == 0);
      update.weight = draw(200) == 0 ? INFINITY : value();
      if (o.has_time != (draw(200) == 0)) update.time = draw(20) - 5;
      if (o.has_type != (draw(200) == 0)) update.type = draw(3);
      if (o.attr_width > 0) give_row(batch, update, o.attr_width);
    } else if (dice < 72) {
      update.kind = UpdateKind::RemoveEdge;
      update.missing_ignore = draw(3) > 0;
      pick_edge(update);
    } else if (dice < 82) {
      update.kind = UpdateKind::SetWeight;
      if (!o.has_weight && draw(20) > 0) return draw_update(batch);
      pick_edge(update);
      update.has_weight = true;
      update.weight = value();
    } else if (dice < 86) {
      update.kind = UpdateKind::SetEdgeAttr;
      if (o.attr_width == 0) return draw_update(batch);
      pick_edge(update);
      give_row(batch, update, o.attr_width);
    } else if (dice < 92) {
      update.kind = UpdateKind::SetFeatures;
      update.u = vertex();
      give_row(batch, update, o.feature_width);
    } else if (dice < 95) {
      update.kind = UpdateKind::AddVertex;
      update.u = draw(3) == 0 ? vertex() : model_.slot_count;
      for (VertexId v = 0; v < model_.slot_count; ++v) {
        if (!model_.live(v) && draw(2) == 0) update.u = v;
      }
      give_row(batch, update, o.feature_width);
    } else if (dice < 98) {
      update.kind = UpdateKind::RemoveVertex;
      update.u = vertex();
    } else {
      if (!o.has_time) return draw_update(batch);
      update.kind = UpdateKind::RemoveEdgesBefore;
      update.time = draw(10) - 5;
      if (o.has_type != (draw(20) == 0) && draw(2) == 0) update.type = draw(3);
    }
    return update;
  }

  void check_delta(const BatchDelta& delta, const GraphModel& before) {
    using Entry = std::tuple<VertexId, VertexId, EdgeId, float>;
    std::multiset<Entry> removed, added, got_removed, got_added;
    std::multiset<std::pair<Entry, float>> reweighted, got_reweighted;
    const auto both = [&](const ModelEdge& e, EdgeId id, float weight, auto&& emit) {
      emit(Entry{e.u, e.v, id, weight});
      if (model_.options.undirected && e.u != e.v) emit(Entry{e.v, e.u, id, weight});
    };
    for (const auto& [id, e] : before.edges) {
      const auto now = model_.edges.find(id);
      if (now == model_.edges.end()) {
        both(e, id, e.weight, [&](Entry x) { removed.insert(x); });
      } else if (std::memcmp(&now->second.weight, &e.weight, sizeof(float)) != 0) {
        both(e, id, e.weight, [&, after = now->second.weight](Entry x) { reweighted.insert({x, after}); });
      }
    }
    for (const auto& [id, e] : model_.edges) {
      if (before.edges.count(id) == 0) both(e, id, e.weight, [&](Entry x) { added.insert(x); });
    }
    const auto entry = [](const EdgeRecord& r) { return Entry{r.src, r.dst, r.id, r.weight}; };
    for (const EdgeRecord& r : delta.removed) got_removed.insert(entry(r));
    for (const EdgeRecord& r : delta.added) got_added.insert(entry(r));
    for (const EdgeReweighted& r : delta.reweighted) got_reweighted.insert({entry(r.before), r.weight_after});
    CHECK(removed == got_removed);
    CHECK(added == got_added);
    CHECK(reweighted == got_reweighted);
    check_vertices(delta, before);
  }

  void check_vertices(const BatchDelta& delta, const GraphModel& before) {
    const auto width = static_cast<std::size_t>(model_.options.feature_width);
    const auto row_of = [&](const GraphModel& m, VertexId v) {
      return m.live(v) ? m.vertices.at(v) : Row(width, 0.0f);
    };
    std::set<VertexId> appeared, gone, changed;
    for (VertexId v = 0; v < model_.slot_count; ++v) {
      if (model_.live(v) && !before.live(v)) appeared.insert(v);
      if (!model_.live(v) && before.live(v)) gone.insert(v);
      if (!same_bits(row_of(before, v), row_of(model_, v))) changed.insert(v);
    }
    CHECK(std::set<VertexId>(delta.vertices_added.begin(), delta.vertices_added.end()) == appeared);
    CHECK(std::set<VertexId>(delta.vertices_removed.begin(), delta.vertices_removed.end()) == gone);
    CHECK(std::set<VertexId>(delta.features_changed.begin(), delta.features_changed.end()) == changed);
    CHECK(delta.vertices_added.size() == appeared.size() && delta.vertices_removed.size() == gone.size());
    CHECK(delta.features_changed.size() == changed.size());
    const auto stride = static_cast<std::size_t>(store_->feature_stride());
    CHECK(delta.features_before.size() == changed.size() * stride);
    for (std::size_t i = 0; i < delta.features_changed.size(); ++i) {
      const float* x = delta.features_before.data() + i * stride;
      CHECK(same_bits(Row(x, x + width), row_of(before, delta.features_changed[i])));
    }
  }

  void step() {
    UpdateBuffer batch;
    const int size = draw(4) == 0 ? draw(60) : draw(6);
    const GraphModel start = model_;
    for (int i = 0; i < size; ++i) {
      const Update update = draw_update(batch);
      batch.add(update);
      model_.apply_one(batch, update);  // so that later updates see it; refused ones are kept, now and then
      if (draw(25) == 0) break;
    }
    model_ = start;
    const std::uint64_t digest_before = store_->digest();
    const std::optional<std::size_t> refused = model_.apply(batch);
    if (refused) {
      try {
        store_->apply(batch);
        CHECK(!"the store took what the model refuses");
      } catch (const Error& error) {
        CHECK(error.kind() != ErrorKind::InvariantBroken);
        CHECK(std::string(error.what()).starts_with("[apply] update " + std::to_string(*refused) + " ("));
      }
      CHECK(store_->digest() == digest_before);
      check_equal(*store_, model_);
      return;
    }
    BatchDelta delta = store_->apply(batch);
    check_equal(*store_, model_);
    check_delta(delta, start);
    history_.emplace_back(std::move(delta), start);
    if (draw(3) == 0) undo();
    if (draw(12) == 0) store_->compact(), check_equal(*store_, model_);
    if (history_.size() > 40) history_.erase(history_.begin(), history_.begin() + 1), digest_loaded_known_ = false;
    if (!digest_loaded_known_) digest_loaded_ = digest_of(history_.empty() ? model_ : history_.front().second);
  }

  std::uint64_t digest_of(const GraphModel& model) const {
    GraphStore fresh(model.options);
    Row features, weight, attr;
    std::vector<std::int64_t> src, dst, time, id;
    std::vector<std::int32_t> type;
    std::vector<std::uint8_t> live;
    for (VertexId v = 0; v < model.slot_count; ++v) {
      live.push_back(model.live(v));
      const Row x = model.live(v) ? model.vertices.at(v) : Row(static_cast<std::size_t>(model.options.feature_width));
      features.insert(features.end(), x.begin(), x.end());
    }
    for (const auto& [edge_id, e] : model.edges) {
      src.push_back(e.u), dst.push_back(e.v), id.push_back(edge_id);
      if (model.options.has_weight) weight.push_back(e.weight);
      if (model.options.has_time) time.push_back(e.time);
      if (model.options.has_type) type.push_back(e.type);
      attr.insert(attr.end(), e.attr.begin(), e.attr.end());
    }
    fresh.load({model.slot_count, features, live, {src, dst, id, weight, time, type, attr}, model.next_edge_id}, 2);
    fresh.set_version(model.version);
    check_equal(fresh, model);
    return fresh.digest();
  }

  void undo() {
    if (history_.empty()) return;
    store_->undo(history_.back().first);
    CHECK_THROWS(store_->undo(history_.back().first), ErrorKind::StateMismatch);
    model_ = history_.back().second;
    history_.pop_back();
    check_equal(*store_, model_);
    CHECK(store_->digest() == digest_of(model_));
  }

  std::mt19937 random_;
  GraphModel model_;
  std::unique_ptr<GraphStore> store_;
  std::vector<std::pair<BatchDelta, GraphModel>> history_;
  std::uint64_t digest_loaded_ = 0;
  bool digest_loaded_known_ = true;
};

TEST(random_batches_equal_the_model) {
  for (std::uint32_t seed = 0; seed < 48; ++seed) {
    GraphOptions options;
    options.feature_width = static_cast<std::int32_t>(seed % 3) * 9;
    options.has_weight = (seed & 1) != 0;
    options.has_time = (seed & 2) != 0;
    options.has_type = (seed & 4) != 0;
    options.attr_width = seed % 5 == 0 ? 3 : 0;
    options.undirected = (seed & 8) != 0;
    options.simple = seed % 7 == 6;
    options.block_edges_max = 2 + static_cast<std::int32_t>(seed % 4);
    Driver(options, seed).run(seed % 2 == 0 ? 4 : 12, seed % 3 == 0 ? 0 : 150, 80);
  }
}

TEST(hubs_with_small_blocks_equal_the_model) {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    GraphOptions options;
    options.feature_width = 1;
    options.has_time = (seed & 1) != 0;
    options.has_weight = true;
    options.has_type = true;
    options.undirected = (seed & 2) != 0;
    options.block_edges_max = 3;
    Driver(options, 100 + seed).run(3, 1500, 60);
  }
}

}  // namespace
}  // namespace livegnn::testing

LIVEGNN_TEST_MAIN
