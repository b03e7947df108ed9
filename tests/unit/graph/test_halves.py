"""Features stored in 16 bits: which arrays keep their dtype, what is rounded, what is refused, and what readers see."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import livegnn as lg
from livegnn.errors import DtypeInvalid, StoredStateInvalid, ValueInvalid, WidthMismatch
from livegnn.graph import Graph, Updates

ROW = np.array([1.0, 1 / 3, -2.5], np.float32)


def bfloat16_array(values: Any) -> Any:
    """A bfloat16 array as ml_dtypes has them."""
    return np.asarray(values, np.float32).astype(pytest.importorskip("ml_dtypes").bfloat16)


def pair(features: Any, **options: Any) -> Graph:
    return Graph(features, [0], [1], **options)


# ---- which dtype


def test_a_float16_array_keeps_its_dtype_and_reads_as_float32() -> None:
    x = np.array([[0.1, 2, 3], [4, 5, 6.5]], np.float16)
    graph = pair(x)
    assert graph.feature_dtype == "float16"
    assert graph.features().dtype == np.float32
    assert graph.features().tolist() == x.astype(np.float32).tolist()


def test_float32_stays_float32_and_feature_dtype_says_otherwise() -> None:
    assert pair(np.ones((2, 3), np.float32)).feature_dtype == "float32"
    assert pair(np.ones((2, 3))).feature_dtype == "float32"  # float64 is rounded to float32, as ever
    assert pair([[1.0], [2.0]], feature_dtype="bfloat16").feature_dtype == "bfloat16"
    assert pair(np.ones((2, 3), np.float16), feature_dtype="float32").feature_dtype == "float32"
    assert pair(np.ones((2, 3), np.float16), feature_dtype="bfloat16").feature_dtype == "bfloat16"


def test_tensors_keep_their_dtype() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.randn(2, 40).to(dtype)
        for tensor in (x, x.t().contiguous().t(), x[:, ::2]):
            graph = pair(tensor)
            assert graph.feature_dtype == str(dtype).removeprefix("torch.")
            assert graph.features().tolist() == tensor.float().tolist()


def test_bfloat16_arrays_keep_their_dtype() -> None:
    x = bfloat16_array([[1.0, 1 / 3], [3e38, -1e-39]])
    graph = pair(x)
    assert graph.feature_dtype == "bfloat16"
    assert graph.features().tolist() == x.astype(np.float32).tolist()


def test_from_pyg_keeps_it_too() -> None:
    torch, data = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.data")
    edges = torch.tensor([[0], [1]])
    assert Graph.from_pyg(data.Data(x=torch.ones(2, 3).half(), edge_index=edges)).feature_dtype == "float16"
    found = Graph.from_pyg(data.Data(x=torch.ones(2, 3), edge_index=edges), feature_dtype="bfloat16")
    assert found.feature_dtype == "bfloat16"


def typed(first: Any, second: Any, **options: Any) -> Graph:
    key = ("A", "to", "B")
    return Graph({"A": np.ones((2, 3), first), "B": np.ones((1, 20), second)}, {key: [0]}, {key: [0]}, **options)


def test_types_have_one_dtype() -> None:
    assert typed(np.float16, np.float16).feature_dtype == "float16"
    mixed = typed(np.float16, np.float32)
    assert mixed.feature_dtype == "float32"  # which holds both
    assert typed(np.float16, np.float32, feature_dtype="float16").digest() == mixed.digest()
    key = ("A", "to", "B")
    wide = {"A": np.ones((2, 3), np.float16), "B": np.zeros((1, 0), np.float32)}
    assert Graph(wide, {key: [0]}, {key: [0]}).feature_dtype == "float16"  # a type without features has no say
    flat = Graph(np.eye(3, dtype=np.float16), [0], [1], vertex_type=["a", "b", "a"])
    assert flat.feature_dtype == "float16"
    assert flat.features(vertex_type="a").tolist() == [[1, 0, 0], [0, 0, 1]]


def test_torch_is_not_imported() -> None:
    code = (
        "import sys, numpy, livegnn; livegnn.Graph(numpy.ones((2, 1), numpy.float16), [0], [1]); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- what is stored


def test_half_of_the_bytes_and_the_same_digest() -> None:
    x = np.arange(4096 * 64, dtype=np.float32).reshape(4096, 64) % 1000
    wide, half = pair(x), pair(x, feature_dtype="float16")
    assert half.memory()["features"] * 2 == wide.memory()["features"] == x.nbytes
    assert half.digest() == wide.digest()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_ties_round_to_even(dtype: str) -> None:
    step = 2.0**-10 if dtype == "float16" else 2.0**-7  # between the numbers from 1 to 2
    x = np.array([[1 + step / 2, 1 + 3 * step / 2, 1 + step / 2 + 2.0**-20]] * 2, np.float32)
    assert pair(x, feature_dtype=dtype).features()[0].tolist() == [1, 1 + 2 * step, 1 + step]


def test_subnormals_are_kept_and_less_is_zero() -> None:
    x = np.array([[2.0**-24, 3 * 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, -(2.0**-30)]] * 2, np.float32)
    found = pair(x, feature_dtype="float16").features()[0]
    assert found.tolist() == [2.0**-24, 3 * 2.0**-24, 0, 2.0**-24, 0]
    assert np.signbit(found).tolist() == [False] * 4 + [True]
    small = np.array([[2.0**-133, -(2.0**-126)]] * 2, np.float32)
    assert pair(small, feature_dtype="bfloat16").features().tolist() == small.tolist()


def test_updates_are_rounded_when_they_are_stored() -> None:
    graph = pair(np.zeros((2, 3), np.float16))
    updates = Updates()
    updates.set_features(0, ROW)
    updates.add_vertices([2, 3], np.stack([ROW, 2 * ROW]))
    graph.apply(updates)
    kept = ROW.astype(np.float16).astype(np.float32)
    assert graph.features().tolist() == [kept.tolist(), [0] * 3, kept.tolist(), (2 * kept).tolist()]
    plain = pair(np.zeros((2, 3), np.float32))
    plain.apply(updates)  # an Updates object knows no graph
    assert plain.features([0]).tolist() == [ROW.tolist()]


def test_rows_of_updates_may_be_in_16_bits() -> None:
    torch = pytest.importorskip("torch")
    for graph in (pair(np.zeros((2, 3), np.float16)), pair(np.zeros((2, 3), np.float32))):
        updates = Updates()
        updates.set_features(0, ROW.astype(np.float16))
        updates.set_features([1], torch.tensor(ROW).bfloat16().reshape(1, 3))
        updates.add_vertex(2, torch.tensor(ROW).half())
        graph.apply(updates)
        found = graph.features()
        assert found[0].tolist() == found[2].tolist() == ROW.astype(np.float16).tolist()
        assert found[1].tolist() == torch.tensor(ROW).bfloat16().tolist()


def test_an_update_that_rounds_to_the_same_changes_nothing() -> None:
    graph = pair(np.array([[1.0, 2.0], [3.0, 4.0]], np.float16))
    engine = lg.Engine(lg.Model([lg.layers.SAGE(np.eye(2), np.eye(2))]), graph)
    updates = Updates()
    updates.set_features(0, [1.0001, 1.9999])
    assert engine.apply(updates).vertices.tolist() == []
    updates.set_features(0, [1.001, 2.0])
    assert engine.apply(updates).vertices.tolist() == [0, 1]


def test_saved_and_loaded_as_it_is() -> None:
    for dtype in ("float16", "bfloat16"):
        graph = pair(np.array([[0.1, -0.0], [7, 2.0**-20]]), feature_dtype=dtype)
        arrays = graph.to_arrays()
        assert arrays["store.features"].dtype == np.uint16
        loaded = Graph.from_arrays(arrays)
        assert (loaded.feature_dtype, loaded.digest()) == (dtype, graph.digest())
        assert loaded.memory()["features"] == graph.memory()["features"]


def test_a_graph_saved_without_a_dtype_is_float32() -> None:
    graph = pair(np.eye(2))
    arrays = graph.to_arrays()
    del arrays["option.feature_dtype"]
    assert Graph.from_arrays(arrays).digest() == graph.digest()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("option.feature_dtype", np.array(7, np.int64)),
        ("option.feature_dtype", np.array(0, np.int64)),  # but the rows are in 16 bits
        ("store.features", np.full((2, 2), 0x7C00, np.uint16)),  # infinity
        ("store.features", np.full((2, 2), 1e5, np.float32)),
        ("store.features", np.zeros((2, 2), np.int16)),
    ],
)
def test_saved_arrays_that_do_not_fit_are_refused(name: str, value: Any) -> None:
    arrays = pair(np.eye(2, dtype=np.float16)).to_arrays()
    with pytest.raises((StoredStateInvalid, ValueInvalid)):
        Graph.from_arrays(arrays | {name: value})


# ---- what is refused


@pytest.mark.parametrize("wanted", [np.float16, np.dtype(np.float16), torch.float16])
def test_types_of_numpy_and_torch_name_a_dtype(wanted: Any) -> None:
    assert lg.Graph(np.eye(2), [0], [1], feature_dtype=wanted).feature_dtype == "float16"


@pytest.mark.parametrize("wanted", ["float64", "half", "", 16, np.float64, torch.float64, True])
def test_other_dtypes_are_refused(wanted: Any) -> None:
    with pytest.raises(ValueInvalid, match=r'\[Graph\] expected feature_dtype "float32", "float16" or "bfloat16", got'):
        pair(np.eye(2), feature_dtype=wanted)


@pytest.mark.parametrize(
    ("dtype", "value"), [("float16", 65520.0), ("float16", -1e9), ("bfloat16", 3.3999e38), ("bfloat16", -3.4e38)]
)
def test_values_beyond_the_range_are_refused(dtype: str, value: float) -> None:
    x = np.zeros((3, 4), np.float32)
    x[2, 1] = value
    with pytest.raises(ValueInvalid, match=rf"features within {dtype}, got .* at row 2, column 1; "):
        Graph(x, [0], [1], feature_dtype=dtype)
    graph = Graph(np.zeros((3, 4)), [0], [1], feature_dtype=dtype)
    updates = Updates()
    updates.set_features(0, [1, 2, 3, 4])
    updates.set_features(2, x[2])
    with pytest.raises(ValueInvalid, match=rf"update 1 \(set_features 2\): .* within {dtype}, got .* in column 1; "):
        graph.apply(updates)
    assert not graph.features().any()
    assert graph.version == 0


def test_the_largest_values_fit() -> None:
    x = np.array([[65504.0, 65519.99, -65519.99]] * 2, np.float32)
    assert pair(x, feature_dtype="float16").features()[0].tolist() == [65504, 65504, -65504]
    largest = float.fromhex("0x1.fep127")
    x = np.array([[largest, float.fromhex("0x1.fefffep127")]] * 2, np.float32)
    assert pair(x, feature_dtype="bfloat16").features()[0].tolist() == [largest, largest]


def test_a_named_vertex_is_named() -> None:
    graph = Graph(np.zeros((2, 1), np.float16), ["a"], ["b"], ids=["a", "b"])
    updates = Updates()
    updates.add_vertex("new", [1e6])
    with pytest.raises(ValueInvalid, match=r"within float16, got 1000000.* in column 0; .*'new'"):
        graph.apply(updates)


@pytest.mark.parametrize(
    ("features", "error", "text"),
    [
        (np.array([[1, np.nan], [0, 0]], np.float16), ValueInvalid, "features finite, got nan at row 0, column 1"),
        (np.array([[1, 2], [-np.inf, 0]], np.float16), ValueInvalid, "features finite, got -inf at row 1, column 0"),
        (np.ones(3, np.float16), WidthMismatch, r"features of shape \(k, width\), got \(3,\)"),
        (np.ones((2, 2), np.float16).astype(">f2"), DtypeInvalid, "features as float32, got dtype >f2"),
        (np.ones((2, 2), np.longdouble), DtypeInvalid, "features as float32"),
        (np.ones((2, 2), np.uint16), DtypeInvalid, "features as float32, got dtype uint16"),
    ],
)
def test_bad_features_in_16_bits_are_refused(features: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pair(features)


def test_bad_tensors_are_refused() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueInvalid, match="features finite, got inf at row 1, column 0"):
        pair(torch.tensor([[1.0], [torch.inf]]).bfloat16())
    with pytest.raises(WidthMismatch, match=r"got \(2,\)"):
        pair(torch.ones(2).bfloat16())
    with pytest.raises(DtypeInvalid, match="features"):
        pair(torch.ones(2, 2, device="meta").bfloat16())
    updates = Updates()
    with pytest.raises(ValueInvalid, match="nan"):
        updates.set_features(0, torch.tensor([torch.nan]).bfloat16())
    with pytest.raises(WidthMismatch, match=r"x of shape \(width,\)"):
        updates.set_features(0, np.ones((1, 1), np.float16))
    assert len(updates) == 0
