#include "util/pager.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/statfs.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "livegnn/error.h"
#include "util/nameless_file.h"

namespace livegnn {

namespace {

[[noreturn]] void unavailable(const std::string& folder, const std::string& got) {
  throw Error(ErrorKind::SpillUnavailable, {.where = "Engine",
                                            .expected = "a folder on a disk with room for paged rows",
                                            .got = folder + " (" + got + ")",
                                            .advice = "pass another spill_folder="});
}

int page_shift() {
  const long bytes = sysconf(_SC_PAGESIZE);
  int shift = 12;
  while ((1L << shift) < bytes) ++shift;
  return shift;
}

int made_file(const std::string& folder) {
  const int file = nameless_file(folder);
  if (file < 0) unavailable(folder, std::strerror(errno));
  return file;
}

}  // namespace

Pager::Pager(std::string folder, std::size_t limit)
    : folder_(std::move(folder)), shift_(page_shift()), limit_pages_(limit >> shift_), process_(getpid()) {
#ifdef __linux__
  constexpr long kTmpfs = 0x01021994, kRamfs = 0x858458f6;
  struct statfs system;
  if (statfs(folder_.c_str(), &system) != 0) unavailable(folder_, std::strerror(errno));
  if (system.f_type == kTmpfs || system.f_type == kRamfs) unavailable(folder_, "its files lie in memory");
#endif
  close(made_file(folder_));
}

Pager::~Pager() = default;

bool Pager::made_here() const { return getpid() == process_; }

void Pager::rank(const std::vector<std::int32_t>& first, std::int64_t slots) {
  invariant(tables_.empty(), "vertices are ranked before there are tables");
  places_.assign(static_cast<std::size_t>(slots), -1);
  pinned_rows_ = static_cast<std::int64_t>(first.size());
  std::int32_t next = 0;
  for (const std::int32_t v : first) places_[static_cast<std::size_t>(v)] = next++;
  for (std::int32_t& place : places_) {
    if (place < 0) place = next++;
  }
}

std::size_t Pager::mark(const PagedRows& rows, std::size_t page) {
  std::atomic<std::uint8_t>& state = rows.pages_[page];
  std::uint8_t seen = kResident;
  if (state.compare_exchange_strong(seen, kReferenced, std::memory_order_relaxed) || seen != kAway) return 0;
  return state.compare_exchange_strong(seen, kReferenced, std::memory_order_relaxed) ? 1 : 0;
}

void Pager::count(std::size_t brought) {
  brought_.fetch_add(static_cast<std::int64_t>(brought), std::memory_order_relaxed);
  const auto before = resident_.fetch_add(static_cast<std::int64_t>(brought), std::memory_order_relaxed);
  if (static_cast<std::size_t>(before) + brought > limit_pages_) make_room();
}

// Who only prefetches goes on while the page is read; who uses it now waits for it there.
void Pager::bring(const PagedRows& rows, std::size_t page) {
  if (mark(rows, page) == 0) return;
  count(1);
  rows.ask(page, page + 1);
}

// The clock of second chances: pages used since the hand passed last stay, others go, until an eighth is free.
void Pager::make_room() {
  const std::lock_guard lock(mutex_);
  const std::size_t keep = limit_pages_ - limit_pages_ / 8;
  for (std::size_t tables = 0; tables <= 2 * tables_.size(); ++tables) {
    const auto now = static_cast<std::size_t>(std::max<std::int64_t>(resident_.load(std::memory_order_relaxed), 0));
    if (now <= (tables == 0 ? limit_pages_ : keep)) return;
    if (hand_table_ >= tables_.size()) hand_table_ = 0;
    const std::size_t dropped = pass_over(*tables_[hand_table_], now - keep);
    resident_.fetch_sub(static_cast<std::int64_t>(dropped), std::memory_order_relaxed);
    dropped_.fetch_add(static_cast<std::int64_t>(dropped), std::memory_order_relaxed);
  }
}

// Moves the hand over the rest of one table, until `wanted` pages are dropped. Stretches between pages that stay are
// dropped whole, so that one which a thread used while it was dropped goes at the latest with its next neighbour.
std::size_t Pager::pass_over(PagedRows& rows, std::size_t wanted) {
  std::vector<std::pair<std::size_t, std::size_t>> stretches;
  std::size_t dropped = 0, first = hand_page_;
  bool fresh = false;  // whether the stretch from `first` has a page that was resident
  const auto end_stretch = [&](std::size_t page) {
    if (fresh) stretches.emplace_back(first, page);
    first = page + 1;
    fresh = false;
  };
  std::size_t page = hand_page_;
  for (; page < rows.page_count() && dropped < wanted; ++page) {
    std::uint8_t seen = rows.pages_[page].load(std::memory_order_relaxed);
    if (seen == kAway) continue;
    if (seen == kReferenced) rows.pages_[page].compare_exchange_strong(seen, kResident, std::memory_order_relaxed);
    if (seen != kResident || !rows.pages_[page].compare_exchange_strong(seen, kAway, std::memory_order_relaxed)) {
      end_stretch(page);
    } else {
      ++dropped;
      fresh = true;
    }
  }
  end_stretch(page);
#ifdef __linux__
  for (const auto& [from, to] : stretches) {  // all are on their way before the first is waited for
    sync_file_range(rows.file_, static_cast<off_t>(from << shift_), static_cast<off_t>((to - from) << shift_),
                    SYNC_FILE_RANGE_WRITE);
  }
#endif
  for (const auto& [from, to] : stretches) rows.drop(from, to);
  hand_page_ = page;
  if (page >= rows.page_count()) {
    hand_page_ = 0;
    ++hand_table_;
  }
  return dropped;
}

void Pager::enter(PagedRows& rows) {
  const std::lock_guard lock(mutex_);
  tables_.push_back(&rows);
}

void Pager::leave(PagedRows& rows) {
  const std::lock_guard lock(mutex_);
  std::int64_t held = 0;
  for (std::size_t page = 0; page < rows.page_count(); ++page) held += rows.pages_[page].load() != kAway ? 1 : 0;
  resident_.fetch_sub(held, std::memory_order_relaxed);
  std::erase(tables_, &rows);
  hand_page_ = 0;
}

PagerStats Pager::stats() const {
  const std::lock_guard lock(mutex_);
  PagerStats stats;
  stats.limit = limit();
  stats.resident = static_cast<std::size_t>(std::max<std::int64_t>(resident_.load(), 0)) << shift_;
  for (const PagedRows* rows : tables_) stats.files += rows->bytes_;
  stats.pinned_rows = pinned_rows_;
  stats.brought = brought_.load();
  stats.dropped = dropped_.load();
  return stats;
}

std::size_t Pager::resident_now() const {
  const std::lock_guard lock(mutex_);
  std::size_t pages = 0;
  for (const PagedRows* rows : tables_) {
    if (rows->bytes_ == 0) continue;
#ifdef __APPLE__
    std::vector<char> found(rows->page_count());
#else
    std::vector<unsigned char> found(rows->page_count());
#endif
    if (mincore(rows->base_, rows->bytes_, found.data()) != 0) continue;
    for (const auto page : found) pages += static_cast<std::size_t>(page & 1);
  }
  return pages << shift_;
}

PagedRows::PagedRows(Pager& pager, std::size_t row_bytes, bool by_vertex, bool pin)
    : pager_(pager), row_bytes_(row_bytes), by_vertex_(by_vertex), pin_(pin), file_(made_file(pager.folder_)) {
  pager_.enter(*this);
}

PagedRows::~PagedRows() {
  pager_.leave(*this);
  if (base_ != nullptr) munmap(base_, bytes_);
  close(file_);
}

void PagedRows::reserve(std::int64_t rows) {
  const std::size_t page = std::size_t{1} << pager_.shift_;
  const std::size_t grown = (static_cast<std::size_t>(rows) * row_bytes_ + page - 1) / page * page;
  if (grown <= bytes_) return;
  if (const int failed = take_room(file_, bytes_, grown); failed != 0) {
    unavailable(pager_.folder_, std::to_string(grown - bytes_) + " bytes more: " + std::strerror(failed));
  }
  void* mapped = mmap(nullptr, grown, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  madvise(mapped, grown, MADV_RANDOM);  // neighbours of a page are no reason to read it
  const std::lock_guard lock(pager_.mutex_);
  std::unique_ptr<std::atomic<std::uint8_t>[]> pages(new std::atomic<std::uint8_t>[grown >> pager_.shift_]);
  const std::size_t known = page_count();
  for (std::size_t p = 0; p < known; ++p) pages[p] = pages_[p].load();
  for (std::size_t p = known; p < grown >> pager_.shift_; ++p) pages[p] = Pager::kAway;
  if (pin_ && known == 0) {
    const std::size_t kept = static_cast<std::size_t>(std::min(rows, pager_.pinned_rows_)) * row_bytes_;
    for (std::size_t p = 0; p < kept >> pager_.shift_; ++p) {
      pages[p] = Pager::kPinned;
      pager_.resident_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  if (base_ != nullptr) munmap(base_, bytes_);
  base_ = static_cast<char*>(mapped);
  bytes_ = grown;
  pages_ = std::move(pages);
}

void PagedRows::ask(std::size_t first, std::size_t last) const {
  madvise(base_ + (first << pager_.shift_), (last - first) << pager_.shift_, MADV_WILLNEED);
}

void PagedRows::fetch(std::int64_t first, std::int64_t last) const {
  if (by_vertex_) {  // rows that are not ranked first keep their order; those that are stay where they are
    while (first < last && pager_.place(first) < pager_.pinned_rows_) ++first;
    while (first < last && pager_.place(last - 1) < pager_.pinned_rows_) --last;
    if (first == last) return;
    first = pager_.place(first);
    last = pager_.place(last - 1) + 1;
  }
  const std::size_t from = (static_cast<std::size_t>(first) * row_bytes_) >> pager_.shift_;
  const std::size_t to =
      std::min(page_count(), ((static_cast<std::size_t>(last) * row_bytes_ - 1) >> pager_.shift_) + 1);
  std::size_t away = 0;
  for (std::size_t page = from; page < to; ++page) away += pager_.mark(*this, page);
  if (away == 0) return;
  pager_.count(away);
  ask(from, to);
}

void PagedRows::drop(std::size_t first, std::size_t last) const {
  const std::size_t from = first << pager_.shift_, bytes = (last - first) << pager_.shift_;
#ifdef __linux__
  const int failed = sync_file_range(file_, static_cast<off_t>(from), static_cast<off_t>(bytes),
                                     SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
#else
  const int failed = msync(base_ + from, bytes, MS_SYNC);
#endif
  if (failed != 0) pager_.damaged_.store(true, std::memory_order_relaxed);
  madvise(base_ + from, bytes, MADV_DONTNEED);
#ifdef POSIX_FADV_DONTNEED
  posix_fadvise(file_, static_cast<off_t>(from), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
#endif
}

}  // namespace livegnn
