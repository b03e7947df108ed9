"""What a new graph is made of: checks and conversions of what Graph(...) is given.

arrays                     vertices of one kind
arrays with vertex_type=   types named or numbered by vertex; edges as they come
dicts, as in HeteroData    types in the order of the dict; the edges of one type after those of another

Vertices of one type lie one after another. Feature rows are padded with zeros to the widest type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from livegnn.errors import ColumnMissing, DtypeInvalid, ValueInvalid, VertexUnknown, WidthMismatch
from livegnn.graph import checks
from livegnn.graph import float16 as halves
from livegnn.graph.checks import Int32Array
from livegnn.graph.ids import NamedIds, counted_and_named
from livegnn.graph.schema import EdgeTriple, GraphSchema
from livegnn.types import AnyArray, BoolArray, Float32Array, Int64Array

_WHERE = "Graph"
_COLUMNS = ("weight", "time", "edge_attr")

WeightColumn: TypeAlias = Literal["weight", "edge_weight", "edge_attr"]
WEIGHT_COLUMNS: tuple[WeightColumn, ...] = get_args(WeightColumn)  # places are saved


@dataclass(frozen=True)
class GraphArrays:
    """Checked arrays: features (V, F), float32 or the bits of their dtype, src, dst (E,) slots, and the columns that
    were given. vertex_type, (V,), only where vertices have types.
    """

    features: AnyArray
    feature_dtype: str
    src: Int64Array
    dst: Int64Array
    ids: NamedIds | None
    edge_type: Int32Array | None = None
    weight: Float32Array | None = None
    time: Int64Array | None = None
    edge_attr: Float32Array | None = None
    vertex_type: Int32Array | None = None
    edge_id: Int64Array | None = None  # of the edges, ascending; unless given they count from 0

    def kept(self, edges: BoolArray) -> GraphArrays:
        """Without some of the edges; the others keep their ids."""
        if edges.all():
            return self
        columns = {name: getattr(self, name) for name in ("src", "dst", "weight", "time", "edge_type", "edge_attr")}
        kept = {name: column[edges] for name, column in columns.items() if column is not None}
        return replace(self, edge_id=np.flatnonzero(edges), **kept)


def check_arrays(given: Mapping[str, Any], feature_dtype: str | None, *, by_row: bool = False) -> GraphArrays:
    """What Graph(...) was given, by argument, as the store takes it. by_row: src and dst count rows of features."""
    there = {name: values for name, values in given.items() if values is not None or name in ("features", "src", "dst")}
    if "vertex_type" in there:
        for name, values in there.items():
            if isinstance(values, Mapping):
                raise ValueInvalid(
                    f"[{_WHERE}] expected {name} as an array with vertex_type, got a dict; drop vertex_type"
                )
        return _by_type(_of_arrays(there, feature_dtype, by_row), there["vertex_type"], there.get("edge_type"))
    if not any(isinstance(values, Mapping) for values in there.values()):
        return _of_arrays(there, feature_dtype, by_row)
    if "edge_type" in there:
        raise ValueInvalid(
            f"[{_WHERE}] expected no edge_type with dicts, got {checks.count_of(there['edge_type'])}; the keys of src "
            "and dst are the edge types"
        )
    for name, values in there.items():
        if name != "ids" and not isinstance(values, Mapping):
            raise DtypeInvalid(
                f"[{_WHERE}] expected {name} as a dict, as other arguments are, got {checks.count_of(values)}; give "
                "all as dicts, or all as arrays with vertex_type="
            )
    return _of_dicts(there, *_dict_rows(there["features"], feature_dtype), by_row)


def _of_arrays(given: Mapping[str, Any], feature_dtype: str | None, by_row: bool) -> GraphArrays:
    rows = halves.given_rows(_WHERE, "features", given["features"])
    dtype = halves.chosen(feature_dtype, [rows])
    features = halves.as_stored(_WHERE, "features", rows, dtype)
    ids = None
    if "ids" in given:
        ids = counted_and_named(_WHERE, GraphSchema.nameless(features.shape[1]), [len(features)], {"": given["ids"]})
    src, dst = (
        _rows_of(name, given[name], len(features))
        if by_row or ids is None
        else ids.slots(_WHERE, given[name], name=name)
        for name in ("src", "dst")
    )
    checks.same_length(_WHERE, "dst", dst, len(src), "src")
    columns = {name: _column(name, name, given[name]) for name in _COLUMNS if name in given}
    if "edge_type" in given and "vertex_type" not in given:
        columns["edge_type"] = checks.type_array(_WHERE, "edge_type", given["edge_type"])
    for name, column in columns.items():
        checks.same_length(_WHERE, name, column, len(src), "src")
    return GraphArrays(features, dtype, src, dst, ids, **columns)


def _rows_of(label: str, values: object, count: int) -> Int64Array:
    rows = checks.id_array(_WHERE, label, values)
    if rows.size and int(rows.max()) >= count:
        row = int(np.argmax(rows >= count))
        raise VertexUnknown(
            f"[{_WHERE}] expected vertex ids below {count} in {label}, got {rows[row]} at row {row}; add features"
        )
    return rows


def _column(name: str, label: str, values: object) -> AnyArray:
    if name == "time":
        return checks.time_array(_WHERE, label, values)
    column = checks.float_array(_WHERE, label, values, 2 if name == "edge_attr" else 1)
    if name == "edge_attr" and column.shape[1] == 0:
        raise WidthMismatch(f"[{_WHERE}] expected {label} of shape (k, width) with width >= 1, got width 0; omit it")
    return column


def time_unit(where: str, time: object, *, empty: bool) -> str | None:
    """The unit of the times that a new graph is made of. empty: an array of no times names one, too.

    Raises:  ValueInvalid for two units.
    """
    unit: str | None = None
    for part in time.values() if isinstance(time, Mapping) else [time]:
        unit = checks.same_unit(where, "time", unit, checks.time_unit(part, empty=empty))
    return unit


def check_undirected(schema: GraphSchema, undirected: bool) -> None:
    """Refuses undirected edges between vertices of two types."""
    for key in schema.edge_types if undirected else ():
        if key[0] != key[2]:
            raise ValueInvalid(
                f"[{_WHERE}] expected edge types that join a type to itself with undirected=True, got {key!r}; add the "
                "edges of the other way as an edge type of their own"
            )


# ---- dicts


def _dict_rows(features: Any, feature_dtype: str | None) -> tuple[dict[str, AnyArray], str]:
    """Rows by vertex type, in one form, and the dtype that is stored."""
    given = {
        _vertex_name(name): halves.given_rows(_WHERE, f"features[{name!r}]", values)
        for name, values in features.items()
    }
    if not given:
        raise ValueInvalid(f"[{_WHERE}] expected features of at least one vertex type, got an empty dict; name a type")
    dtype = halves.chosen(feature_dtype, list(given.values()))
    rows = [halves.as_stored(_WHERE, f"features[{name!r}]", part, dtype) for name, part in given.items()]
    return dict(zip(given, halves.joined(rows, dtype), strict=True)), dtype


def _of_dicts(given: Mapping[str, Any], rows: dict[str, AnyArray], dtype: str, by_row: bool) -> GraphArrays:
    src, dst = given["src"], given["dst"]
    widths = tuple(part.shape[1] for part in rows.values())
    schema = GraphSchema(tuple(rows), tuple(_triple(key, rows) for key in src), widths)
    columns = [name for name in _COLUMNS if name in given]
    for name in ("dst", *columns):
        _same_keys(name, given[name], schema.edge_types)
    counts = [len(part) for part in rows.values()]
    known = _typed_ids(schema, counts, given.get("ids"))
    offset = dict(zip(rows, np.cumsum([0, *counts]).tolist(), strict=False))
    parts: dict[str, list[AnyArray]] = {name: [] for name in ("src", "dst", *columns)}
    for key in schema.edge_types:
        for name, values, kind in (("src", src, key[0]), ("dst", dst, key[2])):
            label = f"{name}[{key!r}]"
            if by_row:
                parts[name].append(_rows_of(label, values[key], len(rows[kind])) + offset[kind])
            else:
                parts[name].append(known.slots(f"{_WHERE}, {label}", values[key], kind))
        for name in columns:
            parts[name].append(_column(name, f"{name}[{key!r}]", given[name][key]))
        for name in ("dst", *columns):
            checks.same_length(_WHERE, f"{name}[{key!r}]", parts[name][-1], len(parts["src"][-1]), f"src[{key!r}]")
    if "edge_attr" in columns:
        _same_width(schema.edge_types, parts["edge_attr"])
    return GraphArrays(
        features=_padded(list(rows.values()), widths),
        feature_dtype=dtype,
        ids=known,
        edge_type=_repeated([len(part) for part in parts["src"]]),
        vertex_type=_repeated(counts),
        **{name: np.concatenate(found) if found else _empty(name) for name, found in parts.items()},
    )


def _repeated(counts: Sequence[int]) -> Int32Array:
    """Each place as often as it counts."""
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def _padded(parts: Sequence[AnyArray], widths: Sequence[int]) -> AnyArray:
    features = np.zeros((sum(map(len, parts)), max(widths)), parts[0].dtype)
    first = 0
    for part in parts:
        features[first : first + len(part), : part.shape[1]] = part
        first += len(part)
    return features


def _vertex_name(name: object) -> str:
    if isinstance(name, str) and name:
        return checks.text(_WHERE, "the name of a vertex type", name)
    raise DtypeInvalid(f"[{_WHERE}] expected names of vertex types as strings, got {name!r}; name the key of features")


def _triple(key: object, rows: Mapping[str, AnyArray]) -> EdgeTriple:
    if not isinstance(key, tuple) or len(key) != 3 or not all(isinstance(part, str) for part in key):
        raise DtypeInvalid(
            f"[{_WHERE}] expected (src type, name, dst type) as keys of src, got {key!r}; name the three parts"
        )
    for part in (key[0], key[2]):
        if part not in rows:
            raise ValueInvalid(
                f"[{_WHERE}] expected vertex types among {', '.join(map(repr, rows))}, got {part!r} in the key "
                f"{key!r}; give features for that type"
            )
    src, name, dst = (checks.text(_WHERE, "the name of an edge type", part) for part in key)
    return src, name, dst


def _same_keys(name: str, values: Mapping[Any, object], edge_types: Sequence[EdgeTriple]) -> None:
    for key in edge_types:
        if key not in values:
            raise ColumnMissing(
                f"[{_WHERE}] expected {name} for every edge type, got none for {key!r}; give it for all or for none"
            )
    for key in values:
        if key not in edge_types:
            raise ValueInvalid(f"[{_WHERE}] expected the keys of src in {name}, got {key!r}; drop it or add its edges")


def _same_width(edge_types: Sequence[EdgeTriple], attrs: Sequence[AnyArray]) -> None:
    for key, rows in zip(edge_types, attrs, strict=True):
        if rows.shape[1] != attrs[0].shape[1]:
            raise WidthMismatch(
                f"[{_WHERE}] expected edge_attr of one width, got {attrs[0].shape[1]} for {edge_types[0]!r} and "
                f"{rows.shape[1]} for {key!r}; pad the narrower rows"
            )


def _empty(name: str) -> AnyArray:
    """The column of a graph without edge types."""
    shape = (0, 1) if name == "edge_attr" else (0,)
    return np.zeros(shape, np.float32 if name in ("weight", "edge_attr") else np.int64)


def _typed_ids(schema: GraphSchema, counts: Sequence[int], ids: object) -> NamedIds:
    given: Mapping[str, object] = {}
    if ids is not None:
        if not isinstance(ids, Mapping):
            raise DtypeInvalid(
                f"[{_WHERE}] expected ids as a dict by vertex type, got {checks.count_of(ids)}; give "
                "{vertex type: ids}"
            )
        given = ids
    for name in given:
        schema.vertex_code(f"{_WHERE}, ids", name if isinstance(name, str) else repr(name))
    return counted_and_named(_WHERE, schema, counts, given)


# ---- arrays with vertex_type


def _by_type(arrays: GraphArrays, vertex_type: object, edge_type: object) -> GraphArrays:
    """The same graph, its vertices in order of their types."""
    names, codes = _vertex_codes(vertex_type, len(arrays.features))
    order = np.argsort(codes, kind="stable")
    slot_of_row = np.empty(len(order), np.int64)
    slot_of_row[order] = np.arange(len(order))
    triples, edge_codes = _edge_codes(edge_type, codes[arrays.src], codes[arrays.dst], names)
    schema = GraphSchema(names, triples, (arrays.features.shape[1],) * len(names))
    counts = np.bincount(codes, minlength=len(names)).tolist()
    own = None
    if arrays.ids is not None:
        parts = np.split(arrays.ids.names[order], np.cumsum(counts)[:-1])
        own = {name: part.tolist() for name, part in zip(names, parts, strict=True)}
    return replace(
        arrays,
        features=arrays.features[order],
        src=slot_of_row[arrays.src],
        dst=slot_of_row[arrays.dst],
        ids=_typed_ids(schema, counts, own),
        edge_type=edge_codes,
        vertex_type=codes[order],
    )


def _vertex_codes(vertex_type: object, count: int) -> tuple[tuple[str, ...], Int32Array]:
    """Names of the vertex types, and a code for each vertex: strings in order of appearance, or numbers as they are."""
    if checks.is_text(vertex_type):
        listed = checks.text_list(_WHERE, "vertex_type", vertex_type)
        place = {name: code for code, name in enumerate(dict.fromkeys(listed))}
        codes, names = np.array([place[name] for name in listed], np.int32), tuple(place)
    else:
        codes = checks.type_array(_WHERE, "vertex_type", vertex_type)
        names = tuple(map(str, range(int(codes.max()) + 1 if codes.size else 0)))
    checks.same_length(_WHERE, "vertex_type", codes, count, "features")
    if not names:
        raise ValueInvalid(f"[{_WHERE}] expected vertex_type of at least one vertex, got none; use dicts to name types")
    return names, codes


def _edge_codes(
    edge_type: object, src: Int32Array, dst: Int32Array, names: Sequence[str]
) -> tuple[tuple[EdgeTriple, ...], Int32Array]:
    """The edge types that the edges show, and a code for each edge.

    Numbers are codes, and each joins one pair of vertex types. Strings are names: a triple for each pair of types that
    one joins, in order of appearance. Without either all are named "to", as HeteroData does.
    """
    if edge_type is None or checks.is_text(edge_type):
        labels = ["to"] * len(src) if edge_type is None else checks.text_list(_WHERE, "edge_type", edge_type)
        keys = list(zip(src.tolist(), labels, dst.tolist(), strict=False))
        place = {key: code for code, key in enumerate(dict.fromkeys(keys))}
        checks.same_length(_WHERE, "edge_type", np.array(labels), len(src), "src")
        return tuple((names[s], label, names[d]) for s, label, d in place), np.array([place[k] for k in keys], np.int32)
    codes = checks.type_array(_WHERE, "edge_type", edge_type)
    checks.same_length(_WHERE, "edge_type", codes, len(src), "src")
    count = int(codes.max()) + 1 if codes.size else 0
    first = np.full(count, -1, np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    if count and first.min() < 0:
        raise ValueInvalid(
            f"[{_WHERE}] expected an edge of every edge type below {count}, got none of {int(np.argmin(first))}; "
            "number the types without gaps, or use dicts"
        )
    other = (src != src[first[codes]]) | (dst != dst[first[codes]])
    if other.any():
        row = int(np.argmax(other))
        seen = int(first[codes[row]])
        raise ValueInvalid(
            f"[{_WHERE}] expected edge type {codes[row]} to join {names[src[seen]]!r} -> {names[dst[seen]]!r} as at "
            f"row {seen}, got {names[src[row]]!r} -> {names[dst[row]]!r} at row {row}; number edge types by their ends"
        )
    return tuple((names[src[at]], str(code), names[dst[at]]) for code, at in enumerate(first.tolist())), codes
