#include "inference/publication.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

namespace livegnn {

namespace {

constexpr std::size_t kReadAhead = 8;
constexpr std::size_t kNotesMin = 1024;

// Rows that readers may be copying are moved in atomic words, so that a torn row is no undefined behaviour.
void store_row(float* to, const float* from, std::size_t bytes) {
  auto* words = reinterpret_cast<std::uint64_t*>(to);
  for (std::size_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) {
    std::uint64_t word;
    std::memcpy(&word, from + 2 * i, sizeof(word));
    __atomic_store_n(words + i, word, __ATOMIC_RELAXED);
  }
}

void load_row(float* to, const float* from, int width) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(from);
  for (int i = 0; i + 1 < width; i += 2) {
    const std::uint64_t word = __atomic_load_n(words + i / 2, __ATOMIC_RELAXED);
    std::memcpy(to + i, &word, sizeof(word));
  }
  if (width % 2 != 0) __atomic_load(from + width - 1, to + width - 1, __ATOMIC_RELAXED);
}

[[noreturn]] void refuse(std::int64_t id, std::size_t slots, bool removed) {
  throw Error(ErrorKind::VertexUnknown, {.where = "read",
                                         .expected = "ids of live vertices below " + std::to_string(slots),
                                         .got = std::to_string(id) + (removed ? ", which was removed" : ""),
                                         .advice = "add the vertex first",
                                         .vertex = id});
}

}  // namespace

void Publication::Gate::lock_shared() {
  while (writers_waiting.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  mutex.lock_shared();
}

void Publication::Gate::lock() {
  if (mutex.try_lock()) return;
  writers_waiting.fetch_add(1, std::memory_order_acq_rel);
  mutex.lock();
  writers_waiting.fetch_sub(1, std::memory_order_acq_rel);
}

Publication::Publication(int width, int threads, Pager* pager)
    : width_(width),
      rows_(round_up(width, 16), pager, Rows::KeptByVertex),
      journals_(at(threads)),
      old_rows_(rows_.stride(), pager, Rows::ByPlace),
      snapshots_(width) {}

void Publication::reset(const GraphStore& graph) {
  const VertexId slots = graph.slot_count();
  rows_.reserve(slots);
  marks_.assign(at(slots), 0);
  live_.assign(at(slots), 0);
  live_count_ = 0;
  for (VertexId v = 0; v < slots; ++v) set_live(v, graph.is_live(v));
  version_ = graph.version();
}

void Publication::prepare(VertexId slots_before, VertexId slots) {
  slots_before_ = slots_before;
  const std::int64_t journal = slots + kClaim * static_cast<std::int64_t>(journals_.size());
  if (slots <= rows_.capacity() && at(slots) <= marks_.size() && journal <= old_rows_.capacity()) return;
  std::unique_lock lock(rows_gate_);
  rows_.reserve(slots);
  if (marks_.size() < at(slots)) marks_.resize(at(slots + slots / 2), 0);
  if (old_rows_.capacity() < journal) {  // empty between batches: nothing to copy
    old_rows_.clear();
    old_rows_.reserve(journal + journal / 2);
  }
}

std::int64_t Publication::journal_place(ThreadJournal& journal) {
  if (journal.next == journal.end) {
    journal.next = claimed_.fetch_add(kClaim, std::memory_order_relaxed);
    journal.end = journal.next + kClaim;
  }
  return journal.next++;
}

bool Publication::differs(VertexId v, const float* row) const {
  return std::memcmp(rows_.row(v), row, at(width_) * sizeof(float)) != 0;
}

void Publication::stage(VertexId v, const float* row, int thread) {
  if (v < slots_before_ && !differs(v, row)) return;
  ThreadJournal& journal = journals_[at(thread)];
  const std::int64_t place = journal_place(journal);
  std::memcpy(old_rows_.row(place), rows_.row(v), rows_.row_bytes());
  journal.vertices.push_back(v);
  const std::uint64_t mark = static_cast<std::uint64_t>(epoch_) << 32 | static_cast<std::uint64_t>(place);
  __atomic_store_n(&marks_[at(v)], mark, __ATOMIC_RELEASE);
  std::atomic_thread_fence(std::memory_order_release);
  store_row(rows_.row(v), row, rows_.row_bytes());
}

// Of the vertices whose rows changed, those that are live; one that came back with the same output is news all the
// same.
void Publication::keep_news(std::vector<VertexId>& changed, const GraphStore& graph, const std::vector<VertexId>& added,
                            const std::vector<VertexId>& removed) const {
  const bool some_gone = !removed.empty() || graph.slot_count() > slots_before_;  // added and removed in one batch, too
  if (some_gone) std::erase_if(changed, [&](VertexId v) { return !graph.is_live(v); });
  changed.insert(changed.end(), added.begin(), added.end());
}

std::vector<VertexId> Publication::staged(const GraphStore& graph, const std::vector<VertexId>& added,
                                          const std::vector<VertexId>& removed) const {
  std::vector<VertexId> changed;
  for (const ThreadJournal& journal : journals_)
    changed.insert(changed.end(), journal.vertices.begin(), journal.vertices.end());
  keep_news(changed, graph, added, removed);
  sort_unique(changed);
  return changed;
}

std::shared_ptr<OutputMoves> Publication::moves(const GraphStore& graph, const std::vector<VertexId>& added,
                                                const std::vector<VertexId>& removed, std::int64_t rows_max,
                                                const InChunks& in_chunks) const {
  std::vector<VertexId> touched = added;
  touched.insert(touched.end(), removed.begin(), removed.end());
  for (const ThreadJournal& journal : journals_)
    touched.insert(touched.end(), journal.vertices.begin(), journal.vertices.end());
  sort_unique(touched, graph.slot_count());
  std::vector<VertexId> gone;
  for (const VertexId v : removed) {
    if (was_live(v) && !graph.is_live(v)) gone.push_back(v);
  }
  std::erase_if(touched, [&](VertexId v) { return !graph.is_live(v); });
  sort_unique(gone);
  const auto live = static_cast<std::int64_t>(touched.size());
  auto moves = std::make_shared<OutputMoves>();
  moves->vertices = std::move(touched);
  moves->vertices.insert(moves->vertices.end(), gone.begin(), gone.end());
  moves->gone = gone.size();
  moves->width = at(width_);
  const std::size_t count = moves->vertices.size();
  if (static_cast<std::int64_t>(count) > rows_max) return nullptr;
  moves->is_new.resize(count);
  moves->before = std::make_unique_for_overwrite<float[]>(count * moves->width);
  moves->after = std::make_unique_for_overwrite<float[]>(count * moves->width);
  in_chunks(static_cast<std::int64_t>(count),
            [&](std::int64_t first, std::int64_t last) { copy_moves(*moves, live, first, last); });
  return moves;
}

// Rows [first, last) of what moved; those from `live` on are of vertices that are gone.
void Publication::copy_moves(OutputMoves& moves, std::int64_t live, std::int64_t first, std::int64_t last) const {
  const std::size_t bytes = moves.width * sizeof(float);
  for (std::int64_t i = first; i < last; ++i) {
    if (i + static_cast<std::int64_t>(kReadAhead) < last) prefetch(moves.vertices[at(i) + kReadAhead]);
    const VertexId v = moves.vertices[at(i)];
    float *before = &moves.before[at(i) * moves.width], *after = &moves.after[at(i) * moves.width];
    const bool is_new = !was_live(v);
    const std::uint64_t mark = marks_[at(v)];
    moves.is_new[at(i)] = is_new ? 1 : 0;
    if (is_new) {
      std::memset(before, 0, bytes);
    } else {
      std::memcpy(before, overwritten(mark) ? journal_row(mark) : rows_.row(v), bytes);
    }
    if (i < live) {
      std::memcpy(after, rows_.row(v), bytes);
    } else {
      std::memset(after, 0, bytes);
    }
  }
}

void Publication::end_epoch() {
  if (++epoch_ == 0) {  // marks of old epochs would count again
    std::fill(marks_.begin(), marks_.end(), 0);
    epoch_ = 1;
  }
  most_claimed_ = std::max<std::int64_t>(most_claimed_, claimed_);
  claimed_ = 0;
  for (ThreadJournal& journal : journals_) {
    journal.vertices.clear();
    journal.next = journal.end = 0;
  }
}

void Publication::drop_staged() {
  for (const ThreadJournal& journal : journals_) {
    for (const VertexId v : journal.vertices) {
      store_row(rows_.row(v), journal_row(marks_[at(v)]), rows_.row_bytes());
    }
  }
  std::unique_lock lock(rows_gate_);
  end_epoch();
}

void Publication::set_live(VertexId v, bool live) {
  std::uint8_t& now = live_[at(v)];
  live_count_ += (live ? 1 : 0) - now;
  now = live ? 1 : 0;
}

// The rows that this epoch has overwritten, and who was live.
void Publication::keep_for_snapshots(const std::vector<VertexId>& changed, const std::vector<VertexId>& added,
                                     const std::vector<VertexId>& removed) {
  for (const VertexId v : changed) snapshots_.keep(v, journal_row(marks_[at(v)]));
  for (const auto* moved : {&added, &removed}) {
    for (const VertexId v : *moved) snapshots_.keep_live(v, was_live(v));
  }
}

std::vector<VertexId> Publication::publish(const GraphStore& graph, const std::vector<VertexId>& added,
                                           const std::vector<VertexId>& removed) {
  std::vector<VertexId> changed = std::move(journals_[0].vertices);
  for (std::size_t i = 1; i < journals_.size(); ++i)
    changed.insert(changed.end(), journals_[i].vertices.begin(), journals_[i].vertices.end());
  for (bool published = false; !published;) {
    std::optional<std::unique_lock<Gate>> opening;  // none opens from here on
    if (snapshots_open_ > 0) {
      opening.emplace(snapshots_gate_);
      if (!snapshots_.none()) keep_for_snapshots(changed, added, removed);
    }
    std::unique_lock lock(rows_gate_);
    if (!opening && snapshots_open_ > 0) continue;  // one has opened meanwhile
    published = true;
    end_epoch();
    live_.resize(at(graph.slot_count()), 0);
    for (const VertexId v : added) set_live(v, true);
    for (const VertexId v : removed) set_live(v, false);
    ++moment_;
    version_.store(graph.version(), std::memory_order_release);
  }
  keep_news(changed, graph, added, removed);
  if (notes_) note(changed);
  return changed;
}

std::int64_t Publication::note_changes() {
  notes_ = true;
  return forgotten_ + static_cast<std::int64_t>(noted_.size());
}

void Publication::note(const std::vector<VertexId>& changed) {
  if (noted_.size() + changed.size() > live_.size() + kNotesMin) {
    forgotten_ += static_cast<std::int64_t>(noted_.size());
    noted_.clear();
  }
  noted_.insert(noted_.end(), changed.begin(), changed.end());
}

std::optional<std::vector<VertexId>> Publication::changed_since(std::int64_t place) const {
  if (place < forgotten_) return std::nullopt;
  std::vector<VertexId> found(noted_.begin() + (place - forgotten_), noted_.end());
  sort_unique(found);
  return found;
}

void Publication::copy_committed(VertexId v, float* out) const {
  const std::size_t bytes = at(width_) * sizeof(float);
  std::uint64_t mark = __atomic_load_n(&marks_[at(v)], __ATOMIC_ACQUIRE);
  if (!overwritten(mark)) {
    load_row(out, rows_.row(v), width_);
    std::atomic_thread_fence(std::memory_order_acquire);
    mark = __atomic_load_n(&marks_[at(v)], __ATOMIC_ACQUIRE);
  }
  if (overwritten(mark)) std::memcpy(out, journal_row(mark), bytes);
}

std::int64_t Publication::read(std::span<const std::int64_t> ids, float* out) const {
  std::shared_lock lock(rows_gate_);
  for (const std::int64_t id : ids) {
    if (id < 0 || at(id) >= live_.size()) refuse(id, live_.size(), false);
    if (live_[at(id)] == 0) refuse(id, live_.size(), true);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i + kReadAhead < ids.size()) prefetch(static_cast<VertexId>(ids[i + kReadAhead]));
    copy_committed(static_cast<VertexId>(ids[i]), out + i * at(width_));
  }
  return version_.load(std::memory_order_relaxed);
}

SnapshotFacts Publication::open_snapshot() {
  std::unique_lock opening(snapshots_gate_);
  std::shared_lock lock(rows_gate_);  // no publication meanwhile
  ++snapshots_open_;
  const Snapshots::MomentRows& group =
      snapshots_.open(moment_, version(), static_cast<VertexId>(live_.size()), live_count_);
  return {group.moment, group.version, group.vertex_count};
}

void Publication::close_snapshot(std::int64_t moment) {
  std::unique_ptr<Snapshots::MomentRows> closed;  // outlives the lock
  std::unique_lock opening(snapshots_gate_);
  closed = snapshots_.close(moment);
  --snapshots_open_;
}

void Publication::read_snapshot(std::int64_t moment, std::span<const std::int64_t> ids, float* out) const {
  std::shared_lock opening(snapshots_gate_);
  std::shared_lock lock(rows_gate_);  // so that what is not kept is what is published, all the while
  const std::size_t place = snapshots_.place(moment);
  const VertexId slots = snapshots_.group(place).slots;
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= slots) refuse(id, at(slots), false);
    if (!snapshots_.live(place, static_cast<VertexId>(id), live_[at(id)] != 0)) refuse(id, at(slots), true);
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto v = static_cast<VertexId>(ids[i]);
    if (const float* kept = snapshots_.row(place, v); kept != nullptr) {
      std::memcpy(out + i * at(width_), kept, at(width_) * sizeof(float));
    } else {
      copy_committed(v, out + i * at(width_));
    }
  }
}

void Publication::read_staged(std::span<const std::int64_t> ids, float* out, const GraphStore& graph) const {
  for (const std::int64_t id : ids) {
    if (id < 0 || id >= graph.slot_count()) refuse(id, at(graph.slot_count()), false);
    if (!graph.is_live(static_cast<VertexId>(id))) refuse(id, at(graph.slot_count()), true);
  }
  for (std::size_t i = 0; i < ids.size(); ++i)
    std::memcpy(out + i * at(width_), rows_.row(ids[i]), at(width_) * sizeof(float));
}

std::size_t Publication::bytes() const {
  std::shared_lock opening(snapshots_gate_);
  return rows_.bytes() + at(most_claimed_) * rows_.row_bytes() + marks_.capacity() * sizeof(std::uint64_t) +
         snapshots_.bytes() + noted_.capacity() * sizeof(VertexId);
}

}  // namespace livegnn
