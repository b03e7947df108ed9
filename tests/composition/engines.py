"""The engine's rows: after every batch the outputs are PyG's on the mirror, and the state is one from scratch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg

import livegnn as lg
from livegnn.log import UpdateLog, open_log, replay
from tests.composition.world import ATTRIBUTES, PLAIN, TRIPLES, WIDTHS, Setting, World

OUT = 3
BATCHES = 5
MODES: dict[str, dict[str, Any]] = {
    "Engine, eager": {},
    "Engine, on demand": {"mode": "on_demand"},
    "Engine, hybrid": {"mode": "hybrid", "hot": 4},
    "Engine, compact": {"state": "compact"},
    "Engine, memory limit": {"memory_limit": "8MiB"},
}


class Plain(torch.nn.Module):
    """Two layers; with columns the first one reads attributes and the second one weights."""

    def __init__(self, columns: bool) -> None:
        super().__init__()
        first = torch.nn.Linear(WIDTHS[PLAIN], 6)
        self.first = pyg.GINEConv(first, edge_dim=ATTRIBUTES) if columns else pyg.SAGEConv(WIDTHS[PLAIN], 6)
        self.second = pyg.GraphConv(6, OUT)


class Columns(Plain):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_attr: Any) -> Any:
        return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_weight)


class NoColumns(Plain):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(self.first(x, edge_index).relu(), edge_index)


class Typed(torch.nn.Module):
    def __init__(self, columns: bool) -> None:
        super().__init__()
        widths = {t: (WIDTHS[t[0]], WIDTHS[t[2]]) for t in TRIPLES[True]}
        self.first = pyg.HeteroConv(
            {
                t: pyg.GATConv(w, 6, edge_dim=ATTRIBUTES, add_self_loops=False) if columns else pyg.SAGEConv(w, 6)
                for t, w in widths.items()
            }
        )
        self.second = pyg.HeteroConv({t: pyg.GraphConv((6, 6), OUT) for t in widths})


class TypedColumns(Typed):
    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any, edge_attr_dict: Any) -> Any:
        h = self.first(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)
        h = {name: rows.relu() for name, rows in h.items()}
        return self.second(h, edge_index_dict, edge_weight_dict=edge_weight_dict)


class TypedNoColumns(Typed):
    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        h = {name: rows.relu() for name, rows in self.first(x_dict, edge_index_dict).items()}
        return self.second(h, edge_index_dict)


def module(setting: Setting, seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    plain, typed = (Columns, TypedColumns) if setting.columns else (NoColumns, TypedNoColumns)
    return (typed if setting.typed else plain)(setting.columns).eval()


def expected(world: World, of: torch.nn.Module) -> dict[str, np.ndarray]:
    """PyG's rows in float64, in the order of the mirror's vertices."""
    columns = ("x", "edge_index", "edge_weight", "edge_attr")[: 4 if world.setting.columns else 2]
    tensors = {name: {key: torch.from_numpy(value) for key, value in by.items()} for name, by in world.arrays().items()}
    arguments = [tensors[name] if world.setting.typed else next(iter(tensors[name].values())) for name in columns]
    module = of.double()
    with torch.no_grad():
        found = module(*arguments)
    of.float()
    return {k: v.numpy() for k, v in found.items()} if world.setting.typed else {PLAIN: found.numpy()}


def check(world: World, engine: lg.Engine, of: torch.nn.Module) -> None:
    for name, rows in expected(world, of).items():
        kind = {"vertex_type": name} if world.setting.typed else {}
        np.testing.assert_allclose(engine.embeddings(list(world.rows[name]), **kind), rows, rtol=1e-4, atol=1e-4)


def live(options: dict[str, Any], setting: Setting, folder: Path, seed: int) -> None:
    world = World(setting, np.random.default_rng(seed))
    of = module(setting, seed)
    graph = world.graph()
    begin = world.graph() if setting.logged else None
    engine = lg.Engine(lg.from_pyg(of), graph, threads=1, **options)
    log = UpdateLog(open_log(f"sqlite:{folder}/history.db")) if setting.logged else None
    if log is not None:
        log.attach(graph)
    readout = Reads(world, engine) if setting.read else None
    for number in range(BATCHES):
        if number == 2 and setting.away:
            world.send_away(graph, folder)
        if number == 3 and setting.swapped:
            of = module(setting, seed + 1)
            engine.swap(lg.from_pyg(of))
            engine.rescale()
        engine.apply(world.batch())
        check(world, engine, of)
        engine.verify()
        if readout is not None:
            readout.check(world, expected(world, of))
    if log is not None and begin is not None:
        with log:
            rebuilt = lg.Engine(lg.from_pyg(module(setting, seed)), begin, threads=1, **options)
            replay(log, begin)
            assert rebuilt.state_digest() == engine.state_digest()
    engine.close()


class Reads:
    """A readout and edge scores that follow the engine."""

    def __init__(self, world: World, engine: lg.Engine) -> None:
        self.engine, self.typed = engine, world.setting.typed
        self.readouts = {
            name: lg.Readout(engine, "mean", vertex_type=name if self.typed else None) for name in world.rows
        }

    def check(self, world: World, rows: dict[str, np.ndarray]) -> None:
        for name, readout in self.readouts.items():
            np.testing.assert_allclose(readout.rows(), rows[name].mean(0, keepdims=True), rtol=1e-4, atol=1e-4)
            ids = list(world.rows[name])[:2]
            scored = (rows[name][0] * rows[name][1]).sum()
            kinds = {"vertex_types": (name, name)} if self.typed else {}
            np.testing.assert_allclose(self.engine.predict_edges([ids], **kinds), [scored], rtol=1e-3, atol=1e-3)


ROWS = {name: partial(live, options) for name, options in MODES.items()}
