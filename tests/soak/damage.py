"""Damaged files: bits flipped, bytes overwritten, ends cut off, in every kind of file that livegnn writes.

A damaged file is refused by a LiveGnnError that names it, or gives what was written, bit for bit. Nothing in between.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import livegnn as lg
from livegnn.errors import LiveGnnError
from livegnn.log import UpdateLog, open_log
from livegnn.log.codec import encode
from tests.soak.options import family_model, graph_shape, one_of
from tests.soak.slices import Step
from tests.soak.world import Rng, Shape, World

_DAMAGED_PER_STEP = 60
_LOG_NAMES = ("history.db", "log updates", "[updates, offset")  # a log is named by its name, an entry by its offset


@dataclass
class Saved:
    """Files in a folder of their own. read: a digest of what they say.   names: one of these stands in the refusal.

    victims: the files that are damaged.
    """

    folder: Path
    victims: list[Path]
    read: Callable[[Path], str]
    names: tuple[str, ...]


# ---- what is damaged


def engine_file(rng: Rng, folder: Path) -> Saved:
    """Engine.save."""
    _, model = family_model(rng)
    world = World(rng, graph_shape(rng, model, int(rng.integers(2, 100)), int(rng.integers(1, 4))))
    engine = lg.Engine(model, world.graph(), threads=1)
    engine.apply(world.batch(rng, 20))
    path = folder / "engine.livegnn"
    engine.save(path)
    return Saved(folder, [path], lambda at: lg.Engine.load(at / path.name, threads=1).state_digest(), (path.name,))


def log_file(rng: Rng, folder: Path, *, in_use: bool = False) -> Saved:
    """An SQLite log; in use: as a killed process leaves it, with its write-ahead file."""
    world = World(rng, Shape(3, 20, 40, names=one_of(rng, (None, "text"))))
    path = folder / "history.db"
    log = UpdateLog(open_log(f"sqlite:{path}"))
    for _ in range(int(rng.integers(2, 40))):
        log.append(world.batch(rng, int(rng.integers(1, 40))))
    tail = log.tail
    if not in_use:
        log.close()
        return Saved(folder, [path], lambda at: _entries(at / path.name, tail), _LOG_NAMES)
    copied = folder / "copied"
    copied.mkdir()
    for each in folder.glob("history.db*"):
        shutil.copy(each, copied / each.name)
    log.close()
    victims = [each for each in copied.iterdir() if each.stat().st_size and not each.name.endswith("-shm")]
    return Saved(copied, victims, lambda at: _entries(at / path.name, tail), _LOG_NAMES)


def log_in_use(rng: Rng, folder: Path) -> Saved:
    """As log_file."""
    return log_file(rng, folder, in_use=True)


def _entries(path: Path, tail: int) -> str:
    with UpdateLog(open_log(f"sqlite:{path}")) as log:
        return " ".join(hashlib.sha256(encode(entry.updates)).hexdigest() for entry in log.read())


def checkpoint_file(rng: Rng, folder: Path) -> Saved:
    """What a ContinuousTrainer writes after each round."""
    import torch

    from livegnn.temporal.checkpoint import read_checkpoint, write_checkpoint

    path = folder / "checkpoint.pt"
    rows = torch.from_numpy(rng.standard_normal((int(rng.integers(1, 200)), 8), dtype=np.float32))
    write_checkpoint(path, {"round": 3, "rows": rows, "options": "seed 7", "ids": torch.arange(len(rows))}, "soak")

    def read(at: Path) -> str:
        state = read_checkpoint(at / path.name, "ContinuousTrainer")
        tensors = [state[name].numpy().tobytes() for name in ("rows", "ids")]
        return hashlib.sha256(repr((state["round"], state["options"], tensors)).encode()).hexdigest()

    return Saved(folder, [path], read, (path.name,))


def temporal_file(rng: Rng, folder: Path) -> Saved:
    """TemporalEngine.save."""
    from tests.soak.training import Plan
    from tests.unit.temporal.training import model_of

    plan, path = Plan(int(rng.integers(2**32))), folder / "temporal.pt"
    graph = plan.graph()
    lg.TemporalEngine(model_of(plan.name), graph, plan.sampler(graph)).save(path)

    def read(at: Path) -> str:
        sampler = plan.sampler(graph)
        engine = lg.TemporalEngine.load(at / path.name, model_of(plan.name), graph, sampler)
        engine.close()
        return f"{engine.state_digest():x}"

    return Saved(folder, [path], read, (path.name,))


def offload_file(rng: Rng, folder: Path) -> Saved:
    """Graph.offload."""
    world = World(rng, Shape(2, 30, 300, weighted=bool(rng.integers(2)), times=True, names=one_of(rng, (None, "text"))))
    graph, path = world.graph(), folder / "old.parquet"
    graph.offload(world.now - 10, path)
    away = graph.to_arrays()

    def read(at: Path) -> str:
        mine = lg.Graph.from_arrays(away)
        digest, count = mine.digest(), mine.edge_count
        try:
            mine.reload(at / path.name)
        except LiveGnnError:
            assert (mine.digest(), mine.edge_count) == (digest, count), "a refused reload has changed the graph"
            raise
        edges = mine.edges()
        parts = [np.asarray(edges[name]).astype(str).tobytes() for name in sorted(edges)]
        return hashlib.sha256(b"".join(parts)).hexdigest()

    return Saved(folder, [path], read, (path.name,))


def cache_file(rng: Rng, folder: Path) -> Saved:
    """FeatureCache.save."""
    from livegnn.temporal import FeatureCache

    rows, path = rng.standard_normal((200, 3), dtype=np.float32), folder / "contents.npz"
    policy = one_of(rng, ("lru", "lfu", "fifo"))

    def cache() -> FeatureCache:
        return FeatureCache(rows, capacity=20, policy=policy, max_replace=1.0)

    filled = cache()
    for _ in range(10):
        filled.fetch(rng.integers(0, 200, 8))
    filled.save(path)

    def read(at: Path) -> str:
        loaded = cache()
        loaded.load(at / path.name)
        ids, uses = loaded._index.contents()
        return f"{ids.tolist()} {uses.tolist()}"

    return Saved(folder, [path], read, (path.name,))


def worker_file(rng: Rng, folder: Path) -> Saved:
    """The state of a sampling worker."""
    from livegnn.sampling import LocalCluster
    from livegnn.sampling.cluster.checkpoints import CheckpointFiles
    from livegnn.sampling.cluster.messages import encode as encode_message

    world = World(rng, Shape(2, 20, 60))
    cluster = LocalCluster(world.graph(), lg.query().out().sample(2).out().sample(2), seed=1, sampling=2)
    cluster.apply(world.batch(rng, 20))
    CheckpointFiles(folder).write("sampling", 1, cluster.sampling_workers[1].state())
    (path,) = folder.glob("*.state")

    def read(at: Path) -> str:
        state = CheckpointFiles(at).read("sampling", 1)
        return "none" if state is None else hashlib.sha256(encode_message(state)).hexdigest()

    return Saved(folder, [path], read, (path.name, "[checkpoint, sampling 1]"))


FORMATS: dict[str, Callable[[Rng, Path], Saved]] = {
    "engine": engine_file,
    "log": log_file,
    "log in use": log_in_use,
    "checkpoint": checkpoint_file,
    "temporal engine": temporal_file,
    "offload": offload_file,
    "cache": cache_file,
    "worker": worker_file,
}

# ---- how


def damage(rng: Rng, data: bytearray) -> str:
    """Changes the bytes in place; what was done."""
    size = len(data)
    kind = one_of(rng, ("bit", "bit", "bytes", "zeros", "swap", "cut", "cut"))
    place = int(rng.integers(size))
    if kind == "bit":
        bit = int(rng.integers(8))
        data[place] ^= 1 << bit
        return f"bit {bit} of byte {place} of {size} flipped"
    if kind == "cut":
        del data[place:]
        return f"cut to {place} of {size} bytes"
    length = min(int(rng.choice([2, 16, 512, 4096])), size - place)
    if kind == "swap":
        other = int(rng.integers(size - length + 1))
        here, there = data[place : place + length], data[other : other + length]
        data[place : place + length] = there
        data[other : other + length] = here
        return f"{length} bytes at {place} and {other} of {size} swapped"
    data[place : place + length] = bytes(length) if kind == "zeros" else rng.bytes(length)
    return f"{length} bytes at {place} of {size} overwritten with {kind}"


def run(step: Step) -> None:
    """One file of every format, or of those that were asked for, damaged in many ways."""
    rng, counts = step.rng, step.counts
    formats = [FORMATS[name] for name in step.formats] if step.formats else list(FORMATS.values())
    make = formats[(step.seed + step.number) % len(formats)]
    name = next(name for name, each in FORMATS.items() if each is make)
    if step.number == 0:
        _touch_all(step.folder / "first")
    folder = step.folder / "whole"
    folder.mkdir()
    saved = make(rng, folder)
    counts.cover("format", name)
    expected = _read_copy(saved, step.folder / "as written")
    for number in range(_DAMAGED_PER_STEP):
        if not step.tick():
            break
        place = step.folder / str(number)
        shutil.copytree(saved.folder, place)
        victim = place / saved.victims[int(rng.integers(len(saved.victims)))].name
        data = bytearray(victim.read_bytes())
        what = damage(rng, data)
        victim.write_bytes(data)
        _judge(saved, place, expected, f"{name}: {victim.name}, {what}", counts)
        shutil.rmtree(place)


def _touch_all(folder: Path) -> None:
    """Writes and reads each format once: libraries that a format loads are not memory that grows."""
    for name, make in FORMATS.items():
        place = folder / name
        place.mkdir(parents=True)
        saved = make(np.random.default_rng(0), place)
        _read_copy(saved, folder / f"{name}, read")
    shutil.rmtree(folder)


def _read_copy(saved: Saved, place: Path) -> str:
    shutil.copytree(saved.folder, place)
    return saved.read(place)


def _judge(saved: Saved, place: Path, expected: str, note: str, counts: Any) -> None:
    """Refused by name, or the same."""
    counts.add("damaged files")
    try:
        got = saved.read(place)
    except LiveGnnError as refusal:
        if not any(name in str(refusal) for name in saved.names):
            raise AssertionError(f"{note}: refused without a name: {refusal}") from refusal
        counts.add("damaged files refused")
        return
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{note}: expected a LiveGnnError, got {type(error).__name__}: {error}") from error
    assert got == expected, f"{note}: read with other content"
    counts.add("damaged files of the same content")
