"""What users' files have and the command line takes, or answers with the option that is missing."""

import csv
from pathlib import Path

import numpy as np
import pytest

from livegnn import datasets, files
from livegnn.cli import main
from livegnn.cli.train_config import Config, read_config
from livegnn.errors import ValueInvalid


def _column(folder: Path, *cells: str) -> files.Table:
    path = folder / "events.csv"
    path.write_text("\n".join(["at", *cells]) + "\n")
    return files.read_table(path)


# ---- dates


@pytest.mark.parametrize(
    ("cells", "times"),
    [
        (["1700000000", "1700000001"], [1_700_000_000, 1_700_000_001]),
        (["0.0", "36.0", "-5"], [0, 36, -5]),
        (["20240531"], [20_240_531]),  # a whole number before all
        (["1970-01-01", "1970-01-02"], [0, 86_400_000_000]),
        (["1970-01-01T00:00:01Z", "1970-01-01 00:00:02.5"], [1_000_000, 2_500_000]),
        (["1970-01-01T02:00:00+02:00", "1969-12-31T23:59:59Z"], [0, -1_000_000]),
        (["9007199254740993"], [9_007_199_254_740_993]),  # 2^53 + 1, which no float holds
    ],
)
def test_times_are_numbers_or_dates(tmp_path: Path, cells: list[str], times: list[int]) -> None:
    assert _column(tmp_path, *cells).times("at").tolist() == times


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1", "soon"], r"row 2, column at\] expected a whole number or a date such as .*, got 'soon'; fix the file"),
        (["1", "1.5"], r"row 2.* got '1\.5'; count in a smaller unit, such as milliseconds"),
        (["1", "2024-01-01"], r"row 2.* expected a whole number or a date .* got '2024-01-01'"),
        (["2024-01-01", "7"], r"row 2.* expected a date as in row 1, got '7'; write every row as a date, or every"),
        (["01/02/2024"], r"row 1.* got '01/02/2024'"),  # day or month first?
        (["9223372036854775808"], r"row 1, column at\] expected a whole number"),
        (["nan"], r"row 1.* got 'nan'"),
    ],
)
def test_a_wrong_time_names_its_row(tmp_path: Path, cells: list[str], words: str) -> None:
    with pytest.raises(ValueInvalid, match=words):
        _column(tmp_path, *cells).times("at")


def test_dates_of_parquet_are_those_of_csv(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    dates = np.array(["1970-01-02", "NaT"], "datetime64[s]")
    pq.write_table(pa.table({"at": dates[:1]}), tmp_path / "events.parquet")
    assert files.read_table(tmp_path / "events.parquet").times("at").tolist() == [86_400_000_000]
    pq.write_table(pa.table({"at": dates}), tmp_path / "events.parquet")
    with pytest.raises(ValueInvalid, match=r"row 2, column at\] expected a date"):
        files.read_table(tmp_path / "events.parquet").times("at")


# ---- sample


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """x.csv without ids, and events.csv with dates, weights and types."""
    (tmp_path / "x.csv").write_text("a,b\n1,0\n0,1\n1,1\n")
    (tmp_path / "events.csv").write_text("src,dst,at,w,kind\n0,1,2024-01-02,1,1\n0,2,2024-01-03T04:05:06Z,2,1\n")
    return tmp_path


def _sample(folder: Path, query: str, *extra: str) -> int:
    named = ["--features", str(folder / "x.csv"), "--events", str(folder / "events.csv"), "--seeds", "3"]
    return main(["sample", *named, "--query", query, *extra])


def test_the_latest_by_date_is_sampled(plain: Path) -> None:
    out = plain / "out.csv"
    query = "g.V().OutV().sample(1).by('TopK').values"
    assert _sample(plain, query, "--time-column", "at", "--verify", "--out", str(out)) == 0
    with out.open(newline="") as file:
        assert [(row["seed"], row["vertex"]) for row in csv.DictReader(file)] == [("0", "2")]


def test_files_keep_one_clock(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plain / "edges.csv").write_text("src,dst,at\n0,1,1700000000\n")
    query = "g.V().OutV().sample(1).by('TopK').values"
    assert _sample(plain, query, "--time-column", "at", "--edges", str(plain / "edges.csv")) == 1
    said = capsys.readouterr().err
    assert "edges.csv, row 1, column at] expected dates as in" in said
    assert "got '1700000000'" in said


@pytest.mark.parametrize(
    ("query", "extra", "words"),
    [
        ("g.V('User', ID).OutV().sample(1)", [], "for 'User', got files without; pass --vertex-type-column NAME, or"),
        ("g.V().OutV('Click').sample(1)", ["--type-column", "kind"], "for 'Click', got files without; pass --vertex-"),
        ("g.V().OutV(1).sample(1)", [], "edges with types for 1, got files without; pass --type-column NAME"),
        ("g.V().OutV().sample(1).by('TopK')", [], "edges with times for 'top_k', got files without; pass --time-col"),
        ("g.V().OutV().sample(1).by('EdgeWeight')", [], "edges with weights for 'weighted', got files without; pass"),
    ],
)
def test_a_query_names_the_option_that_it_misses(
    plain: Path, capsys: pytest.CaptureFixture[str], query: str, extra: list[str], words: str
) -> None:
    assert _sample(plain, query, *extra) == 1
    assert words in capsys.readouterr().err


def test_a_query_with_its_options_runs(plain: Path) -> None:
    assert _sample(plain, "g.V().OutV(1).sample(1)", "--type-column", "kind") == 0
    assert _sample(plain, "g.V().OutV().sample(1).by('EdgeWeight')", "--weight-column", "w") == 0


# ---- run


def _run(folder: Path, module: str, *extra: str) -> int:
    torch, nn = pytest.importorskip("torch"), pytest.importorskip("torch_geometric.nn")
    made = nn.SAGEConv(2, 3) if module == "plain" else None
    if made is None:
        names = "x, edge_index, edge_weight"
        made = nn.Sequential(names, [(nn.GCNConv(2, 3), f"{names} -> x")])
    torch.save(made, folder / "model.pt")
    named = ["--features", str(folder / "x.csv"), "--events", str(folder / "events.csv")]
    return main(
        ["run", "--model", str(folder / "model.pt"), "--trust-pickle", "--out", str(folder / "o.csv"), *named, *extra]
    )


@pytest.mark.parametrize(
    ("features", "src", "words"),
    [
        ("who,a\nann,1\nbob,0\n", "0", "who] expected a number, got 'ann'; if it holds ids, pass --id-column who"),
        ("a,b\n1,0\n0,1\n", "ann", "got 'ann'; vertices are row numbers from 0, unless --id-column NAME names"),
        ("id,b\n10,0\n20,1\n", "10", "got 10; vertices are row numbers from 0, unless --id-column NAME names"),
        ("a,b\n1,\n0,1\n", "0", "column b] expected a number, got ''; fix the file"),
    ],
)
def test_ids_without_their_column_are_hinted_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], features: str, src: str, words: str
) -> None:
    (tmp_path / "x.csv").write_text(features)
    (tmp_path / "events.csv").write_text(f"src,dst\n{src},{src}\n")
    assert _run(tmp_path, "plain") == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("bad", ["-7", "1e38"])
def test_a_bad_weight_names_its_row(plain: Path, capsys: pytest.CaptureFixture[str], bad: str) -> None:
    rows = ["src,dst,w", "0,1,1", "1,2,-0.5", "1,0,2", f"1,2,{bad}", "2,0,3"]
    (plain / "events.csv").write_text("\n".join(rows) + "\n")
    assert _run(plain, "weighted", "--weight-column", "w") == 1
    assert f"events.csv, row 4] the batch was refused: weight {float(bad):g}: " in capsys.readouterr().err
    (plain / "edges.csv").write_text("\n".join(rows) + "\n")
    (plain / "events.csv").write_text("src,dst,w\n0,1,1\n")
    assert _run(plain, "weighted", "--weight-column", "w", "--edges", str(plain / "edges.csv")) == 1
    assert f"edges.csv, row 4] the graph was refused: weight {float(bad):g}: " in capsys.readouterr().err


def test_a_model_that_reads_weights_asks_for_their_column(plain: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(plain, "weighted") == 1
    assert "expected edge weights, which it reads, got none; name their --weight-column" in capsys.readouterr().err


# ---- train


@pytest.mark.parametrize(
    ("data", "ways"),
    [
        ('dataset = "jodie_wikipedia"', "both ways along every edge"),
        ('dataset = "bitcoin_otc"', "from src to dst"),
        ('dataset = "bitcoin_otc"\nundirected = true', "both ways along every edge"),
        ('dataset = "jodie_wikipedia"\nundirected = false', "from src to dst"),
        ("", "from src to dst"),
    ],
)
def test_messages_flow_both_ways_where_it_is_asked_for_or_nothing_else_makes_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: str, ways: str
) -> None:
    make = datasets.generate_like
    monkeypatch.setattr(datasets, "generate_like", lambda name: make(name, scale=0.01))
    if not data:
        rows = [f"{i % 7},{i % 5},2024-01-{1 + i // 4:02}T00:00:{i % 4:02}" for i in range(80)]
        (tmp_path / "events.csv").write_text("\n".join(["src,dst,time", *rows]) + "\n")
        data = f'events = "{tmp_path / "events.csv"}"'
    text = f"""
[data]
{data}
generated = true
limit = 60
batch = 50
[model]
name = "sage"
embed_width = 4
[sampler]
fanouts = [2, 2]
[train]
epochs = 1
warm_epochs = 1
[output]
folder = "{tmp_path / "out"}"
"""
    (tmp_path / "train.toml").write_text(text)
    assert main(["train", str(tmp_path / "train.toml")]) == 0
    assert f"Messages flow {ways}." in capsys.readouterr().out


def test_the_default_is_auto_and_is_written_and_read_back(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text(Config().to_toml())
    assert read_config(tmp_path / "train.toml") == Config()
    assert read_config(None).data.undirected == "auto"
    with pytest.raises(ValueInvalid, match="undirected"):
        read_config(None, ["data.undirected=maybe"])


def test_ids_of_a_training_file_are_hinted_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("name,a\nann,1\nbob,2\n")
    (tmp_path / "events.csv").write_text("src,dst,time\nann,bob,10\nbob,cy,15\n")
    text = f'[data]\nevents = "{tmp_path / "events.csv"}"\nfeatures = "{tmp_path / "x.csv"}"\n'
    (tmp_path / "train.toml").write_text(text + f'[output]\nfolder = "{tmp_path / "out"}"\n')
    assert main(["train", str(tmp_path / "train.toml")]) == 1
    assert "got 'ann'; if it holds ids, pass --set data.id=name" in capsys.readouterr().err
    assert main(["train", str(tmp_path / "train.toml"), "--set", "data.id=name"]) == 1
    assert "events.csv, row 2, column dst] expected a vertex of" in capsys.readouterr().err
