// The store as a list of edges and a map of vertices: slow, obvious, and what graph tests compare with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "livegnn/graph.h"
#include "tests/check.h"

namespace livegnn::testing {

using Row = std::vector<float>;

struct ModelEdge {
  VertexId u, v;
  float weight;
  EdgeTime time;
  std::int32_t type;
  Row attr;
};

struct GraphModel {
  GraphOptions options;
  std::map<EdgeId, ModelEdge> edges;
  std::map<VertexId, Row> vertices;  // live ones
  VertexId slot_count = 0;
  EdgeId next_edge_id = 0;
  std::int64_t version = 0;

  bool live(std::int64_t v) const { return v >= 0 && v < slot_count && vertices.count(static_cast<VertexId>(v)) > 0; }
  bool joins(const ModelEdge& e, std::int64_t u, std::int64_t v) const {
    return (e.u == u && e.v == v) || (options.undirected && e.u == v && e.v == u);
  }
  EdgeId find(const Update& up) const {
    for (auto it = edges.rbegin(); it != edges.rend(); ++it) {
      const ModelEdge& e = it->second;
      if (joins(e, up.u, up.v) && (up.time == kUnsetTime || e.time == up.time) &&
          (up.type == kUnsetType || e.type == up.type) && (up.edge_id == kNoEdge || it->first == up.edge_id)) {
        return it->first;
      }
    }
    return kNoEdge;
  }
  // False where the store must refuse; then nothing has changed.
  bool apply_one(const UpdateBuffer& batch, const Update& up) {
    const auto row = [&](std::int32_t width) { return Row(batch.row(up), batch.row(up) + width); };
    const auto good_row = [&](std::int32_t width) {
      if (up.row < 0) return width == 0;
      const Row values = Row(batch.row(up), batch.row(up) + up.row_width);
      return up.row_width == width &&
             std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
    };
    const bool ends_live = live(up.u) && live(up.v);
    const auto u = static_cast<VertexId>(up.u), v = static_cast<VertexId>(up.v);
    switch (up.kind) {
      case UpdateKind::AddEdge: {
        if (!ends_live || up.has_weight != options.has_weight || (up.time != kUnsetTime) != options.has_time ||
            (up.type != kUnsetType) != options.has_type || (up.row >= 0) != (options.attr_width > 0) ||
            (up.has_weight && !std::isfinite(up.weight)) || !good_row(options.attr_width)) {
          return false;
        }
        Update any = up;
        any.time = kUnsetTime, any.type = kUnsetType, any.edge_id = kNoEdge;
        if (options.simple && find(any) != kNoEdge) return false;
        edges[next_edge_id++] = {u,
                                 v,
                                 options.has_weight ? up.weight : 1.0f,
                                 options.has_time ? up.time : 0,
                                 options.has_type ? up.type : 0,
                                 options.attr_width > 0 ? row(options.attr_width) : Row{}};
        return true;
      }
      case UpdateKind::RemoveEdge: {
        if (!ends_live || (up.time != kUnsetTime && !options.has_time) ||
            (up.type != kUnsetType && !options.has_type)) {
          return false;
        }
        const EdgeId id = find(up);
        if (id == kNoEdge) return up.missing_ignore;
        edges.erase(id);
        return true;
      }
      case UpdateKind::RemoveEdgesBefore:
        if (!options.has_time || up.time == kUnsetTime || (up.type != kUnsetType && !options.has_type)) return false;
        std::erase_if(edges, [&](const auto& e) {
          return e.second.time < up.time && (up.type == kUnsetType || e.second.type == up.type);
        });
        return true;
      case UpdateKind::SetWeight: {
        if (!ends_live || !options.has_weight || !std::isfinite(up.weight) || find(up) == kNoEdge) return false;
        edges[find(up)].weight = up.weight;
        return true;
      }
      case UpdateKind::SetEdgeAttr:
        if (!ends_live || options.attr_width == 0 || !good_row(options.attr_width) || find(up) == kNoEdge) return false;
        edges[find(up)].attr = row(options.attr_width);
        return true;
      case UpdateKind::SetFeatures:
        if (!live(up.u) || !good_row(options.feature_width)) return false;
        vertices[u] = row(options.feature_width);
        return true;
      case UpdateKind::AddVertex:
        if (up.u < 0 || up.u > slot_count || live(up.u) || !good_row(options.feature_width)) return false;
        slot_count = std::max(slot_count, static_cast<VertexId>(u + 1));
        vertices[u] = row(options.feature_width);
        return true;
      case UpdateKind::RemoveVertex:
        if (!live(up.u)) return false;
        vertices.erase(u);
        std::erase_if(edges, [&](const auto& e) { return e.second.u == u || e.second.v == u; });
        return true;
    }
    return false;
  }
  // Index of the first refused update, or nothing.
  std::optional<std::size_t> apply(const UpdateBuffer& batch) {
    GraphModel next = *this;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (!next.apply_one(batch, batch.updates()[i])) return i;
    }
    ++next.version;
    *this = next;
    return std::nullopt;
  }
  // One list as the store must show it: in (time, id) order.
  std::vector<std::pair<EdgeId, VertexId>> list(VertexId v, bool out) const {
    std::vector<std::tuple<EdgeTime, EdgeId, VertexId>> found;
    for (const auto& [id, e] : edges) {
      const EdgeTime time = options.has_time ? e.time : 0;
      if ((out ? e.u : e.v) == v) found.emplace_back(time, id, out ? e.v : e.u);
      if (options.undirected && e.u != e.v && (out ? e.v : e.u) == v) found.emplace_back(time, id, out ? e.u : e.v);
    }
    std::sort(found.begin(), found.end());
    std::vector<std::pair<EdgeId, VertexId>> all;
    for (const auto& [time, id, other] : found) all.emplace_back(id, other);
    return all;
  }
};

inline bool same_bits(const Row& a, const Row& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline void check_list(const GraphStore& store, const GraphModel& model, VertexId v, bool out) {
  std::vector<std::pair<EdgeId, VertexId>> got;
  const auto visitor = [&](const EdgeSpan& span) {
    CHECK(span.count > 0);
    CHECK((span.weights != nullptr) == model.options.has_weight);
    CHECK((span.times != nullptr) == model.options.has_time);
    CHECK((span.types != nullptr) == model.options.has_type);
    for (std::int32_t i = 0; i < span.count; ++i) {
      got.emplace_back(span.ids[i], span.neighbours[i]);
      const ModelEdge& e = model.edges.at(span.ids[i]);
      if (span.weights) CHECK(std::memcmp(&span.weights[i], &e.weight, sizeof(float)) == 0);
      if (span.times) CHECK(span.times[i] == e.time);
      if (span.types) CHECK(span.types[i] == e.type);
      if (model.options.attr_width > 0) {
        const float* attr = store.edge_attr(span.ids[i]);
        CHECK(attr != nullptr && same_bits(Row(attr, attr + model.options.attr_width), e.attr));
      }
    }
  };
  if (out) {
    store.visit_out(v, visitor);
  } else {
    store.visit_in(v, visitor);
  }
  CHECK(got == model.list(v, out));
  CHECK(static_cast<std::size_t>(out ? store.out_degree(v) : store.in_degree(v)) == got.size());
}

// Windows of time: what visit_between shows is what the whole list holds with those times.
inline void check_windows(const GraphStore& store, const GraphModel& model, VertexId v, bool out) {
  for (EdgeTime from = -6; from < 16; from += 5) {
    for (const EdgeTime to : {from - 1, from, from + 1, from + 7, EdgeTime{INT64_MAX}}) {
      std::vector<std::pair<EdgeId, VertexId>> got, expected;
      const auto visitor = [&](const EdgeSpan& span, std::int32_t first, std::int32_t last) {
        CHECK(0 <= first && first < last && last <= span.count);
        for (std::int32_t i = first; i < last; ++i) got.emplace_back(span.ids[i], span.neighbours[i]);
      };
      store.visit_between(v, out, from, to, visitor);
      for (const auto& [id, other] : model.list(v, out)) {
        const EdgeTime time = model.edges.at(id).time;
        if (from <= time && time < to) expected.emplace_back(id, other);
      }
      CHECK(got == expected);
    }
  }
}

inline void check_equal(const GraphStore& store, const GraphModel& model) {
  store.check_invariants();
  CHECK(store.version() == model.version);
  CHECK(store.slot_count() == model.slot_count);
  CHECK(store.vertex_count() == static_cast<std::int64_t>(model.vertices.size()));
  CHECK(store.edge_count() == static_cast<std::int64_t>(model.edges.size()));
  CHECK(store.next_edge_id() == model.next_edge_id);
  for (VertexId v = 0; v < model.slot_count; ++v) {
    CHECK(store.is_live(v) == model.live(v));
    const float* x = store.feature_row(v, nullptr);
    const auto width = static_cast<std::size_t>(model.options.feature_width);
    CHECK(same_bits(Row(x, x + width), model.live(v) ? model.vertices.at(v) : Row(width, 0.0f)));
    CHECK(reinterpret_cast<std::uintptr_t>(x) % 64 == 0);
    check_list(store, model, v, true);
    check_list(store, model, v, false);
  }
  if (!model.options.has_time || model.slot_count == 0) return;
  const VertexId v = static_cast<VertexId>(model.next_edge_id) % model.slot_count;  // one vertex a time will do
  check_windows(store, model, v, true);
  check_windows(store, model, v, false);
}

}  // namespace livegnn::testing
