"""Plain output is plain: text and line ends, nothing else."""

import pytest

from livegnn.cli.console import Console


def test_plain_output_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(plain=True)
    console.heading("Speed")
    console.good("verified")
    console.warn("careful [not markup]")
    console.table(["what", "ms"], [["batch", "1.5"], ["full run", "20.25"]], strong=0)
    with console.progress(8, "events") as advance:
        for done in range(1, 9):
            advance(done, "fast")
    text = capsys.readouterr().out
    assert all(character == "\n" or character.isprintable() for character in text)
    assert "careful [not markup]" in text
    assert [line for line in text.splitlines() if line.startswith("events")] == [
        "events: 25%  fast",
        "events: 50%  fast",
        "events: 75%  fast",
        "events: 100%  fast",
    ]


def test_not_a_terminal_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    assert Console().is_plain


def test_no_colour_where_no_color_is_set(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = Console(plain=False)
    console.good("verified")
    assert "\x1b[3" not in capsys.readouterr().out


def test_table_columns_line_up(capsys: pytest.CaptureFixture[str]) -> None:
    Console(plain=True).table(["a", "long header"], [["x", "1"], ["longer", "22"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["a       long header", "------  -----------", "x                 1", "longer           22"]
