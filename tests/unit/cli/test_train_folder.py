"""`livegnn train` where the output folder cannot be made."""

from pathlib import Path

import pytest

from livegnn.cli import main


@pytest.mark.parametrize("name", ["file/out", "x" * 300, "/proc/out"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "train.toml").write_text(f'[data]\nevents = "none.csv"\n[output]\nfolder = "{tmp_path / name}"\n')
    assert main(["train", str(tmp_path / "train.toml")]) == 1
    said = capsys.readouterr().err
    assert "[train] expected output.folder as a folder that can be made and written to" in said
    assert "Traceback" not in said
