"""What goes between drivers and workers to start again from: snapshots, and what detached workers keep for a driver
that may follow.

With each snapshot every worker is given the state of the driver (driver_state.py), and with each batch since the batch
itself. So any worker that is there can say all that the driver knew.
"""

from __future__ import annotations

import pickle
from typing import NamedTuple, TypeAlias

from livegnn.distributed.cluster.batch import SlotBatch
from livegnn.distributed.cluster.part import NewOwners
from livegnn.graph.consumers import Recorded, Switch
from livegnn.graph.updates import Updates
from livegnn.types import AnyArray

Rounds: TypeAlias = list[list[bytes]]


class PartSnapshot(NamedTuple):
    """All that a worker starts again from.

    arrays: of PartArrays, and "work" of PartWorker.  parcels: what it sends while another one starts from the same
    version.
    """

    version: int
    arrays: dict[str, AnyArray]
    memory: dict[str, AnyArray]
    scales: list[list[int]]
    parcels: Rounds


class GivenBatch(NamedTuple):
    """A batch as the driver gave it. record: what a log would write, pickled, since slots alone lack new ids; None
    where no other driver may follow.
    """

    version: int
    by_slot: SlotBatch
    owners: NewOwners
    record: bytes | None = None

    def updates(self) -> Updates:
        """The batch by ids."""
        assert self.record is not None
        updates: Updates = pickle.loads(self.record)
        return updates


class DriverNotes(NamedTuple):
    """The state of the driver at one version, and the batches since that a worker has applied."""

    version: int
    state: bytes
    batches: list[GivenBatch]


def record_of(recorded: Recorded) -> bytes:
    """For GivenBatch. A switch of an engine elsewhere is a version without updates."""
    return pickle.dumps(Updates() if isinstance(recorded, Switch) else recorded, pickle.HIGHEST_PROTOCOL)
