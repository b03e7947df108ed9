"""`livegnn demo --quick` from end to end, and its ways of serving against each other."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("matplotlib")

from livegnn.cli import main
from livegnn.cli.demo import experiment as st
from livegnn.cli.demo import replay as play
from livegnn.datasets import generate_like


@pytest.mark.parametrize("dataset", ["ethereum_phishing", "bitcoin_otc"])
def test_quick_demo(dataset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "demo.png"
    assert main(["demo", "--quick", "--dataset", dataset, "--out", str(picture)]) == 0
    text = capsys.readouterr().out
    for words in (
        "GENERATED",
        "updates per second",
        "p99",
        "speed-up",
        "sampled, fan-out 20",
        "retrained",
        "bit for bit",
    ):
        assert words in text
    assert all(character == "\n" or character.isprintable() for character in text)
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert _size(picture) == (1200, 800)


def _size(picture: Path) -> tuple[int, int]:
    header = picture.read_bytes()[16:24]
    return int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")


@pytest.fixture(scope="module")
def played() -> play.Played:
    story = st.prepare(generate_like("ethereum_phishing", 2, scale=0.03), seed=2)
    options = play.PlayOptions(batch=50, checkpoints=6, retrain=False, fanouts=(2,), epochs=30)
    return play.Player(story, st.train(story, epochs=30), options).run(lambda _: None)


def test_live_predictions_are_those_of_pyg(played: play.Played) -> None:
    assert played.deviation_max < 1e-5


def test_every_way_is_judged_at_every_moment(played: play.Played) -> None:
    assert list(played.scores) == ["live", "periodic", "sampled 2"]
    assert len(played.events_done) == len(played.truths) == 7
    for way, rows in played.scores.items():
        assert [len(row) for row in rows] == [len(truth) for truth in played.truths], way
        assert all(np.isfinite(row).all() for row in rows)


def test_periodic_is_live_at_a_refresh_and_stale_after(played: play.Played) -> None:
    for event, live, periodic in zip(played.events_done, played.scores["live"], played.scores["periodic"], strict=True):
        close = np.allclose(live, periodic, rtol=1e-4, atol=1e-5)
        assert close == (event in played.refreshed_at)


def test_ctrl_c_leaves_a_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, calls = play.Player._apply, iter(range(1000))

    def interrupted(self: play.Player, begin: int, end: int) -> None:
        if next(calls) == 20:
            raise KeyboardInterrupt
        real(self, begin, end)

    monkeypatch.setattr(play.Player, "_apply", interrupted)
    assert main(["demo", "--quick", "--out", str(tmp_path / "demo.png")]) == 130
    text = capsys.readouterr().out
    assert "Interrupted after 1,000 of" in text
    assert "updates per second" in text
    assert (tmp_path / "demo.png").exists()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--seed", "-1", "expected at least 0, got -1"),
        ("--out", "demo.xyz", "expected a file .png, .pdf or .svg, got .xyz"),
        ("--out", ".", "expected a file .png, .pdf or .svg, got a folder"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], option: str, value: str, words: str
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["demo", option, value])
    assert end.value.code == 2
    assert words in capsys.readouterr().err
