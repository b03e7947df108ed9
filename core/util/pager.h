// Rows that need not all be in memory: each table is a file without a name, mapped, of which a Pager keeps at most so
// many pages of all its tables resident. The kernel brings a page in when it is touched; the Pager counts and drops.
//
// A dropped page is written to its file first, and a pointer into it stays good: using it brings the page back. So rows
// may be dropped at any time, by any thread, and what a table holds does not depend on it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace livegnn {

class PagedRows;

struct PagerStats {
  std::size_t limit = 0, resident = 0, files = 0;  // bytes; resident as counted, files on disk
  std::int64_t pinned_rows = 0;                    // vertices whose rows of kept tables stay
  std::int64_t brought = 0, dropped = 0;           // pages
};

class Pager {
 public:
  // folder: on a disk; limit in bytes. Throws SpillUnavailable for a folder that cannot hold files or lies in memory.
  Pager(std::string folder, std::size_t limit);
  ~Pager();
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

  // The vertices whose rows lie first in tables by vertex, and are pinned in tables that ask for it. Before any of
  // these tables has rows. All other vertices, up to `slots`, keep their order behind them.
  void rank(const std::vector<std::int32_t>& first, std::int64_t slots);

  std::size_t limit() const { return limit_pages_ << shift_; }
  PagerStats stats() const;
  std::size_t resident_now() const;  // bytes, as the kernel has it
  bool made_here() const;            // false in a process that was forked off: it shares the files
  bool damaged() const { return damaged_.load(std::memory_order_relaxed); }  // a page could not be written
  const std::string& folder() const { return folder_; }

 private:
  friend class PagedRows;
  enum Page : std::uint8_t { kAway, kResident, kReferenced, kPinned };

  void bring(const PagedRows& rows, std::size_t page);
  std::size_t mark(const PagedRows& rows, std::size_t page);  // as used lately; 1 if it was away
  void count(std::size_t brought);
  void make_room();
  std::size_t pass_over(PagedRows& rows, std::size_t wanted);
  void enter(PagedRows& rows);
  void leave(PagedRows& rows);
  std::int64_t place(std::int64_t vertex) const {
    return vertex < static_cast<std::int64_t>(places_.size()) ? places_[static_cast<std::size_t>(vertex)] : vertex;
  }

  std::string folder_;
  int shift_;  // of a page's bytes
  std::size_t limit_pages_;
  long process_;
  std::vector<std::int32_t> places_;  // of ranked tables: row of the vertex; vertices beyond are where their id says
  std::int64_t pinned_rows_ = 0;
  std::atomic<std::int64_t> resident_{0}, brought_{0}, dropped_{0};
  std::atomic<bool> damaged_{false};
  mutable std::mutex mutex_;  // of all below
  std::vector<PagedRows*> tables_;
  std::size_t hand_table_ = 0, hand_page_ = 0;
};

class PagedRows {
 public:
  // by_vertex: row i is vertex i's, so that ranked ones lie first; pin: and stay.
  PagedRows(Pager& pager, std::size_t row_bytes, bool by_vertex, bool pin);
  ~PagedRows();
  PagedRows(const PagedRows&) = delete;
  PagedRows& operator=(const PagedRows&) = delete;

  // Zero rows up to here; no other thread may be at the table. Pointers to rows end. Throws SpillUnavailable.
  void reserve(std::int64_t rows);
  std::size_t bytes() const { return bytes_; }
  // Asks for rows first <= i < last at once, so that a pass over them does not wait page by page. No more than an
  // eighth of the limit at a time.
  void fetch(std::int64_t first, std::int64_t last) const;

  char* row(std::int64_t index) const {
    const std::size_t begin = static_cast<std::size_t>(by_vertex_ ? pager_.place(index) : index) * row_bytes_;
    const std::size_t last = (begin + row_bytes_ - 1) >> pager_.shift_;
    for (std::size_t page = begin >> pager_.shift_; page <= last; ++page) {
      if (pages_[page].load(std::memory_order_relaxed) < Pager::kReferenced) pager_.bring(*this, page);
    }
    return base_ + begin;
  }

 private:
  friend class Pager;
  std::size_t page_count() const { return bytes_ >> pager_.shift_; }
  void ask(std::size_t first, std::size_t last) const;   // for pages first <= p < last: their reading begins
  void drop(std::size_t first, std::size_t last) const;  // pages first <= p < last, written to the file

  Pager& pager_;
  std::size_t row_bytes_;
  bool by_vertex_, pin_;
  int file_ = -1;
  char* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::unique_ptr<std::atomic<std::uint8_t>[]> pages_;
};

}  // namespace livegnn
