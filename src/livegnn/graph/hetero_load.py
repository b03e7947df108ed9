"""What a new graph with types is made of: dicts keyed as in HeteroData, or flat arrays with vertex_type.

Vertices of one type lie one after another, types in the order of the dict; edges likewise in the dict form, and as they
come in the flat form. Feature rows are padded with zeros to the widest type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from livegnn.errors import ColumnMissing, DtypeInvalid, ValueInvalid, VertexUnknown, WidthMismatch
from livegnn.graph import checks, load
from livegnn.graph import float16 as halves
from livegnn.graph.checks import AnyArray, Int32Array, Int64Array
from livegnn.graph.ids import NamedIds, counted_and_named
from livegnn.graph.schema import EdgeTriple, GraphSchema

_WHERE = "Graph"
_COLUMNS = ("weight", "time", "edge_attr")


def is_typed_form(vertex_type: object, *arguments: object) -> bool:
    """Whether Graph(...) was given the typed form."""
    return vertex_type is not None or any(isinstance(each, Mapping) for each in arguments)


def check_typed(
    features: object,
    src: object,
    dst: object,
    *,
    weight: object,
    time: object,
    edge_type: object,
    edge_attr: object,
    vertex_type: object,
    ids: object,
    feature_dtype: str | None,
    by_row: bool,
) -> load.GraphArrays:
    """Everything that Graph(...) was given in a typed form, as the store takes it."""
    columns = {"weight": weight, "time": time, "edge_attr": edge_attr}
    if vertex_type is not None:
        return _flat(features, src, dst, columns, edge_type, vertex_type, ids, feature_dtype)
    if edge_type is not None:
        raise ValueInvalid(
            f"[{_WHERE}] expected no edge_type with dicts, got {checks.count_of(edge_type)}; the keys of src and dst "
            "are the edge types"
        )
    given = {name: values for name, values in columns.items() if values is not None}
    for name, values in {"features": features, "src": src, "dst": dst, **given}.items():
        if not isinstance(values, Mapping):
            raise DtypeInvalid(
                f"[{_WHERE}] expected {name} as a dict, as other arguments are, got {checks.count_of(values)}; give "
                "all as dicts, or all as arrays with vertex_type="
            )
    return _dicts(_dict_rows(features, feature_dtype), src, dst, given, ids, by_row)


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


def _dicts(
    features: tuple[dict[str, AnyArray], str], src: Any, dst: Any, columns: dict[str, Any], ids: object, by_row: bool
) -> load.GraphArrays:
    rows, dtype = features
    schema = GraphSchema(
        tuple(rows), tuple(_triple(key, rows) for key in src), tuple(x.shape[1] for x in rows.values())
    )
    for name, values in {"dst": dst, **columns}.items():
        _same_keys(name, values, schema.edge_types)
    known = _typed_ids(schema, [len(x) for x in rows.values()], ids)
    offset = dict(zip(rows, np.cumsum([0, *map(len, rows.values())]).tolist(), strict=False))
    parts: dict[str, list[AnyArray]] = {name: [] for name in ("src", "dst", *columns)}
    for key in schema.edge_types:
        for name, values, kind in (("src", src, key[0]), ("dst", dst, key[2])):
            label = f"{name}[{key!r}]"
            if by_row:
                parts[name].append(_rows_of(label, values[key], len(rows[kind])) + offset[kind])
            else:
                parts[name].append(known.slots(f"{_WHERE}, {label}", values[key], kind))
        count = len(parts["src"][-1])
        checks.same_length(_WHERE, f"dst[{key!r}]", parts["dst"][-1], count, f"src[{key!r}]")
        for name, values in columns.items():
            column = _column(name, f"{name}[{key!r}]", values[key])
            checks.same_length(_WHERE, f"{name}[{key!r}]", column, count, f"src[{key!r}]")
            parts[name].append(column)
    if "edge_attr" in columns:
        _same_width(schema.edge_types, parts["edge_attr"])
    counts = [len(x) for x in parts["src"]]
    codes = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    ends = {name: np.concatenate([np.zeros(0, np.int64), *parts[name]]) for name in ("src", "dst")}
    joined = {name: np.concatenate(parts[name]) if parts[name] else _empty(name) for name in columns}
    return _arrays(list(rows.values()), dtype, ends, codes, joined, known)


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


def _rows_of(label: str, values: object, count: int) -> Int64Array:
    rows = checks.id_array(_WHERE, label, values)
    if rows.size and int(rows.max()) >= count:
        row = int(np.argmax(rows >= count))
        raise VertexUnknown(
            f"[{_WHERE}] expected rows below {count} in {label}, got {rows[row]} at row {row}; add features"
        )
    return rows


def _column(name: str, label: str, values: object) -> AnyArray:
    if name == "time":
        return checks.time_array(_WHERE, label, values)
    column = checks.float_array(_WHERE, label, values, 2 if name == "edge_attr" else 1)
    if name == "edge_attr" and column.shape[1] == 0:
        raise WidthMismatch(f"[{_WHERE}] expected {label} of shape (k, width) with width >= 1, got width 0; omit it")
    return column


def _empty(name: str) -> AnyArray:
    """The column of a graph without edge types."""
    shape = (0, 1) if name == "edge_attr" else (0,)
    return np.zeros(shape, np.int64 if name == "time" else np.float32)


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


# ---- flat arrays


def _flat(
    features: object, src: object, dst: object, columns: dict[str, object], edge_type: object, vertex_type: object,
    ids: object, feature_dtype: str | None
) -> load.GraphArrays:  # fmt: skip
    for name, values in {"features": features, "src": src, "dst": dst, "ids": ids, **columns}.items():
        if isinstance(values, Mapping):
            raise ValueInvalid(f"[{_WHERE}] expected {name} as an array with vertex_type, got a dict; drop vertex_type")
    given_rows = halves.given_rows(_WHERE, "features", features)
    dtype = halves.chosen(feature_dtype, [given_rows])
    rows = halves.as_stored(_WHERE, "features", given_rows, dtype)
    names, codes = _vertex_codes(vertex_type, len(rows))
    order = np.argsort(codes, kind="stable")
    slot_of_row = np.empty(len(rows), np.int64)
    slot_of_row[order] = np.arange(len(rows))
    if ids is None:
        ends = {name: _rows_of(name, values, len(rows)) for name, values in (("src", src), ("dst", dst))}
    else:
        listed = load.plain_ids(ids, rows)
        ends = {name: listed.slots(_WHERE, values, name=name) for name, values in (("src", src), ("dst", dst))}
    checks.same_length(_WHERE, "dst", ends["dst"], len(ends["src"]), "src")
    triples, edge_codes = _edge_codes(edge_type, codes[ends["src"]], codes[ends["dst"]], names)
    schema = GraphSchema(names, triples, (rows.shape[1],) * len(names))
    counts = np.bincount(codes, minlength=len(names)).tolist()
    own = None
    if ids is not None:
        sorted_ids = listed.names[order].tolist()
        bounds = np.cumsum([0, *counts]).tolist()
        own = {name: sorted_ids[bounds[code] : bounds[code + 1]] for code, name in enumerate(names)}
    given = {name: _column(name, name, values) for name, values in columns.items() if values is not None}
    for name, column in given.items():
        checks.same_length(_WHERE, name, column, len(ends["src"]), "src")
    slots = {name: slot_of_row[rows_named] for name, rows_named in ends.items()}
    parts = np.split(rows[order], np.cumsum(counts)[:-1])
    return _arrays(parts, dtype, slots, edge_codes, given, _typed_ids(schema, counts, own))


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


# ---- both


def _arrays(
    parts: Sequence[AnyArray],
    dtype: str,
    ends: Mapping[str, AnyArray],
    codes: Int32Array,
    columns: Mapping[str, Any],
    known: NamedIds,
) -> load.GraphArrays:
    """Columns for the store. parts: feature rows by vertex type, each of its own width, to be stored as `dtype`."""
    counts, widest = [len(part) for part in parts], max(known.schema.widths)
    features = np.zeros((sum(counts), widest), parts[0].dtype)
    first = 0
    for part in parts:
        features[first : first + len(part), : part.shape[1]] = part
        first += len(part)
    return load.GraphArrays(
        features=features,
        feature_dtype=dtype,
        src=ends["src"],
        dst=ends["dst"],
        weight=columns.get("weight"),
        time=columns.get("time"),
        edge_type=codes,
        edge_attr=columns.get("edge_attr"),
        ids=known,
        vertex_type=np.repeat(np.arange(len(counts), dtype=np.int32), counts),
    )


def check_undirected(schema: GraphSchema, undirected: bool) -> None:
    """Refuses undirected edges between vertices of two types."""
    for key in schema.edge_types if undirected else ():
        if key[0] != key[2]:
            raise ValueInvalid(
                f"[{_WHERE}] expected edge types that join a type to itself with undirected=True, got {key!r}; add the "
                "edges of the other way as an edge type of their own"
            )


def hetero_arrays(data: Any) -> dict[str, Any]:
    """The arguments of Graph(...) from a torch_geometric.data.HeteroData; see Graph.from_pyg."""
    where = "Graph.from_pyg"
    features: dict[str, Any] = {}
    for name in data.node_types:
        part = data[name]
        if "x" in part:
            features[name] = part.x
        elif "num_nodes" in part:
            features[name] = np.zeros((int(part.num_nodes), 0), np.float32)
        else:
            raise ColumnMissing(
                f"[{where}] expected x or num_nodes for vertex type {name!r}, got neither; set data[{name!r}].x"
            )
    arguments: dict[str, Any] = {"features": features, "src": {}, "dst": {}, "edge_type": None}
    columns: dict[str, dict[Any, Any]] = {name: {} for name in _COLUMNS}
    for key in data.edge_types:
        if "edge_index" not in data[key]:
            raise ColumnMissing(
                f"[{where}] expected edge_index for edge type {key!r}, got none; set data[{key!r}].edge_index"
            )
        found = load.pyg_edges(f"{where}, {key!r}", data[key])
        for name in ("src", "dst"):
            arguments[name][key] = found[name]
        for name in _COLUMNS:
            if found[name] is not None:
                columns[name][key] = found[name]
    return {**arguments, **{name: values or None for name, values in columns.items()}}


def weight_column(data: Any) -> load.WeightColumn | None:
    """Which column of a HeteroData the graph keeps as its weights; see load.weight_column.

    Raises: ValueInvalid where it is another for another edge type.
    """
    found = {key: load.weight_column(data[key]) for key in data.edge_types}
    names = {column: key for key, column in found.items() if column is not None}
    if len(names) > 1:
        raise ValueInvalid(
            "[Graph.from_pyg] expected edge_weight or a 1-D edge_attr, the same for all edge types, got edge_weight "
            f"for {names['edge_weight']!r} and a 1-D edge_attr alone for {names['edge_attr']!r}; rename one of them"
        )
    return next(iter(names), None)
