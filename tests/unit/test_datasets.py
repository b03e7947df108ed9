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


# ---- several types


def _real_typed() -> datasets.TypedStream:
    try:
        return datasets.load_typed("alibaba_ecomm")
    except DataMissing as why:
        pytest.skip(f"real data not at hand: {why}")


def test_real_shopping_has_the_counts_of_its_readme() -> None:
    stream = _real_typed()
    assert {name: len(rows) for name, rows in stream.features.items()} == {"User": 1_500, "Item": 36_224}
    behaviour = stream.edge_type < stream.code("CoPurchase")
    assert behaviour.sum() == 85_213
    assert len(np.unique(stream.time)) == 10
    _check_typed(stream)


def test_generated_shopping_is_sound_says_so_and_depends_on_the_seed_alone() -> None:
    first, again, other = (datasets.generate_typed("alibaba_ecomm", seed, scale=0.03) for seed in (1, 1, 2))
    assert first.generated
    assert "GENERATED" in first.description
    _check_typed(first)
    assert np.array_equal(first.dst, again.dst)
    assert not np.array_equal(first.dst[:500], other.dst[:500])


def test_co_purchases_are_what_one_user_bought_on_one_day() -> None:
    stream = datasets.generate_typed("alibaba_ecomm", seed=3, scale=0.03)
    buys, pairs = (stream.edge_type == stream.code(name) for name in ("Buy", "CoPurchase"))
    baskets: dict[tuple[int, int], set[int]] = {}
    for user, item, day in zip(stream.src[buys], stream.dst[buys], stream.time[buys], strict=True):
        baskets.setdefault((int(user), int(day)), set()).add(int(item))
    expected = sorted((a, b, day) for (_, day), items in baskets.items() for a in items for b in items if a != b)
    got = sorted(zip(stream.src[pairs].tolist(), stream.dst[pairs].tolist(), stream.time[pairs].tolist(), strict=True))
    assert got == expected
    assert got


def test_a_graph_loaded_at_once_holds_what_a_streamed_one_holds() -> None:
    stream = datasets.generate_typed("alibaba_ecomm", seed=3, scale=0.03)
    loaded, streamed = stream.graph(stream.event_count), stream.graph(100)
    for begin in range(100, stream.event_count, 300):
        streamed.apply(stream.updates(begin, min(begin + 300, stream.event_count)))
    assert loaded.digest() == streamed.digest()


def test_typed_names_are_checked_and_data_may_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LIVEGNN_DATA", str(tmp_path))
    with pytest.raises(DataMissing, match=r"alibaba_ecomm.edges\.npz"):
        datasets.load_typed("alibaba_ecomm")
    for wrong in (datasets.load_typed, datasets.generate_typed, datasets.load_or_generate_typed):
        with pytest.raises(DataMissing, match=r"expected one of alibaba_ecomm, got 'cora'"):
            wrong("cora")
    with pytest.raises(DataMissing, match="Click, Collect, Cart, Buy, CoPurchase, got 'View'"):
        datasets.generate_typed("alibaba_ecomm", scale=0.01).code("View")
    assert datasets.load_or_generate_typed("alibaba_ecomm").generated


def _check_typed(stream: datasets.TypedStream) -> None:
    assert (np.diff(stream.time) >= 0).all()
    assert {rows.dtype for rows in stream.features.values()} == {np.dtype(np.float32)}
    assert all(np.isfinite(rows).all() for rows in stream.features.values())
    for code, (src_type, _, dst_type) in enumerate(stream.edge_types):
        part = stream.edge_type == code
        assert part.any()
        for ids, kind in ((stream.src[part], src_type), (stream.dst[part], dst_type)):
            assert 0 <= ids.min() <= ids.max() < len(stream.features[kind])
