"""Parts of vertices as data, and the ways to find them: METIS, LDG, Fennel, hash."""

import numpy as np
import pytest

import livegnn as lg
from livegnn import _native
from livegnn.distributed import Newcomers, VertexParts, fennel, hashed, ldg, metis
from livegnn.distributed.partition import StreamPass, Topology, by_metis
from livegnn.errors import DataMissing, StoredStateInvalid, UsageError
from livegnn.sampling.cluster.partition import even_owners


def needs_metis():
    pytest.importorskip("pymetis", reason="pymetis is of the extra [distributed]")


FINDERS = {"metis": metis, "ldg": ldg, "fennel": fennel}


@pytest.fixture(params=FINDERS)
def find(request):
    if request.param == "metis":
        needs_metis()
    return FINDERS[request.param]


def clusters(count, size, *, between=1, seed=0):
    """Dense groups of vertices with few edges between them; the group of each vertex."""
    rng = np.random.default_rng(seed)
    group = rng.permutation(np.repeat(np.arange(count), size))
    src, dst = [], []
    for each in range(count):
        members = np.flatnonzero(group == each)
        src.append(rng.choice(members, 20 * size))
        dst.append(rng.choice(members, 20 * size))
    ends = rng.integers(0, count * size, (2, between * count))
    return Topology.of_edges(np.concatenate([*src, ends[0]]), np.concatenate([*dst, ends[1]]), count * size), group


def cut(topology, parts):
    return int((parts.lookup(topology.src) != parts.lookup(topology.dst)).sum())


# ---- VertexParts


def test_a_hash_is_that_of_the_sampling_cluster():
    parts, slots = hashed(5), np.arange(3000)
    assert (parts.lookup(slots) == even_owners(5)[_native.buckets(slots)]).all()
    assert parts.slot_count == 0
    assert parts.of_first(3000).tolist() == parts.lookup(slots).tolist()
    moved = parts.moved_buckets([3, 7], 4)
    changed = np.isin(_native.buckets(slots), [3, 7])
    assert (moved.lookup(slots)[changed] == 4).all()
    assert (moved.lookup(slots)[~changed] == parts.lookup(slots)[~changed]).all()


def test_a_table_grows_and_what_readers_have_stays():
    parts = VertexParts(3, [2, 0])
    seen, expected = parts.of, [2, 0]
    for step in range(100):
        parts.append([step % 3])
        expected.append(step % 3)
    assert parts.of.tolist() == expected
    assert seen.tolist() == [2, 0]
    assert parts.bytes < 2 * (2 * 102 + 1024)
    with pytest.raises(ValueError, match="read-only"):
        parts.of[0] = 1
    assert parts.lookup(np.array([101, 102])).tolist() == [0, hashed(3).lookup(np.array([102]))[0]]


def test_moved_slots_are_of_a_copy():
    parts = VertexParts(3, [0, 1, 2, 0])
    assert parts.moved(np.array([0, 3]), [2, 1]).of.tolist() == [2, 1, 2, 1]
    assert parts.moved(np.array([1, 2]), 0).of.tolist() == [0, 0, 0, 0]
    assert parts.of.tolist() == [0, 1, 2, 0]


def test_arrays_round_trip():
    parts = VertexParts(3, [0, 1, 2]).moved_buckets([0], 2)
    again = VertexParts.from_arrays(parts.to_arrays())
    slots = np.arange(2000)
    assert (again.lookup(slots) == parts.lookup(slots)).all()
    assert again.slot_count == 3
    with pytest.raises(StoredStateInvalid, match="save the parts again"):
        VertexParts.from_arrays({"parts": np.array(2)})


@pytest.mark.parametrize("wrong", [0, 1025, 2.0, True])
def test_refuses_other_numbers_of_parts(wrong):
    for find in (hashed, VertexParts):
        with pytest.raises(UsageError, match="1 to 1024 parts"):
            find(wrong)


def test_refuses_parts_and_slots_that_there_are_not():
    with pytest.raises(UsageError, match="below 2, got 2"):
        VertexParts(2, [0, 2])
    with pytest.raises(UsageError, match="whole numbers"):
        VertexParts(2, [0.5])
    with pytest.raises(UsageError, match="slots from 0"):
        hashed(2).lookup(np.array([-1]))
    with pytest.raises(UsageError, match="below 1"):
        VertexParts(2, [0]).moved(np.array([1]), 0)
    with pytest.raises(UsageError, match="buckets below 1024"):
        hashed(2).moved_buckets([1024], 0)
    with pytest.raises(UsageError, match="each of 1024 buckets"):
        VertexParts(2, owners=np.zeros(3, np.uint16))


# ---- finders


def test_groups_are_found(find):
    topology, group = clusters(4, 60)
    wide = {} if find is metis else {"read": StreamPass(order="random", passes=5, seed=3)}
    parts = find(topology, 4, balance="vertices", **wide)
    assert cut(topology, parts) < cut(topology, hashed(4)) / 3
    assert np.bincount(parts.of, minlength=4).max() <= 1.1 * 60 + 1
    if find is metis:
        assert len({(each, int(part)) for each, part in zip(group, parts.of, strict=True)}) == 4


def test_a_seed_gives_the_same_parts_again(find):
    topology, _ = clusters(5, 40, between=60)
    reads = [{"seed": seed} if find is metis else {"read": StreamPass(order="random", seed=seed)} for seed in (1, 1, 2)]
    first, again, other = (find(topology, 5, **read).of for read in reads)
    assert (first == again).all()
    assert (first != other).any()


def test_parts_by_edges_have_the_same_of_them(find):
    rng = np.random.default_rng(5)
    dst = np.minimum(rng.geometric(0.01, 6000) - 1, 399)  # low slots have far more in-edges
    topology = Topology.of_edges(rng.integers(0, 400, 6000), dst, 400)
    work = topology.in_edges() + 1
    loads = np.bincount(find(topology, 4, balance="edges").of, work, minlength=4)
    assert loads.max() <= 1.12 * loads.mean()
    vertices = np.bincount(find(topology, 4, balance="vertices").of, minlength=4)
    assert vertices.max() <= 1.11 * vertices.mean()


@pytest.mark.parametrize("balance", ["vertices", "edges"])
def test_small_and_strange_graphs(find, balance):
    """More parts than vertices, no edges, self-loops and parallel edges alone, no vertices, one part."""
    none = Topology.of_edges([], [], 0)
    assert find(none, 3, balance=balance).slot_count == 0
    apart = find(Topology.of_edges([], [], 7), 3, balance=balance)
    assert sorted(np.bincount(apart.of, minlength=3)) == [2, 2, 3]
    loops = find(Topology.of_edges([0, 1, 2, 2], [0, 1, 2, 2], 3), 5, balance=balance)
    assert len(set(loops.of.tolist())) == 3
    pair = Topology.of_edges([0, 0, 1, 2], [1, 1, 0, 2], 40)
    assert np.bincount(find(pair, 4, balance=balance).of, minlength=4).min() >= 1
    assert (find(pair, 1, balance=balance).of == 0).all()


def test_free_slots_go_by_their_buckets_and_weigh_nothing(find):
    graph = lg.Graph(np.zeros((12, 1), np.float32), np.arange(11), np.arange(1, 12))
    updates = lg.Updates()
    for v in (0, 5, 6):
        updates.remove_vertex(v)
    graph.apply(updates)
    parts = find(graph, 3, balance="vertices")
    free = np.array([0, 5, 6])
    assert (parts.lookup(free) == hashed(3).lookup(free)).all()
    assert np.bincount(np.delete(parts.of, free), minlength=3).max() <= 4


def test_typed_undirected_and_named_graphs(find):
    kinds = ["user"] * 6 + ["item"] * 4
    src, dst = [0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 6, 7]
    typed = lg.Graph(np.zeros((10, 2), np.float32), src, dst, vertex_type=kinds)
    assert find(typed, 2).slot_count == 10
    topology = Topology.of(typed)
    names = np.array(topology.type_names)[topology.vertex_type]
    assert names.tolist() == kinds
    named = lg.Graph(np.zeros((3, 1), np.float32), ["a", "b"], ["b", "c"], ids=["a", "b", "c"], undirected=True)
    assert Topology.of(named).in_edges().tolist() == [1, 2, 1]
    assert find(named, 2).slot_count == 3


def test_refuses_wrong_arguments(find):
    topology = Topology.of_edges([0], [1], 2)
    with pytest.raises(UsageError, match="1 to 1024 parts"):
        find(topology, 0)
    with pytest.raises(UsageError, match="'vertices' or 'edges'"):
        find(topology, 2, balance="bytes")
    with pytest.raises(UsageError, match="slack"):
        find(topology, 2, slack=-1)
    with pytest.raises(UsageError, match="a Graph or a Topology"):
        find([[0, 1]], 2)


def test_refuses_edges_without_their_slots():
    with pytest.raises(UsageError, match="slots below 2, got 1 to 2"):
        Topology.of_edges([0, 0], [1, 2], 2)
    with pytest.raises(UsageError, match="two ends"):
        Topology.of_edges([0], [1, 2], 3)
    with pytest.raises(UsageError, match="passes from 1"):
        ldg(Topology.of_edges([0], [1], 2), 2, read=StreamPass(passes=0))


def test_metis_without_its_package_names_the_extra(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("livegnn.optional.importlib.import_module", missing)
    with pytest.raises(DataMissing, match=r"pymetis.*livegnn\[distributed\]"):
        metis(Topology.of_edges([0, 1], [1, 2], 3), 2)


def test_metis_in_a_process_of_its_own_finds_the_same(monkeypatch):
    needs_metis()
    topology, _ = clusters(4, 50)
    wanted = [metis(topology, 4, recursive=each, seed=3).of for each in (False, True)]
    monkeypatch.setattr(by_metis, "_LARGE", 0)
    monkeypatch.setattr(by_metis, "cut_here", None)
    for recursive, want in zip((False, True), wanted, strict=True):
        np.testing.assert_array_equal(metis(topology, 4, recursive=recursive, seed=3).of, want)
    monkeypatch.setattr(by_metis.cut_aside.__globals__["sys"], "executable", "/bin/false")
    with pytest.raises(UsageError, match=r"\[metis\] expected parts, got exit code 1"):
        metis(topology, 4)


def test_metis_by_bisection():
    needs_metis()
    topology, _ = clusters(4, 50)
    parts = metis(topology, 4, recursive=True, balance="vertices", slack=0.01)
    assert np.bincount(parts.of, minlength=4).max() <= 53
    assert cut(topology, parts) < cut(topology, hashed(4)) / 3


def test_a_stream_that_is_read_again_cuts_less():
    topology, _ = clusters(8, 50, between=40)
    for find in (ldg, fennel):
        once, often = (find(topology, 8, read=StreamPass(order="random", passes=passes)) for passes in (1, 8))
        assert cut(topology, often) < cut(topology, once)


@pytest.mark.parametrize("rule", ["hash", "ldg", "fennel"])
def test_that_a_batch_without_vertices_places_none(rule):
    topology, _ = clusters(3, 10)
    newcomers = Newcomers.of(topology, VertexParts(3, np.arange(30) % 3), rule=rule)
    updates = lg.Updates()
    updates.add_edge(3, 29)
    updates.remove_edge(1, 2)
    updates.set_features(4, np.zeros(2, np.float32))
    for chosen, none in zip(newcomers.choose(updates.buffer), newcomers.nothing(), strict=True):
        assert np.array_equal(chosen, none)
    newcomers.accept(newcomers.nothing())
    assert newcomers.parts.slot_count == 30
