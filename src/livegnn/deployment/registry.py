"""The registry of models: a folder of NAME/VERSION/, each with one model in one of these forms.

    model.livegnn              what Model.save writes: data, no code, with its own checksum
    model.toml + weights.*     class = "module:Class", [arguments] of its __init__, and a state_dict as
                               weights.safetensors or weights.pt: the class comes from the user's own installed code,
                               the weights are read without running code
    module.pt                  a whole pickled module, only where the caller trusts it: reading runs code of the file

The last two have the file SHA256SUMS, as `sha256sum` writes it: a changed bit is refused before a model is made.
`livegnn models add` reads any of these, or a program of torch.export, once, and keeps it as model.livegnn.
Versions are whole numbers from 1; the newest is the largest. A version never changes: a new model is a new version.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from livegnn.deployment.model_files import (
    CLASS_FILE,
    OWN_FILE,
    PICKLE_FILE,
    check_sums,
    module_of_class,
    unpickled,
)
from livegnn.errors import DataMissing, UsageError, ValueInvalid
from livegnn.models.model import Model
from livegnn.models.pyg.entry import from_pyg

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_VERSION = re.compile(r"[1-9][0-9]{0,8}")


class ModelKey(NamedTuple):
    """A model's place in a registry; its text is NAME/VERSION."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"


class Registry:
    """The models of a folder. It looks at the folder at each call, so that what others add is found.

    Args:    trust_pickle: also read module.pt, which runs code of the file.
    """

    def __init__(self, folder: str | os.PathLike[str], *, trust_pickle: bool = False) -> None:
        self.folder, self.trust_pickle = Path(folder), trust_pickle

    def versions(self) -> dict[str, list[int]]:
        """Names and their versions, in ascending order."""
        found: dict[str, list[int]] = {}
        if self.folder.is_dir():
            for place in sorted(self.folder.iterdir()):
                numbers = [int(one.name) for one in _complete(place) if _VERSION.fullmatch(one.name)]
                if _NAME.fullmatch(place.name) and numbers:
                    found[place.name] = sorted(numbers)
        return found

    def key(self, reference: str) -> ModelKey:
        """The model that "NAME", for its newest version, or "NAME/VERSION" names. Raises: ValueInvalid, UsageError."""
        name, slash, version = reference.partition("/")
        if not _NAME.fullmatch(name) or (slash and not _VERSION.fullmatch(version)):
            raise ValueInvalid(
                f"[registry] expected a model as NAME or NAME/VERSION, got {reference!r}; name one of {self.folder}"
            )
        known = self.versions()
        if name not in known:
            names = ", ".join(known) or "none"
            raise UsageError(
                f"[registry] expected a model {name!r} in {self.folder}, got {names}; add one: livegnn models add"
            )
        number = int(version) if slash else known[name][-1]
        if number not in known[name]:
            got = ", ".join(map(str, known[name]))
            raise UsageError(f"[registry] expected version {number} of {name!r} in {self.folder}, got {got}; name one")
        return ModelKey(name, number)

    def load(self, key: ModelKey) -> Model:
        """The model. Raises: StoredStateInvalid, UsageError, ModelError, DataMissing, naming file and cause."""
        place = self.place(key)
        if (place / OWN_FILE).exists():
            return Model.load(place / OWN_FILE)
        if (place / CLASS_FILE).exists():
            return from_pyg(self.module(key)[0])
        if (place / PICKLE_FILE).exists():
            return from_pyg(self.module(key)[0])
        raise DataMissing(
            f"[registry] expected {OWN_FILE}, {CLASS_FILE} with weights, or {PICKLE_FILE} in {place}, got none; add "
            "the model again: livegnn models add"
        )

    def module(self, key: ModelKey) -> tuple[Any, str, dict[str, Any]]:
        """The torch module itself, its class's path and arguments; "" and {} of a pickle. Raises: as load."""
        place = self.place(key)
        if (place / CLASS_FILE).exists():
            check_sums(place)
            return module_of_class(place / CLASS_FILE)
        if (place / PICKLE_FILE).exists():
            check_sums(place)
            return unpickled(place / PICKLE_FILE, self.trust_pickle), "", {}
        raise DataMissing(
            f"[registry] expected {CLASS_FILE} with weights, or {PICKLE_FILE} in {place}, got none; this use needs the "
            "module itself"
        )

    def place(self, key: ModelKey) -> Path:
        """The folder of a model."""
        return self.folder / key.name / str(key.version)

    def add(self, name: str, model: Model) -> ModelKey:
        """Writes a model as the next version of a name. Raises: ValueInvalid, UsageError, StorageFailed."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueInvalid(
                f"[registry] expected a name of letters, digits, _ and -, a letter first, got {name!r}; choose another"
            )
        if not isinstance(model, Model):
            raise UsageError(
                f"[registry] expected a livegnn Model, got {type(model).__name__}; pass livegnn.from_pyg(module)"
            )
        version = max(self.versions().get(name, [0])) + 1
        while True:
            place = self.folder / name / str(version)
            try:
                place.mkdir(parents=True)
                break
            except FileExistsError:  # another writer took the number
                version += 1
        model.save(place / OWN_FILE)
        return ModelKey(name, version)


def _complete(place: Path) -> list[Path]:
    """The folders with a model: one whose writer was killed has none yet."""
    forms = (OWN_FILE, CLASS_FILE, PICKLE_FILE)
    return [one for one in place.iterdir() if any((one / form).is_file() for form in forms)] if place.is_dir() else []
