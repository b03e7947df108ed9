"""`livegnn sample`: a data set or the user's files, what is printed and written, and what is refused."""

import csv
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import livegnn as lg
from livegnn import datasets
from livegnn.cli import main, sample, sample_input
from livegnn.cli.events import EventRows, make_updates

LATEST = "g.V().OutV(1).sample(2).by('TopK').OutV().sample(3).by('Random').values"


@pytest.fixture(autouse=True)
def few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_QUERIES", 20)
    monkeypatch.setattr(sample, "_SECONDS", 0.1)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> datasets.TypedStream:
    """The generated data set in small, wherever the command asks for it."""
    make = functools.partial(datasets.generate_typed, scale=0.03)
    monkeypatch.setattr(datasets, "generate_typed", make)
    return make("alibaba_ecomm")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """x.npy, edges.csv and events.csv with types and times, a removal among them."""
    random = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", random.normal(size=(12, 4)).astype(np.float32))
    ends = random.integers(0, 12, (80, 2))
    rows = [f"{u},{v},{random.integers(1, 3)},{t},add" for t, (u, v) in enumerate(ends)]
    (tmp_path / "edges.csv").write_text("src,dst,kind,at\n" + "\n".join(row[:-4] for row in rows[:30]) + "\n")
    gone = rows[10].rsplit(",", 2)[0] + ",80,remove"
    (tmp_path / "events.csv").write_text("src,dst,kind,at,op\n" + "\n".join([*rows[30:], gone]) + "\n")
    return tmp_path


def _run(folder: Path, *extra: str, query: str = LATEST) -> int:
    arguments = ["--features", str(folder / "x.npy"), "--events", str(folder / "events.csv"), "--query", query]
    arguments += ["--edges", str(folder / "edges.csv"), "--type-column", "kind", "--time-column", "at", "--batch", "7"]
    return main(["sample", *arguments, *extra])


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_data_set_from_plan_to_proof(
    small: datasets.TypedStream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "samples.csv"
    assert main(["sample", "--generated", "--batch", "500", "--seeds", "30", "--verify", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    for words in ("GENERATED", "Q2   hop 2   Item -[CoPurchase]-> Item", "records/s", "pre-sampled", "ad hoc"):
        assert words in said
    assert said.splitlines()[-1] == "verify: every kept sample equals a scan of the graph."
    assert "\x1b" not in said
    asked = lg.sampling.Query.parse(sample_input.PAPER_QUERY)
    again = lg.PreSampler(small.graph(), asked)
    for begin in range(0, small.event_count, 500):
        again.apply(small.updates(begin, min(begin + 500, small.event_count)))
    rows = _rows(out)
    assert {row["version"] for row in rows} == {str(again.version)}
    for seed in sorted({int(row["seed"]) for row in rows})[:5]:
        expected = again.sample([seed])
        for k in (1, 2):
            mine = [row for row in rows if (row["seed"], row["hop"]) == (str(seed), str(k))]
            places = [int(row["place"]) for row in mine]
            assert [int(row["vertex"]) for row in mine] == expected.hop(k).reshape(-1)[places].tolist()
            assert [int(row["edge_id"]) for row in mine] == expected.edge_ids(k).reshape(-1)[places].tolist()
            assert len(places) == expected.mask(k).sum()
            if k == 2:
                above = expected.hop(1)[0]
                assert [int(row["parent"]) for row in mine] == [int(above[place // 10]) for place in places]


def test_real_data_that_is_not_there_is_said_and_replaced(
    small: datasets.TypedStream,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LIVEGNN_DATA", str(tmp_path))
    assert main(["sample", "--explain"]) == 0
    said = capsys.readouterr().out
    assert "LIVEGNN_DATA" in said
    assert "GENERATED" in said
    assert "The stream" not in said


def test_files_of_ones_own(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "seeds.txt").write_text("3\n5\n3\n")
    out = files / "out.csv"
    assert _run(files, "--verify", "--seeds", str(files / "seeds.txt"), "--out", str(out)) == 0
    assert "51 records" in capsys.readouterr().out
    table = [*_rows(files / "edges.csv"), *_rows(files / "events.csv")[:-1]]
    removed = _rows(files / "events.csv")[-1]
    same = [i for i, row in enumerate(table) if all(row[key] == removed[key] for key in ("src", "dst", "kind"))]
    latest = [
        (row["dst"], str(i))
        for i, row in reversed(list(enumerate(table)))
        if row["src"] == "3" and row["kind"] == "1" and i != same[-1]
    ][:2]
    got = [(row["vertex"], row["edge_id"]) for row in _rows(out) if row["seed"] == "3" and row["hop"] == "1"]
    assert got == latest * 2


def test_files_with_types_of_vertices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("id,kind,a\nann,User,1\nbob,User,2\ntea,Item,3\njam,Item,4\n")
    (tmp_path / "e.csv").write_text(
        "src,dst,what,at\nann,tea,Click,1\nann,jam,Click,2\nbob,tea,Buy,2\njam,tea,With,3\n"
    )
    out = tmp_path / "out.csv"
    arguments = ["--features", str(tmp_path / "x.csv"), "--events", str(tmp_path / "e.csv"), "--out", str(out)]
    arguments += ["--id-column", "id", "--vertex-type-column", "kind", "--type-column", "what", "--time-column", "at"]
    query = "g.V('User', ID).OutV('Click').sample(2).by('TopK').OutV('With').sample(1).values"
    assert main(["sample", *arguments, "--query", query, "--verify", "--batch", "2"]) == 0
    got = [(row["seed"], row["hop"], row["vertex"], row["parent"]) for row in _rows(out)]
    assert got == [("ann", "1", "jam", "ann"), ("ann", "1", "tea", "ann"), ("ann", "2", "tea", "jam")]
    assert main(["sample", *arguments, "--query", query.replace("With", "Sold")]) == 1
    assert "expected an edge type" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("vertices", "edges", "words"),
    [
        ("1,User,1\n1,Item,2\n", "1,1,Click\n", "expected ids that are all different"),
        ("1,User,1\n2,,2\n", "1,2,Click\n", "row 2, column kind] expected a type, got ''"),
        ("1,User,1\n2,Item,2\n", "1,2,Click\n1,2,\n", "row 2, column what] expected the name of an edge type, got ''"),
    ],
)
def test_bad_types(tmp_path: Path, capsys: pytest.CaptureFixture[str], vertices: str, edges: str, words: str) -> None:
    (tmp_path / "x.csv").write_text("id,kind,a\n" + vertices)
    (tmp_path / "e.csv").write_text("src,dst,what\n" + edges)
    arguments = ["--features", str(tmp_path / "x.csv"), "--events", str(tmp_path / "e.csv"), "--id-column", "id"]
    arguments += ["--vertex-type-column", "kind", "--type-column", "what"]
    assert main(["sample", *arguments, "--query", "g.V('User', ID).OutV('Click').sample(2)"]) == 1
    assert words in capsys.readouterr().err


def test_a_query_as_json_or_from_a_file(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = lg.sampling.Query.parse(LATEST)
    (files / "query.txt").write_text("# the latest two\n" + LATEST)
    assert _run(files, "--explain", query=query.to_json()) == 0
    assert _run(files, "--explain", query=f"@{files / 'query.txt'}") == 0
    first, second = capsys.readouterr().out.split("== The plan")[1:]
    assert first.strip() == second.strip()
    assert query.to_text() in first


def test_expired_edges_are_left_out(files: Path) -> None:
    out = files / "out.csv"
    assert _run(files, "--ttl", "10", "--ttl", "2=5", "--seeds", "12", "--verify", "--out", str(out)) == 1  # hop 2: any
    asked = LATEST.replace("OutV()", "OutV(2)")
    assert _run(files, "--ttl", "10", "--ttl", "2=5", "--seeds", "12", "--verify", "--out", str(out), query=asked) == 0
    rows = _rows(out)
    assert rows
    assert all(int(row["edge_id"]) > (69 if row["hop"] == "1" else 74) for row in rows)


def test_parquet_out(files: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    assert _run(files, "--out", str(files / "out.parquet")) == 0
    table = pq.read_table(files / "out.parquet")
    assert table.column_names == ["version", "seed", "hop", "place", "vertex", "edge_id", "parent"]
    assert table.num_rows > 0
    none = LATEST.replace("OutV(1)", "OutV(9)")
    assert _run(files, "--out", str(files / "none.parquet"), query=none) == 0
    assert pq.read_table(files / "none.parquet").num_rows == 0


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--query", "g.V().OutV(1).sample(0)"], "expected a fan-out from 1 to 65535, got 0"),
        (["--query", "@nothing.txt"], "[--query @nothing.txt] expected a file"),
        (["--seeds", "0"], "expected at least one seed"),
        (["--seeds", "nothing.txt"], "[--seeds nothing.txt] expected a file or a number"),
        (["--ttl", "1h"], "[--ttl 1h] expected DURATION or TYPE=DURATION, got '1h'"),
        (["--ttl", "1=3", "--ttl", "1=4"], "[--ttl 1=4] expected each type once"),
        (["--out", "samples.txt"], "expected .parquet or .csv"),
        (["--type-column", "sort"], "expected a column 'sort'"),
        (["--vertex-type-column", "kind"], "expected no columns of ids, types or features with .npy"),
    ],
)
def test_refusals(files: Path, capsys: pytest.CaptureFixture[str], extra: list[str], words: str) -> None:
    assert _run(files, *extra) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--ttl", "1h"], "[--ttl 1h] expected"),
        (["--seeds", "0"], "[--seeds 0] expected"),
        (["--seeds", "nothing.txt"], "[--seeds nothing.txt] expected"),
        (["--out", "samples.txt"], "[samples.txt] expected"),
        (["--query", "@nothing.txt"], "[--query @nothing.txt] expected"),
        ([], "expected --query"),
    ],
)
def test_options_are_refused_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], extra: list[str], words: str
) -> None:
    assert main(["sample", "--features", "none.npy", "--events", "none.csv", *extra]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "row", "words"),
    [
        ("events.csv", "1,2,1,90,drop", "row 52, column op] expected one of add, remove, set_weight"),
        ("events.csv", "1,2,-4,90,add", "row 52, column kind] expected an edge type from 0"),
        ("events.csv", "1,2,1,now,add", "row 52, column at] expected a whole number"),
        ("events.csv", "1,1,7,90,remove", "row 52] the batch was refused"),
        ("events.csv", "1,99,1,90,add", "row 52, column dst] expected a vertex of"),
    ],
)
def test_a_bad_row_is_named(files: Path, capsys: pytest.CaptureFixture[str], file: str, row: str, words: str) -> None:
    with (files / file).open("a") as text:
        text.write(row + "\n")
    assert _run(files) == 1
    assert words in capsys.readouterr().err


def test_edges_only_add(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(files, "--edges", str(files / "events.csv")) == 1
    assert "row 51, column op] expected add in a file of edges, got 'remove'" in capsys.readouterr().err


def test_seeds_are_vertices(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, words in (("1\n12\n", "row 2] expected a vertex, got '12'"), ("\n", "got an empty file")):
        (files / "seeds.txt").write_text(text)
        assert _run(files, "--seeds", str(files / "seeds.txt")) == 1
        assert words in capsys.readouterr().err


def test_files_come_with_a_query_and_in_pairs(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = ["--features", str(files / "x.npy"), "--events", str(files / "events.csv")]
    assert main(["sample", *two]) == 1
    assert "expected --query" in capsys.readouterr().err
    for alone in (two[:2], two[2:]):
        with pytest.raises(SystemExit) as end:
            main(["sample", *alone])
        assert end.value.code == 2


def test_ctrl_c_reports_what_was_done(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def third_batch(events: EventRows, begin: int, end: int) -> lg.Updates:
        if begin == 14:
            raise KeyboardInterrupt
        return make_updates(events, begin, end)

    monkeypatch.setattr("livegnn.cli.events.make_updates", third_batch)
    assert _run(files, "--verify", "--out", str(files / "out.csv")) == 130
    said = capsys.readouterr().out
    assert "Interrupted after 2 batches" in said
    assert "14 records in" in said
    assert "verify" not in said
    assert {row["version"] for row in _rows(files / "out.csv")} == {"2"}


def test_ctrl_c_among_the_queries(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("livegnn.sampling.AdHocSampler.sample", interrupted)
    assert _run(files, "--verify") == 130
    said = capsys.readouterr().out
    assert "Interrupted after 1 of 2 ways" in said
    assert "pre-sampled" in said
    assert "verify" not in said


def test_samples_do_not_take_the_place_of_seeds_or_query(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "seeds.csv").write_text("0\n1\n")
    (files / "query.csv").write_text(LATEST)
    for name, extra in (("seeds", []), ("query", ["--query", f"@{files / 'query.csv'}"])):
        before = (files / f"{name}.csv").read_text()
        assert _run(files, "--seeds", str(files / "seeds.csv"), "--out", str(files / f"{name}.csv"), *extra) == 1
        assert "expected a file of its own" in capsys.readouterr().err
        assert (files / f"{name}.csv").read_text() == before
