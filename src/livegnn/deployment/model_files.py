"""Files of models: what a registry holds, and what `livegnn models add` reads.

weights.safetensors    8 bytes: N, little-endian; N bytes of JSON {name: {"dtype", "shape", "data_offsets"}}; numbers
SHA256SUMS             lines of <64 hexadecimal digits>, two spaces, name: what `sha256sum` writes and checks
"""

from __future__ import annotations

import hashlib
import math
import tomllib
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from livegnn.deployment.by_path import found_by_path
from livegnn.errors import DataMissing, FileMissing, ModelError, StorageFailed, StoredStateInvalid, UsageError
from livegnn.models.model import Model
from livegnn.models.pyg.entry import from_pyg
from livegnn.optional import need

OWN_FILE, CLASS_FILE, PICKLE_FILE, SUMS_FILE = "model.livegnn", "model.toml", "module.pt", "SHA256SUMS"
WEIGHTS_FILES = ("weights.safetensors", "weights.pt")
_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
           "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool"}  # fmt: skip


def read_model(path: Path, *, trust_pickle: bool = False) -> Model:
    """The model of a file, by its ending: .toml, .pt2 and .pt, or what Model.save wrote.

    Raises:  FileMissing; UsageError for a form that runs code without trust_pickle; as from_pyg and Model.load.
    """
    if not path.is_file():
        raise FileMissing(f"[models] expected a model's file, got none at {path}; name one that is there")
    if path.suffix == ".toml":
        return from_pyg(module_of_class(path)[0])
    if path.suffix == ".pt2":
        return _of_program(path, trust_pickle)
    if path.suffix in (".pt", ".pth", ".pickle", ".pkl"):
        return from_pyg(unpickled(path, trust_pickle))
    return Model.load(path)


# ---- checksums


def check_sums(place: Path) -> None:
    """Compares a model's files with SHA256SUMS. Raises: StoredStateInvalid naming the file."""
    advice = f"write it once: cd {place} && sha256sum *.* > {SUMS_FILE}; or add the model by: livegnn models add"
    try:
        lines = (place / SUMS_FILE).read_text("ascii").splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise StoredStateInvalid(f"[registry] expected {SUMS_FILE} in {place}, got none; {advice}") from cause
    named: dict[str, str] = {}
    for line in lines:
        digest, _, name = line.partition(" ")
        named[name[1:]] = digest
    for file in (CLASS_FILE, PICKLE_FILE, *WEIGHTS_FILES):
        if not (place / file).exists():
            continue
        if file not in named:
            raise StoredStateInvalid(f"[registry] expected {file} in {place / SUMS_FILE}, got others; {advice}")
        if _sha256(place / file) != named[file]:
            raise StoredStateInvalid(
                f"[registry] expected {place / file} as {SUMS_FILE} has it, got other bytes; use another copy"
            )


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as cause:
        raise StorageFailed(f"[registry] expected to read {path}, got {cause.strerror}; look at the disk") from cause


# ---- modules


def module_of_class(path: Path) -> tuple[Any, str, dict[str, Any]]:
    """The module of a class path with its arguments, and the weights next to the file; the path, and the arguments."""
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
    module, weights = module_of(named, arguments, str(path)), _weights(path.parent)
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


def unpickled(path: Path, trust_pickle: bool) -> Any:
    """The module of a pickle. Raises: UsageError where it is not trusted, or is no module."""
    _refuse_untrusted(path, trust_pickle)
    found = _read(path, weights_only=False)
    if not isinstance(found, need("torch", "pyg").nn.Module):
        raise UsageError(
            f"[registry] expected a whole module in {path}, got {type(found).__name__}; a state_dict needs a "
            f"{CLASS_FILE} next to it, named {' or '.join(WEIGHTS_FILES)}: add that file"
        )
    return found


def _of_program(path: Path, trust_pickle: bool) -> Model:
    """The model of a file of torch.export.save."""
    _refuse_untrusted(path, trust_pickle)  # torch.export.load unpickles what its safe reader refuses
    torch = need("torch", "pyg")
    from livegnn.models.pyg.exported import model_of_program

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(path)
    except Exception as cause:  # what torch makes of bytes that are none
        raise StoredStateInvalid(
            f"[models] expected {path} as torch.export.save writes it, got one that cannot be read ({cause}); export "
            "it again"
        ) from cause
    return model_of_program(program)


def _refuse_untrusted(path: Path, trust_pickle: bool) -> None:
    if not trust_pickle:
        raise UsageError(
            f"[registry] expected trust_pickle for {path}, got none: reading it may run code of the file. If you trust "
            f"where it comes from, livegnn models add NAME {path.name} --trust-pickle keeps it as {OWN_FILE}; set it"
        )


def _weights(folder: Path) -> Mapping[str, Any]:
    there = [folder / name for name in WEIGHTS_FILES if (folder / name).exists()]
    if len(there) != 1:
        got = "both" if there else "none"
        raise DataMissing(
            f"[registry] expected one of {' and '.join(WEIGHTS_FILES)} in {folder}, got {got}; write the state_dict "
            "with torch.save or safetensors.torch.save_file"
        )
    (path,) = there
    return _safetensors(path) if path.suffix == ".safetensors" else _read(path, weights_only=True)


def _safetensors(path: Path) -> Mapping[str, Any]:
    torch = need("torch", "pyg")
    content = bytearray(path.read_bytes())
    try:
        begin = 8 + int.from_bytes(content[:8], "little")
        if begin > len(content):
            raise ValueError(f"a head of {begin} bytes in a file of {len(content)}")
        head = msgspec.json.decode(content[8:begin], type=dict[str, dict[str, Any]])
        found: dict[str, Any] = {}
        for name, entry in head.items():
            if name == "__metadata__":
                continue
            dtype, shape = getattr(torch, _DTYPES[entry["dtype"]]), entry["shape"]
            first, last = (begin + int(offset) for offset in entry["data_offsets"])
            count = math.prod(shape)
            if not begin <= first <= last <= len(content) or last - first != count * dtype.itemsize:
                raise ValueError(f"{name} of shape {shape} at {first} to {last} of {len(content)} bytes")
            one = torch.frombuffer(content, dtype=dtype, count=count, offset=first) if count else torch.empty(0)
            found[name] = one.reshape(shape).clone()
    except (ValueError, KeyError, TypeError, RuntimeError, msgspec.MsgspecError) as cause:
        raise StoredStateInvalid(
            f"[registry] expected {path} as safetensors, got one that cannot be read ({cause}); use another copy"
        ) from cause
    return found


def _read(path: Path, *, weights_only: bool) -> Any:
    torch = need("torch", "pyg")
    try:
        return torch.load(path, map_location="cpu", weights_only=weights_only)
    except Exception as cause:  # what torch makes of bytes that are none
        raise StoredStateInvalid(
            f"[registry] expected {path} as torch.save writes it, got one that cannot be read ({cause}); use another "
            "copy"
        ) from cause
