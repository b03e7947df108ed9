"""What worker processes do in the differential tests of distributed training."""

from livegnn.distributed import Layout, Partition, RemoteSampler


def sample_all(exchange, graph_arrays, targets, fanouts, options):
    """The hops that this worker's targets have, as tuples of arrays."""
    partition = Partition.from_arrays(graph_arrays[exchange.rank], Layout(1, exchange.size), exchange.rank)
    sampler = RemoteSampler(partition, exchange, fanouts, **options)
    hops = sampler.sample_slots(*targets)
    return [(hop.src, hop.edge_ids, hop.times, hop.edge_index, hop.next_targets, hop.next_times) for hop in hops]
