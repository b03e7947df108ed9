// What the engines of parts send each other in a batch: the rows that edges between two parts carry.
//
// A ghost's features come with the batches, so its rows of stage 0 are computed like any vertex's, where any is read at
// the source of an edge. Of a later stage a ghost has the rows that are read there, as its owner has sent them. Their
// owner sends each changed row once to each part that has an edge from there ("source rows").
//
// For a sum in fixed point the owner may instead send, for each affected destination of a part, the sum of what changes
// there ("sum rows", RIPPLE's mailboxes), where those are fewer bytes. What the part keeps of the source is then stale:
// its owner handles every change of a stale source by sums, until it sends the row before and after.
//
// Invariants between batches, for a sum k and a ghost u of part p:
//   u is not stale   p's sums are those of the row of u that p keeps
//   u is stale       its owner knows, and so does p, that they are those of the owner's row
#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "inference/sets.h"
#include "inference/state.h"
#include "inference/wire.h"
#include "livegnn/halo.h"

namespace livegnn {

class Workspace;
class Operator;

// Sums on their way to other parts: a row for each affected ghost.
class MailRows {
 public:
  void begin(std::int64_t slots, int stride);
  std::int64_t* open(VertexId v);  // v's row, zero at first
  const std::vector<VertexId>& vertices() { return set_.collect(); }
  const std::int64_t* row(VertexId v) const { return rows_.data() + at(place_[at(v)]) * at(stride_); }
  const VertexSet& set() const { return set_; }

 private:
  int stride_ = 0;
  VertexSet set_;
  std::vector<std::int32_t> place_;
  Scratch<std::int64_t> rows_;  // aligned, as kernels want them
  std::size_t count_ = 0;
};

// Rows of one table as they go to every part that has the ones before: each is encoded once.
class RowCodes {
 public:
  void begin(std::int64_t slots) {
    known_.prepare(slots, 1);
    reserve_places(places_, slots);
    bytes_.clear();
  }
  // encode(writer): appends the row's code.
  template <typename Encode>
  std::span<const char> code(VertexId u, Encode&& encode) {
    if (known_.add(u)) {
      const std::size_t begin = bytes_.size();
      encode(writer_);
      places_[at(u)] = {begin, bytes_.size() - begin};
    }
    const auto [begin, size] = places_[at(u)];
    return {bytes_.data() + begin, size};
  }

 private:
  VertexSet known_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;  // begin and size
  std::string bytes_;
  WireWriter writer_{bytes_};
};

class HaloTrade {
 public:
  HaloTrade(Workspace& work, Halo& halo);

  bool is_ghost(VertexId v) const { return halo_.is_ghost(v); }
  // Whether this part's sums k are not those of the row that it keeps of this ghost.
  bool is_stale(int k, VertexId ghost) const { return (stale_of(k, ghost) & mine_) != 0; }
  // Whether the owner of `dst`, a ghost, gets changes of u's edges as sums.
  bool mails(int k, VertexId u, VertexId dst) const {
    return halo_.is_ghost(dst) && !halo_.is_ghost(u) && (stale_of(k, u) >> halo_.owner(dst) & 1) != 0;
  }
  // Whether rows of the stage are computed for ghosts, too.
  bool needs_ghosts(int stage) const { return stage == 0 && crosses_first_; }
  int owner(VertexId v) const { return halo_.owner(v); }
  MailRows& mail(int k) { return mail_[at(k)]; }
  Halo& halo() { return halo_; }

  // ---- one batch, in this order
  void begin(const BatchDelta& delta);
  void send_factors();         // of vertices whose degree has changed; one round, or none where none can have
  void send_stage(int stage);  // rows of the stage, once all operators have taken their messages; one round or none
  void keep() { stale_before_.clear(); }  // the batch stands
  void undo();                            // the journal is restored
  // Rows that edges of stale ghosts end at, or did before the batch: what the part keeps does not add up to them.
  // Null: they are many.
  const VertexSet* rows_of_stale(int k);

  // ---- from scratch: everything that ghosts need, into a state
  void send_all_factors(State& state) const;
  void send_all(int stage, State& state) const;
  void forget();  // nothing is stale any more
  // What this part sends while an engine with these scales is made of the graph as it is, round by round.
  std::vector<Parcels> parcels_of_start() const;
  const std::vector<std::vector<std::uint64_t>>& stale() const { return stale_; }
  void recall(const std::vector<std::vector<std::uint64_t>>& stale);

 private:
  struct Choice;
  std::uint64_t stale_of(int k, VertexId v) const {
    const std::vector<std::uint64_t>& marks = stale_[at(k)];
    return at(v) < marks.size() ? marks[at(v)] : 0;
  }
  void mark_stale(int k, VertexId v, std::uint64_t bits, bool stale);
  void put_marks(int k, VertexId v, std::uint64_t marks);
  std::uint64_t reach(int table, VertexId u) const;
  bool is_first(VertexId u, int part) const;
  Parcels all_factors(const State& state) const;
  Parcels all_rows(int table, const State& state) const;
  std::vector<std::vector<VertexId>> changed_sources(int table);
  void by_global(std::vector<VertexId>& vertices) const;
  void write_rows(int table, std::vector<WireWriter>& to);
  void write_ids(const std::vector<VertexId>& list, WireWriter& to) const;
  void write_listed(int table, const std::vector<VertexId>& list, int part, WireWriter& to);
  void write_row(int table, VertexId u, int part, WireWriter& to);
  void prefetch_arriving(int table, VertexId v) const;
  void read_rows(int table, WireReader& from);
  void choose(int k, Choice& choice);
  void write_sums(int k, std::vector<WireWriter>& to);
  void write_mail(int k, bool live, std::vector<WireWriter>& to);
  void read_sums(int k, WireReader& from);
  void take_moved_factors(int k);

  Workspace& work_;
  Halo& halo_;
  const std::uint64_t mine_;
  bool crosses_first_ = false;                     // whether a kind of stage 0 is read at an edge's source
  std::vector<std::vector<int>> tables_;           // by stage: kinds of stored rows that cross
  std::vector<int> carrier_;                       // by kind: the aggregation whose messages they are, or -1
  std::vector<std::uint8_t> forward_, backward_;   // by kind: which way they are read
  std::vector<int> contexts_;                      // whose factors cross
  std::vector<VertexSet> changed_;                 // by kind, of those that cross
  std::vector<VertexSet> arrived_;                 // by aggregation: ghosts whose message has come
  std::vector<MailRows> mail_;                     // by aggregation
  std::vector<std::vector<std::uint64_t>> stale_;  // by aggregation and slot: of this part's vertices a bit for each
                                                   // part, of a ghost this part's own bit
  std::vector<std::pair<std::pair<int, VertexId>, std::uint64_t>> stale_before_;  // of the batch at work
  std::vector<std::unordered_set<VertexId>> stale_ghosts_;                        // by aggregation: the same
  std::vector<VertexSet> rows_of_stale_;
  VertexSet seen_;
  RowCodes codes_;
  std::vector<std::uint64_t> by_sums_;  // by slot: parts that get the source's change as sums; zeros between rounds
  std::unordered_map<VertexId, std::uint64_t> first_;  // this part's vertices: parts that the batch has them meet
};

}  // namespace livegnn
