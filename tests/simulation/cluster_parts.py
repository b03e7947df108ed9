"""The parts of a cut graph on a simulated network, next to one engine of the whole graph that they must equal."""

from __future__ import annotations

import numpy as np

import livegnn as lg
from livegnn.distributed.cluster.batch import SlotBatch
from livegnn.distributed.cluster.cut import cut
from livegnn.distributed.cluster.part import NewOwners, PartEngine
from livegnn.distributed.partition import hashed, ldg, metis
from livegnn.inference import hetero as over_types
from livegnn.models.compile import compile_model
from livegnn.models.joining import GraphColumns, joined
from tests.simulation.lossy_wire import SimulatedNetwork

DIGESTS = 1 << 64
PARTITIONERS = ("hash", "ldg", "metis")
SCHEMES = ("random", *PARTITIONERS)


def owners_of(graph, parts, scheme, rng):
    """(V,) uint16: the part of each slot."""
    slots = np.arange(graph.slot_count)
    if scheme == "random":
        return rng.integers(0, parts, graph.slot_count).astype(np.uint16)
    found = {"hash": lambda: hashed(parts), "ldg": lambda: ldg(graph, parts), "metis": lambda: metis(graph, parts)}
    return found[scheme]().lookup(slots).astype(np.uint16)


class PartsOfOne:
    """An engine of a whole graph, and that graph's parts, which take the same batches.

    seed: of the network and of the owners of new vertices.
    """

    def __init__(self, model, graph, parts, seed, *, scheme="random", faults=None):
        self.rng = np.random.default_rng(seed)
        self.model, self.graph = model, graph
        self.engine = lg.Engine(model, graph, threads=1)
        self.owners = owners_of(graph, parts, scheme, self.rng)
        self.network = SimulatedNetwork(parts, seed, faults)
        fitted = joined(model, GraphColumns(graph.weight_column, graph.attr_width))
        program = compile_model(fitted.output, split=True, codes=over_types.codes_of(model, graph))
        arrays = cut(graph, self.owners, parts)
        self.parts = []
        near = np.random.default_rng([seed, parts]).random((parts, parts)) < 0.5  # no part has to know it of another
        self.parts = self.all(
            lambda rank: PartEngine(
                arrays[rank], program, self.network.swap(rank), near=np.flatnonzero(near[rank]).tolist()
            )
        )

    def each(self, work):
        """work(rank) as every part, at once; what each returns or raises."""
        return self.network.run([lambda rank=rank: work(rank) for rank in range(self.network.size)])

    def all(self, work):
        """The same, where none may raise."""
        found = self.each(work)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        return found

    # ---- batches

    def batch(self, updates):
        """A batch in slots, as parts take it."""
        return SlotBatch.of(self.graph.host.supposed(updates)[0])

    def new_owners(self, batch):
        """Parts, drawn, of the slots that the batch is the first to use."""
        end = len(self.owners) if batch.added is None else max(int(batch.added.max(initial=-1)) + 1, len(self.owners))
        return NewOwners(len(self.owners), self.rng.integers(0, self.network.size, end - len(self.owners), np.uint16))

    def offer(self, batch, owners, before_agreeing=None):
        """A batch to the parts alone; what each returns or raises. before_agreeing: by rank."""
        hooks = before_agreeing or {}
        return self.each(lambda rank: self.parts[rank].apply(batch, owners, before_agreeing=hooks.get(rank)))

    def refuse(self, updates, rank=0):
        """A batch that every part takes, and one refuses last: nothing changes anywhere."""

        def refuses():
            raise InterruptedError

        batch, state, before = self.batch(updates), self.rng.bit_generator.state, self.digests()
        found = self.offer(batch, self.new_owners(batch), {rank: refuses})
        self.rng.bit_generator.state = state  # the batch may come again
        assert all(isinstance(one, BaseException) for one in found), found
        assert self.digests() == before

    def apply(self, updates):
        """A batch to all, with the changed vertices compared. Returns: the engine's changes."""
        batch = self.batch(updates)
        owners = self.new_owners(batch)
        found = self.offer(batch, owners)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        self.owners = np.concatenate([self.owners, owners.owners])
        changes = self.engine.apply(updates)
        for one in found:
            assert np.all(np.diff(one.slots) > 0)
        got = [int(v) for one in found for v in one.slots]
        assert len(set(got)) == len(got), "two parts with one vertex"
        wanted = set(changes._native.vertices().tolist())  # slots, whatever the types
        again = set() if batch.added is None else set(batch.added.tolist())
        assert wanted <= set(got)
        assert set(got) - wanted <= again, "a vertex that did not change and was not added again"
        return changes

    # ---- what must hold

    def digests(self):
        """What the parts' digests add up to: (graph, state)."""
        shares = [part.digests() for part in self.parts]
        return tuple(sum(share[place] for share in shares) % DIGESTS for place in range(2))

    def check(self, note="", audits=False):
        """Fails unless the parts have the engine's bits; audits: unless a run from scratch has them, too."""
        whole = (self.graph.host.store.digest(), self.engine.native.digest())
        assert self.digests() == whole, note
        seen = []
        for part in self.parts:
            slots = part.slots()
            seen += slots.tolist()
            assert part.owns(slots).all()
            assert part.scales() == self.engine.scales, note
            rows = self.engine.native.read(slots)
            assert part.embeddings(slots).tobytes() == rows.tobytes(), note
        assert sorted(seen) == np.flatnonzero(self.graph.host.store.live()).tolist(), note
        if not audits:
            return
        assert self.all(lambda rank: self.parts[rank].verify()) == [None] * len(self.parts), note
        for slots, rows in self.all(lambda rank: self.parts[rank].recompute()):
            assert rows.tobytes() == self.engine.native.read(slots).tobytes(), note
