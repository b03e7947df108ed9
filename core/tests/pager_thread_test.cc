// Tables of which only part is in memory: against tables that are whole, with ranks, growth and threads (run under
// ASan, UBSan and TSan).
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "livegnn/error.h"
#include "tests/check.h"
#include "util/aligned.h"

using namespace livegnn;

namespace {

constexpr std::size_t kLimit = std::size_t{1} << 20;

std::string folder() {
  const char* given = std::getenv("TMPDIR");
  return given != nullptr ? given : "/var/tmp";
}

std::int64_t number_at(const RowTable<std::int64_t>& table, std::int64_t row, int column) {
  return table.row(row)[column];
}

TEST(holds_what_was_written_whatever_is_dropped) {
  std::mt19937 rng(1);
  Pager pager(folder(), kLimit);
  pager.rank({70, 3, 41}, 100);
  RowTable<std::int64_t> ranked(24, &pager, Rows::KeptByVertex), plain(136, &pager, Rows::ByPlace);
  std::vector<std::int64_t> of_ranked, of_plain;
  for (std::int64_t slots = 100; slots < 8000; slots = slots * 3 / 2) {
    ranked.reserve(slots);
    plain.reserve(slots);
    of_ranked.resize(static_cast<std::size_t>(slots));
    of_plain.resize(static_cast<std::size_t>(slots));
    for (int i = 0; i < 5000; ++i) {
      const auto row = static_cast<std::size_t>(rng() % static_cast<unsigned>(slots));
      const std::int64_t value = static_cast<std::int64_t>(rng());
      of_ranked[row] = ranked.row(static_cast<std::int64_t>(row))[23] = value;
      of_plain[row] = plain.row(static_cast<std::int64_t>(row))[135] = value + 1;
    }
    for (std::size_t row = 0; row < of_ranked.size(); ++row) {
      CHECK(number_at(ranked, static_cast<std::int64_t>(row), 23) == of_ranked[row]);
      CHECK(number_at(plain, static_cast<std::int64_t>(row), 135) == of_plain[row]);
      CHECK(number_at(ranked, static_cast<std::int64_t>(row), 0) == 0);
    }
  }
  const PagerStats stats = pager.stats();
  CHECK(stats.dropped > 0 && stats.brought > stats.dropped);
  CHECK(stats.resident <= kLimit && stats.files > 6 * kLimit);
  CHECK(stats.pinned_rows == 3);
}

TEST(keeps_within_its_limit_as_the_system_counts) {
  Pager pager(folder(), kLimit);
  pager.rank({}, 0);
  RowTable<std::int64_t> table(512, &pager, Rows::ByVertex);  // a row is a page of 4 KiB
  table.reserve(4096);
  for (int round = 0; round < 3; ++round) {
    for (std::int64_t row = 0; row < 4096; ++row) {
      table.row(row)[0] += row;
      if (row % 512 == 511) CHECK(pager.resident_now() <= kLimit + kLimit / 8);
    }
  }
  for (std::int64_t row = 0; row < 4096; ++row) CHECK(number_at(table, row, 0) == 3 * row);
}

TEST(fetched_rows_come_at_once_and_hold_what_was_written) {
  Pager pager(folder(), kLimit);
  pager.rank({30, 2}, 1000);
  RowTable<std::int64_t> table(512, &pager, Rows::KeptByVertex);
  table.reserve(1000);
  for (std::int64_t row = 0; row < 1000; ++row) table.row(row)[7] = row;
  for (std::int64_t first = 0; first < 1000; first += 25) {
    const std::int64_t last = first + 25;
    table.fetch(first, last);
    const std::int64_t brought = pager.stats().brought;
    for (std::int64_t row = first; row < last; ++row) CHECK(number_at(table, row, 7) == row);
    CHECK(pager.stats().brought == brought);
    CHECK(pager.stats().resident <= kLimit);
  }
  table.fetch(990, 5000);  // more than there are
  table.fetch(30, 31);     // ranked first, and so there already
}

TEST(pinned_rows_stay) {
  Pager pager(folder(), kLimit);
  std::vector<std::int32_t> first;
  for (std::int32_t v = 999; v >= 900; --v) first.push_back(v);
  pager.rank(first, 1000);
  RowTable<std::int64_t> table(512, &pager, Rows::KeptByVertex);
  table.reserve(1000);
  for (std::int64_t row = 0; row < 1000; ++row) table.row(row)[0] = row;
  const std::int64_t brought = pager.stats().brought;
  for (int round = 0; round < 10; ++round) {
    for (std::int64_t row = 900; row < 1000; ++row) CHECK(number_at(table, row, 0) == row);
  }
  CHECK(pager.stats().brought == brought);
}

TEST(a_table_that_goes_gives_its_pages_back) {
  Pager pager(folder(), kLimit);
  {
    RowTable<float> table(1024, &pager, Rows::ByPlace);
    table.reserve(100);
    for (std::int64_t row = 0; row < 100; ++row) table.row(row)[0] = 1.0f;
    CHECK(pager.stats().resident == std::size_t{100} * 4096);
    table.clear();
    CHECK(pager.stats().resident == 0 && pager.stats().files == 0);
    table.reserve(10);
    CHECK(table.row(9)[0] == 0.0f);
  }
  CHECK(pager.stats().resident == 0);
}

TEST(threads_share_it) {
  constexpr std::int64_t kRows = 3000;
  Pager pager(folder(), kLimit);
  RowTable<std::int64_t> table(256, &pager, Rows::ByPlace);
  table.reserve(kRows);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {  // each has rows of its own, on pages that it shares
      std::mt19937 rng(static_cast<unsigned>(t));
      for (int i = 0; i < 20'000; ++i) {
        const std::int64_t row = static_cast<std::int64_t>(rng() % (kRows / 3)) * 3 + t;
        table.row(row)[i % 256] += 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::int64_t total = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (int c = 0; c < 256; ++c) total += number_at(table, row, c);
  }
  CHECK(total == 60'000);
  CHECK(pager.stats().resident <= kLimit);
}

TEST(a_folder_that_cannot_hold_files_is_refused) {
  CHECK_THROWS(Pager("/nowhere/at/all", kLimit), ErrorKind::SpillUnavailable);
  Pager pager(folder(), kLimit);
  RowTable<float> table(16, &pager, Rows::ByPlace);
  table.reserve(10);
  table.row(9)[0] = 1.0f;
  CHECK_THROWS(table.reserve(std::int64_t{1} << 46), ErrorKind::SpillUnavailable);
  CHECK(table.row(9)[0] == 1.0f);
}

}  // namespace

int main() { return livegnn::testing::run_all(); }
