"""Runs what needs nothing but livegnn: README's programs, examples, the command line. Of this folder, nothing else.

    python tests/release/installed.py

README and the examples are read from the checkout; livegnn is the one that is installed. Ends with a digest of a
model's outputs, which is the same for every set of kernels (LIVEGNN_KERNELS).
"""

import contextlib
import hashlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = re.compile(r"```python\n(.*?)```(?:\n+```\n(.*?)```)?", re.DOTALL)
MORE_THAN_LIVEGNN = re.compile(
    r"^\s*(?:import|from) (?:torch|pandas|pyarrow|livegnn\.cli)|to_pyg\(|lg\.Cluster\(", re.MULTILINE
)


def printed(run: Callable[[], object]) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        run()
    return out.getvalue()


def readme() -> int:
    """Programs of README that need no torch, which print what stands below them; how many."""
    found = [
        each
        for each in PROGRAM.findall((ROOT / "README.md").read_text(encoding="utf-8"))
        if not MORE_THAN_LIVEGNN.search(each[0])
    ]
    for program, expected in found:
        got = printed(lambda program=program: exec(compile(program, "README.md", "exec"), {"__name__": "__main__"}))
        assert not expected or got == expected, f"README prints {got!r}, and says {expected!r}"
    return len(found)


def examples() -> int:
    """Examples that need no more than livegnn run and print something; how many."""
    found = 0
    for path in sorted((ROOT / "examples").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if MORE_THAN_LIVEGNN.search(text):
            continue
        found += 1
        got = printed(lambda text=text, path=path: exec(compile(text, path, "exec"), {"__name__": "__main__"}))
        assert got, f"{path} prints nothing"
    return found


def command_line() -> None:
    from livegnn.cli import main

    for arguments, words in ((["--help"], "COMMAND"), (["--version"], "livegnn "), (["run", "--help"], "--model")):
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
            main(arguments)
        assert words in out.getvalue(), f"livegnn {arguments} printed {out.getvalue()!r}"


def bits() -> str:
    import numpy as np

    import livegnn as lg

    rng = np.random.default_rng(0)
    x, ends = rng.random((300, 19), dtype=np.float32), rng.integers(0, 300, (2, 2000))
    weights = [rng.normal(size=(21, 19)).astype(np.float32) for _ in range(2)]
    engine = lg.Engine(lg.Model([lg.layers.GraphConv(*weights)]), lg.Graph(x, *ends))
    updates = lg.Updates()
    updates.add_edges(*rng.integers(0, 300, (2, 50)))
    engine.apply(updates)
    engine.verify()
    return hashlib.sha256(np.ascontiguousarray(engine.embeddings(range(300))).tobytes()).hexdigest()


if __name__ == "__main__":
    import livegnn

    command_line()
    print(f"{livegnn.__version__}: {readme()} programs of README, {examples()} examples, bits {bits()}")
    sys.exit(0)
