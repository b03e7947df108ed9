"""`livegnn run` on small files: what is written, and what is refused."""

import csv
import re
import resource
from pathlib import Path

import numpy as np
import pytest

from livegnn.cli import main

VERTICES, WIDTH = 12, 4


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with model.pt, x.npy, events.csv."""
    torch, nn = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    torch.save(nn.SAGEConv(WIDTH, 3), tmp_path / "model.pt")
    random = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", random.normal(size=(VERTICES, WIDTH)).astype(np.float32))
    rows = ["src,dst,op,time"]
    rows += [f"{u},{v},add,{t}" for t, (u, v) in enumerate(random.integers(0, VERTICES, (30, 2)))]
    rows.append(rows[5].replace("add", "remove").rsplit(",", 1)[0] + ",30")
    (tmp_path / "events.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def _run(folder: Path, *extra: str, out: str = "out.csv", trust: bool = True) -> int:
    arguments = ["run", "--model", str(folder / "model.pt"), "--features", str(folder / "x.npy")]
    arguments += ["--events", str(folder / "events.csv"), "--out", str(folder / out), "--batch", "7"]
    return main([*arguments, *(["--trust-pickle"] if trust else []), *extra])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_last_row_of_a_vertex_is_its_final_prediction(files: Path) -> None:
    assert _run(files, "--verify", "--time-column", "time") == 0
    assert _run(files, "--final", out="final.csv") == 0
    rows, final = _rows(files / "out.csv"), _rows(files / "final.csv")
    assert sum(row["version"] == "0" for row in rows) == len(final) == VERTICES
    assert {row["version"] for row in rows} <= {str(version) for version in range(6)}
    last = {row["vertex"]: row["prediction"] for row in rows}
    assert last == {row["vertex"]: row["prediction"] for row in final}
    assert not list(files.glob("*.part"))


@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
def test_a_full_disk_is_an_error_that_names_the_file(files: Path, out: str, capsys: pytest.CaptureFixture[str]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        assert _run(files, out=out) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert re.search(rf"\[--out\] expected to write .*{out}, got .*File too large", capsys.readouterr().err)
    assert not (files / out).exists()
    assert not list(files.glob("*.part"))


def test_final_outputs_are_those_of_the_module(files: Path) -> None:
    torch = pytest.importorskip("torch")
    assert _run(files, "--final", "--outputs") == 0
    got = np.array([[float(row[f"y{i}"]) for i in range(3)] for row in _rows(files / "out.csv")])
    edges: list[tuple[int, int]] = []
    for row in _rows(files / "events.csv"):
        edge = (int(row["src"]), int(row["dst"]))
        edges.append(edge) if row["op"] == "add" else edges.remove(edge)
    module = torch.load(files / "model.pt", weights_only=False).double()
    x = torch.from_numpy(np.load(files / "x.npy")).double()
    with torch.no_grad():
        want = module(x, torch.tensor(edges).T).numpy()
    assert np.allclose(got, want, rtol=1e-5, atol=1e-6)


def test_parquet_out(files: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    assert _run(files, out="out.parquet") == 0
    assert pq.read_table(files / "out.parquet").column_names == ["version", "vertex", "prediction"]


@pytest.mark.parametrize("name", ["events.csv", "./events.csv"])
def test_results_do_not_take_the_place_of_what_is_read(
    files: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    before = (files / "events.csv").read_text()
    assert _run(files, out=name) == 1
    assert "expected a file of its own, got one that is read" in capsys.readouterr().err
    assert (files / "events.csv").read_text() == before


def test_a_column_named_twice_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "events.csv").write_text("src,dst,dst\n1,2,3\n")
    assert _run(files) == 1
    assert "events.csv] expected each column once, got 'dst' again" in capsys.readouterr().err


def test_a_pickle_needs_trust(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(files, trust=False) == 1
    assert "executes code" in capsys.readouterr().err
    assert not (files / "out.csv").exists()


def test_a_state_dict_is_refused(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"weight": torch.zeros(2)}, files / "model.pt")
    assert _run(files) == 1
    assert "not its state_dict" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("99,0,add,40", "row 32, column src] expected a vertex"),
        ("0,1,drop,40", "row 32, column op] expected one of add, remove, set_weight"),
        ("0,1,add,3", "row 32, column time] expected a time not before 30"),
        ("0,1,set_weight,40", "row 32, column op] expected --weight-column"),
        ("0,x,add,40", "column dst"),
    ],
)
def test_a_bad_event_is_named(files: Path, capsys: pytest.CaptureFixture[str], row: str, message: str) -> None:
    with (files / "events.csv").open("a") as file:
        file.write(row + "\n")
    assert _run(files, "--time-column", "time") == 1
    error = capsys.readouterr().err
    assert "events.csv" in error
    assert message in error
    assert not (files / "out.csv").exists()


def test_string_ids(files: Path) -> None:
    (files / "people.csv").write_text("who,a,b,c,d\nann,1,0,0,0\nbob,0,1,0,0\ncy,0,0,1,0\n")
    (files / "events.csv").write_text("src,dst\nann,bob\nbob,cy\n")
    assert _run(files, "--features", str(files / "people.csv"), "--id-column", "who", "--final") == 0
    assert [row["vertex"] for row in _rows(files / "out.csv")] == ["ann", "bob", "cy"]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("abc,1,add", r"row 12, column src\] expected .*whole numbers.*'abc'"),
        ("5,5,remove", r"row 12\] the batch was refused: .*remove_edge 5 -> 5"),
    ],
)
def test_an_error_names_its_row(files: Path, capsys: pytest.CaptureFixture[str], row: str, words: str) -> None:
    rows = ["src,dst,op", *["0,1,add"] * 11, row, "1,2,add"]
    (files / "events.csv").write_text("\n".join(rows) + "\n")
    assert _run(files) == 1
    assert re.search(words, capsys.readouterr().err)
