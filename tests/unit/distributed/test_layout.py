"""Layout: which worker holds what, and who is asked."""

import numpy as np
import pytest

from livegnn.distributed import Layout
from livegnn.errors import UsageError


def test_a_partition_a_worker():
    layout = Layout(hosts=2, workers_per_host=2)
    assert (layout.workers, layout.partitions) == (4, 4)
    slots = np.arange(6)
    assert layout.partition_of(slots).tolist() == [0, 1, 2, 3, 0, 1]
    assert layout.servers_of(slots, rank=3).tolist() == [0, 1, 2, 3, 0, 1]
    assert layout.is_held(slots, 1).tolist() == [False, True, False, False, False, True]


def test_a_partition_a_host_is_asked_of_the_same_local_rank():
    layout = Layout(hosts=3, workers_per_host=2, shared=True)
    assert (layout.workers, layout.partitions) == (6, 3)
    assert [layout.partition(rank) for rank in range(6)] == [0, 0, 1, 1, 2, 2]
    for rank in range(6):
        servers = layout.servers_of(np.arange(3), rank)
        assert (servers % 2 == rank % 2).all()
        assert [layout.partition(server) for server in servers] == [0, 1, 2]
        assert servers[layout.partition(rank)] == rank  # nobody is asked for what one has


def test_requests_to_shared_partitions_are_spread_evenly():
    layout = Layout(hosts=3, workers_per_host=4, shared=True)
    asked = np.concatenate([layout.servers_of(np.arange(300), rank) for rank in range(layout.workers)])
    assert set(np.bincount(asked)) == {300}


@pytest.mark.parametrize("wrong", [(0, 1), (1, 0), (2.0, 1)])
def test_refuses_no_workers(wrong):
    with pytest.raises(UsageError, match="at least one host"):
        Layout(*wrong)
