#include "livegnn/halo.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_set>

#include "inference/vertex_lists.h"
#include "inference/wire.h"
#include "livegnn/detail/prefetch.h"

namespace livegnn {

namespace {

std::uint64_t bit_of(int part) { return std::uint64_t{1} << part; }

bool is_of_edge(UpdateKind kind) {
  return kind == UpdateKind::AddEdge || kind == UpdateKind::RemoveEdge || kind == UpdateKind::SetWeight ||
         kind == UpdateKind::SetEdgeAttr;
}

// Of a vertex that has edges: those of a new one are added, too.
bool may_move_degree(const Update& update) {
  return update.kind != UpdateKind::SetFeatures && update.kind != UpdateKind::SetEdgeAttr &&
         update.kind != UpdateKind::AddVertex;
}

std::string subject_of(const Update& update) {
  static constexpr const char* kNames[] = {"add_edge",      "remove_edge",  "remove_edges_before", "set_weight",
                                           "set_edge_attr", "set_features", "add_vertex",          "remove_vertex"};
  const std::string name = kNames[static_cast<int>(update.kind)];
  return name + " " + std::to_string(update.u) + (update.v < 0 ? "" : " -> " + std::to_string(update.v));
}

[[noreturn]] void refuse(ErrorKind kind, const Update& update, std::size_t place, const char* expected,
                         const std::string& got, const char* advice, std::int64_t vertex) {
  ErrorFacts facts{.where = "apply", .expected = expected, .got = got, .advice = advice};
  facts.subject = subject_of(update);
  facts.update = static_cast<std::int64_t>(place);
  if (vertex >= 0) facts.vertex = vertex;
  if (is_of_edge(update.kind)) facts.edge = {update.u, update.v};
  throw Error(kind, facts);
}

[[noreturn]] void refuse_unknown(const Update& update, std::size_t place, std::int64_t global, bool was) {
  refuse(ErrorKind::VertexUnknown, update, place, "a live vertex",
         std::to_string(global) + (was ? ", which was removed" : ", which there has never been"),
         was ? "add the vertex again first" : "add the vertex first", global);
}

// Asks memory for the owner and the slot of each vertex that the batch names: as many as the cache keeps.
void prefetch_places(std::span<const Update> updates, std::span<const std::uint16_t> owners,
                     std::span<const VertexId> locals) {
  constexpr std::size_t kMost = 4096;
  for (const Update& update : updates.first(std::min(updates.size(), kMost))) {
    for (const std::int64_t end : {update.u, update.v}) {
      if (end < 0) continue;
      if (at(end) < owners.size()) prefetch_line(owners.data() + end);
      if (at(end) < locals.size()) prefetch_line(locals.data() + end);
    }
  }
}

void copy_row(const UpdateBuffer& batch, const Update& update, Update& kept, UpdateBuffer& to) {
  if (update.row < 0) return;
  kept.row = to.add_row({batch.row(update), at(update.row_width)});
}

}  // namespace

// Of a batch, before any of it is taken.
struct Halo::Plan {
  std::unordered_set<std::int64_t> needed;           // where vertices come: other parts' that this part's edges end at
  std::vector<std::vector<VertexId>> introductions;  // by part: vertices that it has no ghost of yet
  bool joins_parts = false;  // an edge between two parts is added: any part may introduce one, as all of them see
};

Halo::Halo(int parts, int part, Swap swap) : parts_(parts), part_(part), swap_(std::move(swap)), slot_owners_(part) {
  invariant(parts >= 1 && parts <= kPartsMax && part >= 0 && part < parts, "a part that there is not");
  first_out_.resize(at(parts));
  first_in_.resize(at(parts));
}

// ---- whose a vertex is

void Halo::set_owners(std::int64_t first, std::span<const std::uint16_t> owners) {
  invariant(first >= 0 && first <= global_count(), "owners of slots with a gap");
  owners_.resize(at(first));
  owners_.insert(owners_.end(), owners.begin(), owners.end());
  for (const std::uint16_t owner : owners) invariant(owner < parts_, "an owner that is no part");
  if (locals_.size() < owners_.size()) locals_.resize(owners_.size(), kNoVertex);
}

void Halo::load(std::span<const std::int64_t> globals, EdgeId next_edge_id, const GraphStore& store) {
  invariant(static_cast<VertexId>(globals.size()) == store.slot_count(), "a global slot for each slot");
  std::fill(locals_.begin(), locals_.end(), kNoVertex);
  globals_.assign(globals.begin(), globals.end());
  slot_owners_.resize(0);
  slot_owners_.resize(globals.size());
  out_at_.assign(globals.size(), 0);
  in_at_.assign(globals.size(), 0);
  free_[0].clear();
  free_[1].clear();
  for (std::size_t v = 0; v < globals.size(); ++v) {
    if (!store.is_live(static_cast<VertexId>(v))) {
      free_[0].push_back(static_cast<VertexId>(v));
      continue;
    }
    invariant(owner_of(globals[v]) != kNoPart, "a vertex without an owner");
    slot_owners_.set(v, owner_of(globals[v]));
    locals_[at(globals[v])] = static_cast<VertexId>(v);
  }
  next_edge_id_ = next_edge_id;
  undirected_ = store.options().undirected;
  store.visit_edges([&](const EdgeRecord& edge) { meet(edge.src, edge.dst); });
  if (undirected_) store.visit_edges([&](const EdgeRecord& edge) { meet(edge.dst, edge.src); });
  kept_.bits.clear();
  for (auto* lists : {&first_out_, &first_in_}) {
    for (auto& list : *lists) list.clear();
  }
}

void Halo::remember(HaloMemory& memory) const {
  memory.slot_owners = slot_owners_.all();
  memory.out_at = out_at_;
  memory.in_at = in_at_;
  memory.free_own.assign(free_[0].begin(), free_[0].end());
  memory.free_ghosts.assign(free_[1].begin(), free_[1].end());
}

void Halo::recall(const HaloMemory& memory) {
  const std::size_t slots = globals_.size();
  invariant(memory.slot_owners.size() == slots && memory.out_at.size() == slots && memory.in_at.size() == slots,
            "the memory of another part");
  slot_owners_.assign(memory.slot_owners);
  out_at_ = memory.out_at;
  in_at_ = memory.in_at;
  free_[0].assign(memory.free_own.begin(), memory.free_own.end());
  free_[1].assign(memory.free_ghosts.begin(), memory.free_ghosts.end());
}

std::vector<VertexId> Halo::own(std::span<const VertexId> slots) const {
  std::vector<VertexId> found;
  found.reserve(slots.size());
  for (const VertexId v : slots) {
    if (!is_ghost(v)) found.push_back(v);
  }
  sort_unique(found, static_cast<std::int64_t>(globals_.size()));  // what follows goes through memory in order
  for (VertexId& v : found) v = static_cast<VertexId>(global_of(v));
  sort_unique(found, global_count());  // a vertex that was removed and added again has two slots
  return found;
}

bool Halo::counts_edge(VertexId src, VertexId dst) const {
  if (undirected_) return !is_ghost(global_of(src) <= global_of(dst) ? src : dst);
  return !is_ghost(dst);
}

void Halo::set_bit(VertexId v, int part, bool outgoing) {
  std::uint64_t& bits = (outgoing ? out_at_ : in_at_)[at(v)];
  if ((bits & bit_of(part)) != 0) return;
  if (open_) {
    kept_.bits.push_back({v, {out_at(v), in_at(v)}});
    (outgoing ? first_out_ : first_in_)[at(part)].push_back(v);
  }
  bits |= bit_of(part);
}

// An edge from u to v.
void Halo::meet(VertexId u, VertexId v) {
  if (owner(u) == owner(v)) return;
  if (!is_ghost(u)) set_bit(u, owner(v), true);
  if (!is_ghost(v)) set_bit(v, owner(u), false);
}

VertexId Halo::make_local(std::int64_t global) {
  kept_.locals.push_back({global, local_of(global)});
  VertexId v = static_cast<VertexId>(globals_.size());
  std::vector<VertexId>& free = free_[owner_of(global) == part_ ? 0 : 1];
  if (free.empty()) {
    globals_.push_back(global);
    slot_owners_.resize(globals_.size());
    out_at_.push_back(0);
    in_at_.push_back(0);
  } else {
    v = free.back();
    free.pop_back();
    kept_.globals.push_back({v, globals_[at(v)]});
    kept_.bits.push_back({v, {out_at(v), in_at(v)}});
    globals_[at(v)] = global;
    out_at_[at(v)] = in_at_[at(v)] = 0;
  }
  slot_owners_.set(at(v), owner_of(global));
  locals_[at(global)] = v;
  return v;
}

void Halo::drop_local(std::int64_t global) {
  kept_.locals.push_back({global, local_of(global)});
  freed_.push_back(local_of(global));
  departed_.try_emplace(global, local_of(global));  // what came and went since has no edges from before
  locals_[at(global)] = kNoVertex;
}

std::int64_t Halo::name_of(VertexId v) const {
  const auto found =
      std::find_if(taken_back_.begin(), taken_back_.end(), [&](const auto& each) { return each.first == v; });
  return found != taken_back_.end() ? found->second : v >= 0 && at(v) < globals_.size() ? global_of(v) : -1;
}

// ---- a batch

PartBatch Halo::take(const UpdateBuffer& batch, const GraphStore& store) {
  invariant(!open_, "a batch is at work already");
  kept_ = {};
  kept_.slots = globals_.size();
  kept_.next_edge_id = next_edge_id_;
  freed_.clear();
  departed_.clear();
  taken_back_.clear();
  for (auto* lists : {&first_out_, &first_in_}) {
    for (auto& list : *lists) list.clear();
  }
  open_ = true;
  has_begun_ = false;
  may_move_degrees_ = std::any_of(batch.updates().begin(), batch.updates().end(), may_move_degree);
  prefetch_places(batch.updates(), owners_, locals_);
  PartBatch out;
  out.buffer.reserve(batch.size());
  out.buffer.reserve_rows(batch.row_floats());
  out.places.reserve(batch.size());
  Plan plan;
  find_introductions(batch, store, plan);
  if (plan.joins_parts) read_introductions(store, swap(write_introductions(store, plan)), out);
  for (std::size_t place = 0; place < batch.size(); ++place) take_update(batch, place, plan, out);
  return out;
}

Parcels Halo::write_introductions(const GraphStore& store, Plan& plan) {
  Parcels parcels(at(parts_));
  for (int part = 0; part < parts_; ++part) {
    std::vector<VertexId>& list = plan.introductions[at(part)];
    std::sort(list.begin(), list.end(), [&](VertexId a, VertexId b) { return global_of(a) < global_of(b); });
    list.erase(std::unique(list.begin(), list.end()), list.end());
    counts.introductions += static_cast<std::int64_t>(list.size());
    WireWriter to(parcels[at(part)]);
    if (part != part_) to.number(list.size());
    std::vector<float> row(at(store.feature_stride()));
    for (const VertexId v : list) {
      to.id(global_of(v));
      to.number(static_cast<std::uint64_t>(store.vertex_type(v)));
      const int width = store.width_of_type(store.vertex_type(v));
      store.read_features(v, row.data(), width);
      to.floats(row.data(), width);
    }
  }
  return parcels;
}

void Halo::find_introductions(const UpdateBuffer& batch, const GraphStore& store, Plan& plan) const {
  plan.introductions.resize(at(parts_));
  const bool vertices_come = std::any_of(batch.updates().begin(), batch.updates().end(),
                                         [](const Update& each) { return each.kind == UpdateKind::AddVertex; });
  const auto look = [&](std::int64_t mine, std::int64_t other) {  // at an edge between them
    if (vertices_come) plan.needed.insert(other);
    const VertexId v = local_of(mine);
    if (v == kNoVertex || !store.is_live(v)) return;
    const int part = owner_of(other);
    if (((out_at(v) | in_at(v)) & bit_of(part)) == 0) plan.introductions[at(part)].push_back(v);
  };
  for (const Update& update : batch.updates()) {
    if (update.kind != UpdateKind::AddEdge) continue;
    const int a = owner_of(update.u), b = owner_of(update.v);
    if (a == b || a == kNoPart || b == kNoPart) continue;
    plan.joins_parts = true;
    if (a == part_) look(update.u, update.v);
    if (b == part_) look(update.v, update.u);
  }
}

void Halo::read_introductions(const GraphStore& store, const Parcels& parcels, PartBatch& out) {
  std::vector<float> row(at(store.feature_stride()));
  for (int part = 0; part < parts_; ++part) {
    if (part == part_) continue;
    WireReader from(parcels[at(part)]);
    for (std::size_t left = from.count(); left > 0; --left) {
      const std::int64_t global = from.id();
      const auto type = static_cast<std::int32_t>(from.number());
      invariant(owner_of(global) == part, "an introduction by another part than the owner");
      const int width = store.width_of_type(type);
      from.floats(row.data(), width);
      if (local_of(global) != kNoVertex)
        continue;  // a ghost whose edges went with its vertex, in the batch they came in
      Update added{.kind = UpdateKind::AddVertex, .type = store.is_typed() ? type : kUnsetType};
      added.u = make_local(global);
      if (width > 0) {
        added.row = out.buffer.add_row({row.data(), at(width)});
        added.row_width = width;
      }
      out.buffer.add(added);
      out.places.push_back(-1);
    }
  }
}

void Halo::take_update(const UpdateBuffer& batch, std::size_t place, const Plan& plan, PartBatch& out) {
  const Update& update = batch.updates()[place];
  if (is_of_edge(update.kind)) return take_edge(batch, place, out);
  Update kept = update;
  if (update.kind != UpdateKind::RemoveEdgesBefore) {
    const bool mine = owner_of(update.u) == part_;
    if (owner_of(update.u) == kNoPart) refuse_unknown(update, place, update.u, false);
    kept.u = local_of(update.u);
    if (update.kind == UpdateKind::AddVertex) {
      if (!mine && !plan.needed.contains(update.u)) return;
      if (kept.u == kNoVertex) kept.u = make_local(update.u);
    } else if (kept.u == kNoVertex) {
      if (mine) refuse_unknown(update, place, update.u, true);
      return;
    }
    if (update.kind == UpdateKind::RemoveVertex) drop_local(update.u);
  }
  copy_row(batch, update, kept, out.buffer);
  out.buffer.add(kept);
  out.places.push_back(static_cast<std::int64_t>(place));
}

void Halo::take_edge(const UpdateBuffer& batch, std::size_t place, PartBatch& out) {
  const Update& update = batch.updates()[place];
  Update kept = update;
  const bool adds = update.kind == UpdateKind::AddEdge;
  if (adds) {
    if (update.edge_id == kNoEdge) kept.edge_id = next_edge_id_;
    next_edge_id_ = std::max(next_edge_id_, kept.edge_id + 1);  // the store refuses one that is too small
  }
  bool mine = false, away = false;
  for (const std::int64_t end : {update.u, update.v}) {
    const std::uint16_t owner = owner_of(end);
    if (owner == kNoPart) refuse_unknown(update, place, end, false);
    if (owner == part_ && local_of(end) == kNoVertex) refuse_unknown(update, place, end, true);
    mine |= owner == part_;
    away |= local_of(end) == kNoVertex;
  }
  if (!mine) return;
  if (away && adds) refuse_unknown(update, place, local_of(update.u) == kNoVertex ? update.u : update.v, true);
  if (away) {  // no ghost, so no such edge: the store refuses or ignores it as it would one between its own vertices
    kept.u = kept.v = local_of(owner_of(update.u) == part_ ? update.u : update.v);
    kept.edge_id = INT64_MAX;  // no edge has it
  } else {
    kept.u = local_of(update.u);
    kept.v = local_of(update.v);
  }
  if (adds) {
    meet(static_cast<VertexId>(kept.u), static_cast<VertexId>(kept.v));
    if (undirected_) meet(static_cast<VertexId>(kept.v), static_cast<VertexId>(kept.u));
  }
  copy_row(batch, update, kept, out.buffer);
  out.buffer.add(kept);
  out.places.push_back(static_cast<std::int64_t>(place));
}

void Halo::commit() {
  for (const VertexId v : freed_) free_[is_ghost(v) ? 1 : 0].push_back(v);
  freed_.clear();
  kept_ = {};
  open_ = false;
}

void Halo::roll_back() {
  failed_ = false;
  if (!open_) return;
  open_ = false;
  for (auto it = kept_.locals.rbegin(); it != kept_.locals.rend(); ++it) locals_[at(it->first)] = it->second;
  for (auto it = kept_.bits.rbegin(); it != kept_.bits.rend(); ++it) {
    out_at_[at(it->first)] = it->second.first;
    in_at_[at(it->first)] = it->second.second;
  }
  for (std::size_t v = kept_.slots; v < globals_.size(); ++v)
    taken_back_.push_back({static_cast<VertexId>(v), globals_[v]});
  for (auto it = kept_.globals.rbegin(); it != kept_.globals.rend(); ++it) {
    const VertexId v = it->first;
    taken_back_.push_back({v, global_of(v)});
    free_[is_ghost(v) ? 1 : 0].push_back(v);  // in the order in which they were
    globals_[at(v)] = it->second;
    slot_owners_.set(at(v), owner_of(it->second));
  }
  globals_.resize(kept_.slots);
  slot_owners_.resize(kept_.slots);
  out_at_.resize(kept_.slots);
  in_at_.resize(kept_.slots);
  next_edge_id_ = kept_.next_edge_id;
  freed_.clear();
  for (auto* lists : {&first_out_, &first_in_}) {
    for (auto& list : *lists) list.clear();
  }
}

// ---- rounds

Parcels Halo::swap(Parcels parcels) {
  if (parts_ == 1) return Parcels(1);
  for (int part = 0; part < parts_; ++part) {
    std::string& parcel = parcels[at(part)];
    if (part == part_) {
      parcel.clear();
      continue;
    }
    parcel.push_back(kGoesOn);
    counts.bytes += static_cast<std::int64_t>(parcel.size());
  }
  ++counts.rounds;
  Parcels got;
  try {
    got = swap_(std::move(parcels));
  } catch (...) {
    failed_ = open_;  // the wire is broken: a round that says so would be, too
    throw;
  }
  invariant(static_cast<int>(got.size()) == parts_, "a parcel from each part");
  for (int part = 0; part < parts_; ++part) {
    if (part == part_) continue;
    invariant(!got[at(part)].empty(), "a parcel without its last byte");
    failed_ |= got[at(part)].back() == kFailed;
    got[at(part)].pop_back();
  }
  if (failed_) {
    throw Error(ErrorKind::PartRefused, {.where = "apply",
                                         .expected = "a batch that every part takes",
                                         .got = "one that another part refused",
                                         .advice = "see that part's error"});
  }
  return got;
}

void Halo::fail() {
  if (!open_ || failed_ || parts_ == 1) return;
  failed_ = true;
  Parcels parcels(at(parts_), std::string(1, kFailed));
  parcels[at(part_)].clear();
  ++counts.rounds;
  swap_(std::move(parcels));
}

void Halo::reduce_max(std::span<float> values) {
  Parcels parcels(at(parts_));
  for (int part = 0; part < parts_; ++part) {
    if (part != part_) WireWriter(parcels[at(part)]).bytes(values.data(), values.size_bytes());
  }
  const Parcels got = swap(std::move(parcels));
  std::vector<float> other(values.size());
  for (int part = 0; part < parts_; ++part) {
    if (part == part_) continue;
    WireReader(got[at(part)]).bytes(other.data(), values.size_bytes());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (other[i] > values[i] || std::isnan(other[i])) values[i] = other[i];  // NaN wins, everywhere
    }
  }
}

}  // namespace livegnn
