#include "inference/publication.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <unordered_map>

namespace livegnn {

namespace {

constexpr std::size_t kParallelRows = 2048;  // staged rows from which on threads pay

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

[[noreturn]] void refuse(std::int64_t id, std::size_t slots, bool removed) {
  throw Error(ErrorKind::VertexUnknown, "[read] expected ids of live vertices below " + std::to_string(slots) +
                                            ", got " + std::to_string(id) + (removed ? ", which was removed" : "") +
                                            "; add the vertex first");
}

}  // namespace

class Publication::ReadLock {
 public:
  explicit ReadLock(const Publication& p) : p_(p) {
    while (p_.writer_waits_.load(std::memory_order_acquire)) std::this_thread::yield();
    p_.mutex_.lock_shared();
  }
  ~ReadLock() { p_.mutex_.unlock_shared(); }
  ReadLock(const ReadLock&) = delete;
  ReadLock& operator=(const ReadLock&) = delete;

 private:
  const Publication& p_;
};

class Publication::WriteLock {
 public:
  explicit WriteLock(const Publication& p) : p_(p) {
    p_.writer_waits_.store(true, std::memory_order_release);
    p_.mutex_.lock();
    p_.writer_waits_.store(false, std::memory_order_release);
  }
  ~WriteLock() { p_.mutex_.unlock(); }
  WriteLock(const WriteLock&) = delete;
  WriteLock& operator=(const WriteLock&) = delete;

 private:
  const Publication& p_;
};

void Publication::reset(const GraphStore& graph) {
  rows_.reserve(graph.slot_count());
  live_.assign(at(graph.slot_count()), 0);
  for (VertexId v = 0; v < graph.slot_count(); ++v) live_[at(v)] = graph.is_live(v) ? 1 : 0;
  version_ = graph.version();
  drop_staged();
}

void Publication::prepare(int threads, VertexId slots_before) {
  staged_.resize(at(threads));
  drop_staged();
  slots_before_ = slots_before;
}

void Publication::drop_staged() {
  for (Staged& staged : staged_) {
    staged.vertices.clear();
    staged.rows.clear();
  }
}

bool Publication::differs(VertexId v, const float* row) const {
  return std::memcmp(rows_.row(v), row, at(width_) * sizeof(float)) != 0;
}

void Publication::stage(VertexId v, const float* row, int thread) {
  if (v < slots_before_ && !differs(v, row)) return;
  Staged& staged = staged_[at(thread)];
  staged.vertices.push_back(v);
  staged.rows.insert(staged.rows.end(), row, row + width_);
}

std::vector<VertexId> Publication::staged() const {
  std::vector<VertexId> all;
  for (const Staged& staged : staged_) all.insert(all.end(), staged.vertices.begin(), staged.vertices.end());
  std::sort(all.begin(), all.end());
  return all;
}

// Threads staged different vertices, so their rows can be copied at the same time.
void Publication::copy_rows(const Staged& staged) {
  constexpr std::size_t kAhead = 8;
  const float* from = staged.rows.data();
  for (std::size_t i = 0; i < staged.vertices.size(); ++i, from += width_) {
    if (i + kAhead < staged.vertices.size()) prefetch_row(rows_.row(staged.vertices[i + kAhead]), rows_.row_bytes());
    std::memcpy(rows_.row(staged.vertices[i]), from, at(width_) * sizeof(float));
  }
}

std::vector<VertexId> Publication::publish(const GraphStore& graph, const std::vector<VertexId>& added,
                                           const std::vector<VertexId>& removed, ThreadPool& pool) {
  std::size_t count = added.size();
  for (const Staged& staged : staged_) count += staged.vertices.size();
  std::vector<VertexId> changed;
  changed.reserve(count);
  for (const Staged& staged : staged_) changed.insert(changed.end(), staged.vertices.begin(), staged.vertices.end());
  {
    WriteLock lock(*this);
    rows_.reserve(graph.slot_count());
    live_.resize(at(graph.slot_count()), 0);
    if (count > kParallelRows) {
      pool.run(static_cast<std::int64_t>(staged_.size()), [&](std::int64_t t, int) { copy_rows(staged_[at(t)]); });
    } else {
      for (const Staged& staged : staged_) copy_rows(staged);
    }
    for (const VertexId v : added) live_[at(v)] = 1;
    for (const VertexId v : removed) live_[at(v)] = 0;
    version_ = graph.version();
  }
  const bool some_gone = !removed.empty() || graph.slot_count() > slots_before_;  // added and removed in one batch, too
  if (some_gone) std::erase_if(changed, [&](VertexId v) { return !graph.is_live(v); });
  changed.insert(changed.end(), added.begin(),
                 added.end());  // one that came back with the same output is news all the same
  drop_staged();
  return changed;
}

std::int64_t Publication::read(std::span<const std::int64_t> ids, float* out) const {
  ReadLock lock(*this);
  for (const std::int64_t id : ids) {
    if (id < 0 || at(id) >= live_.size()) refuse(id, live_.size(), false);
    if (live_[at(id)] == 0) refuse(id, live_.size(), true);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    std::memcpy(out + i * at(width_), rows_.row(ids[i]), at(width_) * sizeof(float));
  }
  return version_;
}

void Publication::read_staged(std::span<const std::int64_t> ids, float* out, const GraphStore& graph) const {
  std::unordered_map<VertexId, const float*> overlay;
  for (const Staged& staged : staged_) {
    for (std::size_t i = 0; i < staged.vertices.size(); ++i)
      overlay[staged.vertices[i]] = staged.rows.data() + i * at(width_);
  }
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= graph.slot_count()) refuse(id, at(graph.slot_count()), false);
    if (!graph.is_live(static_cast<VertexId>(id))) refuse(id, at(graph.slot_count()), true);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto found = overlay.find(static_cast<VertexId>(ids[i]));
    const float* row = found != overlay.end() ? found->second : rows_.row(ids[i]);
    std::memcpy(out + i * at(width_), row, at(width_) * sizeof(float));
  }
}

std::int64_t Publication::slots() const {
  ReadLock lock(*this);
  return static_cast<std::int64_t>(live_.size());
}

std::vector<std::uint8_t> Publication::live() const {
  ReadLock lock(*this);
  return live_;
}

}  // namespace livegnn
