"""Tries one class: from_pyg, an engine, random updates, and after each batch the module itself in float64.

The truth is the module's own class on the mirrored graph, always in a fresh copy: what a run leaves in the module
(`cached=True`) does not reach the next one.
"""

from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch_geometric.data import Data

import livegnn as lg
from benchmarks.zoo.entries import Entry
from benchmarks.zoo.load import load
from livegnn.errors import LiveGnnError
from livegnn.models.pyg.copies import private_copy
from livegnn.testing import Mirror, random_batch, random_graph
from livegnn.testing.oracle import check_rows

SEED = 20261125
VERTICES = 24
BATCHES = (1, 6, 20)


class _WholeNumbers(np.random.Generator):
    """Rows of whole numbers below a limit, for embeddings of integer features."""

    limit = 1

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        return self.integers(0, self.limit, size).astype(dtype)


def attempt(entry: Entry, checkouts: Path) -> tuple[str, str]:
    """(verdict, reason): imported, refused, wrong, crash, or unfit where the class does not run by itself."""
    rng = _generator(entry)
    try:
        torch.manual_seed(SEED)
        module = _made(entry, checkouts)
        graph, mirror = random_graph(
            rng,
            entry.width,
            "weight" in entry.columns,
            vertices=VERTICES,
            attr_width=entry.attributes,
            types=entry.types,
        )
        by_module(entry, module, mirror, torch.float64)
    except Exception as error:
        return "unfit", _one_line(error)
    try:
        return _live(entry, module, graph, mirror, rng)
    except LiveGnnError as error:
        return "refused", _one_line(error)
    except AssertionError as error:
        return "wrong", _one_line(error)
    except Exception as error:
        return "crash", _one_line(error)


def _live(entry: Entry, module: nn.Module, graph: lg.Graph, mirror: Mirror, rng: Any) -> tuple[str, str]:
    model = lg.from_pyg(module, **_options(entry))
    engine = lg.Engine(model, graph, threads=1)
    _compare(entry, engine, module, mirror, "at creation")
    for place, size in enumerate(BATCHES):
        updates = random_batch(rng, mirror, size)
        try:
            engine.apply(updates)
            engine.verify()
        except LiveGnnError as error:
            return "wrong", f"batch {place + 1}: {_one_line(error)}"
        _compare(entry, engine, module, mirror, f"after batch {place + 1}")
    return "imported", repr(model)


def _options(entry: Entry) -> dict[str, Any]:
    options = dict(entry.options)
    if entry.take is not None and "outputs" in inspect.signature(lg.from_pyg).parameters:
        options["outputs"] = entry.take
    return options


def _compare(entry: Entry, engine: lg.Engine, module: nn.Module, mirror: Mirror, note: str) -> None:
    live = mirror.arrays()[-1]
    rows = live if entry.rows == "vertex" else slice(None)
    truth, plain = (by_module(entry, module, mirror, dtype)[rows] for dtype in (torch.float64, torch.float32))
    got = engine.embeddings(live) if entry.rows == "vertex" else engine.edge_outputs(np.array(sorted(mirror.edges)))
    if got.shape != truth.shape:
        raise AssertionError(f"{note}: expected rows of shape {truth.shape}, got {got.shape}")
    whole = np.isfinite(truth).all(axis=1)
    if not whole.any():
        raise AssertionError(f"{note}: the module itself has no finite row; choose other arguments")
    check_rows(got[whole], truth[whole], plain[whole], note, on_edges=True)


def by_module(entry: Entry, module: nn.Module, mirror: Mirror, dtype: Any) -> Any:
    """What a fresh copy of the module says on the mirrored graph, one row per slot or edge."""
    features, src, dst, weight, _ = mirror.arrays()
    attributes, kinds = mirror.columns()
    columns = {
        "weight": None if weight is None else torch.tensor(weight, dtype=dtype),
        "attribute": None if attributes is None else torch.tensor(attributes, dtype=dtype),
        "type": None if kinds is None else torch.tensor(kinds, dtype=torch.int64),
    }
    x, edges = torch.tensor(features, dtype=dtype), torch.tensor(np.stack([src, dst]))
    twin = private_copy(module).to(dtype).eval()
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.no_grad():
            if entry.data:
                named = {f"edge_{'attr' if key == 'attribute' else key}": each for key, each in columns.items()}
                result = twin(Data(x=x, edge_index=edges, batch=None, **named))
            else:
                result = twin(x, edges, *(columns[name] for name in entry.columns))
    finally:
        torch.set_default_dtype(before)
    if entry.take is not None:
        result = result[entry.take]
    if isinstance(result, tuple | list | dict):
        raise TypeError(f"the module gives several results ({type(result).__name__}); the entry must take one")
    return result.to(torch.float64).numpy().reshape(len(features if entry.rows == "vertex" else src), -1)


def _made(entry: Entry, checkouts: Path) -> nn.Module:
    loaded = load(checkouts / entry.folder, entry.file, absent=entry.absent, paths=entry.paths, given=dict(entry.given))
    module = _livened(entry.make(loaded))
    return (module if entry.adapter is None else entry.adapter(module)).eval()


def _livened(module: nn.Module) -> nn.Module:
    """Every parameter and running statistic away from its initial 0 or 1, as training leaves them."""
    rng = torch.Generator().manual_seed(SEED)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point() and tensor.numel():
            noise = (torch.randn(tensor.shape, generator=rng) * 0.2).to(tensor.dtype)
            with torch.no_grad():
                tensor.add_(noise.abs() if name.endswith("running_var") else noise)
    return module.eval()


def _generator(entry: Entry) -> np.random.Generator:
    if not entry.whole:
        return np.random.default_rng(SEED)
    generator = _WholeNumbers(np.random.PCG64(SEED))
    generator.limit = entry.whole
    return generator


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, LiveGnnError | AssertionError):
        return text[:400]
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text[:300]} ({Path(where.filename).name}:{where.lineno})"
