"""LoadFollower: looks at a cluster's load from time to time, and has its sizes follow."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

import numpy as np

from livegnn import _native
from livegnn._native import EdgePolicy
from livegnn.distributed.sampling_host.worker_host import HostStatus
from livegnn.sampling.cluster.coordinator import Coordinator, Who
from livegnn.sampling.cluster.front_end import FrontEnd
from livegnn.sampling.cluster.sizes import Sizer, SizeRules
from livegnn.types import Int64Array


class LoadFollower:
    """Counts records by bucket, reads what front end and hosts have counted, and asks a Sizer."""

    def __init__(self, rules: SizeRules, front_end: FrontEnd) -> None:
        self._sizer, self._front_end = Sizer(rules), front_end
        self._policy = front_end.spec.policy
        self._records: Int64Array = np.zeros(_native.BUCKETS, np.int64)
        self._counting = threading.Lock()  # batches come from writers, looks from the coordinator's thread
        self._busy: dict[Who, float] = {}
        self._looked = time.monotonic()
        self.changes = 0  # of maps

    def count(self, batch: _native.UpdateBuffer) -> None:
        """Adds the records of a batch, in slots."""
        ends = batch.ids()
        kept = {EdgePolicy.BySource: ends[:1], EdgePolicy.ByDestination: ends[1:]}.get(self._policy, ends)
        for slots in kept:
            buckets = _native.buckets(slots)
            with self._counting:
                self._records += np.bincount(buckets[buckets >= 0], minlength=_native.BUCKETS)

    def look(self, coordinator: Coordinator, status: Mapping[Who, HostStatus]) -> None:
        """Changes a map if it is time and load asks for it; not while buckets move."""
        now = time.monotonic()
        seconds = now - self._looked
        if seconds < self._sizer.rules.look_seconds or coordinator.is_moving or coordinator.is_moving_seeds:
            return
        with self._counting:
            records, self._records = self._records, np.zeros(_native.BUCKETS, np.int64)
        self._looked = now
        asked = self._front_end.take_demand()
        waiting = {worker: spent / seconds for worker, spent in asked.seconds.items()}
        busy = {}
        for who, each in status.items():
            busy[who], self._busy[who] = each.busy_seconds - self._busy.get(who, 0.0), each.busy_seconds
        shares = {who[1]: max(0.0, spent) / seconds for who, spent in busy.items() if who[0] == "sampling"}
        serving = self._sizer.serving(coordinator.serving, asked.seeds, waiting)
        owners = self._sizer.sampling(coordinator.owners, records, shares)
        if serving is not None:
            self.changes += 1
            coordinator.serve(serving)
        if owners is not None:
            self.changes += 1
            coordinator.move(owners)
