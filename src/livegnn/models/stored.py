"""Models as JSON and arrays, for saved engines and for the reference, which reads this form and shares no code.

    structure := {"format": 1, "values": [value...], "output": index, "unweighted": index | null,
                  "edge_head": structure | null, "vertex_types": [name...], "edge_types": [[name, name, name]...],
                  "weights_from": column, "refused": {"edge_weight" | "edge_attr": text},
                  "outputs": {name: [start, stop]...}, "edge_output": index, "unweighted_edge_output": index | null}
                 (types only in models over vertex types; the last two only in models with one row per edge; the three
                 before only in imported ones that need them)
    column    := "edge_weight" | "edge_attr" | "data.edge_weight" | "data.edge_attr"
    value     := {"op": name of a class of livegnn.models.ir, "inputs": [index...], "name": text | null, option...}
    option    := features | kind | param | eps | coefs | start | stop | norm | weighted | self_loops | fill | reduce
               | relation | relations | columns | heads | loops | code | target (there if not null)
               | reversed (there if true)
               | weight | bias | slope | scale | shift | table    (these six: the name of an array, or null)

Indices count from 0 and point to earlier values. Array names are "<prefix><index>.<option>", prefix "" or "head.".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import ModelError, StoredStateInvalid, UpdateError
from livegnn.models import edges, ir

FORMAT = 1
_EDGE_OUTPUTS = ("edge_output", "unweighted_edge_output")
_LEFT_OUT = {"target": None, "reversed": False}  # options that are not there where they are this
_COLUMNS = ("edge_weight", "edge_attr", "data.edge_weight", "data.edge_attr")
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
_CLASSES: dict[str, Any] = {
    name: each
    for module in (ir, edges)
    for name, each in vars(module).items()
    if isinstance(each, type) and issubclass(each, ir.Value) and name not in ("Value", "_End")
}


def _options(cls: Any) -> list[tuple[str, bool]]:
    """The fields of a class that are not its inputs, each with whether it is an array; arrays come last."""
    given = [each for each in fields(cls) if each.init and "Value" not in each.type and each.type != "Input"]
    return sorted(((each.name, "FloatArray" in each.type) for each in given), key=lambda option: option[1])


def to_arrays(
    output: ir.Value,
    unweighted: ir.Value | None,
    edge_head: ir.Value | None,
    names: Mapping[int, str],
    of_edges: tuple[ir.Value | None, ir.Value | None] = (None, None),
) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    """The stored form of a model; `names` maps id(value) to a name. of_edges: the edge outputs."""
    arrays: dict[str, NDArray[np.float32]] = {}
    roots = dict(zip(_EDGE_OUTPUTS, of_edges, strict=True)) if of_edges[0] is not None else {}
    structure = _write({"output": output, "unweighted": unweighted} | roots, names, "", arrays)
    head = {"output": edge_head, "unweighted": None}
    structure["edge_head"] = None if edge_head is None else _write(head, {}, "head.", arrays)
    return structure, arrays


def _write(
    roots: Mapping[str, ir.Value | None], names: Mapping[int, str], prefix: str, arrays: dict[str, Any]
) -> dict[str, Any]:
    values = ir.walk(*(root for root in roots.values() if root is not None))
    index = {id(value): position for position, value in enumerate(values)}
    entries = []
    for position, value in enumerate(values):
        op = type(value).__name__
        entry: dict[str, Any] = {"op": op, "inputs": [index[id(x)] for x in value.inputs], "name": names.get(id(value))}
        for option, is_array in _options(type(value)):
            given = getattr(value, option)
            if is_array and given is not None:
                entry[option] = f"{prefix}{position}.{option}"
                arrays[entry[option]] = given
            elif option not in _LEFT_OUT or given is not _LEFT_OUT[option]:
                entry[option] = list(given) if isinstance(given, tuple) else given
        if isinstance(value, ir.Combine):
            entry["coefs"] = [coef for coef, _ in value.terms]
        entries.append(entry)
    return {
        "format": FORMAT,
        "values": entries,
        **{key: None if root is None else index[id(root)] for key, root in roots.items()},
        "edge_head": None,
    }


def from_arrays(structure: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """The arguments of Model.from_output from the stored form.

    Raises: StoredStateInvalid if it is damaged or of another version.
    """
    if not isinstance(structure, Mapping) or structure.get("format") != FORMAT:
        found = structure.get("format") if isinstance(structure, Mapping) else type(structure).__name__
        raise StoredStateInvalid(f"[model] expected stored format {FORMAT}, got {found}; use the version that wrote it")
    weights_from, refused = structure.get("weights_from"), structure.get("refused", {})
    fits = weights_from is None or weights_from in _COLUMNS
    if not fits or not isinstance(refused, Mapping) or not {*refused} <= {"edge_weight", "edge_attr"}:
        raise StoredStateInvalid(f"[model] expected columns of edges, got {weights_from!r}, {refused!r}; load a backup")
    try:
        names: dict[int, str] = {}
        roots = _read(structure, arrays, names)
        whole = roots.get("edge_output") or roots["output"]
        assert roots["output"] is not None
        assert whole is not None
        head = structure["edge_head"]
        return {
            **roots,
            "edge_head": None if head is None else _read(head, arrays, {})["output"],
            "names": names,
            "vertex_types": tuple(str(name) for name in structure.get("vertex_types", ())),
            "edge_types": tuple((str(u), str(name), str(v)) for u, name, v in structure.get("edge_types", ())),
            "weights_from": weights_from,
            "refused": {name: str(reason) for name, reason in refused.items()},
            "outputs": _columns_within(structure.get("outputs", {}), whole.width),
        }
    except (KeyError, IndexError, TypeError, ValueError, AssertionError, ModelError, UpdateError) as error:
        raise StoredStateInvalid(
            f"[model] expected a whole model, got damaged data ({error}); load a backup"
        ) from error


def _columns_within(outputs: Any, width: int) -> dict[str, tuple[int, int]]:
    """Columns by name. Raises: ValueError for columns that the output does not have."""
    if not isinstance(outputs, Mapping):
        raise TypeError(f"outputs are a {type(outputs).__name__}")
    columns = {str(name): (int(start), int(stop)) for name, (start, stop) in outputs.items()}
    if any(not 0 <= start < stop <= width for start, stop in columns.values()):
        raise ValueError(f"outputs lie outside of {width} columns")
    return columns


def _read(structure: Mapping[str, Any], arrays: Arrays, names: dict[int, str]) -> dict[str, ir.Value | None]:
    values: list[ir.Value] = []
    for entry in structure["values"]:
        if any(not 0 <= position < len(values) for position in entry["inputs"]):
            raise IndexError(f"value {len(values)} reads a later value")
        value = _value(entry, [values[position] for position in entry["inputs"]], arrays)
        if entry["name"] is not None:
            if not isinstance(entry["name"], str):
                raise TypeError(f"value {len(values)} has a name that is no text")
            names[id(value)] = entry["name"]
        values.append(value)
    keys = ("output", "unweighted", *(key for key in _EDGE_OUTPUTS if key in structure))
    for key in keys:
        if structure[key] is not None and not 0 <= structure[key] < len(values):
            raise IndexError(f"{key} is value {structure[key]} of {len(values)}")
    return {key: None if structure[key] is None else values[structure[key]] for key in keys}


def _value(entry: Mapping[str, Any], xs: list[ir.Value], arrays: Arrays) -> ir.Value:
    op = entry["op"]
    cls: Any = _CLASSES[op]
    options: dict[str, Any] = {}
    for option, is_array in _options(cls):
        given = entry.get(option, _LEFT_OUT[option]) if option in _LEFT_OUT else entry[option]
        if is_array and given is not None:
            options[option] = arrays[given]
            if options[option].dtype != np.float32:
                raise TypeError(f"{given} is of {options[option].dtype}, not float32")
        else:
            options[option] = tuple(given) if isinstance(given, list) else given
    if op == "Combine":
        return ir.Combine(tuple(zip(entry["coefs"], xs, strict=True)))
    if op == "Gather":
        return edges.Gather(xs[0], score=xs[1] if len(xs) > 1 else None, **options)
    many = [each.name for each in fields(cls) if each.init and each.type == "tuple[Value, ...]"]
    result: ir.Value = cls(*([] if many else xs), **dict.fromkeys(many, tuple(xs)), **options)
    return result
