// What crosses between parts comes back bit for bit: numbers, ids, rows of floats and of sums; and what a broken wire
// brings is refused. Then the bookkeeping of a part: owners, ghosts, and a batch that is taken back.
#include "livegnn/halo.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "check.h"
#include "inference/wire.h"

using namespace livegnn;

namespace {

constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min(),
                       kHigh = std::numeric_limits<std::int64_t>::max();

WireReader reader_of(const std::string& bytes) { return WireReader(std::span<const char>(bytes)); }

std::int64_t random_integer(std::mt19937_64& random) {
  const auto bits = static_cast<int>(random() % 65);
  const std::uint64_t value = bits == 0 ? 0 : random() >> (64 - bits);
  return static_cast<std::int64_t>(random() % 2 == 0 ? value : ~value);
}

float random_float(std::mt19937_64& random) {
  static constexpr float kSpecial[] = {0.0f, -0.0f, 1.0f, -1.0f, 1e-45f, -1e-45f, INFINITY, -INFINITY, 3.4e38f};
  if (random() % 2 == 0) return kSpecial[random() % std::size(kSpecial)];
  return std::bit_cast<float>(static_cast<std::uint32_t>(random()));  // NaNs of every kind among them
}

TEST(numbers_of_every_size_come_back) {
  std::mt19937_64 random(1);
  std::vector<std::int64_t> values{0, 1, -1, 63, 64, -64, -65, 127, 128, kLow, kLow + 1, kHigh, kHigh - 1};
  for (int i = 0; i < 2000; ++i) values.push_back(random_integer(random));
  std::string bytes;
  WireWriter to(bytes);
  for (const std::int64_t value : values) {
    to.number(static_cast<std::uint64_t>(value));
    to.signed_number(value);
    to.plain(value);
  }
  WireReader from = reader_of(bytes);
  for (const std::int64_t value : values) {
    CHECK(from.number() == static_cast<std::uint64_t>(value));
    CHECK(from.signed_number() == value);
    CHECK(from.plain<std::int64_t>() == value);
  }
  CHECK(from.at_end());
}

TEST(small_numbers_and_near_ids_are_a_byte) {
  std::string bytes;
  WireWriter to(bytes);
  to.number(127);
  to.id(1000);
  const std::size_t before = bytes.size();
  to.id(1063);
  to.id(1000);
  CHECK(bytes.size() == before + 2);
}

TEST(ids_come_back_in_any_order) {
  std::mt19937_64 random(2);
  std::vector<std::int64_t> ids{0, 5, 5, 3};
  for (int i = 0; i < 500; ++i) ids.push_back(static_cast<std::int64_t>(random() >> 33));
  std::string bytes;
  WireWriter to(bytes);
  for (int list = 0; list < 2; ++list) {
    to.begin_ids();
    for (const std::int64_t id : ids) to.id(id);
  }
  WireReader from = reader_of(bytes);
  for (int list = 0; list < 2; ++list) {
    from.begin_ids();
    for (const std::int64_t id : ids) CHECK(from.id() == id);
  }
  CHECK(from.at_end());
}

TEST(rows_of_floats_keep_every_bit) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    const auto width = static_cast<int>(random() % 40);
    std::vector<float> row(static_cast<std::size_t>(width)), back(row.size(), 7.0f);
    const auto zeros = random() % 4;  // from none to most
    for (float& x : row) x = random() % 4 < zeros ? 0.0f : random_float(random);
    std::string bytes;
    WireWriter to(bytes);
    round % 3 == 0 ? to.floats_as_they_are(row.data(), width) : to.floats(row.data(), width);
    to.byte(0xa5);
    CHECK(bytes.size() <= 2 + row.size() * sizeof(float));
    WireReader from = reader_of(bytes);
    from.floats(back.data(), width);
    for (std::size_t c = 0; c < row.size(); ++c)
      CHECK(std::bit_cast<std::uint32_t>(row[c]) == std::bit_cast<std::uint32_t>(back[c]));
    CHECK(from.byte() == 0xa5);
    CHECK(from.at_end());
  }
}

TEST(rows_come_back_as_differences_with_every_bit) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 6000; ++round) {
    const auto width = static_cast<int>(random() % (round % 4 == 0 ? 200 : 40));
    std::vector<float> row(static_cast<std::size_t>(width)), before(row), back(row.size(), 7.0f);
    const auto kind = random() % 4;  // the same, near, far apart, or zeros among them
    for (std::size_t c = 0; c < row.size(); ++c) {
      before[c] = kind == 1 ? 0.5f + static_cast<float>(random() % 1000) : random_float(random);
      const auto bits = std::bit_cast<std::uint32_t>(before[c]);
      row[c] = kind == 0 ? before[c] : std::bit_cast<float>(bits + static_cast<std::uint32_t>(random() % 4096) - 2048);
      if (kind == 2) row[c] = random_float(random);
      if (kind == 3 && random() % 2 == 0) row[c] = 0.0f;
    }
    std::string bytes, plain;
    WireWriter to(bytes);
    to.floats_since(before.data(), row.data(), width);
    WireWriter(plain).floats(row.data(), width);
    CHECK(bytes.size() <= plain.size());
    const std::size_t size = bytes.size();
    if (kind == 0) CHECK(size <= 2 + row.size() / 4);
    if (kind == 1) CHECK(size <= 2 + row.size() * 2);
    to.byte(0xa5);
    WireReader from = reader_of(bytes);
    from.floats_since(before.data(), back.data(), width);
    for (std::size_t c = 0; c < row.size(); ++c)
      CHECK(std::bit_cast<std::uint32_t>(row[c]) == std::bit_cast<std::uint32_t>(back[c]));
    CHECK(from.byte() == 0xa5);
    CHECK(from.at_end());
    const std::string cut = bytes.substr(0, random() % size);
    CHECK_THROWS(reader_of(cut).floats_since(before.data(), back.data(), width), ErrorKind::InvariantBroken);
  }
}

TEST(a_row_too_far_for_a_code_comes_back_whole) {
  const std::vector<float> before(70, 1.0f);
  for (const std::uint32_t bits : {0xc07fffffu, 0xc0800000u}) {  // the largest distance there is, and one less
    std::vector<float> row(before), back(before);
    row[66] = std::bit_cast<float>(bits);
    std::string bytes, plain;
    WireWriter(bytes).floats_since(before.data(), row.data(), 70);
    WireWriter(plain).floats(row.data(), 70);
    CHECK(bits == 0xc07fffffu ? bytes == plain : bytes.size() < 20);
    reader_of(bytes).floats_since(before.data(), back.data(), 70);
    CHECK(back == row);
  }
}

TEST(rows_of_sums_come_back) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 4000; ++round) {
    const auto width = static_cast<int>(random() % 40);
    std::vector<std::int64_t> row(static_cast<std::size_t>(width)), back(row.size(), 7);
    const auto zeros = random() % 4, shift = random() % 64;
    for (std::int64_t& x : row) x = random() % 4 < zeros ? 0 : random_integer(random) >> shift;
    if (width > 0 && random() % 8 == 0) row[random() % row.size()] = random() % 2 == 0 ? kLow : kHigh;
    std::string bytes;
    WireWriter to(bytes);
    to.integers(row.data(), width);
    to.byte(0xa5);
    CHECK(bytes.size() <= 3 + row.size() * sizeof(std::int64_t));
    WireReader from = reader_of(bytes);
    from.integers(back.data(), width);
    CHECK(row == back);
    CHECK(from.byte() == 0xa5);
    CHECK(from.at_end());
  }
}

TEST(sums_take_the_bytes_that_they_need) {
  const auto size_of = [](std::int64_t value) {
    std::string bytes;
    WireWriter(bytes).integers(&value, 1);
    return bytes.size() - 2;
  };
  CHECK(size_of(127) == 1 && size_of(-128) == 1);
  CHECK(size_of(128) == 2 && size_of(-129) == 2);
  CHECK(size_of(32767) == 2 && size_of(32768) == 3);
  CHECK(size_of(kHigh) == 8 && size_of(kLow) == 8);
  std::vector<std::int64_t> sparse(64, 0);
  sparse[17] = -1;
  std::string bytes;
  WireWriter(bytes).integers(sparse.data(), 64);
  CHECK(bytes.size() == 2 + 8 + 1);
}

TEST(a_parcel_that_is_cut_short_is_refused) {
  std::mt19937_64 random(5);
  std::vector<float> row(20), back(20);
  std::vector<std::int64_t> sums(20), sums_back(20);
  for (float& x : row) x = random() % 2 == 0 ? 0.0f : random_float(random);
  for (std::int64_t& x : sums) x = random_integer(random);
  std::string bytes;
  WireWriter to(bytes);
  to.number(1u << 20);
  to.floats(row.data(), 20);
  to.integers(sums.data(), 20);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    const auto read = [&] {
      WireReader from = reader_of(cut);
      from.number();
      from.floats(back.data(), 20);
      from.integers(sums_back.data(), 20);
    };
    CHECK_THROWS(read(), ErrorKind::InvariantBroken);
  }
  const std::string endless(11, static_cast<char>(0xff)), wide(9, static_cast<char>(9));
  CHECK_THROWS(reader_of(endless).number(), ErrorKind::InvariantBroken);
  CHECK_THROWS(reader_of(wide).integers(sums_back.data(), 1), ErrorKind::InvariantBroken);
}

// ---- a part of two, next to another one that says nothing

struct Alone {
  explicit Alone(const std::vector<std::uint16_t>& owners = {}) {
    halo.set_owners(0, owners);
    halo.load({}, 0, store);
  }
  GraphStore store{GraphOptions{}};
  Halo halo{2, 0, [](Parcels parcels) {
              for (std::string& parcel : parcels) parcel = std::string("\0\0", 2);  // it goes on, and introduces none
              return parcels;
            }};
};

UpdateBuffer newcomers(std::int64_t count) {
  UpdateBuffer batch;
  for (std::int64_t v = 0; v < count; ++v) batch.add({.kind = UpdateKind::AddVertex, .u = v});
  return batch;
}

UpdateBuffer adds(std::initializer_list<std::pair<std::int64_t, std::int64_t>> edges) {
  UpdateBuffer batch;
  for (const auto& [u, v] : edges) batch.add({.kind = UpdateKind::AddEdge, .u = u, .v = v});
  return batch;
}

TEST(a_batch_that_is_taken_back_leaves_no_trace) {
  Alone part({0, 1, 0, 1});
  UpdateBuffer first = newcomers(4);
  first.extend(adds({{0, 1}}));
  for (int round = 0; round < 2; ++round) {
    const PartBatch mine = part.halo.take(first, part.store);
    CHECK(mine.buffer.size() == 4);  // vertex 3 is of the other part, and no edge needs it
    CHECK((mine.places == std::vector<std::int64_t>{0, 1, 2, 4}));
    CHECK(part.halo.local_of(1) == 1 && part.halo.is_ghost(1));
    CHECK(part.halo.out_at(0) == 2 && part.halo.in_at(0) == 0);
    CHECK(part.halo.next_edge_id() == 1);
    if (round == 1) break;
    part.halo.roll_back();
    CHECK(part.halo.globals().empty() && part.halo.local_of(0) == kNoVertex && part.halo.next_edge_id() == 0);
    CHECK(part.halo.name_of(2) == 2 && part.halo.name_of(5) == -1);  // errors name vertices of such a batch
  }
  part.halo.commit();
  UpdateBuffer gone;
  gone.add({.kind = UpdateKind::RemoveVertex, .u = 1});
  part.halo.take(gone, part.store);
  CHECK(part.halo.local_of(1) == kNoVertex && part.halo.departed(1) == 1);
  part.halo.roll_back();
  CHECK(part.halo.local_of(1) == 1);
}

TEST(own_slots_are_named_in_order_and_once) {
  std::mt19937_64 random(6);
  for (const std::size_t count : {std::size_t{3}, std::size_t{900}}) {  // few and many of the slots
    std::vector<std::uint16_t> owners(1000);
    for (std::uint16_t& owner : owners) owner = static_cast<std::uint16_t>(random() % 2);
    Alone part(owners);
    UpdateBuffer added;
    for (std::size_t v = 0; v < owners.size(); ++v)
      added.add({.kind = UpdateKind::AddVertex, .u = static_cast<std::int64_t>(owners.size() - 1 - v)});
    for (std::int64_t v = 1; v < 1000; ++v) added.add({.kind = UpdateKind::AddEdge, .u = v - 1, .v = v});
    part.halo.take(added, part.store);  // slots of the part run the other way
    const auto slots = part.halo.globals().size();
    std::vector<VertexId> given;
    std::vector<VertexId> expected;
    for (std::size_t i = 0; i < count; ++i) {
      given.push_back(static_cast<VertexId>(random() % slots));
      const std::int64_t global = part.halo.global_of(given.back());
      if (owners[static_cast<std::size_t>(global)] == 0) expected.push_back(static_cast<VertexId>(global));
    }
    std::sort(expected.begin(), expected.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    CHECK(part.halo.own(given) == expected);
    part.halo.roll_back();
  }
}

TEST(edges_of_the_other_part_alone_are_passed_over) {
  Alone part({0, 1, 1});
  const PartBatch mine = part.halo.take(adds({{1, 2}}), part.store);
  CHECK(mine.buffer.size() == 0 && part.halo.next_edge_id() == 1);
  part.halo.roll_back();
  CHECK_THROWS(part.halo.take(adds({{0, 1}}), part.store), ErrorKind::VertexUnknown);  // 0 is not there
  part.halo.roll_back();
  CHECK_THROWS(part.halo.take(adds({{1, 3}}), part.store), ErrorKind::VertexUnknown);  // no part has 3
}

TEST(a_batch_has_a_round_where_it_adds_an_edge_between_two_parts) {
  Alone part({0, 0, 1, 1});
  const UpdateBuffer first = newcomers(4);
  const auto rounds_of = [&](const UpdateBuffer& batch) {
    const std::int64_t before = part.halo.counts.rounds;
    part.halo.take(batch, part.store);
    part.halo.roll_back();
    return part.halo.counts.rounds - before;
  };
  CHECK(rounds_of(first) == 0 && !part.halo.may_move_degrees());
  UpdateBuffer joined = first;
  joined.extend(adds({{0, 1}, {1, 2}}));
  CHECK(rounds_of(joined) == 1 && part.halo.may_move_degrees());
  part.halo.take(first, part.store);
  part.halo.commit();
  CHECK(rounds_of(adds({{0, 1}})) == 0 && part.halo.may_move_degrees());
  CHECK(rounds_of(adds({{2, 3}})) == 0);  // of the other part, which knows as much
  CHECK(rounds_of(adds({{0, 1}, {1, 0}})) == 0);
}

TEST(a_part_that_failed_makes_the_others_fail_once) {
  int rounds = 0;
  Halo halo(2, 1, [&](Parcels parcels) {
    ++rounds;
    CHECK(parcels[0].back() == Halo::kFailed || rounds == 1);
    parcels[0] = std::string(1, rounds == 1 ? Halo::kFailed : Halo::kGoesOn);
    return parcels;
  });
  GraphStore store{GraphOptions{}};
  halo.load({}, 0, store);
  halo.take(UpdateBuffer(), store);
  CHECK(rounds == 0 && !halo.failed());  // a batch without an edge between two parts has no round yet
  CHECK_THROWS(halo.swap(Parcels(2)), ErrorKind::PartRefused);
  CHECK(halo.failed() && rounds == 1);
  halo.fail();  // the others know
  CHECK(rounds == 1);
  halo.roll_back();
  CHECK(!halo.failed());
}

TEST(the_largest_of_all_parts_is_found_and_nan_wins) {
  float theirs[3] = {2.0f, std::numeric_limits<float>::quiet_NaN(), -1.0f};
  Halo halo(2, 0, [&](Parcels parcels) {
    parcels[1] = std::string(reinterpret_cast<const char*>(theirs), sizeof(theirs)) + std::string(1, Halo::kGoesOn);
    return parcels;
  });
  float mine[3] = {1.0f, 5.0f, std::numeric_limits<float>::quiet_NaN()};
  halo.reduce_max(mine);
  CHECK(mine[0] == 2.0f && std::isnan(mine[1]) && std::isnan(mine[2]));
}

}  // namespace

LIVEGNN_TEST_MAIN
