// Feature caches beside a std::list: long random runs of every policy, both kinds of map, one thread and several; and
// what batches change.
#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <thread>
#include <vector>

#include "livegnn/feature_cache.h"
#include "tests/check.h"

using namespace livegnn;

namespace {

// In the order in which ids would go.
struct Model {
  CachePolicy policy;
  std::size_t capacity;
  std::list<std::pair<std::int64_t, std::int64_t>> order;  // id, uses

  auto find(std::int64_t id) {
    return std::find_if(order.begin(), order.end(), [&](const auto& entry) { return entry.first == id; });
  }
  void put(std::int64_t id, std::int64_t uses) {
    auto at = order.end();
    if (policy == CachePolicy::Lfu) {
      at = std::find_if(order.begin(), order.end(), [&](const auto& entry) { return entry.second > uses; });
    }
    order.insert(at, {id, uses});
  }
  void fetch(const std::vector<std::int64_t>& ids, std::size_t admitted_max) {
    std::vector<std::int64_t> hits, missed;
    for (const std::int64_t id : ids) {
      auto& list = find(id) == order.end() ? missed : hits;
      if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
    }
    for (const std::int64_t id : hits) {
      if (policy == CachePolicy::Fifo) break;
      const auto at = find(id);
      const std::int64_t uses = at->second + (policy == CachePolicy::Lfu);
      order.erase(at);
      put(id, uses);
    }
    const std::size_t count = std::min({admitted_max, missed.size(), capacity - hits.size()});
    for (auto at = order.begin(); order.size() + count > capacity;) {
      const bool hit = std::find(hits.begin(), hits.end(), at->first) != hits.end();
      at = hit ? std::next(at) : order.erase(at);
    }
    for (std::size_t i = 0; i < count; ++i) put(missed[i], 1);
  }
};

void check_places(const FeatureIndex& index, const std::vector<std::int64_t>& ids,
                  const std::vector<std::int32_t>& places) {
  const std::vector<std::int32_t> slots = index.find(ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CHECK(places[i] >= 0 ? slots[i] == places[i] : slots[i] < 0 && index.missed()[-1 - places[i]] == ids[i]);
  }
}

void run_beside_model(CachePolicy policy, bool dense, int threads, std::int32_t capacity, std::size_t asked) {
  std::mt19937_64 random(static_cast<std::uint64_t>(capacity) + dense);
  FeatureIndex index(policy, capacity, dense);
  RowCopier copier(threads);
  Model model{policy, static_cast<std::size_t>(capacity), {}};
  const std::int64_t rows = 3 * capacity;
  for (int step = 0; step < 400; ++step) {
    std::vector<std::int64_t> ids(random() % (asked + 1));
    for (std::int64_t& id : ids) id = static_cast<std::int64_t>(random() % rows * (random() % 4) / 3);
    std::vector<std::int32_t> places(ids.size());
    CHECK(index.lookup(ids, rows, places, copier) == -1);
    check_places(index, ids, places);
    const std::size_t admitted_max = random() % 2 ? asked : 3;
    index.commit(places, static_cast<std::int64_t>(admitted_max));
    model.fetch(ids, admitted_max);
    if (step % 50 == 0 && !ids.empty()) {
      const auto at = model.find(ids[0]);
      CHECK(index.drop({ids.data(), 1}) == (at != model.order.end()));
      if (at != model.order.end()) model.order.erase(at);
    }
    const CacheContents contents = index.contents();
    CHECK(contents.ids.size() == model.order.size());
    std::size_t i = 0;
    for (const auto& [id, uses] : model.order) {
      CHECK(contents.ids[i] == id && contents.uses[i] == uses);
      ++i;
    }
    if (step % 20 == 0) index.check_invariants();
  }
}

TEST(contents_are_those_of_the_definition) {
  for (const CachePolicy policy : {CachePolicy::Lru, CachePolicy::Lfu, CachePolicy::Fifo}) {
    for (const bool dense : {true, false}) {
      run_beside_model(policy, dense, 1, 1, 5);
      run_beside_model(policy, dense, 2, 20, 60);
      run_beside_model(policy, dense, 1, 50, 400);
    }
  }
}

TEST(the_first_id_out_of_range_is_found_whatever_the_threads) {
  FeatureIndex index(CachePolicy::Lru, 10, true);
  std::vector<std::int64_t> ids(50'000, 5);
  std::vector<std::int32_t> places(ids.size());
  for (const int threads : {1, 3}) {
    RowCopier copier(threads);
    ids[40'001] = 6;
    ids[20'000] = -1;
    CHECK(index.lookup(ids, 6, places, copier) == 20'000);
    ids[20'000] = 5;
    CHECK(index.lookup(ids, 6, places, copier) == 40'001);
    CHECK(index.lookup(ids, 7, places, copier) == -1);
    CHECK(index.missed().size() == 2 && index.missed()[0] == 5 && index.missed()[1] == 6);
    CHECK(index.missed_places() == 50'000);
  }
}

TEST(contents_put_in_place_keep_the_slots_of_what_stays) {
  FeatureIndex index(CachePolicy::Lfu, 4, false);
  const std::vector<std::int64_t> first{7, 8, 9}, uses{5, 1, 1};
  const std::vector<std::int32_t> slots = index.install(first, uses);
  CHECK((index.contents().ids == std::vector<std::int64_t>{8, 9, 7}));
  const std::vector<std::int64_t> second{9, 3, 7, 4};
  const std::vector<std::int64_t> more{1, 1, 2, 9};
  const std::vector<std::int32_t> now = index.install(second, more);
  CHECK(now[0] == slots[2] && now[2] == slots[0]);
  CHECK((index.contents().ids == std::vector<std::int64_t>{9, 3, 7, 4}));
  index.check_invariants();
}

TEST(rows_are_copied_by_any_number_of_threads) {
  constexpr std::size_t kRows = 5000, kWidth = 52;
  std::vector<std::uint8_t> rows(kRows * kWidth), out(2 * kRows * kWidth), cached(kRows * kWidth);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::uint8_t>(i * 31 / 7);
  std::vector<std::int64_t> ids(kRows);
  std::vector<std::int32_t> places(2 * kRows), slots(kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    ids[i] = static_cast<std::int64_t>((i * 7) % kRows);
    slots[i] = static_cast<std::int32_t>((i * 11) % kRows);
    places[i] = static_cast<std::int32_t>(i);
    places[kRows + i] = -1 - static_cast<std::int32_t>(i);
  }
  for (const int threads : {1, 3}) {
    RowCopier copier(threads);
    copier.gather(rows.data(), kWidth, ids, out.data());
    copier.scatter(out.data(), kWidth, slots, cached.data());
    for (std::size_t i = 0; i < kRows; ++i) {
      const auto row = rows.begin() + ids[i] * static_cast<std::int64_t>(kWidth);
      CHECK(std::equal(row, row + kWidth, cached.begin() + slots[i] * static_cast<std::int64_t>(kWidth)));
    }
    copier.join(cached.data(), rows.data(), kWidth, places, out.data());
    CHECK(std::equal(cached.begin(), cached.end(), out.begin()));
    CHECK(std::equal(rows.begin(), rows.end(), out.begin() + kRows * kWidth));
  }
}

Update vertex(UpdateKind kind, UpdateBuffer& batch, std::int64_t v, float x) {
  Update update{};
  update.kind = kind;
  update.u = v;
  if (kind != UpdateKind::RemoveVertex) {
    update.row = batch.add_row({&x, 1});
    update.row_width = 1;
  }
  return update;
}

TEST(the_last_batch_has_the_last_word_on_a_row) {
  GraphOptions options;
  options.feature_width = 1;
  GraphStore store(options);
  ChangedRows changed(store, false);
  const auto apply = [&](std::vector<std::pair<UpdateKind, float>> updates) {
    UpdateBuffer batch;
    for (const auto& [kind, x] : updates) batch.add(vertex(kind, batch, 0, x));
    changed.follow(store.apply(batch), batch);
  };
  apply({{UpdateKind::AddVertex, 1.0f}});
  CHECK(changed.take().ids == std::vector<std::int64_t>{0});
  CHECK(changed.take().ids.empty());
  apply({{UpdateKind::SetFeatures, 1.0f}});  // the same bits here, perhaps not where the cached rows lie
  CHECK(changed.take().gone == std::vector<std::uint8_t>{0});
  apply({{UpdateKind::RemoveVertex, 0.0f}, {UpdateKind::AddVertex, 1.0f}});
  CHECK(changed.take().gone == std::vector<std::uint8_t>{0});
  apply({{UpdateKind::SetFeatures, 2.0f}, {UpdateKind::RemoveVertex, 0.0f}});
  CHECK(changed.take().gone == std::vector<std::uint8_t>{1});
  apply({{UpdateKind::AddVertex, 0.0f}});
  apply({{UpdateKind::RemoveVertex, 0.0f}});  // a row of zeros then and now
  CHECK(changed.take().gone == std::vector<std::uint8_t>{1});
  apply({{UpdateKind::AddVertex, 3.0f}});
  apply({{UpdateKind::RemoveVertex, 0.0f}});
  apply({{UpdateKind::AddVertex, 4.0f}});
  CHECK(changed.take().gone == std::vector<std::uint8_t>{0});
}

TEST(a_graph_without_features_says_which_rows_change) {
  GraphStore store(GraphOptions{});
  ChangedRows changed(store, false);
  for (const UpdateKind kind : {UpdateKind::AddVertex, UpdateKind::SetFeatures, UpdateKind::RemoveVertex}) {
    UpdateBuffer batch;
    Update update{};
    update.kind = kind;
    update.u = 0;
    batch.add(update);
    changed.follow(store.apply(batch), batch);
    CHECK(changed.take().gone == std::vector<std::uint8_t>{kind == UpdateKind::RemoveVertex});
  }
}

TEST(changes_are_taken_while_batches_come) {
  GraphOptions options;
  options.feature_width = 1;
  GraphStore store(options);
  ChangedRows changed(store, false);
  UpdateBuffer first;
  for (std::int64_t v = 0; v < 50; ++v) first.add(vertex(UpdateKind::AddVertex, first, v, 0.0f));
  store.apply(first);
  std::size_t taken = 0;
  std::thread writer([&] {
    for (int version = 1; version <= 200; ++version) {
      UpdateBuffer batch;
      batch.add(vertex(UpdateKind::SetFeatures, batch, version % 50, static_cast<float>(version)));
      changed.follow(store.apply(batch), batch);
    }
  });
  for (int i = 0; i < 1000; ++i) taken += changed.take().ids.size();
  writer.join();
  taken += changed.take().ids.size();
  CHECK(taken > 0 && taken <= 200);
}

}  // namespace

LIVEGNN_TEST_MAIN
