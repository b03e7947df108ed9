"""Raw files of the form that PyG's and OGB's classes download, against what those classes make of them."""

import gzip
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livegnn import datasets
from livegnn.cli import main
from livegnn.errors import DataMissing

RNG = np.random.default_rng(0)
REAL = (
    "jodie_wikipedia",
    "jodie_reddit",
    "jodie_mooc",
    "jodie_lastfm",
    "bitcoin_otc",
    "elliptic_bitcoin",
    "ogbn_arxiv",
)


@pytest.fixture(autouse=True)
def no_other_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LIVEGNN_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


# ---- files of the classes' forms, below the root that the class takes


def _jodie(root: Path, name: str = "wikipedia") -> None:
    folder = root / name / "raw"
    folder.mkdir(parents=True)
    rows = ["user_id,item_id,timestamp,state_label,comma_separated_list_of_features"]
    rows += [f"{i % 5},{i % 3},{36 * i}.{i % 2},{i % 2},-0.1,{i / 7}" for i in range(20)]
    (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")


def _otc(root: Path) -> None:
    (root / "raw").mkdir(parents=True)
    ends = RNG.choice([1, 2, 5, 6005, 77], (25, 2))
    rows = [f"{u},{v},{RNG.integers(-10, 11)},{1289241911 + 86_400 * i}.72836" for i, (u, v) in enumerate(ends)]
    (root / "raw" / "soc-sign-bitcoinotc.csv").write_text("\n".join(rows) + "\n")


def _elliptic(root: Path) -> None:
    folder = root / "raw"
    folder.mkdir(parents=True)
    ids = RNG.permutation(np.arange(230_000_000, 230_000_012))
    steps = np.sort(np.r_[[1, 34, 35, 49], RNG.integers(1, 50, 8)])
    rows = [f"{v},{t}," + ",".join(f"{x:.6f}" for x in RNG.normal(size=165)) for v, t in zip(ids, steps, strict=True)]
    (folder / "elliptic_txs_features.csv").write_text("\n".join(rows) + "\n")
    edges = ["txId1,txId2", *(f"{u},{v}" for u, v in RNG.choice(ids, (15, 2)))]
    (folder / "elliptic_txs_edgelist.csv").write_text("\n".join(edges) + "\n")
    classes = ["txId,class", *(f"{v},{('unknown', '1', '2')[i % 3]}" for i, v in enumerate(ids))]
    (folder / "elliptic_txs_classes.csv").write_text("\n".join(classes) + "\n")


def _arxiv(root: Path) -> None:
    folder, split = root / "ogbn_arxiv" / "raw", root / "ogbn_arxiv" / "split" / "time"
    for each in (folder, split):
        each.mkdir(parents=True)
    tables = {
        folder / "edge": RNG.integers(0, 9, (30, 2)),
        folder / "node-feat": RNG.normal(size=(9, 128)).round(6),
        folder / "node-label": RNG.integers(0, 40, (9, 1)),
        folder / "node_year": RNG.integers(1990, 2021, (9, 1)),
        split / "train": np.array([[0], [3], [4], [8]]),
        split / "valid": np.array([[1], [2]]),
        split / "test": np.array([[5], [6], [7]]),
    }
    for path, table in tables.items():
        with gzip.open(f"{path}.csv.gz", "wt") as file:
            file.writelines(",".join(map(str, row)) + "\n" for row in table.tolist())


def _write(name: str, root: Path) -> None:
    if name.startswith("jodie"):
        _jodie(root, name.removeprefix("jodie_"))
    else:
        {"bitcoin_otc": _otc, "elliptic_bitcoin": _elliptic, "ogbn_arxiv": _arxiv}[name](root)


# ---- against PyG's classes


@pytest.fixture
def pyg() -> Any:
    pytest.importorskip("pandas")  # which the classes read their files with
    return pytest.importorskip("torch_geometric.datasets")


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # of PyG's, with a new pandas
def test_jodie_is_what_pyg_makes_of_it(pyg: Any, tmp_path: Path) -> None:
    _jodie(tmp_path)
    made = pyg.JODIEDataset(str(tmp_path), "wikipedia")
    stream = datasets.load("jodie_wikipedia", root=tmp_path)
    data = made[0]
    for ours, theirs in ((stream.src, data.src), (stream.dst, data.dst), (stream.time, data.t)):
        assert np.array_equal(ours, theirs.numpy())
    assert stream.vertex_count == 8
    assert stream.is_bipartite
    for _ in range(2):
        again = datasets.from_pyg(made)
        assert np.array_equal(again.dst, stream.dst)
        assert np.array_equal(again.time, stream.time)
        assert again.is_bipartite
        (tmp_path / "wikipedia" / "raw" / "wikipedia.csv").unlink(missing_ok=True)  # then from the processed file


def test_bitcoin_otc_is_what_pyg_makes_of_it_with_times(pyg: Any, tmp_path: Path) -> None:
    _otc(tmp_path)
    made = pyg.BitcoinOTC(str(tmp_path), edge_window_size=1)
    theirs = np.concatenate([data.edge_index.numpy() for data in made], axis=1)
    ratings = np.concatenate([data.edge_attr.numpy() for data in made])
    stream = datasets.from_pyg(made)
    traders = np.unique(theirs)  # PyG leaves gaps between ids
    assert np.array_equal(traders[np.stack([stream.src, stream.dst])], theirs)
    assert np.array_equal(stream.weight, ratings)
    assert stream.time is not None
    assert stream.time[:2].tolist() == [1289241911, 1289328311]
    assert stream.vertex_count == len(traders)
    (tmp_path / "raw" / "soc-sign-bitcoinotc.csv").unlink()
    with pytest.raises(DataMissing, match=r"expected the raw files of .*BitcoinOTC"):
        datasets.from_pyg(made)


def test_elliptic_is_what_pyg_makes_of_it_with_times(pyg: Any, tmp_path: Path) -> None:
    _elliptic(tmp_path)
    data = pyg.EllipticBitcoinDataset(str(tmp_path))[0]
    stream = datasets.load("elliptic_bitcoin", root=tmp_path)
    ours, theirs = (sorted(zip(*each, strict=True)) for each in ((stream.src, stream.dst), data.edge_index.tolist()))
    assert ours == theirs
    assert np.array_equal(stream.features, data.x.numpy())
    assert np.array_equal(stream.labels, np.where(data.y == 2, -1, data.y))
    assert np.array_equal(stream.split == 0, data.train_mask)
    assert np.array_equal(stream.split == 2, data.test_mask)
    steps = np.loadtxt(tmp_path / "raw" / "elliptic_txs_features.csv", delimiter=",")[:, 1]
    assert np.array_equal(stream.time, np.maximum(steps[stream.src], steps[stream.dst]))
    assert (np.diff(stream.time) >= 0).all()


def test_arxiv_is_what_its_files_hold(tmp_path: Path) -> None:
    _arxiv(tmp_path)
    raw = tmp_path / "ogbn_arxiv" / "raw"
    edges, years, x, y = (
        np.loadtxt(raw / f"{name}.csv.gz", delimiter=",") for name in ("edge", "node_year", "node-feat", "node-label")
    )
    stream = datasets.load("ogbn_arxiv", root=tmp_path)
    assert sorted(zip(stream.src, stream.dst, strict=True)) == sorted(map(tuple, edges.tolist()))
    assert np.array_equal(stream.time, years[stream.src])
    assert (np.diff(stream.time) >= 0).all()
    assert np.array_equal(stream.features, x.astype(np.float32))
    assert np.array_equal(stream.labels, y)
    assert stream.split is not None
    assert stream.split.tolist() == [0, 1, 1, 0, 0, 2, 2, 2, 0]


def test_our_own_files_and_the_published_ones_are_one_graph(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _otc(tmp_path / "published")
    published = datasets.load("bitcoin_otc", root=tmp_path / "published")
    folder = tmp_path / "own" / "bitcoin_otc"
    folder.mkdir(parents=True)
    ids = np.arange(published.vertex_count)
    columns = {"src": published.src, "dst": published.dst, "t": published.time, "rating": published.weight}
    np.savez(folder / "edges.npz", node_id=ids, **columns)
    monkeypatch.setenv("LIVEGNN_DATA", str(tmp_path / "own"))
    own = datasets.load("bitcoin_otc")
    for name in ("src", "dst", "time", "weight"):
        assert np.array_equal(getattr(own, name), getattr(published, name))
    assert own.vertex_count == published.vertex_count


# ---- where they are found


@pytest.mark.parametrize("name", REAL)
def test_a_downloaded_graph_is_found_in_the_cache_and_by_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    with pytest.raises(DataMissing, match="download=True"):
        datasets.load(name)
    _write(name, tmp_path / "cache" / "livegnn" / name)
    assert datasets.load(name).name == name
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("LIVEGNN_DATA", str(tmp_path / "cache" / "livegnn"))
    stream = datasets.load(name)
    assert stream.event_count == {"jodie": 20, "bitco": 25, "ellip": 15, "ogbn_": 30}[name[:5]]
    assert not stream.generated


def test_a_root_without_the_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"soc-sign-bitcoinotc\.csv in .*raw, got not all of them"):
        datasets.load("bitcoin_otc", root=tmp_path)
    with pytest.raises(DataMissing, match="with root=, got 'cora'"):
        datasets.load("cora", root=tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    _otc(tmp_path)
    (tmp_path / "raw" / "soc-sign-bitcoinotc.csv").write_text("1,2,3,4\n1,2,x,5\n")
    with pytest.raises(DataMissing, match=r"soc-sign-bitcoinotc\.csv\] expected whole numbers, got"):
        datasets.load("bitcoin_otc", root=tmp_path)


# ---- downloads, with what the network would bring


def test_pygs_class_downloads_into_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jodie = pytest.importorskip("torch_geometric.datasets.jodie")
    _jodie(tmp_path / "network")

    def from_network(url: str, folder: str) -> None:
        name = url.rpartition("/")[2]
        (Path(folder) / name).write_bytes((tmp_path / "network" / "wikipedia" / "raw" / name).read_bytes())

    monkeypatch.setattr(jodie, "download_url", from_network)
    assert datasets.load("jodie_wikipedia", download=True).event_count == 20
    assert datasets.load("jodie_wikipedia").event_count == 20  # from the cache
    assert [path.name for path in (tmp_path / "cache" / "livegnn").iterdir()] == ["jodie_wikipedia"]


def test_ogbs_class_downloads_into_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class PygNodePropPredDataset:  # the constructor's order of work, as OGB has it
        def __init__(self, name: str, root: str = "dataset") -> None:
            assert name == "ogbn-arxiv"
            _arxiv(Path(root))
            self.process()

    module = types.ModuleType("ogb.nodeproppred")
    module.PygNodePropPredDataset = PygNodePropPredDataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ogb", types.ModuleType("ogb"))
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", module)
    assert datasets.load("ogbn_arxiv", download=True).event_count == 30
    assert datasets.load("ogbn_arxiv").event_count == 30


def test_a_download_that_breaks_off_leaves_nothing_and_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = pytest.importorskip("torch_geometric.datasets.bitcoin_otc")

    def broken(url: str, folder: str) -> None:
        (Path(folder) / "soc-sign-bitcoinotc.csv").write_text("1,2,3,4\n")  # a part of it
        raise OSError("no route to host")

    monkeypatch.setattr(module, "download_url", broken)
    with pytest.raises(DataMissing, match="expected BitcoinOTC to download bitcoin_otc, got: no route to host; try"):
        datasets.load("bitcoin_otc", download=True)
    assert not list((tmp_path / "cache" / "livegnn").iterdir())
    assert datasets.load_or_generate("bitcoin_otc", download=True).generated


# ---- the command line


def test_the_demo_downloads_what_is_not_at_hand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch_geometric")
    from livegnn.cli.console import Console
    from livegnn.cli.demo import command

    def fetch(name: str, known: object) -> Path:
        root = tmp_path / "cache" / "livegnn" / name
        _write(name, root)
        return root

    monkeypatch.setattr("livegnn.datasets.streams.fetch", fetch)
    options = types.SimpleNamespace(dataset=None, quick=False, generated=False, seed=0)
    stream = command.stream_of(options, Console(plain=True))  # type: ignore[arg-type]
    assert (stream.name, stream.generated) == ("bitcoin_otc", False)
    assert capsys.readouterr().out == "No data at hand: downloading bitcoin_otc, which PyG knows.\n"
    options.dataset = "ethereum_phishing"
    stream = command.stream_of(options, Console(plain=True))  # type: ignore[arg-type]
    assert stream.generated
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1
    assert said[0].startswith("This stream is GENERATED, as the real one is missing: [datasets] expected a folder of")
    assert "set LIVEGNN_DATA" in said[0]


def test_training_says_in_one_line_that_a_data_set_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch_geometric")
    out = ["--set", f"output.folder={tmp_path / 'out'}"]
    assert main(["train", "--set", "data.dataset=ogbn_arxiv", *out]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert "expected ogbn_arxiv in" in said.err
