"""Who may depend on whom."""

import os
import re
import subprocess
import sys

from tests.tidy.sources import PACKAGE, ROOT, files, imports, includes, name, text

CORE_ORDER = {"util": 0, "graph": 1, "dense": 2, "cache": 2, "inference": 3, "sampling": 3, "temporal": 3}


def own(imported: str, area: str) -> bool:
    return imported == f"livegnn.{area}" or imported.startswith(f"livegnn.{area}.")


def test_imports_go_down_only():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, "--no-cache"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_reference_depends_on_types_and_numpy_only():
    allowed = ("numpy", "math", "typing", "dataclasses", "collections", "__future__")
    wrong = [
        f"{name(path)} imports {imported}"
        for path in files("src/livegnn/reference")
        for imported in imports(path)
        if not own(imported, "types") and not own(imported, "reference") and imported.split(".")[0] not in allowed
    ]
    assert not wrong, wrong


def test_two_files_import_the_reference():
    found = {
        name(path)
        for path in files("src/livegnn")
        if path.relative_to(PACKAGE).parts[0] != "reference" and any(own(i, "reference") for i in imports(path))
    }
    assert found == {"src/livegnn/models/truth.py", "src/livegnn/testing/oracle.py"}  # imports; the oracle


def test_nothing_in_the_package_imports_testing():
    wrong = [
        name(path)
        for path in files("src/livegnn")
        if path.relative_to(PACKAGE).parts[0] != "testing" and any(own(i, "testing") for i in imports(path))
    ]
    assert not wrong, wrong


def test_the_compiled_module_has_one_door():
    wrong = [
        name(path)
        for path in files("src/livegnn", "tests", "benchmarks", "examples")
        if path.name != "_native.py"
        and re.search(r"\blivegnn(\._core\b| import .*\b_core\b)", text(path))
        and path.parent.name != "tidy"
    ]
    assert not wrong, f"import livegnn._native instead: {wrong}"


def test_the_core_knows_nothing_of_python():
    wrong = [name(path) for path in files("core", suffixes=(".h", ".cc")) if "nanobind" in text(path)]
    wrong += [name(path) for path in files("core", suffixes=(".h", ".cc")) if "<Python.h>" in includes(path)]
    assert not wrong, wrong


def test_areas_of_the_core_include_downwards_only():
    wrong = []
    for path in files("core", suffixes=(".h", ".cc")):
        area = path.relative_to(ROOT / "core").parts[0]
        for included in includes(path):
            other = included.strip('<>"').split("/")[0]
            if area in CORE_ORDER and other in CORE_ORDER and other != area:
                if CORE_ORDER[other] >= CORE_ORDER[area]:
                    wrong.append(f"{name(path)} includes {included}")
            elif area == "include" and other in CORE_ORDER:
                wrong.append(f"{name(path)} includes {included}: a public header shows a private one")
    assert not wrong, wrong


def test_bindings_include_public_headers_only():
    standard = re.compile(r"<[a-z_0-9]+>$")
    allowed = re.compile(r'(<nanobind/[a-z_/]+\.h>|"livegnn/[a-z_]+\.h"|"[a-z_]+\.h")$')
    wrong = [
        f"{name(path)} includes {included}"
        for path in files("bindings", suffixes=(".h", ".cc"))
        for included in includes(path)
        if not standard.match(included) and not allowed.match(included)
    ]
    assert not wrong, wrong
