"""What a PartsWriter writes is the graph of all chunks: over types, of simple graphs, and of edges that expire."""

import os
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn import errors
from livegnn.distributed import PartsWriter
from livegnn.distributed.cluster import written_edges
from livegnn.distributed.cluster.parts_folder import PartsFolder
from tests.oracle.hetero_oracle import TRIPLES, WIDTHS
from tests.oracle.pyg_oracle import liven
from tests.oracle.test_oracle_hetero import TwoLayers
from tests.simulation.test_cluster_parts_folder import SEEDS, chunks, loaded, random_partition, whole_graph

TIMES = 40


def same_arrays(got, want):
    assert set(got) == set(want)
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)
        assert got[name].dtype == array.dtype, name


def write(folder, options, vertices, edges):
    """Writes chunks, each the arguments of a call."""
    with PartsWriter(folder, **options) as writer:
        for each in vertices:
            writer.add_vertices(**each)
        for each in edges:
            writer.add_edges(**each)


def wrote(folder, *chunked):
    """False where an edge was there twice."""
    try:
        write(folder, *chunked)
    except errors.EdgeDuplicate:
        assert os.listdir(folder.parent) == []
        return False
    return True


def graph_or_none(*args, **options):
    try:
        return lg.Graph(*args, **options)
    except errors.EdgeDuplicate:
        return None


def cut_up(rng, arguments, fixed=None):
    """Chunks of rows of all arguments."""
    count = len(next(iter(arguments.values())))
    for first, last in chunks(rng, count):
        yield {name: column[first:last] for name, column in arguments.items()} | (fixed or {})


def drawn_columns(rng, count, kinds):
    """Columns of edges; kinds: those that all edges have."""
    drawn = {
        "weight": rng.random(count, dtype=np.float32) + np.float32(0.01),
        "time": rng.integers(0, TIMES, count).astype("datetime64[s]" if "seconds" in kinds else np.int64),
        "edge_attr": rng.standard_normal((count, 3), dtype=np.float32),
    }
    return {name: column for name, column in drawn.items() if name in kinds}


def drawn_ttl(rng, kinds, types):
    """None, one duration, or durations by some of the types."""
    if "time" not in kinds or rng.integers(3) == 0:
        return {}

    def one():
        span = int(rng.integers(1, TIMES))
        return timedelta(seconds=span) if "seconds" in kinds and rng.integers(2) else span

    if not types or rng.integers(2):
        return {"ttl": one()}
    some = rng.permutation(len(types))[: rng.integers(1, len(types) + 1)]
    return {"ttl": {types[place]: one() for place in some}}


def drawn_kinds(rng):
    return {name for name in ("weight", "time", "edge_attr", "seconds") if rng.integers(2)}


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(written_edges, "ROWS_MIN", 5)


@settings(max_examples=60)
@given(SEEDS, st.booleans(), st.booleans())
def test_that_duplicates_and_expired_edges_are_those_of_the_graph(tmp_path_factory, seed, simple, undirected):
    rng = np.random.default_rng(seed)
    count, edges, kinds = int(rng.integers(1, 40)), int(rng.integers(0, 40)), drawn_kinds(rng)
    columns = drawn_columns(rng, edges, kinds)
    if rng.integers(2):
        columns["edge_type"] = rng.integers(0, 3, edges).astype(np.int32)
    names = rng.permutation(10 * count)[:count]
    features = rng.standard_normal((count, 2), dtype=np.float32)
    ends = {end: names[rng.integers(0, count, edges)] for end in ("src", "dst")}
    options = {
        "simple": simple,
        "undirected": undirected,
        **drawn_ttl(rng, kinds, [0, 1, 2] * ("edge_type" in columns)),
    }
    graph = graph_or_none(features, **ends, **columns, ids=names, **options)
    folder = tmp_path_factory.mktemp("chunks") / "graph"
    vertices = cut_up(rng, {"features": features, "ids": names})
    assert wrote(folder, options, vertices, cut_up(rng, {**ends, **columns})) == (graph is not None)
    if graph is not None:
        source = PartsFolder(folder)
        same_arrays(source.whole().to_arrays(), graph.to_arrays())
        found = graph.edges()
        assert source._edges == np.count_nonzero(found["src"] != found["dst"])


def typed_names(rng, count, kind):
    """Ids of one type, and what is given of them."""
    if kind is None:
        return np.arange(count), {}
    ids = rng.permutation(10 * count)[:count]
    names = [f"v{each}" for each in ids] if kind == "text" else ids.tolist()
    return np.array(names, object if kind == "text" else np.int64), {"ids": names}


def later_batch(rng, graph, kinds):
    """Edges, later than those before, and a vertex."""
    updates = lg.Updates()
    for _ in range(6):
        triple = TRIPLES[rng.integers(len(TRIPLES))]
        ends = [graph.vertices(kind) for kind in triple[::2]]
        if all(map(len, ends)):
            columns = {name: column[0] for name, column in drawn_columns(rng, 1, kinds).items()}
            if "time" in columns:
                columns["time"] = columns["time"] + 20
            updates.add_edge(*(ids[rng.integers(len(ids))] for ids in ends), edge_type=triple, **columns)
    if not graph.has_ids:
        updates.add_vertex(len(graph.vertices("Item")), np.ones(WIDTHS["Item"], np.float32), vertex_type="Item")
    return updates


def check_typed_cluster(rng, folder, graph, kinds):
    model = lg.from_pyg(liven(TwoLayers(lambda _, s, d: pyg.SAGEConv((s, d), 6))))
    workers = int(rng.integers(1, 4))
    engine = lg.Engine(model, graph, threads=1)
    with loaded(folder, workers, model=model, **random_partition(rng, graph, workers)) as cluster:
        for _ in range(3):
            assert cluster.state_digest() == engine.state_digest()
            same_arrays(whole_graph(cluster), graph.to_arrays())
            updates = later_batch(rng, graph, kinds)
            try:
                engine.apply(updates)
            except errors.LiveGnnError as error:
                with pytest.raises(type(error)):
                    cluster.apply(updates)
            else:
                cluster.apply(updates)
        cluster.verify()


@settings(max_examples=40)
@given(SEEDS, st.booleans(), st.booleans())
def test_that_chunks_of_types_make_the_graph_of_dicts(tmp_path_factory, seed, simple, half):
    rng = np.random.default_rng(seed)
    kinds, text = drawn_kinds(rng), bool(rng.integers(2))
    counts = {name: int(rng.integers(0 if name == "Shop" else 1, 20)) for name in WIDTHS}
    features = {name: rng.standard_normal((counts[name], width), dtype=np.float32) for name, width in WIDTHS.items()}
    names, ids = {}, {}
    for name in WIDTHS:
        names[name], own = typed_names(rng, counts[name], "text" if text else [None, "int"][rng.integers(2)])
        ids |= {name: own["ids"]} if own else {}
    edges = {}
    for triple in TRIPLES:
        count = int(rng.integers(0, 20)) if counts[triple[0]] and counts[triple[2]] else 0
        src, dst = (names[kind][rng.integers(0, max(counts[kind], 1), count)] for kind in triple[::2])
        edges[triple] = {"src": src, "dst": dst, **drawn_columns(rng, count, kinds)}
    columns = {name: {triple: each[name] for triple, each in edges.items()} for name in edges[TRIPLES[0]]}
    options = {"simple": simple, "feature_dtype": "bfloat16" if half else None, **drawn_ttl(rng, kinds, TRIPLES)}
    graph = graph_or_none(features, **columns, ids=ids, **options)
    folder = tmp_path_factory.mktemp("chunks") / "graph"
    vertices = (
        {**chunk, "vertex_type": name}
        for name, rows in features.items()
        for chunk in cut_up(rng, {"features": rows, **({"ids": ids[name]} if name in ids else {})})
    )
    chunked = ({**chunk, "edge_type": triple} for triple, each in edges.items() for chunk in cut_up(rng, each))
    assert wrote(folder, options, vertices, chunked) == (graph is not None)
    if graph is not None:
        same_arrays(PartsFolder(folder).whole().to_arrays(), graph.to_arrays())
        check_typed_cluster(rng, folder, graph, kinds)


@settings(max_examples=30)
@given(SEEDS)
def test_that_edges_of_types_in_any_order_make_the_graph_of_arrays(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    kinds, counts = drawn_kinds(rng), rng.integers(1, 10, 3)
    codes, size = np.repeat(np.arange(3), counts), int(counts.sum())
    features, count = rng.standard_normal((size, 2), dtype=np.float32), int(rng.integers(1, 30))
    place = np.concatenate([np.arange(each) for each in counts])
    src, dst = rng.integers(0, size, (2, count))
    labels = [str(each) for each in rng.choice(["a", "b"], count)]
    columns = drawn_columns(rng, count, kinds)
    typed = {"vertex_type": [f"t{code}" for code in codes], "edge_type": labels}
    options = drawn_ttl(rng, kinds, [])
    graph = lg.Graph(features, src, dst, **columns, **typed, **options)
    folder = tmp_path_factory.mktemp("chunks") / "graph"
    vertices = [{"features": features[codes == code], "vertex_type": f"t{code}"} for code in range(3)]
    edges = []
    for row in range(count):
        triple = f"t{codes[src[row]]}", labels[row], f"t{codes[dst[row]]}"
        own = {name: column[row : row + 1] for name, column in columns.items()}
        edges.append({"src": [place[src[row]]], "dst": [place[dst[row]]], "edge_type": triple, **own})
    assert wrote(folder, options, vertices, edges)
    same_arrays(PartsFolder(folder).whole().to_arrays(), graph.to_arrays())


def test_that_types_are_refused_where_they_do_not_fit(tmp_path):
    rows = np.ones((2, 3), np.float32)
    with PartsWriter(tmp_path / "graph", undirected=True) as writer:
        for bad in ("", 1, ("a", "b")):
            with pytest.raises(errors.DtypeInvalid, match="the name of a vertex type as a string"):
                writer.add_vertices(rows, vertex_type=bad)
        with pytest.raises(errors.ValueInvalid, match=r"expected ids that differ, got 'u' at row 1 again"):
            writer.add_vertices(rows, ids=["u", "u"], vertex_type="User")
        writer.add_vertices(rows, ids=["u", "v"], vertex_type="User")
        with pytest.raises(errors.ColumnMissing, match=r"\[add_vertices\] expected vertex_type for all chunks or for"):
            writer.add_vertices(rows, ids=["w", "x"])
        with pytest.raises(errors.WidthMismatch, match="expected features of type 'User' of width 3, as before, got 2"):
            writer.add_vertices(rows[:, :2], ids=["w", "x"], vertex_type="User")
        with pytest.raises(errors.ColumnMissing, match="expected ids of type 'User' for all chunks or for none"):
            writer.add_vertices(rows, vertex_type="User")
        with pytest.raises(errors.DtypeInvalid, match=r"expected string ids for every vertex type.*none for 'Item'"):
            writer.add_vertices(rows, vertex_type="Item")
        writer.add_vertices(rows[:, :2], ids=["u", "i"], vertex_type="Item")  # an id is of its type
        with pytest.raises(errors.ValueInvalid, match="expected vertices of type 'Item' or of a new one, got 'User'"):
            writer.add_vertices(rows, ids=["w", "x"], vertex_type="User")
        with pytest.raises(
            errors.ColumnMissing, match=r"\[add_edges\] expected edge_type as \(src type, name, dst type"
        ):
            writer.add_edges(["u"], ["v"])
        for bad in ("Knows", 0, ("User", "Item"), ("User", 1, "Item")):
            with pytest.raises(errors.DtypeInvalid, match=r"\[add_edges\] expected edge_type as \(src type, name"):
                writer.add_edges(["u"], ["v"], edge_type=bad)
        with pytest.raises(errors.ValueInvalid, match="expected vertex types among 'User', 'Item', got 'Shop'"):
            writer.add_edges([], [], edge_type=("User", "In", "Shop"))
        with pytest.raises(errors.ValueInvalid, match="join a type to itself with undirected=True"):
            writer.add_edges(["u"], ["i"], edge_type=("User", "Buys", "Item"))
        with pytest.raises(errors.VertexUnknown, match=r"\[add_edges\] expected .*of type 'User', got 'i' at row 0"):
            writer.add_edges(["u"], ["i"], edge_type=("User", "Knows", "User"), weight=[1.0])
        writer.add_edges(["u"], ["v"], edge_type=("User", "Knows", "User"), weight=[1.0])
        with pytest.raises(errors.ColumnMissing, match="expected the columns weight of the first edges, got none"):
            writer.add_edges(["u"], ["i"], edge_type=("Item", "Like", "Item"))
        with pytest.raises(errors.VertexUnknown, match="of type 'Item', got 'v' at row 0"):
            writer.add_edges(["v"], ["i"], edge_type=("Item", "Like", "Item"), weight=[1.0])
    graph = PartsFolder(tmp_path / "graph").whole()
    assert (graph.vertex_count, graph.edge_count, graph.feature_widths) == (4, 1, {"User": 3, "Item": 2})
    with PartsWriter(tmp_path / "other") as writer:
        writer.add_vertices(rows)
        with pytest.raises(errors.ColumnMissing, match="expected vertex_type for all chunks or for none, got 'User'"):
            writer.add_vertices(rows, vertex_type="User")
        with pytest.raises(errors.DtypeInvalid):
            writer.add_edges([0], [1], edge_type=("User", "Knows", "User"))


def test_that_features_of_16_bits_are_not_mixed_with_wider_ones(tmp_path):
    rows = np.full((2, 3), 0.1, np.float32)
    with PartsWriter(tmp_path / "graph") as writer:
        writer.add_vertices(np.zeros((2, 0), np.float32), vertex_type="Bare")
        writer.add_vertices(rows.astype(np.float16), vertex_type="User")
        with pytest.raises(
            errors.DtypeInvalid, match="expected features of float16, as before, got float32; cast them"
        ):
            writer.add_vertices(rows, vertex_type="Item")
    assert PartsFolder(tmp_path / "graph").whole().feature_dtype == "float16"
    with PartsWriter(tmp_path / "wide") as writer:
        writer.add_vertices(rows)
        writer.add_vertices(rows.astype(np.float16))
    wanted = lg.Graph(np.concatenate([rows, rows.astype(np.float16)]), [], [])
    same_arrays(PartsFolder(tmp_path / "wide").whole().to_arrays(), wanted.to_arrays())


def test_that_a_second_edge_is_named_at_the_end_of_the_block(tmp_path):
    rows, folder = np.ones((3, 3), np.float32), tmp_path / "graph"
    message = r"\[PartsWriter\] expected at most one edge .*, got {} as edge 1 and edge 3; leave one out"
    with pytest.raises(errors.DtypeInvalid, match=r"\[PartsWriter\] expected simple as True or False, got 1"):
        PartsWriter(folder, simple=1)
    named = [{"features": rows, "ids": ["a", "b", "c"]}]
    edges = [{"src": list("aca"), "dst": list("bbc")}, {"src": list("bb"), "dst": list("ca")}]
    with pytest.raises(errors.EdgeDuplicate, match=message.format("'b' -> 'c'")):
        write(folder, {"simple": True, "undirected": True}, named, edges)
    typed = [{"features": rows, "vertex_type": name} for name in ("User", "Item")]
    edges = [  # a pair is one whatever its edges are named
        {"src": [int(name == "Likes"), 1], "dst": [1, 0], "edge_type": ("User", name, "Item")}
        for name in ("Buys", "Likes")
    ]
    with pytest.raises(errors.EdgeDuplicate, match=message.format("User 1 -> Item 0")):
        write(folder, {"simple": True}, typed, edges)
    assert os.listdir(tmp_path) == []


BUY = ("User", "Buys", "Item")
SECONDS = np.arange(2).astype("datetime64[s]")


@pytest.mark.parametrize(
    ("ttl", "columns", "error", "message"),
    [
        (5, {}, errors.ColumnMissing, "expected time= with ttl="),
        (0, {"time": [1, 2]}, errors.ValueInvalid, "expected ttl from 1 to"),
        ("5", {"time": [1, 2]}, errors.DtypeInvalid, "expected ttl as an integer, got '5'"),
        (
            timedelta(seconds=1),
            {"time": [1, 2]},
            errors.DtypeInvalid,
            "expected ttl as a whole number, as times without",
        ),
        (timedelta(milliseconds=1), {"time": SECONDS}, errors.ValueInvalid, "expected ttl as a whole number of s"),
        ({BUY: 0}, {"time": [1, 2]}, errors.ValueInvalid, "expected ttl of .* from 1 to"),
    ],
)
def test_that_a_ttl_that_does_not_fit_is_refused_with_the_first_edges(tmp_path, ttl, columns, error, message):
    vertices = [{"features": np.ones((2, 3), np.float32), "vertex_type": name} for name in ("User", "Item")]
    edges = [{"src": [0, 1], "dst": [1, 0], "edge_type": BUY, **columns}]
    with pytest.raises(error, match=r"\[add_edges\] " + message):
        write(tmp_path / "graph", {"ttl": ttl}, vertices, edges)
    assert os.listdir(tmp_path) == []


def test_that_the_end_of_the_block_refuses_a_ttl_of_types_that_never_came(tmp_path):
    rows = np.ones((2, 3), np.float32)
    typed = [{"features": rows, "vertex_type": name} for name in ("User", "Item")]
    edges = [{"src": [0, 1], "dst": [1, 0], "edge_type": BUY, "time": SECONDS}]
    with pytest.raises(
        errors.ValueInvalid, match=r"expected an edge type among \('User', 'Buys', 'Item'\), got 'Sells'"
    ):
        write(tmp_path / "graph", {"ttl": {BUY: 1, "Sells": 2}}, typed, edges)
    with pytest.raises(errors.ColumnMissing, match="expected time= with ttl="):
        write(tmp_path / "graph", {"ttl": 5}, [{"features": rows}], [])
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("options", [{}, {"ttl": timedelta(seconds=3)}])
def test_that_no_times_name_a_unit_where_there_is_a_ttl(tmp_path, options):
    rows, edges = np.ones((2, 3), np.float32), {"src": [], "dst": [], "time": SECONDS[:0]}
    write(tmp_path / "graph", options, [{"features": rows}], [edges])
    same_arrays(PartsFolder(tmp_path / "graph").whole().to_arrays(), lg.Graph(rows, **edges, **options).to_arrays())
