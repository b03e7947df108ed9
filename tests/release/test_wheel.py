"""A wheel in dist: what is in it, and that it runs in an empty environment, without a compiler. `make release`."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIB = 2**20

pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The newest wheel in dist."""
    found = sorted((ROOT / "dist").glob("livegnn-*.whl"), key=lambda path: path.stat().st_mtime)
    assert found, "no wheel in dist; run: make wheel"
    return found[-1]


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment that holds the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--only-binary=:all:", wheel]
    subprocess.run(install, check=True, env=_environment(folder / "bin"), capture_output=True, text=True)
    return folder / "bin/python"


def _environment(path: Path, **more: str) -> dict[str, str]:
    """Nothing on PATH but the environment's own programs: no compiler, no CMake."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "XDG_", "HOME", "SSL_"))}
    return kept | {"PATH": str(path)} | more


def test_the_wheel_is_small_complete_and_named_after_the_version(wheel: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.fullmatch(rf"livegnn-{re.escape(version)}-cp3\d+-(cp3\d+|abi3)-(many|mac).*\.whl", wheel.name)
    assert wheel.stat().st_size < 5 * MIB
    names = zipfile.ZipFile(wheel).namelist()
    assert {"livegnn/py.typed", "livegnn/_core.pyi", "livegnn/__init__.py", "livegnn/serve/page/index.html"} <= set(
        names
    )
    assert sum(name.endswith(".so") for name in names) == 1
    folders = {name.split("/")[0] for name in names}
    assert folders == {"livegnn", f"livegnn-{version}.dist-info"}  # no tests, no library that is copied along
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_wheel_holds_kernels_for_what_it_meets_and_all_give_the_same_bits(python: Path) -> None:
    asked = "from livegnn import _native; print(*_native.cpu_features())"
    here = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True, env=_environment(python))
    found = set()
    for kernels in (*here.stdout.split(), "generic"):
        environment = _environment(python.parent, LIVEGNN_KERNELS=kernels)
        command = [python, "-I", ROOT / "tests/release/installed.py"]
        run = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=python.parents[1], check=False
        )
        assert run.returncode == 0, run.stderr
        found.add(run.stdout)
    assert len(found) == 1, found
    assert re.search(r": \d+ programs of README, [1-9]\d* examples, bits [0-9a-f]{64}\n$", found.pop())


def test_the_installed_program_helps(python: Path) -> None:
    program = python.parent / "livegnn"
    run = subprocess.run(
        [program, "--help"], check=True, capture_output=True, text=True, env=_environment(python.parent)
    )
    assert "COMMAND" in run.stdout
    assert not run.stderr
