"""The row of distributed training: two workers take the world's stream batch by batch and train on what comes. Their
parts are the whole graph; their losses and memories are those of one process on the graph in its plainest form.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import livegnn as lg
from livegnn.distributed import DistributedTrainer, Layout, Newcomers, Partition, RemoteSampler, hashed, run_threads
from livegnn.distributed.exchange import Exchange
from livegnn.log import UpdateLog, open_log
from livegnn.temporal.events import Arrived, EventFeed, Events
from livegnn.temporal.link import LinkPass
from livegnn.temporal.loading import InputLoader
from livegnn.temporal.models import TGN
from tests.composition.temporal import WINDOW, Plain, models, options_of, sampler_of, world_of
from tests.composition.world import Setting, World

BATCHES = 8
WORKERS = 2
LAYOUT = Layout(1, WORKERS)


class Round(NamedTuple):
    """A batch in the world's form, the events that it brought, and a negative for each."""

    batch: lg.Updates
    events: Events
    negatives: np.ndarray


class Trained(NamedTuple):
    """What a worker has after all rounds."""

    part: Partition
    losses: list[float]
    memory: dict[str, torch.Tensor]
    weights: dict[str, torch.Tensor]


def training_row(setting: Setting, folder: Path, seed: int) -> None:
    world = world_of(setting, seed)
    graph, plain = world.graph(), Plain(world)
    if setting.away:
        world.send_away(graph, folder)
    owners = Newcomers.of(graph, hashed(WORKERS), rule="ldg")
    parts = [Partition.arrays(graph, LAYOUT, rank, owners) for rank in range(WORKERS)]
    model, flat = models(world)
    rounds, losses = told_to_one(world, graph, plain, flat)
    frozen = run_threads(lambda exchange: trained(exchange, world, parts, rounds, model, 0.0), WORKERS)
    for worker in frozen:  # weights stay, so that rounding does not grow
        np.testing.assert_allclose(worker.losses, losses, rtol=1e-4)
        close(worker.memory, flat.memory.state())
    check_parts(graph, [worker.part for worker in frozen])
    places = [f"sqlite:{folder}/part-{rank}.db" if setting.logged else "" for rank in range(WORKERS)]
    learnt = run_threads(lambda exchange: trained(exchange, world, parts, rounds, model, 1e-2, places), WORKERS)
    again = run_threads(lambda exchange: trained(exchange, world, parts, logged(rounds, places), model, 1e-2), WORKERS)
    for worker, other in zip(learnt, again, strict=True):
        same(worker.weights, learnt[0].weights)
        same(worker.weights, other.weights)
        same(worker.memory, other.memory)
    assert learnt[0].losses != frozen[0].losses  # something was learnt


def told_to_one(world: World, graph: lg.Graph, plain: Plain, flat: TGN) -> tuple[list[Round], list[float]]:
    """The stream, and the losses of one process that trains on it in plain form; the whole graph follows it, too."""
    codes = [0] if world.setting.typed else []
    theirs, mine = EventFeed(graph, codes), EventFeed(plain.graph, codes)
    link = LinkPass(flat, InputLoader(plain.graph, sampler_of(world, plain.graph)), batch_size=10)
    optimizer = torch.optim.Adam(flat.parameters(), lr=0.0)
    flat.memory.reset(plain.graph.slot_count)
    rounds, losses = [], []
    for _ in range(BATCHES):
        given, plainly = plain.batch()
        graph.apply(given)
        plain.graph.apply(plainly)
        came, arrived = theirs.take(), mine.take()
        assert_equal(came, arrived)
        flat.memory.grow(plain.graph.slot_count)
        flat.memory.forget(torch.from_numpy(arrived.vertices))
        name = world.triples[0][2]
        candidates = [plain.slots[name, vertex] for vertex in world.rows[name]]
        negatives = world.rng.choice(candidates, len(came.events)).astype(np.int64)
        rounds.append(Round(given, came.events, negatives))
        losses.append(link.train(arrived.events, negatives, optimizer))
    return rounds, losses


def assert_equal(came: Arrived, arrived: Arrived) -> None:
    """Both forms give vertices the same slots and edges the same ids, times and types."""
    for got, expected in zip(came.events.columns(), arrived.events.columns(), strict=True):
        np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(came.vertices, arrived.vertices)


def trained(
    exchange: Exchange,
    world: World,
    parts: list[dict[str, Any]],
    rounds: list[Round],
    model: TGN,
    rate: float,
    places: list[str] | None = None,
) -> Trained:
    """One worker's life. places: of the logs of parts, "" for none."""
    part = Partition.from_arrays(parts[exchange.rank], LAYOUT, exchange.rank)
    sampler = RemoteSampler(part, exchange, [3], window=WINDOW)
    mine, _ = models(world)
    mine.load_state_dict(model.state_dict())
    columns = options_of(world)["edge_columns"]
    options = {"edge_columns": columns, "batch_size": 10, "learning_rate": rate}
    trainer = DistributedTrainer(mine, part, sampler, exchange, **options)
    place = places[exchange.rank] if places else ""
    log = UpdateLog(open_log(place)) if place else None
    if log is not None:
        log.attach(part.graph)
    losses = []
    for batch, events, negatives in rounds:
        part.apply(batch, exchange)
        losses.append(trainer.train_once(events, negatives))
    if log is not None:
        log.close()
    assert trainer.memory is not None
    return Trained(part, losses, trainer.memory.state(), mine.state_dict())


def logged(rounds: list[Round], places: list[str]) -> list[Round]:
    """The same rounds with the batches that each of the logs holds, where there are some."""
    if not places[0]:
        return rounds
    found = []
    for place in places:
        with UpdateLog(open_log(place)) as log:
            found.append([entry.updates for entry in log.read()])
    assert len({len(batches) for batches in found}) == 1
    return [each._replace(batch=batch) for each, batch in zip(rounds, found[-1], strict=True)]


def check_parts(graph: lg.Graph, parts: list[Partition]) -> None:
    """Edges, features, ids and types of the parts are those of the whole graph."""
    whole = graph.host.store.edges()
    for part in parts:
        held = part.is_held(whole["dst"].astype(np.int64))
        local = part.graph.host.store.edges()
        for name, column in whole.items():
            np.testing.assert_array_equal(local[name], column[held], err_msg=name)
        live = np.flatnonzero(graph.host.store.live())
        np.testing.assert_array_equal(np.flatnonzero(part.graph.host.store.live()), live)
        np.testing.assert_array_equal(part.graph.to_external(live), graph.to_external(live))
        mine = live[part.is_held(live)]
        np.testing.assert_array_equal(part.feature_rows(mine), graph.host.store.features(mine))
        assert (part.graph.version, part.feature_widths) == (graph.version, dict(graph.feature_widths))


def close(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(got[name][: len(value)], value, rtol=1e-4, atol=1e-5, msg=name)


def same(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, value in expected.items():
        assert torch.equal(got[name], value), name


ROWS = {"Distributed training": training_row}
