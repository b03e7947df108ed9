"""The package runs with NumPy and msgspec alone: the part of tests/release that needs no wheel."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "release" / "installed.py"

ALONE = """
import runpy, sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        first = name.partition(".")[0]
        if first not in {"livegnn", "numpy", "msgspec"} and first not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.argv = [sys.argv[1]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_programs_without_torch_need_numpy_and_msgspec_only(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", ALONE, SCRIPT], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "examples, bits" in run.stdout


def test_a_checker_of_types_finds_the_types():
    import livegnn

    assert (Path(livegnn.__file__).parent / "py.typed").is_file()
