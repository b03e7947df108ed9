// One part of a graph that is cut over several engines. A round calls back into Python, which sends the parcels.
#include "livegnn/halo.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "data.h"
#include "gil.h"
#include "graph_arrays.h"
#include "livegnn/engine.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace livegnn {
namespace {

using namespace graph_arrays;

using Sent = nb::typed<nb::list, nb::bytes>;
using Sending = nb::typed<nb::callable, Sent(Sent)>;

// swap(parcels): bytes to each part, into bytes from each. Python's function lives as long as the Halo.
Swap swap_through(Sending given) {
  auto held = std::shared_ptr<Sending>(new Sending(std::move(given)), [](Sending* p) {
    nb::gil_scoped_acquire acquire;
    delete p;
  });
  return [held](Parcels parcels) {
    nb::gil_scoped_acquire acquire;
    nb::list out;
    for (const std::string& parcel : parcels) out.append(nb::bytes(parcel.data(), parcel.size()));
    const nb::list got = nb::cast<nb::list>((*held)(out));
    Parcels in;
    for (nb::handle each : got) {
      const nb::bytes parcel = nb::cast<nb::bytes>(each);
      in.emplace_back(parcel.c_str(), parcel.size());
    }
    return in;
  };
}

DigestShare share_of(const Halo& halo) {
  return {halo.part() == 0, [&halo](VertexId v) { return halo.global_of(v); },
          [&halo](VertexId v) { return !halo.is_ghost(v); },
          [&halo](VertexId u, VertexId v) { return halo.counts_edge(u, v); }};
}

// ---- what a batch did in a part, as one block of bytes: the number of global slots, these, seconds, then stages

// visit(field) for the numbers of a stage.
template <typename Stage, typename Visit>
void each_number(Stage& stage, Visit&& visit) {
  auto& extremes = stage.extremes;
  const auto all = [&](auto&... fields) { (visit(fields), ...); };
  all(stage.affected, stage.edges, stage.scanned, stage.reread, stage.transform_seconds, stage.aggregate_seconds,
      extremes.no_deletion, extremes.no_effect, extremes.covered, extremes.exposed, extremes.resilient,
      extremes.reread_bytes);
}

// The changes of a part's own vertices.
nb::bytes own_changes(const Halo& halo, const Changes& changes) {
  const std::vector<VertexId> slots = halo.own(changes.vertices);
  std::string costs;
  const auto put = [&](const auto& value) { costs.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  for (const double seconds : {changes.topology_seconds, changes.publish_seconds, changes.total_seconds}) put(seconds);
  for (const StageStats& stage : changes.stages) {
    put(static_cast<std::uint8_t>(stage.path));
    put(static_cast<std::uint8_t>(stage.extremes.present));
    each_number(stage, put);
  }
  const std::uint64_t count = slots.size();
  const std::size_t slot_bytes = slots.size() * sizeof(VertexId);
  auto [block, to] = new_bytes(sizeof(count) + slot_bytes + costs.size());
  std::memcpy(to, &count, sizeof(count));
  std::copy_n(reinterpret_cast<const char*>(slots.data()), slot_bytes, to + sizeof(count));
  std::copy(costs.begin(), costs.end(), to + sizeof(count) + slot_bytes);
  return block;
}

// Such changes, whose vertices are the global slots.
Changes changes_of_block(In1<std::uint8_t> block) {
  std::span<const std::uint8_t> left(block.data(), block.size());
  const auto get = [&](auto& value) {
    invariant(left.size() >= sizeof(value), "changes of a part that are cut short");
    std::memcpy(&value, left.data(), sizeof(value));
    left = left.subspan(sizeof(value));
  };
  Changes changes;
  std::uint64_t slots = 0;
  get(slots);
  invariant(slots <= left.size() / sizeof(VertexId), "changes of a part that are cut short");
  changes.vertices.resize(slots);
  std::copy_n(left.data(), slots * sizeof(VertexId), reinterpret_cast<std::uint8_t*>(changes.vertices.data()));
  left = left.subspan(slots * sizeof(VertexId));
  for (double* seconds : {&changes.topology_seconds, &changes.publish_seconds, &changes.total_seconds}) get(*seconds);
  while (!left.empty()) {
    StageStats& stage = changes.stages.emplace_back();
    std::uint8_t path = 0, has_extremes = 0;
    get(path);
    get(has_extremes);
    invariant(path <= static_cast<std::uint8_t>(Path::Sweep), "changes of a part by a path that there is not");
    stage.path = static_cast<Path>(path);
    stage.extremes.present = has_extremes != 0;
    each_number(stage, get);
  }
  return changes;
}

std::tuple<UpdateBuffer, Out1<std::int64_t>> take(Halo& halo, const UpdateBuffer& batch, const GraphStore& store) {
  PartBatch taken;
  {
    GilRelease release;
    taken = halo.take(batch, store);
  }
  return {std::move(taken.buffer), make_array(std::move(taken.places))};
}

Columns remember(const Engine& engine, const Halo& halo) {
  HaloMemory memory;
  halo.remember(memory);
  engine.remember(memory);
  Columns out;
  out["slot_owners"] = make_array(std::move(memory.slot_owners));
  out["out_at"] = make_array(std::move(memory.out_at));
  out["in_at"] = make_array(std::move(memory.in_at));
  out["free_own"] = make_array(std::move(memory.free_own));
  out["free_ghosts"] = make_array(std::move(memory.free_ghosts));
  for (std::size_t k = 0; k < memory.stale.size(); ++k)
    out[("stale." + std::to_string(k)).c_str()] = make_array(std::move(memory.stale[k]));
  return out;
}

HaloMemory memory_of(const Columns& arrays) {
  const auto column = [&]<typename T>(const char* name, std::vector<T>& into) {
    const auto array = stored<In1<T>>(arrays, name);
    into.assign(array.data(), array.data() + array.size());
  };
  HaloMemory memory;
  column("slot_owners", memory.slot_owners);
  column("out_at", memory.out_at);
  column("in_at", memory.in_at);
  column("free_own", memory.free_own);
  column("free_ghosts", memory.free_ghosts);
  for (std::size_t k = 0; arrays.contains(("stale." + std::to_string(k)).c_str()); ++k)
    column(("stale." + std::to_string(k)).c_str(), memory.stale.emplace_back());
  return memory;
}

nb::typed<nb::list, nb::typed<nb::list, nb::bytes>> parcels_of_start(const Engine& engine) {
  nb::typed<nb::list, nb::typed<nb::list, nb::bytes>> rounds;
  for (const Parcels& parcels : engine.parcels_of_start()) {
    nb::list round;
    for (const std::string& parcel : parcels) round.append(nb::bytes(parcel.data(), parcel.size()));
    rounds.append(round);
  }
  return rounds;
}

// How global slots and the part's own are turned into each other, and whose they are.
void bind_names(nb::class_<Halo>& halo) {
  halo.def(
          "locals",
          [](const Halo& h, Ids globals) {
            return make_array(column_of<std::int64_t>(std::span(globals.data(), globals.size()),
                                                      [&](std::int64_t slot) { return h.local_of(slot); }));
          },
          array("slots"))
      .def("globals",
           [](const Halo& h) { return make_array(std::vector<std::int64_t>(h.globals().begin(), h.globals().end())); })
      .def("ghosts",
           [](const Halo& h) {
             std::vector<std::uint8_t> flags;
             for (std::size_t v = 0; v < h.globals().size(); ++v)
               flags.push_back(h.is_ghost(static_cast<VertexId>(v)) ? 1 : 0);
             return make_array(std::move(flags));
           })
      .def("name_of", &Halo::name_of, "slot"_a)
      .def(
          "own",
          [](const Halo& h, Ids slots) {
            const std::vector<VertexId> vertices(slots.data(), slots.data() + slots.size());
            return id_array(h.own(vertices));
          },
          "Global slots, ascending, of those of these slots that are this part's own.", array("slots"))
      .def(
          "own_names",
          [](const Halo& h, Ids slots) {
            return make_array(column_of<std::int64_t>(std::span(slots.data(), slots.size()), [&](std::int64_t slot) {
              return h.is_ghost(slot) ? -1 : h.global_of(slot);
            }));
          },
          "Global slots of these slots, in their order; -1 of ghosts.", array("slots"))
      .def_prop_ro("next_edge_id", &Halo::next_edge_id)
      .def("owners", [](const Halo& h) {
        std::vector<std::uint16_t> owners;
        for (std::int64_t slot = 0; slot < h.global_count(); ++slot) owners.push_back(h.owner_of(slot));
        return make_array(std::move(owners));
      });
}

}  // namespace

void bind_part(nb::module_& m, nb::class_<Engine>& engine) {
  engine.def("remember", &remember, "halo"_a)
      .def("recall", [](Engine& e, const Columns& arrays) { e.recall(memory_of(arrays)); }, "arrays"_a);
  m.def("own_changes", &own_changes, "halo"_a, "changes"_a,
        "What a batch did to this part's own vertices, and its cost: global slots, ascending, uint32, after their "
        "number.");
  m.def("changes_of_block", &changes_of_block, array("block"));
  m.def("parcels_of_start", &parcels_of_start, "engine"_a);  // not in the class, where bytes is a method
}

void bind_halo(nb::module_& m) {
  nb::class_<Halo> halo(m, "Halo", "One part of a graph that is cut over several engines.");
  halo.def(
          "__init__",
          [](Halo* made, int parts, int part, Sending swap) {
            new (made) Halo(parts, part, swap_through(std::move(swap)));
          },
          "parts"_a, "part"_a, "swap"_a)
      .def(
          "set_owners",
          [](Halo& h, std::int64_t first, In1<std::uint16_t> owners) {
            h.set_owners(first, {owners.data(), owners.size()});
          },
          "first"_a, array("owners"))
      .def(
          "load",
          [](Halo& h, Ids globals, std::int64_t next_edge_id, const GraphStore& store) {
            h.load({globals.data(), globals.size()}, next_edge_id, store);
          },
          array("globals"), "next_edge_id"_a, "store"_a)
      .def("take", &take, "batch"_a, "store"_a)
      .def(
          "recall", [](Halo& h, const Columns& arrays) { h.recall(memory_of(arrays)); }, "arrays"_a)
      .def("commit", &Halo::commit)
      .def("roll_back", &Halo::roll_back)
      .def("fail", &Halo::fail, nb::call_guard<GilRelease>())
      .def_rw("near", &Halo::near)
      .def_prop_ro("failed", &Halo::failed)
      .def_prop_ro("has_begun", &Halo::has_begun)
      .def(
          "agree",
          [](Halo& h) {
            GilRelease release;
            h.swap(Parcels(static_cast<std::size_t>(h.parts())));
          },
          "A round that says nothing but that this part goes on.")
      .def(
          "graph_digest",
          [](const Halo& h, const GraphStore& store) {
            GilRelease release;
            const DigestShare share = share_of(h);
            return store.digest_of(&share);
          },
          "store"_a)
      .def(
          "edge_count",
          [](const Halo& h, const GraphStore& store) {
            GilRelease release;
            std::int64_t count = 0;
            store.visit_edges([&](const EdgeRecord& edge) { count += h.counts_edge(edge.src, edge.dst) ? 1 : 0; });
            return count;
          },
          "This part's share of the whole graph's edges: each is in the share of one part.", "store"_a)
      .def("counts", [](const Halo& h) {
        using W = WireCounts;
        return counts_of<&W::rounds, &W::bytes, &W::introductions, &W::factors, &W::source_rows, &W::sum_rows>(
            h.counts);
      });
  bind_names(halo);
}

}  // namespace livegnn
