"""The registry of models: a folder of NAME/VERSION/, each with one model in one of these forms.

    model.livegnn              what Model.save writes: data, no code
    model.toml + weights.pt    class = "module:Class", [arguments] of its __init__, and a state_dict: the class comes
                               from the user's own installed code, the weights are read without running code
    module.pt                  a whole pickled module, only where the caller trusts it: reading runs code of the file

Versions are whole numbers from 1; the newest is the largest. A version never changes: a new model is a new version.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from livegnn.errors import DataMissing, ModelError, StoredStateInvalid, UsageError, ValueInvalid
from livegnn.models.model import Model
from livegnn.models.pyg.entry import from_pyg
from livegnn.optional import need

OWN_FILE, CLASS_FILE, WEIGHTS_FILE, PICKLE_FILE = "model.livegnn", "model.toml", "weights.pt", "module.pt"
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
                f"[registry] expected a model {name!r} in {self.folder}, got {names}; add one: Registry.add"
            )
        number = int(version) if slash else known[name][-1]
        if number not in known[name]:
            got = ", ".join(map(str, known[name]))
            raise UsageError(f"[registry] expected version {number} of {name!r} in {self.folder}, got {got}; name one")
        return ModelKey(name, number)

    def load(self, key: ModelKey) -> Model:
        """The model. Raises: StoredStateInvalid, UsageError, ModelError, DataMissing, naming file and cause."""
        place = self.folder / key.name / str(key.version)
        if (place / OWN_FILE).exists():
            return Model.load(place / OWN_FILE)
        if (place / CLASS_FILE).exists():
            return from_pyg(_module_of_class(place)[0])
        if (place / PICKLE_FILE).exists():
            return from_pyg(self._unpickled(place / PICKLE_FILE))
        raise DataMissing(
            f"[registry] expected {OWN_FILE}, {CLASS_FILE} with {WEIGHTS_FILE}, or {PICKLE_FILE} in {place}, got none; "
            "add the model again"
        )

    def module(self, key: ModelKey) -> tuple[Any, str, dict[str, Any]]:
        """The torch module itself, its class's path and arguments; "" and {} of a pickle. Raises: as load."""
        place = self.folder / key.name / str(key.version)
        if (place / CLASS_FILE).exists():
            return _module_of_class(place)
        if (place / PICKLE_FILE).exists():
            return self._unpickled(place / PICKLE_FILE), "", {}
        raise DataMissing(
            f"[registry] expected {CLASS_FILE} with {WEIGHTS_FILE}, or {PICKLE_FILE} in {place}, got none; this use "
            "needs the module itself"
        )

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

    def _unpickled(self, path: Path) -> Any:
        if not self.trust_pickle:
            raise UsageError(
                f"[registry] expected trust_pickle for {path}, got none: unpickling runs code of the file; set it if "
                f"you trust where the file comes from, or add the model as {OWN_FILE}"
            )
        return _read(path, weights_only=False)


def _complete(place: Path) -> list[Path]:
    """The folders with a model: one whose writer was killed has none yet."""
    forms = (OWN_FILE, CLASS_FILE, PICKLE_FILE)
    return [one for one in place.iterdir() if any((one / form).is_file() for form in forms)] if place.is_dir() else []


def _module_of_class(place: Path) -> tuple[Any, str, dict[str, Any]]:
    """The module of a class path with its arguments and weights; the path, and the arguments."""
    path = place / CLASS_FILE
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as cause:
        raise StoredStateInvalid(f"[registry] expected TOML in {path}, got: {cause}; correct the file") from cause
    arguments = document.get("arguments", {})
    if set(document) - {"class", "arguments"} or not isinstance(arguments, dict):
        raise StoredStateInvalid(
            f"[registry] expected the keys class and arguments in {path}, got {', '.join(document)}; correct the file"
        )
    named = str(document.get("class", ""))
    module = module_of(named, arguments, str(path))
    weights = _read(place / WEIGHTS_FILE, weights_only=True)
    try:
        module.load_state_dict(weights)
    except Exception as cause:  # the class is the user's: whatever it raises
        raise _unfit(named, str(path), cause) from cause
    return module.eval(), named, arguments


def module_of(named: str, arguments: dict[str, Any], where: str) -> Any:
    """A torch module of the class that "module:Class" names. Raises: UsageError, ModelError."""
    made = found_by_path(named, where)
    module_class = need("torch", "pyg").nn.Module
    if not isinstance(made, type) or not issubclass(made, module_class):  # the file may not call anything else
        raise UsageError(f"[{where}] expected class as a subclass of torch.nn.Module, got {named!r}; name one")
    try:
        return made(**arguments)
    except Exception as cause:  # the class is the user's: whatever it raises
        raise _unfit(named, where, cause) from cause


def _unfit(named: str, where: str, cause: Exception) -> ModelError:
    return ModelError(
        f"[registry] expected {named} with the arguments of {where} and the weights next to it, got "
        f"{type(cause).__name__}: {cause}; correct the file, or add the weights that belong to it"
    )


def found_by_path(path: str, where: str) -> Any:
    """What "module:name" names, in the user's own code: installed, or in the working folder. Raises: UsageError."""
    name, colon, attribute = path.partition(":")
    try:
        if not colon:
            raise ImportError(f"no colon in {path!r}")
        if str(Path.cwd()) not in sys.path:
            sys.path.append(str(Path.cwd()))
        return getattr(importlib.import_module(name), attribute)
    except (ImportError, AttributeError, ValueError) as cause:
        raise UsageError(
            f"[{where}] expected module:name of installed code, got {path!r} ({cause}); name one that can be imported"
        ) from cause


def _read(path: Path, *, weights_only: bool) -> Mapping[str, Any]:
    torch = need("torch", "pyg")
    try:
        found: Mapping[str, Any] = torch.load(path, map_location="cpu", weights_only=weights_only)
    except FileNotFoundError as cause:
        raise DataMissing(f"[registry] expected {path}, got nothing there; write it with torch.save") from cause
    except Exception as cause:  # what torch makes of bytes that are none
        raise StoredStateInvalid(
            f"[registry] expected {path} as torch.save writes it, got one that cannot be read ({cause}); use another "
            "copy"
        ) from cause
    return found
