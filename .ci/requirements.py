"""Prints what the named extras of pyproject.toml need, one requirement a line; "build" and "base" are lists as well.

pip installs extras only together with the package; with this the Makefile installs them once, and the package alone
after each change.
"""

import re
import sys
import tomllib
from pathlib import Path


def requirements(project: dict, name: str) -> list[str]:
    if name == "build":
        return [*project["build-system"]["requires"], "cmake>=3.20", "ninja"]
    if name == "base":
        return list(project["project"]["dependencies"])
    found = []
    for line in project["project"]["optional-dependencies"][name]:
        own = re.fullmatch(r"livegnn\[(.*)\]", line)
        if own:
            found += [inner for extra in own[1].split(",") for inner in requirements(project, extra.strip())]
        else:
            found.append(line)
    return found


if __name__ == "__main__":
    data = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    print("\n".join(dict.fromkeys(line for name in sys.argv[1:] for line in requirements(data, name))))
