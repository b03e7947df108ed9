"""Models as JSON and arrays, for saved engines and for the reference, which reads this form and shares no code.

    structure := {"format": 1, "values": [value...], "output": index, "unweighted": index | null,
                  "edge_head": structure | null, "vertex_types": [name...], "edge_types": [[name, name, name]...],
                  "weights_from": column, "refused": {"edge_weight" | "edge_attr": text}}
                 (types only in models over vertex types; the last two only in imported ones that need them)
    column    := "edge_weight" | "edge_attr" | "data.edge_weight" | "data.edge_attr"
    value     := {"op": name of a class of livegnn.models.ir, "inputs": [index...], "name": text | null, option...}
    option    := features | kind | param | eps | coefs | start | stop | norm | weighted | self_loops | fill | reduce
               | relation | relations | columns | heads | loops | code | target (there if not null)
               | weight | bias | slope | scale | shift            (these five: the name of an array, or null)

Indices count from 0 and point to earlier values. Array names are "<prefix><index>.<option>", prefix "" or "head.".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from livegnn.errors import ModelError, StoredStateInvalid, UpdateError
from livegnn.models import edges, ir

__all__ = ["FORMAT", "columns", "from_arrays", "to_arrays", "types"]

FORMAT = 1
_COLUMNS = ("edge_weight", "edge_attr", "data.edge_weight", "data.edge_attr")
Arrays: TypeAlias = Mapping[str, NDArray[Any]]
_ARRAYS: dict[str, tuple[str, ...]] = {
    "Linear": ("weight", "bias"),
    "PReLU": ("slope",),
    "Affine": ("scale", "shift"),
    "LayerNorm": ("weight", "bias"),
}
_OPTIONS: dict[str, tuple[str, ...]] = {
    "Input": ("features",),
    "Activation": ("kind", "param"),
    "Elementwise": ("kind",),
    "LayerNorm": ("eps",),
    "L2Normalize": ("eps",),
    "Slice": ("start", "stop"),
    "Propagate": ("norm", "weighted", "self_loops", "fill", "reduce", "relation"),
    "EdgeAttribute": ("columns",),
    "OfType": ("code", "columns"),
    "ByRelation": ("relations",),
    "Gather": ("reduce", "heads", "loops", "fill", "relation"),
    "HeadDot": ("heads",),
    "HeadScale": ("heads",),
}
_ONE_INPUT = (
    ir.Linear, ir.Activation, ir.PReLU, ir.Affine, ir.LayerNorm, ir.L2Normalize, ir.Slice, ir.Softmax, ir.LogSoftmax,
    ir.Propagate, ir.OfType, edges.Source, edges.Target,
)  # fmt: skip
_NO_INPUT = (ir.Input, edges.EdgeAttribute, edges.EdgeWeight)
_TWO_INPUTS = (ir.Multiply, edges.HeadDot, edges.HeadScale, edges.RowMatrix)
_CLASSES: dict[str, Any] = {cls.__name__: cls for cls in (*_NO_INPUT, *_ONE_INPUT, *_TWO_INPUTS)}


def to_arrays(
    output: ir.Value, unweighted: ir.Value | None, edge_head: ir.Value | None, names: Mapping[int, str]
) -> tuple[dict[str, Any], dict[str, NDArray[np.float32]]]:
    """The stored form of a model; `names` maps id(value) to a name."""
    arrays: dict[str, NDArray[np.float32]] = {}
    structure = _write(output, unweighted, names, "", arrays)
    structure["edge_head"] = None if edge_head is None else _write(edge_head, None, {}, "head.", arrays)
    return structure, arrays


def _write(
    output: ir.Value, unweighted: ir.Value | None, names: Mapping[int, str], prefix: str, arrays: dict[str, Any]
) -> dict[str, Any]:
    values = ir.walk(output) if unweighted is None else ir.walk(output, unweighted)
    index = {id(value): position for position, value in enumerate(values)}
    entries = []
    for position, value in enumerate(values):
        op = type(value).__name__
        entry: dict[str, Any] = {"op": op, "inputs": [index[id(x)] for x in value.inputs], "name": names.get(id(value))}
        for option in _OPTIONS.get(op, ()):
            given = getattr(value, option)
            entry[option] = list(given) if isinstance(given, tuple) else given
        if getattr(value, "target", None) is not None:
            entry["target"] = value.target  # type: ignore[attr-defined]
        for option in _ARRAYS.get(op, ()):
            array = getattr(value, option)
            entry[option] = None if array is None else f"{prefix}{position}.{option}"
            if array is not None:
                arrays[entry[option]] = array
        if isinstance(value, ir.Combine):
            entry["coefs"] = [coef for coef, _ in value.terms]
        entries.append(entry)
    return {
        "format": FORMAT,
        "values": entries,
        "output": index[id(output)],
        "unweighted": None if unweighted is None else index[id(unweighted)],
        "edge_head": None,
    }


def from_arrays(
    structure: Mapping[str, Any], arrays: Arrays
) -> tuple[ir.Value, ir.Value | None, ir.Value | None, dict[int, str]]:
    """(output, unweighted, edge_head, names) from the stored form.

    Raises: StoredStateInvalid if it is damaged or of another version.
    """
    if not isinstance(structure, Mapping) or structure.get("format") != FORMAT:
        found = structure.get("format") if isinstance(structure, Mapping) else type(structure).__name__
        raise StoredStateInvalid(f"[model] expected stored format {FORMAT}, got {found}; use the version that wrote it")
    try:
        names: dict[int, str] = {}
        output, unweighted = _read(structure, arrays, names)
        assert output is not None
        head = structure["edge_head"]
        edge_head = None if head is None else _read(head, arrays, {})[0]
    except (KeyError, IndexError, TypeError, AssertionError, ModelError, UpdateError) as error:
        raise StoredStateInvalid(
            f"[model] expected a whole model, got damaged data ({error}); load a backup"
        ) from error
    return output, unweighted, edge_head, names


def types(structure: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[tuple[str, str, str], ...]]:
    """(vertex types, edge types) of the stored form; empty where there are none. Raises: StoredStateInvalid."""
    try:
        triples = tuple((str(src), str(name), str(dst)) for src, name, dst in structure.get("edge_types", ()))
        return tuple(str(name) for name in structure.get("vertex_types", ())), triples
    except (TypeError, ValueError) as error:
        raise StoredStateInvalid(f"[model] expected names of types, got {error}; load a backup") from error


def columns(structure: Mapping[str, Any]) -> tuple[Any, dict[str, str]]:
    """(weights_from, refused) of the stored form. Raises: StoredStateInvalid."""
    weights_from, refused = structure.get("weights_from"), structure.get("refused", {})
    fits = weights_from is None or weights_from in _COLUMNS
    if not fits or not isinstance(refused, Mapping) or not {*refused} <= {"edge_weight", "edge_attr"}:
        raise StoredStateInvalid(f"[model] expected columns of edges, got {weights_from!r}, {refused!r}; load a backup")
    return weights_from, {name: str(reason) for name, reason in refused.items()}


def _read(
    structure: Mapping[str, Any], arrays: Arrays, names: dict[int, str]
) -> tuple[ir.Value | None, ir.Value | None]:
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
    for key in ("output", "unweighted"):
        if structure[key] is not None and not 0 <= structure[key] < len(values):
            raise IndexError(f"{key} is value {structure[key]} of {len(values)}")
    return tuple(None if structure[key] is None else values[structure[key]] for key in ("output", "unweighted"))  # type: ignore[return-value]


def _value(entry: Mapping[str, Any], xs: list[ir.Value], arrays: Arrays) -> ir.Value:
    op = entry["op"]
    options: dict[str, Any] = {option: entry[option] for option in _OPTIONS.get(op, ())}
    options = {option: tuple(given) if isinstance(given, list) else given for option, given in options.items()}
    for option in _ARRAYS.get(op, ()):
        options[option] = None if entry[option] is None else arrays[entry[option]]
        if options[option] is not None and options[option].dtype != np.float32:
            raise TypeError(f"{entry[option]} is of {options[option].dtype}, not float32")
    if "target" in entry:
        options["target"] = entry["target"]
    if op == "Combine":
        return ir.Combine(tuple(zip(entry["coefs"], xs, strict=True)))
    if op in ("Concat", "ByType"):
        return ir.Concat(tuple(xs)) if op == "Concat" else ir.ByType(tuple(xs))
    if op == "ByRelation":
        return edges.ByRelation(tuple(xs), **options)
    if op == "Maximum":
        return ir.Maximum(tuple(xs))
    if op == "Elementwise":
        return ir.Elementwise(options["kind"], tuple(xs))
    if op == "Gather":
        return edges.Gather(xs[0], score=xs[1] if len(xs) > 1 else None, **options)
    result: ir.Value = _CLASSES[op](*xs, **options)
    return result
