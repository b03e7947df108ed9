"""One file for graph, model and scales: written whole or not at all, refused when damaged."""

import json
import os
import zipfile

import numpy as np
import pytest

import livegnn as lg
from livegnn.inference import storage
from livegnn.models import ir
from tests.unit.inference.samples import array, engine, graph, model, row, updates
from tests.unit.inference.samples import weighted_gcn as gcn
from tests.unit.inference.samples import weighted_graph as weights

BATCH = (("remove_vertex", 1), ("set_features", 0, row()), ("add_edge", 4, 3))


@pytest.fixture
def saved(tmp_path):
    e = engine()
    e.apply(updates(*BATCH))
    e.save(tmp_path / "engine.lg")
    return e, tmp_path / "engine.lg"


@pytest.mark.parametrize("path_type", [str, lambda p: p])
def test_load_gives_every_bit_back(saved, path_type):
    e, path = saved
    again = lg.Engine.load(path_type(path), threads=1)
    assert again.state_digest() == e.state_digest()
    assert again.version == e.version == 1
    assert again.scales == e.scales
    again.verify()
    with pytest.raises(lg.errors.VertexUnknown):
        again.embeddings([1])
    more = updates(("add_vertex", 1, row(3)), ("add_edge", 1, 0))
    assert again.apply(more).vertices.tolist() == e.apply(more).vertices.tolist()
    assert again.state_digest() == e.state_digest()


def test_scales_are_those_of_creation_and_not_of_the_present_graph(tmp_path):
    e = engine()
    e.apply(updates(("set_features", 0, row(scale=60.0))))
    e.save(tmp_path / "engine.lg")
    assert lg.Engine(model(), graph()).scales == e.scales
    assert lg.Engine.load(tmp_path / "engine.lg").scales == e.scales
    e.rescale()
    assert e.scales != lg.Engine.load(tmp_path / "engine.lg").scales


@pytest.mark.parametrize(
    ("strategy", "path", "state"),
    [
        ("affected", "auto", "fast"),
        ("incremental", "pull", "compact"),
        ("sampled", "push", "fast"),
    ],
)
def test_settings_come_back(tmp_path, strategy, path, state):
    e = engine(strategy=strategy, path=path, fanout=3, seed=5, state=state)
    e.save(tmp_path / "engine.lg")
    again = lg.Engine.load(tmp_path / "engine.lg", threads=2)
    assert (again.strategy, again.threads, again.state) == (strategy, 2, state)
    again.save(tmp_path / "again.lg")
    with storage.opened(tmp_path / "again.lg") as theirs, storage.opened(tmp_path / "engine.lg") as ours:
        assert storage.parts(theirs)[3] == storage.parts(ours)[3]
    np.testing.assert_array_equal(again.embeddings(range(6)), e.embeddings(range(6)))


def test_weights_and_edge_heads_come_back(tmp_path):
    e = lg.Engine(gcn(), weights())
    e.save(tmp_path / "gcn.lg")
    assert lg.Engine.load(tmp_path / "gcn.lg").state_digest() == e.state_digest()
    scored = lg.Model.from_output(model().output, edge_head=ir.Linear(ir.Input(6), array(1, 6)))
    e = lg.Engine(scored, graph())
    e.save(tmp_path / "pairs.lg")
    np.testing.assert_array_equal(
        lg.Engine.load(tmp_path / "pairs.lg").predict_edges([(0, 1)]), e.predict_edges([(0, 1)])
    )


def refused(path):
    try:
        lg.Engine.load(path)
    except lg.errors.StoredStateInvalid as error:
        return str(path) in str(error)
    return False


def test_one_flipped_bit_in_any_member_is_found(saved):
    _, path = saved
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as members:
        places = [(m.filename, m) for m in members.infolist()]
    assert len(places) > 10
    for name, member in places:
        start = whole.index(b"\x93NUMPY", member.header_offset)
        damaged = bytearray(whole)
        damaged[start + member.file_size - 1] ^= 1
        path.write_bytes(damaged)
        assert refused(path), f"a flipped bit in {name} went by"
    path.write_bytes(whole)
    lg.Engine.load(path)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # numpy.load leaves a broken zip open
def test_a_file_cut_short_is_refused(saved):
    _, path = saved
    whole = path.read_bytes()
    for length in [0, 1, 4, 100, len(whole) // 2, len(whole) - 23, len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert refused(path), f"{length} bytes of {len(whole)} went by"


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "foreign"
    path.write_bytes(b"a letter\n")
    with pytest.raises(lg.errors.StoredStateInvalid):
        lg.Engine.load(path)
    for members in (
        {"x": np.zeros(3)},
        {"meta": np.frombuffer(b"[1]", np.uint8)},
        {"meta": np.frombuffer(b"{", np.uint8)},
    ):
        np.savez(tmp_path / "foreign.npz", **members)
        with pytest.raises(lg.errors.StoredStateInvalid):
            lg.Engine.load(tmp_path / "foreign.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(lg.errors.StoredStateInvalid):
        lg.Engine.load(tmp_path / "one.npy")
    with pytest.raises(FileNotFoundError):
        lg.Engine.load(tmp_path / "nothing")


def test_another_format_version_is_refused(saved, monkeypatch):
    _, path = saved
    written = storage._FORMAT_VERSION
    for other in (written + 1, written - 1):
        monkeypatch.setattr(storage, "_FORMAT_VERSION", other)
        with pytest.raises(lg.errors.StoredStateInvalid, match=f"version {written}"):
            lg.Engine.load(path)


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_save_that_fails_leaves_the_old_file(saved, monkeypatch, fails):
    e, path = saved
    before, digest = path.read_bytes(), e.state_digest()
    e.apply(updates(("add_edge", 0, 3)))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space"):
        e.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    assert lg.Engine.load(path).state_digest() == digest
    e.save(path)
    assert lg.Engine.load(path).state_digest() == e.state_digest() != digest


def test_nothing_is_pickled(saved):
    _, path = saved
    with np.load(path, allow_pickle=False) as members:
        assert all(members[name].dtype != object for name in members.files)


def test_a_missing_folder_is_named_and_the_mode_is_the_user_s(tmp_path):
    with pytest.raises(lg.errors.UsageError, match=r"expected a folder .*absent to write engine\.lg"):
        engine().save(tmp_path / "absent" / "engine.lg")
    engine().save(tmp_path / "engine.lg")
    (tmp_path / "other").touch()
    assert (tmp_path / "engine.lg").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_file_of_version_0_1_loads():
    """Whose model and graph do not say which column their weights come from: they are joined as they were."""
    e = lg.Engine.load(os.path.join(os.path.dirname(__file__), "data", "optional_weights_0_1.npz"), threads=1)
    assert (e.model.weights_from, e.graph.weight_column) == (None, "weight")
    assert e.embeddings([0, 1, 2]).ravel().tolist() == [0.9291475415229797, 1.618186354637146, 2.9908809661865234]
    e.verify()


@pytest.mark.parametrize("precision", ["exact", "float32"])
def test_files_of_the_first_release_name_a_precision(tmp_path, precision):
    e, path = engine(), tmp_path / "engine.lg"
    e.save(path)
    with np.load(path) as members:
        content = dict(members)
    meta = json.loads(content["meta"].tobytes())
    meta["format_version"] = 2
    meta["settings"]["precision"] = precision
    content["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    with path.open("wb") as file:
        np.savez(file, **content)
    if precision == "exact":
        assert lg.Engine.load(path).state_digest() == e.state_digest()
        return
    with pytest.raises(lg.errors.StoredStateInvalid, match=r"exact sums at .*float32.*Engine\(model, graph\)"):
        lg.Engine.load(path)
