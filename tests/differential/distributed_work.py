"""What worker processes do in the differential tests of distributed training."""

import torch

from livegnn.distributed import Layout, Partition, RemoteSampler
from livegnn.errors import ValueInvalid


class OneStep(torch.optim.SGD):
    """An optimizer that fails in the worker, once the weights have moved."""

    steps = 0

    def step(self, *given):
        if self.steps:
            raise ValueInvalid("[here] expected no second step, got one; stop")
        self.steps += 1
        super().step(*given)


def sample_all(exchange, graph_arrays, targets, fanouts, options):
    """The hops that this worker's targets have, as tuples of arrays."""
    partition = Partition.from_arrays(graph_arrays[exchange.rank], Layout(1, exchange.size), exchange.rank)
    sampler = RemoteSampler(partition, exchange, fanouts, **options)
    hops = sampler.sample_slots(*targets)
    return [(hop.src, hop.edge_ids, hop.times, hop.edge_index, hop.next_targets, hop.next_times) for hop in hops]
