"""Layout: which worker holds what, and who is asked."""

import numpy as np
import pytest

from livegnn.distributed import Layout
from livegnn.errors import UsageError


def test_a_partition_a_worker():
    layout = Layout(hosts=2, workers_per_host=2)
    assert (layout.workers, layout.partitions) == (4, 4)
    assert [layout.partition(rank) for rank in range(4)] == [0, 1, 2, 3]
    assert layout.servers(rank=3).tolist() == [0, 1, 2, 3]
    assert layout.keepers(np.arange(4), np.array([2, 0, 3, 2], np.uint16)).tolist() == [2, 0, 3, 2]


def test_a_partition_a_host_is_asked_of_the_same_local_rank():
    layout = Layout(hosts=3, workers_per_host=2, shared=True)
    assert (layout.workers, layout.partitions) == (6, 3)
    assert [layout.partition(rank) for rank in range(6)] == [0, 0, 1, 1, 2, 2]
    for rank in range(6):
        servers = layout.servers(rank)
        assert (servers % 2 == rank % 2).all()
        assert [layout.partition(server) for server in servers] == [0, 1, 2]
        assert servers[layout.partition(rank)] == rank  # no worker is asked for what one has


def test_requests_to_shared_partitions_and_memory_are_spread_evenly():
    layout = Layout(hosts=3, workers_per_host=4, shared=True)
    assert set(np.bincount(np.concatenate([layout.servers(rank) for rank in range(layout.workers)]))) == {3}
    slots, parts = np.arange(300), np.repeat([0, 1, 2], 100)
    keepers = layout.keepers(slots, parts)
    assert set(np.bincount(keepers)) == {25}
    assert [layout.partition(keeper) for keeper in keepers] == parts.tolist()


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0), (2.0, 1)])
def test_refuses_no_workers(wrong):
    with pytest.raises(UsageError, match="at least one host"):
        Layout(*wrong)
