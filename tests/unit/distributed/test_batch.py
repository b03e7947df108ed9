"""What goes to the workers for a batch, and back: all of it comes through, and what is damaged is refused."""

import pickle

import numpy as np
import pytest

import livegnn as lg
from livegnn import _native, errors
from livegnn.distributed.cluster.batch import PartChanges, SlotBatch
from livegnn.distributed.cluster.cut import cut
from livegnn.distributed.cluster.part import NewOwners, PartEngine
from livegnn.distributed.messages import pieces_of, values_of
from livegnn.models.compile import compile_model
from livegnn.models.joining import GraphColumns, joined
from tests.composition.temporal import world_of
from tests.composition.world import Setting

SETTINGS = [Setting(), Setting(typed=True, columns=True), Setting(columns=True)]
ADD_VERTEX = _native.UpdateKind.AddVertex


def buffers(setting, seed, count=6):
    """Batches of random updates, in slots."""
    world = world_of(setting, seed)
    graph = world.graph()
    for _ in range(count):
        updates = world.batch()
        yield graph.host.supposed(updates)[0]
        graph.apply(updates)


def received(value):
    """As others get it: in a message of ours, in a pickle, and as Ray does, whose buffers can be read as such alone."""
    yield from values_of(b"".join(bytes(piece) for piece in pieces_of(value)))
    yield pickle.loads(pickle.dumps(value, 4))
    apart: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, 5, buffer_callback=apart.append)
    yield pickle.loads(pickled, buffers=apart)


def same(one, other):
    assert one.keys() == other.keys()
    for name, column in one.items():
        assert column.dtype == other[name].dtype
        assert column.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("seed", range(3))
def test_a_batch_is_the_same_in_another_process(setting, seed):
    for buffer in buffers(setting, seed):
        columns, batch = buffer.to_arrays(), SlotBatch.of(buffer)
        added = columns["u"][columns["kind"] == ADD_VERTEX.value]
        removed = columns["kind"] == _native.UpdateKind.RemoveVertex.value
        for each in (batch, *received(batch), *received(next(received(batch)))):
            same(columns, each.to_buffer().to_arrays())
            same({name: columns[name] for name in ("kind", "u", "v")}, each.to_columns())
            moves = bool(len(added) or removed.any())
            assert (None if each.added is None else each.added.tolist()) == (added.tolist() if moves else None)
        moved = np.isin(columns["kind"], (ADD_VERTEX.value, _native.UpdateKind.RemoveVertex.value))
        vertices = buffer.vertices().to_arrays()
        assert len(vertices["rows"]) == 0
        for name in columns.keys() - {"rows", "row_width"}:
            assert vertices[name].tolist() == columns[name][moved].tolist()
        for kind in _native.UpdateKind:
            assert buffer.count(kind) == np.count_nonzero(columns["kind"] == kind.value)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_first_updates_are_those_of_the_whole_batch(setting):
    for buffer in buffers(setting, 5):
        columns = buffer.to_arrays()
        for count in {0, 1, len(buffer) // 2, len(buffer)}:
            first = SlotBatch.of(buffer).first(count).to_buffer().to_arrays()
            wanted = {name: column[:count] for name, column in columns.items() if name != "rows"}
            same({**wanted, "rows": columns["rows"][: int(np.maximum(wanted["row_width"], 0).sum())]}, first)


def test_a_batch_is_a_copy_of_updates_that_go_on():
    updates = lg.Updates()
    updates.add_edge(1, 2)
    batch = SlotBatch.of(updates.buffer)
    updates.set_features(3, np.ones(2, np.float32))
    assert batch.to_columns()["u"].tolist() == [1]


def test_large_batches_and_changes_stay_where_they_are():
    updates = lg.Updates()
    updates.set_features(0, np.arange(5000, dtype=np.float32))
    batch, changes = SlotBatch.of(updates.buffer), PartChanges.of_slots(np.arange(5000))
    for value in (batch, changes):
        whole = np.frombuffer(value.block, np.uint8)
        assert any(np.shares_memory(whole, np.frombuffer(piece, np.uint8)) for piece in pieces_of(value) if len(piece))
        assert np.array_equal(np.frombuffer(next(received(value)).block, np.uint8), whole)


def test_that_a_block_that_is_no_batch_is_refused():
    updates = lg.Updates()
    updates.add_edge(1, 2)
    updates.set_features(3, np.ones(4, np.float32))
    block = updates.buffer.to_block()
    for damaged in (b"", block[:7], block[:-1], block + b"\0", block[: len(block) - 16], block[:8]):
        with pytest.raises(errors.LiveGnnError, match="from_block"):
            SlotBatch(damaged, None).to_buffer()
    counts = [2**62, -1, 3]
    for count in counts:
        with pytest.raises(errors.LiveGnnError, match="from_block"):
            SlotBatch(count.to_bytes(8, "little", signed=True) + block[8:], None).to_buffer()
    with pytest.raises(errors.ValueInvalid, match="a kind of update from 0 to 7, got 99"):
        SlotBatch(block[:8] + b"\x63" + block[9:], None).to_buffer()


def test_that_no_damaged_byte_does_harm():
    (buffer,) = buffers(SETTINGS[1], 7, count=1)
    block, rng = buffer.to_block(), np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(block[: rng.integers(len(block) + 1)] if rng.random() < 0.3 else block)
        for at in rng.integers(0, max(len(damaged), 1), 3 * bool(damaged)):
            damaged[at] = rng.integers(256)
        try:
            found = SlotBatch(bytes(damaged), None).to_buffer().to_arrays()
        except errors.LiveGnnError:
            continue
        assert len(found["rows"]) == np.maximum(found["row_width"], 0).sum()


def engine_and_part(model):
    """An engine, and the part that is all of its graph."""
    rng = np.random.default_rng(3)
    graph = lg.Graph(rng.random((60, 4), dtype=np.float32), rng.integers(0, 60, 200), rng.integers(0, 60, 200))
    program = compile_model(joined(model, GraphColumns(None, 0)).output, split=True, codes=None)
    (arrays,) = cut(graph, np.zeros(60, np.uint16), 1)
    return lg.Engine(model, graph, threads=1), PartEngine(arrays, program, lambda parcels: parcels)


@pytest.mark.parametrize("aggregation", ["mean", "max"])
def test_changes_of_a_part_are_those_of_an_engine(aggregation):
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal(shape, dtype=np.float32) for shape in ((8, 4), (8, 4), (3, 8), (3, 8))]
    model = lg.Model(
        [lg.layers.SAGE(*weights[:2], aggregate=aggregation), lg.layers.SAGE(*weights[2:], aggregate=aggregation)]
    )
    engine, part = engine_and_part(model)
    for turn in range(5):
        updates = lg.Updates()
        updates.set_features(turn, rng.random(4, dtype=np.float32))
        updates.add_edges(rng.integers(0, 60, 3), rng.integers(0, 60, 3))
        found = part.apply(SlotBatch.of(updates.buffer), NewOwners(60, np.zeros(0, np.uint16)))
        wanted = engine.apply(updates)
        for each in (found, *received(found)):
            assert each.slots.dtype == np.uint32
            assert each.slots.tolist() == wanted.vertices.tolist()
            assert each.vertex_count == len(wanted)
            assert each.to_native().seconds() == found.to_native().seconds()
            for stage, expected in zip(each.to_native().stages(), wanted._native.stages(), strict=True):
                assert {name for name in stage if name.endswith("seconds")} == {
                    "transform_seconds",
                    "aggregate_seconds",
                }
                assert {**expected, **{name: stage[name] for name in stage if name.endswith("seconds")}} == stage


def test_changes_of_slots_alone_have_no_cost():
    for changes in received(PartChanges.of_slots(np.array([1, 5, 9], np.int64))):
        assert (changes.vertex_count, changes.slots.tolist()) == (3, [1, 5, 9])
        native = changes.to_native()
        assert (native.vertices().tolist(), native.stages(), native.seconds()) == ([1, 5, 9], [], (0.0, 0.0, 0.0))


def test_that_damaged_changes_are_an_invariant_that_is_broken():
    _, part = engine_and_part(lg.Model([lg.layers.GCN(np.ones((2, 4), np.float32))]))
    updates, none = lg.Updates(), NewOwners(60, np.zeros(0, np.uint16))
    updates.set_features(0, np.ones(4, np.float32))
    block = part.apply(SlotBatch.of(updates.buffer), none).block
    head = 8 + 4 * PartChanges(block).vertex_count + 3 * 8
    for damaged in (block[:7], block[:12], block[: head - 1], block[:-1], block + b"\0", b"\xff" * 8 + block[8:]):
        with pytest.raises(errors.InvariantBroken, match="cut short"):
            PartChanges(damaged).to_native()
    with pytest.raises(errors.InvariantBroken, match="a path that there is not"):
        PartChanges(block[:head] + b"\x04" + block[head + 1 :]).to_native()
    rng = np.random.default_rng(0)
    for _ in range(500):
        damaged = bytearray(block)
        for at in rng.integers(0, len(block), 3):
            damaged[at] = rng.integers(256)
        try:
            found = PartChanges(bytes(damaged)).to_native()
        except errors.InvariantBroken:
            continue
        assert all(stage["path"] in ("none", "push", "pull", "sweep") for stage in found.stages())
