"""Finding real graphs, and generating streams of their shape."""

from pathlib import Path

import numpy as np
import pytest

from livegnn import datasets
from livegnn.errors import DataMissing

GENERATED = ("ethereum_phishing", "bitcoin_otc", "jodie_wikipedia", "tags_math_sx")


def _real(name: str) -> datasets.EventStream:
    try:
        return datasets.load(name)
    except DataMissing as why:
        pytest.skip(f"real data not at hand: {why}")


def test_missing_data_names_the_folder_and_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LIVEGNN_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataMissing, match=r"nowhere.*LIVEGNN_DATA"):
        datasets.load("cora")


def test_missing_file_names_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LIVEGNN_DATA", str(tmp_path))
    with pytest.raises(DataMissing, match=r"bitcoin_otc.edges\.npz"):
        datasets.load("bitcoin_otc")


def test_variable_points_at_the_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LIVEGNN_DATA", str(tmp_path))
    (tmp_path / "jodie_wikipedia").mkdir()
    np.savez(
        tmp_path / "jodie_wikipedia" / "edges.npz", src=np.array([0, 1]), dst=np.array([8227, 8228]), t=np.array([0, 5])
    )
    stream = datasets.load("jodie_wikipedia")
    assert stream.event_count == 2
    assert stream.src.dtype == stream.dst.dtype == np.int64


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(DataMissing, match="ethereum_phishing"):
        datasets.load("nothing")
    with pytest.raises(DataMissing, match="bitcoin_otc"):
        datasets.generate_like("cora")


@pytest.mark.parametrize("name", datasets.names())
def test_real_streams_are_sound(name: str) -> None:
    stream = _real(name)
    assert not stream.generated
    _check(stream)


@pytest.mark.parametrize(
    ("name", "vertices", "events"), [("ethereum_phishing", 86_622, 106_083), ("bitcoin_otc", 5_881, 35_592)]
)
def test_real_counts_are_those_of_the_readme(name: str, vertices: int, events: int) -> None:
    stream = _real(name)
    assert (stream.vertex_count, stream.event_count) == (vertices, events)


@pytest.mark.parametrize("name", GENERATED)
def test_generated_streams_are_sound_and_say_so(name: str) -> None:
    stream = datasets.generate_like(name, seed=1, scale=0.05)
    assert stream.generated
    assert "GENERATED" in stream.description
    _check(stream)


@pytest.mark.parametrize("name", GENERATED)
def test_generated_streams_depend_on_the_seed_alone(name: str) -> None:
    first, again, other = (datasets.generate_like(name, seed, scale=0.02) for seed in (1, 1, 2))
    assert np.array_equal(first.src, again.src)
    assert np.array_equal(first.time, again.time)
    assert not np.array_equal(first.src, other.src)


def test_generated_payments_have_the_shape_of_the_real_ones() -> None:
    stream = datasets.generate_like("ethereum_phishing")
    assert (stream.vertex_count, stream.event_count) == (86_622, 106_083)
    assert stream.labels is not None
    assert (stream.labels >= 0).sum() == 890
    assert 400 <= (stream.labels == 1).sum() <= 490


def test_falls_back_to_a_generated_stream(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LIVEGNN_DATA", str(tmp_path))
    assert datasets.load_or_generate("bitcoin_otc", seed=3).generated
    with pytest.raises(DataMissing):
        datasets.load_or_generate("cora")


def _check(stream: datasets.EventStream) -> None:
    assert stream.src.dtype == stream.dst.dtype == np.int64
    assert len(stream.src) == len(stream.dst) == stream.event_count > 0
    for ids in (stream.src, stream.dst):
        assert 0 <= ids.min() <= ids.max() < stream.vertex_count
    if stream.time is not None:
        assert stream.time.dtype == np.int64
        assert (np.diff(stream.time) >= 0).all()
    if stream.weight is not None:
        assert stream.weight.dtype == np.float32
        assert np.isfinite(stream.weight).all()
    if stream.features is not None:
        assert stream.features.dtype == np.float32
        assert len(stream.features) == stream.vertex_count
    if stream.labels is not None:
        assert len(stream.labels) == stream.vertex_count
