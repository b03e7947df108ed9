"""Copies of edges in files: a file that is gone or damaged, and a full disk, refuse a call and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyarrow")

import livegnn as lg
from livegnn.errors import DataMissing, LiveGnnError, SpillUnavailable, StoredStateInvalid
from tests.fault.test_writing_files import file_bytes_max

MODEL = lg.Model([lg.layers.SAGE(np.ones((2, 2), np.float32))])
QUERY = lg.query().out().sample(2, by="top_k")
READERS: dict[str, Callable[[lg.Graph], Any]] = {
    "Engine": lambda graph: lg.Engine(MODEL, graph, threads=1),
    "PreSampler": lambda graph: lg.PreSampler(graph, QUERY),
}


def stream(edges: int) -> lg.Graph:
    rng = np.random.default_rng(1)
    ends = rng.integers(0, 50, (2, edges))
    return lg.Graph(np.eye(50, 2, dtype=np.float32), *ends, time=np.arange(edges) // 1000)


def untouched(graph: lg.Graph, before: tuple[Any, ...]) -> None:
    assert state(graph) == before
    graph.host.store.check_invariants()


def state(graph: lg.Graph) -> tuple[Any, ...]:
    return graph.digest(), graph.version, graph.edge_count, graph.offloaded, graph.host.consumers


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("harm", "error", "text"),
    [
        (Path.unlink, DataMissing, r"expected the file .*, got none; put it back"),
        (damage, StoredStateInvalid, r"its bytes are not those that were written"),
        (lambda path: path.write_bytes(b""), StoredStateInvalid, r"expected a file that offload\(\) wrote"),
    ],
)
def test_a_file_that_is_gone_or_damaged(tmp_path: Path, reader: str, harm: Any, error: Any, text: str) -> None:
    graph = stream(3000)
    graph.offload(1, tmp_path / "whole")
    graph.offload(2, tmp_path / "harmed")
    before, content = state(graph), (tmp_path / "harmed").read_bytes()
    harm(tmp_path / "harmed")
    with pytest.raises(error, match=rf"\[{reader}\].*{text}"):
        READERS[reader](graph)
    untouched(graph, before)
    assert not graph.host.store.has_copies
    (tmp_path / "harmed").write_bytes(content)
    made = READERS[reader](graph)
    made.verify()
    damage(tmp_path / "whole")  # has been read
    updates = lg.Updates()
    updates.add_edge(1, 2, time=0)
    graph.apply(updates)
    made.verify()


def test_an_engine_file_whose_edges_are_gone(tmp_path: Path) -> None:
    graph = stream(3000)
    engine = READERS["Engine"](graph)
    graph.offload(1, tmp_path / "edges")
    engine.save(tmp_path / "engine")
    (tmp_path / "edges").rename(tmp_path / "moved")
    with pytest.raises(DataMissing, match=r"expected the file .*edges, got none"):
        lg.Engine.load(tmp_path / "engine", threads=1)
    (tmp_path / "moved").rename(tmp_path / "edges")
    assert lg.Engine.load(tmp_path / "engine", threads=1).state_digest() == engine.state_digest()


@pytest.mark.parametrize("reader", READERS)
def test_a_full_disk(tmp_path: Path, reader: str) -> None:
    graph = stream(20_000)
    graph.offload(15, tmp_path / "first")
    before = state(graph)
    with (
        file_bytes_max(100_000),
        pytest.raises(SpillUnavailable, match=rf"\[{reader}\] expected a folder on a disk with room .* File too large"),
    ):
        READERS[reader](graph)
    untouched(graph, before)
    made = READERS[reader](graph)
    before = state(graph)
    with file_bytes_max(100_000), pytest.raises(SpillUnavailable, match=r"\[offload\]"):
        graph.offload(20, tmp_path / "second")
    untouched(graph, before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first"]
    made.verify()
    assert graph.offload(20, tmp_path / "second").count == 20_000
    made.verify()
    assert graph.reload() == 20_000
    made.verify()


def test_a_reload_that_fails_leaves_the_copies(tmp_path: Path) -> None:
    graph = stream(20_000)
    engine = READERS["Engine"](graph)
    graph.offload(19, tmp_path / "first")
    before, digest = state(graph), engine.state_digest()
    with file_bytes_max(70_000), pytest.raises(LiveGnnError, match="room"):
        graph.reload(since=15)  # those that stay away are copied anew
    untouched(graph, before)
    assert graph.reload(since=15) == 4_000
    assert engine.state_digest() == digest
    engine.verify()
