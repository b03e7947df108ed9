"""train(): a model, a graph and a sampler of one process, trained by several, and handed back."""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any

from livegnn.distributed.exchange import Exchange, checked_group
from livegnn.distributed.graph_part import Partition
from livegnn.distributed.layout import Layout
from livegnn.distributed.partition import Newcomers, VertexParts
from livegnn.distributed.partition.by_name import Partitioner, parts_for
from livegnn.distributed.ray_group import FOR_TRAINING, run_group
from livegnn.distributed.report import DistributedReport
from livegnn.distributed.sampling import RemoteSampler
from livegnn.errors import UsageError
from livegnn.graph import Graph
from livegnn.optional import need
from livegnn.temporal.edge_types import EdgeTypes, edge_codes
from livegnn.temporal.events import Events
from livegnn.temporal.sampler import TemporalSampler
from livegnn.types import Int64Array

if TYPE_CHECKING:
    from livegnn.temporal.models.interface import TemporalModel


def train(
    model: TemporalModel,
    graph: Graph,
    sampler: TemporalSampler,
    *,
    workers: int = 2,
    edge_types: EdgeTypes | None = None,
    validation: float = 0.0,
    address: str | None = None,
    backend: str = "gloo",
    partition: Partitioner | VertexParts = "hash",
    timeout_s: float = 300.0,
    **options: Any,
) -> DistributedReport:
    """Trains a model on all events of a graph in `workers` processes, which Ray starts.

    The model ends with the trained weights and, where it has a memory, with that of all events under them.

    Args:    sampler: of the graph; its arguments are taken over.  edge_types: edges of these types (names, triples or
             codes) are events; all unless given.  validation: share of the last events, tested on after each epoch and
             not trained on.  address: of a Ray cluster; this machine unless given, or where the process is connected
             already.  backend: "gloo", or "nccl" with a GPU for each worker.  partition: which worker owns which
             vertex: "hash", "metis" (pymetis), "ldg", "fennel", or VertexParts.
             timeout_s: for which a worker waits for another.  options: of DistributedTrainer
             (edge_columns, batch_size, epochs, learning_rate, optimizer, device, seed); optimizer= is pickled: a class
             or a function of a module.
    Raises:  before a worker is started ValueInvalid, UsageError for numbers, options, another graph's sampler and a
             graph without edges, WidthMismatch for a sampler or features that are not the model's, ModelUnsupported for
             its memory, ColumnMissing for a graph without times; WorkerUnavailable where a worker failed, with its
             error (EdgeOffloaded where a sample may need edges that lie in files). Then the model is as before.

    >>> from livegnn.distributed import train                                        # doctest: +SKIP
    >>> train(TGN(), graph, lg.TemporalSampler(graph, [10]), workers=2).sampling_cv  # doctest: +SKIP
    0.01
    """
    torch = need("torch", "distributed")
    from livegnn.distributed.trainer import check_training

    timeout_s = checked_group("train", workers, timeout_s)
    check_training(model, graph, sampler, options, validation)
    codes = edge_codes("train", graph, edge_types)
    packed = packed_model("train", model)
    layout = Layout(hosts=1, workers_per_host=workers)
    cut = parts_for("train", graph, workers, partition)  # batches go on meanwhile; later vertices go by their buckets
    with graph.host.lock:
        owners = Newcomers.of(graph, cut, rule="hash")
        events = Events.of(graph, codes).columns()
        parts = [(Partition.arrays(graph, layout, rank, owners),) for rank in range(workers)]
    loads = (*FOR_TRAINING, "sklearn.metrics") if validation else FOR_TRAINING
    task = (packed, events, layout, sampler.options, options, validation)
    found = run_group("train", _work, workers, task, parts, address, backend, timeout_s, loads=loads)
    report: DistributedReport = found[0][0]
    trained = torch.load(io.BytesIO(found[0][1]), map_location="cpu", weights_only=True)
    model.load_state_dict(trained["weights"])
    if model.memory is not None:
        model.memory.load_state(trained["memory"])
    return report


def packed_model(where: str, model: TemporalModel) -> bytes:
    """A model for other processes, which unpacked_model() reads. Raises: UsageError where it cannot be pickled."""
    torch, file = need("torch", "distributed"), io.BytesIO()
    try:
        torch.save(model, file)
    except (pickle.PicklingError, TypeError, AttributeError) as cause:
        raise UsageError(
            f"[{where}] expected a model that can be pickled for another process, got {type(model).__name__} "
            f"({cause}); define it in a module"
        ) from cause
    return file.getvalue()


def unpacked_model(packed: bytes) -> TemporalModel:
    """What packed_model() packed, on the CPU: this process may see other devices."""
    torch = need("torch", "distributed")
    model: TemporalModel = torch.load(io.BytesIO(packed), map_location="cpu", weights_only=False)
    return model


def _work(
    exchange: Exchange,
    part: dict[str, Any],
    packed: bytes,
    columns: tuple[Int64Array, ...],
    layout: Layout,
    sampler_options: dict[str, Any],
    options: dict[str, Any],
    validation: float,
) -> tuple[DistributedReport, bytes]:
    """In every worker: the report and, of worker 0, weights and memory."""
    import torch

    from livegnn.distributed.trainer import DistributedTrainer

    partition = Partition.from_arrays(part, layout, exchange.rank)
    model, sampler = unpacked_model(packed), RemoteSampler(partition, exchange, **sampler_options)
    trainer = DistributedTrainer(model, partition, sampler, exchange, **options)
    report = trainer.fit(Events(*columns), validation=validation)
    memory, file = None if trainer.memory is None else trainer.memory.state(), io.BytesIO()
    if exchange.rank == 0:
        torch.save({"weights": model.state_dict(), "memory": memory}, file)
    return report, file.getvalue()
