"""Help, version, exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest

import livegnn
from livegnn import optional as extras
from livegnn.cli import bench, main
from livegnn.errors import DataMissing


@pytest.mark.parametrize(
    "arguments", [["--help"], ["demo", "--help"], ["run", "--help"], ["sample", "--help"], ["bench", "--help"]]
)
def test_help_ends_well(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0
    assert "usage: livegnn" in capsys.readouterr().out


def test_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("livegnn ")


def test_unknown_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["demo", "--fast"])
    assert end.value.code == 2
    assert "--fast" in capsys.readouterr().err


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 2


def test_refused_files_end_with_one_line_and_code_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = [
        "--model",
        "m.pt",
        "--features",
        str(tmp_path / "x.npy"),
        "--events",
        "e.csv",
        "--out",
        str(tmp_path / "o.csv"),
    ]
    assert main(["run", *options]) == 1
    error = capsys.readouterr().err
    assert error.startswith("livegnn: [")
    assert error.count("\n") == 1


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DataMissing, match=r"pip install 'livegnn\[cli\]'"):
        extras.need("matplotlib", "cli")
    with pytest.raises(DataMissing, match=r"matplotlib, got none installed; run: pip install 'livegnn\[cli\]'"):
        extras.check_installed("matplotlib", "cli")


def test_a_package_that_is_needed_later_is_not_loaded_now() -> None:
    program = "import sys; from livegnn.optional import check_installed; check_installed('matplotlib', 'cli')"
    subprocess.run([sys.executable, "-c", f"{program}; assert 'matplotlib' not in sys.modules"], check=True)
    with pytest.raises(DataMissing, match="expected the package nothing_of_this_name, got none installed"):
        extras.check_installed("nothing_of_this_name", "cli")


def test_bench_hands_its_options_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__main__.py").write_text(
        "import sys; sys.exit(sys.argv[1:] != ['--full', '--seed', '3'])"
    )
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--full", "--seed", "3"]) == 0


def test_bench_finds_the_checkout_or_says_where_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__main__.py").touch()
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path / "benchmarks")
    assert bench.checkout() == tmp_path
    (tmp_path / "pyproject.toml").unlink()
    with pytest.raises(DataMissing, match="clone"):
        bench.checkout()


def test_the_package_is_the_command() -> None:
    found = subprocess.run([sys.executable, "-m", "livegnn", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == f"livegnn {livegnn.__version__}"
