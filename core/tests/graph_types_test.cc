// Vertices with types: rows of their own widths, ends that an edge type fixes, and slots that change type and back.
#include <memory>
#include <vector>

#include "livegnn/graph.h"
#include "tests/check.h"

namespace livegnn::testing {
namespace {

constexpr std::int32_t kUser = 0, kItem = 1, kClick = 0, kFollow = 1;

GraphOptions shop_options() {
  GraphOptions options;
  options.feature_width = 3;
  options.has_type = true;
  options.type_widths = {3, 1};
  options.edge_ends = {{kUser, kItem}, {kUser, kUser}};
  return options;
}

struct ShopArrays {
  std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 0, 0};
  std::vector<std::int32_t> vertex_type = {kUser, kUser, kItem};
  std::vector<std::int64_t> src = {0, 0}, dst = {2, 1};
  std::vector<std::int32_t> type = {kClick, kFollow};

  GraphArrays view() const {
    GraphArrays arrays;
    arrays.slot_count = static_cast<std::int64_t>(vertex_type.size());
    arrays.features = x;
    arrays.edges.src = src;
    arrays.edges.dst = dst;
    arrays.edges.type = type;
    arrays.vertex_type = vertex_type;
    return arrays;
  }
};

// Users 0 and 1 with three features, item 2 with one; 0 clicks 2, 0 follows 1.
std::unique_ptr<GraphStore> shop() {
  auto store = std::make_unique<GraphStore>(shop_options());
  store->load(ShopArrays().view(), 1);
  return store;
}

Update typed(UpdateKind kind, std::int64_t u, std::int64_t v, std::int32_t type) {
  Update update{};
  update.kind = kind;
  update.u = u;
  update.v = v;
  update.type = type;
  return update;
}

Update with_row(UpdateBuffer& batch, Update update, const std::vector<float>& row) {
  update.row = batch.add_row(row);
  update.row_width = static_cast<std::int32_t>(row.size());
  return update;
}

TEST(a_slot_may_be_taken_by_a_vertex_of_another_type) {
  auto store = shop();
  const std::uint64_t before = store->digest();
  UpdateBuffer batch;
  batch.add(typed(UpdateKind::RemoveVertex, 1, -1, kUser));
  batch.add(with_row(batch, typed(UpdateKind::AddVertex, 1, -1, kItem), {9}));
  batch.add(typed(UpdateKind::AddEdge, 0, 1, kClick));
  batch.add(with_row(batch, typed(UpdateKind::AddVertex, 3, -1, kUser), {1, 1, 1}));
  batch.add(typed(UpdateKind::RemoveVertex, 2, -1, kItem));
  const BatchDelta delta = store->apply(batch);
  store->check_invariants();
  CHECK(store->vertex_type(1) == kItem && store->vertex_type(2) == kNoVertexType && store->vertex_type(3) == kUser);
  CHECK(store->feature_row(1, nullptr)[0] == 9 && store->feature_row(1, nullptr)[1] == 0);
  CHECK(store->digest() != before);
  CHECK(delta.vertices_added == std::vector<VertexId>{3} && delta.vertices_removed == std::vector<VertexId>{2});
  CHECK((delta.vertices_retyped == std::vector<VertexId>{1, 3, 2}));  // 1 was live all along
  store->undo(delta);
  store->check_invariants();
  CHECK(store->digest() == before && store->slot_count() == 3);
  CHECK(store->vertex_type(1) == kUser && store->vertex_type(2) == kItem && store->feature_row(1, nullptr)[2] == 6);
}

TEST(what_does_not_fit_a_type_is_refused) {
  auto store = shop();
  const std::uint64_t before = store->digest();
  const auto refused = [&](Update update, const std::vector<float>& row, ErrorKind kind) {
    UpdateBuffer batch;
    batch.add(typed(UpdateKind::RemoveVertex, 1, -1, kUser));
    batch.add(with_row(batch, typed(UpdateKind::AddVertex, 1, -1, kItem), {9}));
    batch.add(row.empty() ? update : with_row(batch, update, row));
    CHECK_THROWS(store->apply(batch), kind);
    store->check_invariants();
    CHECK(store->digest() == before && store->vertex_type(1) == kUser);
  };
  refused(typed(UpdateKind::AddEdge, 0, 2, kFollow), {}, ErrorKind::ValueInvalid);
  refused(typed(UpdateKind::AddEdge, 2, 0, kClick), {}, ErrorKind::ValueInvalid);
  refused(typed(UpdateKind::AddEdge, 0, 2, 2), {}, ErrorKind::ValueInvalid);
  refused(typed(UpdateKind::AddEdge, 0, 2, kUnsetType), {}, ErrorKind::ColumnMissing);
  refused(typed(UpdateKind::AddVertex, 3, -1, kUnsetType), {1}, ErrorKind::ColumnMissing);
  refused(typed(UpdateKind::AddVertex, 3, -1, 2), {1}, ErrorKind::ValueInvalid);
  refused(typed(UpdateKind::AddVertex, 3, -1, kUser), {1}, ErrorKind::WidthMismatch);
  refused(typed(UpdateKind::SetFeatures, 2, -1, kItem), {1, 2, 3}, ErrorKind::WidthMismatch);
  refused(typed(UpdateKind::SetFeatures, 2, -1, kUser), {1, 2, 3}, ErrorKind::VertexUnknown);
  refused(typed(UpdateKind::RemoveVertex, 0, -1, kItem), {}, ErrorKind::VertexUnknown);
}

TEST(arrays_and_options_that_do_not_fit_are_refused) {
  const auto refused = [](const ShopArrays& arrays, ErrorKind kind) {
    GraphStore store(shop_options());
    CHECK_THROWS(store.load(arrays.view(), 2), kind);
    CHECK(store.slot_count() == 0);
  };
  ShopArrays arrays;
  arrays.vertex_type = {kUser, kUser, 2};
  refused(arrays, ErrorKind::ValueInvalid);
  arrays = {};
  arrays.x[8] = 1;  // beyond the item's width
  refused(arrays, ErrorKind::WidthMismatch);
  arrays = {};
  arrays.type = {kFollow, kFollow};
  refused(arrays, ErrorKind::ValueInvalid);
  GraphOptions options = shop_options();
  options.undirected = true;
  CHECK_THROWS(GraphStore{options}, ErrorKind::ValueInvalid);
  options = shop_options();
  options.edge_ends = {{kUser, 2}};
  CHECK_THROWS(GraphStore{options}, ErrorKind::ValueInvalid);
  options = shop_options();
  options.feature_width = 4;
  CHECK_THROWS(GraphStore{options}, ErrorKind::ValueInvalid);
}

TEST(a_type_is_part_of_the_content) {
  GraphOptions options = shop_options();
  options.type_widths = {3, 3};
  options.edge_ends = {{kUser, kUser}, {kUser, kUser}};
  GraphStore one(options), other(options);
  ShopArrays arrays;
  arrays.src = arrays.dst = {};
  arrays.type = {};
  one.load(arrays.view(), 1);
  arrays.vertex_type = {kUser, kItem, kItem};
  other.load(arrays.view(), 1);
  CHECK(one.digest() != other.digest());
}

TEST(a_graph_without_types_takes_none) {
  GraphOptions options;
  options.feature_width = 1;
  GraphStore store(options);
  const std::vector<float> x = {1, 2};
  store.load({2, x}, 1);
  UpdateBuffer batch;
  batch.add(with_row(batch, typed(UpdateKind::SetFeatures, 0, -1, 0), {1}));
  CHECK_THROWS(store.apply(batch), ErrorKind::ColumnMissing);
  CHECK(store.vertex_type(0) == 0 && !store.is_typed());
}

}  // namespace
}  // namespace livegnn::testing

LIVEGNN_TEST_MAIN
