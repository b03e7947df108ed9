// One part of a graph that is cut over several engines: which vertices are whose, and how parts send each other what
// they need. The engine of a part holds its own vertices and ghosts, the vertices of other parts that share an edge
// with one of its own (RIPPLE, section 5.1, calls them halo vertices).
//
// Global slots name vertices between parts, slots name them inside one. An edge whose ends are two parts' is held by
// both; its id is the one that it has in the whole graph. All parts take the same batches in the same order and make
// the same rounds, so a part that fails makes the others fail in the same round (docs/distributed.md).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "livegnn/graph.h"
#include "livegnn/types.h"

namespace livegnn {

inline constexpr int kPartsMax = 64;
inline constexpr std::uint16_t kNoPart = 0xffff;

using Parcels = std::vector<std::string>;  // one for each part; that to itself is empty

// Sends one parcel to every part and returns what they sent, by sender. Parcels keep their order between two parts.
using Swap = std::function<Parcels(Parcels)>;

// What this part has sent, since it was made.
struct WireCounts {
  std::int64_t rounds = 0, bytes = 0;
  std::int64_t introductions = 0, factors = 0;  // features of new ghosts, degree factors
  std::int64_t source_rows = 0, sum_rows = 0;   // messages of changed sources, sums for affected destinations
};

// What of a part is not in its store: a part that starts again from it makes the same parcels as one that went on.
struct HaloMemory {
  std::vector<std::uint16_t> slot_owners;
  std::vector<std::uint64_t> out_at, in_at;
  std::vector<std::int64_t> free_own, free_ghosts;
  std::vector<std::vector<std::uint64_t>> stale;  // of the engine: by aggregation, by slot
};

// This part's share of a batch, in its slots.
struct PartBatch {
  UpdateBuffer buffer;
  std::vector<std::int64_t> places;  // by update: its place in the whole batch; -1: a ghost that comes in
};

// Whose the vertex of each slot is, and whether it is another part's: a bit for each slot, since pushes ask for every
// edge.
class SlotOwners {
 public:
  explicit SlotOwners(int part) : part_(part) {}
  std::uint16_t operator[](std::size_t v) const { return owners_[v]; }
  bool is_ghost(std::size_t v) const { return (ghosts_[v / 64] >> (v % 64) & 1) != 0; }
  const std::vector<std::uint16_t>& all() const { return owners_; }
  void set(std::size_t v, std::uint16_t owner) {
    const std::uint64_t bit = std::uint64_t{1} << (v % 64);
    owners_[v] = owner;
    owner == part_ ? ghosts_[v / 64] &= ~bit : ghosts_[v / 64] |= bit;
  }
  void resize(std::size_t slots) {  // new ones are this part's
    owners_.resize(slots, static_cast<std::uint16_t>(part_));
    ghosts_.resize((slots + 63) / 64, 0);
    if (slots % 64 != 0) ghosts_.back() &= (std::uint64_t{1} << (slots % 64)) - 1;
  }
  void assign(const std::vector<std::uint16_t>& owners) {
    resize(owners.size());
    for (std::size_t v = 0; v < owners.size(); ++v) set(v, owners[v]);
  }

 private:
  const int part_;
  std::vector<std::uint16_t> owners_;
  std::vector<std::uint64_t> ghosts_;
};

class Halo {
 public:
  static constexpr char kGoesOn = 0, kFailed = 1;  // the last byte of a parcel

  Halo(int parts, int part, Swap swap);

  int parts() const { return parts_; }
  int part() const { return part_; }
  // A bit for each part to which bytes cost less than packing them: rows go there as they are. It may change between
  // rounds, and no part has to know it of another.
  std::uint64_t near = 0;
  bool is_near(int part) const { return (near >> part & 1) != 0; }

  // ---- whose a vertex is. Owners of global slots from `first` on; owners do not move.
  void set_owners(std::int64_t first, std::span<const std::uint16_t> owners);
  // The store's slots after it was loaded, by slot: global slots. Bits of parts are taken from the edges.
  void load(std::span<const std::int64_t> globals, EdgeId next_edge_id, const GraphStore& store);
  void remember(HaloMemory& memory) const;  // all but what is stale
  void recall(const HaloMemory& memory);    // after load()
  std::uint16_t owner_of(std::int64_t global) const {
    return global >= 0 && global < global_count() ? owners_[static_cast<std::size_t>(global)] : kNoPart;
  }
  std::int64_t global_count() const { return static_cast<std::int64_t>(owners_.size()); }
  VertexId local_of(std::int64_t global) const {
    return global >= 0 && global < static_cast<std::int64_t>(locals_.size()) ? locals_[static_cast<std::size_t>(global)]
                                                                             : kNoVertex;
  }
  std::int64_t global_of(VertexId v) const { return globals_[static_cast<std::size_t>(v)]; }
  std::span<const std::int64_t> globals() const { return globals_; }
  int owner(VertexId v) const { return slot_owners_[static_cast<std::size_t>(v)]; }
  bool is_ghost(VertexId v) const { return slot_owners_.is_ghost(static_cast<std::size_t>(v)); }
  const SlotOwners& slot_owners() const { return slot_owners_; }
  std::vector<VertexId> own(std::span<const VertexId> slots) const;
  EdgeId next_edge_id() const { return next_edge_id_; }
  // A bit for each part that has, or had, an end of an edge of v: out_at where v is the source.
  std::uint64_t out_at(VertexId v) const { return out_at_[static_cast<std::size_t>(v)]; }
  std::uint64_t in_at(VertexId v) const { return in_at_[static_cast<std::size_t>(v)]; }
  // The global slot of a slot of the batch that was taken back last, or of one that there is; -1: neither.
  std::int64_t name_of(VertexId v) const;
  VertexId departed(std::int64_t global) const {  // the slot that the batch at work took from it first
    const auto found = departed_.find(global);
    return found == departed_.end() ? kNoVertex : found->second;
  }
  // This part's vertices whose bit of a part the batch at work has set first; sent: edges leave them.
  const std::vector<VertexId>& first_out(int part) const { return first_out_[static_cast<std::size_t>(part)]; }
  const std::vector<VertexId>& first_in(int part) const { return first_in_[static_cast<std::size_t>(part)]; }

  // ---- a batch
  // This part's share, ghosts that it needs first among it; one round where the batch adds an edge between two parts.
  // Throws Error naming the update of the whole batch; then fail() and roll_back() are the caller's.
  PartBatch take(const UpdateBuffer& batch, const GraphStore& store);
  // Of the batch that was taken last, all of it: whether it may change the degree of a vertex that has edges. Every
  // part says the same.
  bool may_move_degrees() const { return may_move_degrees_; }
  // Whether this part has begun to compute rows of that batch: what it raises then, an engine raises last.
  bool has_begun() const { return has_begun_; }
  void begin() { has_begun_ = true; }
  void commit();     // the batch stands
  void roll_back();  // it was taken back, and the next round is a new one; a second call does nothing

  // ---- rounds
  Parcels swap(Parcels parcels);  // throws Error(PartRefused) where another part has failed
  void fail();  // the round that others wait in, for a part that cannot go on; without a batch at work nothing
  bool failed() const { return failed_; }
  void reduce_max(std::span<float> values);

  WireCounts counts;
  // Whether the edge is this part's in what all parts count together.
  bool counts_edge(VertexId src, VertexId dst) const;

 private:
  struct Kept {  // what roll_back() puts back
    std::vector<std::pair<std::int64_t, VertexId>> locals;
    std::vector<std::pair<VertexId, std::pair<std::uint64_t, std::uint64_t>>> bits;
    std::vector<std::pair<VertexId, std::int64_t>> globals;  // of slots that were taken again
    std::size_t slots = 0;
    EdgeId next_edge_id = 0;
  };
  struct Plan;
  void meet(VertexId u, VertexId v);
  void set_bit(VertexId v, int part, bool outgoing);
  VertexId make_local(std::int64_t global);
  void drop_local(std::int64_t global);
  void find_introductions(const UpdateBuffer& batch, const GraphStore& store, Plan& plan) const;
  Parcels write_introductions(const GraphStore& store, Plan& plan);
  void read_introductions(const GraphStore& store, const Parcels& parcels, PartBatch& out);
  void take_update(const UpdateBuffer& batch, std::size_t place, const Plan& plan, PartBatch& out);
  void take_edge(const UpdateBuffer& batch, std::size_t place, PartBatch& out);

  const int parts_, part_;
  Swap swap_;
  std::vector<std::uint16_t> owners_;  // by global slot
  std::vector<VertexId> locals_;       // by global slot
  std::vector<std::int64_t> globals_;  // by slot
  SlotOwners slot_owners_;
  std::vector<std::uint64_t> out_at_, in_at_;
  std::vector<std::vector<VertexId>> first_out_, first_in_;
  // Slots that may be taken again, by an own vertex and by a ghost: rows of a ghost's slot are not kept up to date.
  std::vector<VertexId> free_[2];
  std::vector<std::pair<VertexId, std::int64_t>> taken_back_;  // slots of the last batch that was, with their names
  std::vector<VertexId> freed_;                                // they may, after the batch at work
  std::unordered_map<std::int64_t, VertexId> departed_;
  EdgeId next_edge_id_ = 0;
  Kept kept_;
  bool undirected_ = false;
  bool open_ = false;  // a batch is at work
  bool may_move_degrees_ = false, has_begun_ = false;
  bool failed_ = false;
};

}  // namespace livegnn
