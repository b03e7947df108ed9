"""train(): a model, a graph and a sampler of one process, trained by several, and handed back."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from livegnn.distributed.exchange import Exchange, checked_group
from livegnn.distributed.graph_part import Partition
from livegnn.distributed.launch import launch
from livegnn.distributed.layout import Layout
from livegnn.distributed.report import DistributedReport
from livegnn.distributed.sampling import RemoteSampler
from livegnn.errors import UsageError
from livegnn.graph import Graph
from livegnn.optional import need
from livegnn.temporal.edge_types import EdgeTypes, edge_codes
from livegnn.temporal.events import Events
from livegnn.temporal.sampler import TemporalSampler

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
    timeout_s: float = 300.0,
    **options: Any,
) -> DistributedReport:
    """Trains a model on all events of a graph in `workers` processes of this machine.

    The model ends with the trained weights and, where it has a memory, with that of all events under them.

    Args:    sampler: of the graph; its arguments are taken over.  edge_types: edges of these types (names, triples or
             codes) are events; all unless given.  validation: share of the last events, tested on after each epoch and
             not trained on.  timeout_s: for which a worker waits for another.  options: of DistributedTrainer
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
    layout = Layout(hosts=1, workers_per_host=workers)
    with tempfile.TemporaryDirectory(prefix="livegnn-") as name:
        folder = Path(name)
        try:
            torch.save(model, folder / "model.pt")
        except (pickle.PicklingError, TypeError, AttributeError) as cause:
            raise UsageError(
                f"[train] expected a model that can be pickled for another process, got {type(model).__name__} "
                f"({cause}); define it in a module"
            ) from cause
        with graph.host.lock:
            np.savez(folder / "events.npz", *Events.of(graph, codes).columns())
            for rank in range(workers):
                arrays: dict[str, Any] = Partition.arrays(graph, layout, rank)
                np.savez(folder / f"part-{rank}.npz", **arrays)
        task = (folder, layout, sampler.options, options, validation)
        report: DistributedReport = launch(_work, workers, task, timeout_s=timeout_s)[0]
        trained = torch.load(folder / "trained.pt", weights_only=True)
    model.load_state_dict(trained["weights"])
    if model.memory is not None:
        model.memory.load_state(trained["memory"])
    return report


def _work(
    exchange: Exchange,
    folder: Path,
    layout: Layout,
    sampler_options: dict[str, Any],
    options: dict[str, Any],
    validation: float,
) -> DistributedReport:
    """In every worker; the model and the parts of the graph are in the folder."""
    import torch

    from livegnn.distributed.trainer import DistributedTrainer

    with np.load(folder / f"part-{exchange.rank}.npz") as arrays:
        partition = Partition.from_arrays(dict(arrays), layout, exchange.rank)
    with np.load(folder / "events.npz") as arrays:
        events = Events(*arrays.values())
    model = torch.load(folder / "model.pt", weights_only=False)
    sampler = RemoteSampler(partition, exchange, **sampler_options)
    trainer = DistributedTrainer(model, partition, sampler, exchange, **options)
    report = trainer.fit(events, validation=validation)
    memory = None if trainer.memory is None else trainer.memory.state()
    if exchange.rank == 0:
        torch.save({"weights": model.state_dict(), "memory": memory}, folder / "trained.pt")
    return report
