"""What the builder of the documentation site loads to read docstrings in the house style (docstrings.py)."""

import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.append(str(Path(__file__).parent))
from docstrings import markdown


def names_of(thing: griffe.Object) -> list[str]:
    if isinstance(thing, griffe.Function):
        return [one.name for one in thing.parameters]
    if isinstance(thing, griffe.Class):
        init = thing.members.get("__init__")
        own_names = [one.name for one in init.parameters] if isinstance(init, griffe.Function) else []
        return [*own_names, *(name for name, one in thing.members.items() if one.is_attribute)]
    return []


class House(griffe.Extension):
    """Rewrites every docstring when the sources are read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value, names_of(obj))
