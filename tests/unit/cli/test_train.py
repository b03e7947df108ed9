"""`livegnn train`: one TOML file, what is printed and written, what is refused, and going on after an end."""

import csv
import functools
import re
from pathlib import Path

import numpy as np
import pytest

from livegnn import datasets
from livegnn.cli import main
from livegnn.cli.train_config import Config, read_config
from livegnn.errors import DataMissing, ValueInvalid

SMALL = """
[data]
dataset = "jodie_wikipedia"
generated = true
limit = 600
batch = 150
[model]
name = "{name}"
embed_width = 8
time_width = 8
[sampler]
fanouts = [4]
threads = 1
[train]
batch_size = 60
epochs = 1
warm_epochs = 2
replay = 0.2
[output]
folder = "{folder}"
"""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "generate_like", functools.partial(datasets.generate_like, scale=0.01))


def write(folder: Path, name: str = "tgn", more: str = "") -> str:
    path = folder / "train.toml"
    path.write_text(SMALL.format(name=name, folder=folder / "out") + more)
    return str(path)


def rounds(folder: Path) -> list[dict[str, str]]:
    with (folder / "out" / "rounds.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in csv.DictReader(file)]


def test_from_a_file_to_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", write(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "600 events" in out
    assert "Warm start on 180, then rounds of 150." in out
    assert len(re.findall(r"^round +\d+  version", out, re.MULTILINE)) == 3
    assert "Mean AP" in out
    there = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"rounds.csv", "curves.png", "model.pt", "checkpoint.pt", "config.toml"} <= there
    assert [row["round"] for row in rounds(tmp_path)] == ["0", "1", "2", "3"]
    assert read_config(tmp_path / "out" / "config.toml") == read_config(tmp_path / "train.toml")


def test_the_model_can_be_loaded_again(tmp_path: Path) -> None:
    import torch

    from livegnn.temporal.models import build

    assert main(["train", write(tmp_path, "tgat", "\n"), "--set", "model.hop_count=1"]) == 0
    saved = torch.load(tmp_path / "out" / "model.pt", weights_only=True)
    build({"x_width": 0, "edge_width": 0, **saved["config"]}).load_state_dict(saved["weights"])


def test_an_interrupted_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    assert main(["train", write(tmp_path / "whole")]) == 0
    from livegnn.temporal import ContinuousTrainer

    one_round, done = ContinuousTrainer.round, []

    def interrupt(self: ContinuousTrainer) -> object:
        done.append(1)
        if len(done) == 2:
            raise KeyboardInterrupt
        return one_round(self)

    with monkeypatch.context() as patch:
        patch.setattr(ContinuousTrainer, "round", interrupt)
        assert main(["train", write(tmp_path)]) == 130
    assert "Interrupted after 2 rounds" in capsys.readouterr().out
    assert main(["train", write(tmp_path)]) == 0
    assert "goes on after 2 rounds" in capsys.readouterr().out
    assert rounds(tmp_path) == rounds(tmp_path / "whole")
    assert main(["train", write(tmp_path), "--fresh"]) == 0
    assert "goes on" not in capsys.readouterr().out


def test_a_folder_of_another_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", write(tmp_path)]) == 0
    for change, section in (("data.batch=200", "data"), ("model.heads=1", "model"), ("sampler.fanouts=[3]", "sampler")):
        assert main(["train", write(tmp_path), "--set", change]) == 1
        assert f"with another [{section}]" in capsys.readouterr().err
    assert main(["train", write(tmp_path), "--set", "output.tensorboard=false"]) == 0


def test_own_files_with_features_attributes_and_caches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    names = np.array([f"v{i}" for i in range(12)])
    lines = ["who,whom,at,amount,kind"]
    for at in random.permutation(300):  # rows in any order
        u, v = names[random.integers(0, 12, 2)]
        lines.append(f"{u},{v},{at},{random.random():.3f},{random.integers(0, 3)}")
    (tmp_path / "events.csv").write_text("\n".join(lines) + "\n")
    table = ["name,a,b", *(f"{name},{random.random():.3f},1.0" for name in names)]
    (tmp_path / "x.csv").write_text("\n".join(table) + "\n")
    config = f"""
[data]
events = "{tmp_path / "events.csv"}"
features = "{tmp_path / "x.csv"}"
id = "name"
src = "who"
dst = "whom"
time = "at"
attributes = ["amount", "kind"]
undirected = false
batch = 100
[model]
name = "sage"
embed_width = 8
[sampler]
fanouts = [3, 3]
strategy = "uniform"
window = 100
[train]
epochs = 1
warm_epochs = 1
[cache]
vertices = 5
edges = 40
[output]
folder = "{tmp_path / "out"}"
"""
    (tmp_path / "own.toml").write_text(config)
    assert main(["train", str(tmp_path / "own.toml")]) == 0
    assert "12 vertices" in capsys.readouterr().out
    assert len(rounds(tmp_path)) == 4
    assert (tmp_path / "out" / "cache-1.npz").exists()


def test_print_config_is_a_whole_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--print-config", "--set", "train.epochs=7", "--set", "model.name=dysat"]) == 0
    (tmp_path / "all.toml").write_text(capsys.readouterr().out)
    config = read_config(tmp_path / "all.toml")
    assert config.train.epochs == 7
    assert config.model == {"name": "dysat"}
    assert config == Config(train=config.train, model=config.model)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data\n", "expected TOML"),
        ("[dat]\nlimit = 1\n", "keys among data, model"),
        ("limit = 1\n", "keys among"),
        ("[data]\nlimits = 1\n", "keys among dataset.* for data, got 'limits'"),
        ("[data]\nlimit = 1.5\n", r"a whole number for data\.limit, got 1\.5"),
        ("[data]\nlimit = true\n", r"a whole number for data\.limit, got True"),
        ("[data]\nwarm = 'half'\n", r"a number for data\.warm, got 'half'"),
        ("[data]\ngenerated = 1\n", "true or false"),
        ("[sampler]\nfanouts = [1.5]\n", r"a whole number for sampler\.fanouts\[0\], got 1\.5"),
        ("[sampler]\nfanouts = [-2]\n", "a whole number >= -1"),
        ("[data]\nbatch = 0\n", "a whole number >= 1 for data.batch, got 0"),
        ("[data]\nwarm = nan\n", "a number >= 0"),
        ("[data]\nwarm = inf\n", "a number <= 1.79"),
        ("[train]\nseed = -1\n", "a whole number >= 0 for train.seed, got -1"),
        ("[data]\nattributes = 'a'\n", "a list for data.attributes, got 'a'"),
    ],
)
def test_what_is_no_config(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ValueInvalid, match=message):
        read_config(tmp_path / "bad.toml")


@pytest.mark.parametrize("change", ["epochs=1", "train.epochs", "train.=1"])
def test_what_is_no_change(change: str) -> None:
    with pytest.raises(ValueInvalid, match=r"section\.key=value"):
        read_config(None, [change])


def test_a_missing_file() -> None:
    with pytest.raises(DataMissing, match="print-config"):
        read_config(Path("nowhere.toml"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.dataset=nowhere", "data.dataset among"),
        ("data.dataset=cora", "got 'cora'"),
        ("data.warm=0.0", "data.warm to leave events"),
        ("model.name=gcn", "a name among tgn"),
        ("model.widths=3", "arguments of tgn"),
        ("sampler.fanouts=[2, 2]", "1 hops"),
        ("sampler.strategy=oldest", "strategy"),
        ("train.batch_size=0", "batch_size"),
        ("train.device=nowhere", "a device"),
        ("model.embed_width=wide", "[model]"),
        ("cache.policy=mru", "policy"),
    ],
)
def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, message: str) -> None:
    arguments = ["train", write(tmp_path), "--set", change, "--set", "cache.vertices=3"]
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_ids_of_two_kinds_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = tmp_path / "events.csv"
    events.write_text("src,dst,time\n1,2,10\n2,x,15\n")
    config = tmp_path / "file.toml"
    config.write_text(f'[data]\nevents = "{events}"\n[output]\nfolder = "{tmp_path / "out"}"\n')
    assert main(["train", str(config)]) == 1
    assert f"[{events}, row 2, column dst] expected a whole number" in capsys.readouterr().err
