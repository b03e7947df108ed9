"""What TGN remembers of events: when rows change, what a removed vertex leaves, how state is saved."""

import io

import pytest
import torch

from livegnn.errors import DtypeInvalid, StoredStateInvalid, ValueInvalid, VertexUnknown, WidthMismatch
from livegnn.temporal.models import VertexMemory
from livegnn.temporal.models.layers import time_encoder


def memory(slot_count=6, *, edge_width=2, time_origin=None):
    torch.manual_seed(0)
    made = VertexMemory(4, edge_width, time_encoder(3), 3, time_origin)
    made.reset(slot_count)
    return made


def ids(*values):
    return torch.tensor(values, dtype=torch.int64)


def observe(memory, *events):
    """Events (src, dst, time), with features that are a function of them."""
    src, dst, time = (ids(*column) for column in zip(*events, strict=True))
    x = torch.stack([src * 0.1 + time, dst * 0.3 - time], dim=1).to(torch.float32)
    memory.observe(src, dst, time, x[:, : memory.edge_width])


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_vertices_without_events_read_alike_and_others_do_not():
    kept = memory()
    observe(kept, (0, 1, 10))
    rows = kept.read(ids(0, 1, 2, 3))
    assert torch.equal(rows[2], rows[3])
    assert not torch.equal(rows[0], rows[2])


def test_in_training_a_message_waits_and_the_loss_reaches_the_gru_through_it():
    kept = memory()
    observe(kept, (0, 1, 10))
    before = kept.state()["rows"]
    kept.read(ids(0, 1)).sum().backward()
    assert kept.gru.weight_ih.grad.abs().sum() > 0
    assert kept.time_encoder.lin.weight.grad is not None
    assert torch.equal(kept.state()["rows"], before)  # reading takes nothing in
    assert kept.state()["pending"].tolist() == [True, True, False, False, False, False]


def test_rows_hold_no_gradient_from_step_to_step():
    kept = memory()
    for time in range(3):
        kept.read(ids(0, 1, 2)).sum().backward()
        observe(kept, (0, 1, time), (1, 2, time))
        assert not kept.state()["rows"].requires_grad


def test_in_evaluation_events_are_taken_in_at_once():
    kept = memory()
    observe(kept, (0, 1, 10))
    kept.eval()
    waiting = kept.read(ids(0, 1))
    assert not kept.state()["pending"].any()  # the first call in evaluation takes in what training left
    observe(kept, (0, 2, 20))
    assert not kept.state()["pending"].any()
    assert not torch.equal(kept.read(ids(0)), waiting[:1])
    assert torch.equal(kept.read(ids(1)), waiting[1:])


def test_the_last_event_of_a_batch_counts_and_of_several_at_one_time_the_one_with_the_largest_id():
    both, last = memory(), memory()
    observe(both, (0, 1, 10), (0, 2, 10), (3, 0, 5))
    observe(last, (0, 2, 10), (3, 0, 5))
    assert torch.equal(both.read(ids(0)), last.read(ids(0)))
    assert both.last_update(ids(0, 3)).tolist() == [10, 5]


def test_a_late_event_does_not_turn_the_clock_back():
    kept = memory()
    observe(kept, (0, 1, 10))
    observe(kept, (0, 2, 4))
    assert kept.last_update(ids(0, 1, 2)).tolist() == [10, 10, 10]  # 2 began at the origin, 10


def test_times_count_from_the_first_event_so_that_unix_seconds_do_no_harm():
    unix, small = memory(), memory()
    observe_at(unix, 1_700_000_000)
    observe_at(small, 0)
    assert torch.equal(unix.read(ids(0, 1, 2)), small.read(ids(0, 1, 2)))
    fixed = memory(time_origin=-5)
    observe_at(fixed, 0)
    assert not torch.equal(fixed.read(ids(0)), small.read(ids(0)))


def observe_at(memory, begin):
    x = torch.ones(2, 2)
    for step in range(2):
        memory.observe(ids(0, 1), ids(1, 2), ids(begin + 7 * step, begin + 7 * step + 3), x)


def test_growth_keeps_what_is_known():
    kept, roomy = memory(2), memory(9)
    for part in (kept, roomy):
        observe(part, (0, 1, 10))
    kept.grow(9)
    kept.grow(3)  # fewer than now: nothing happens
    for part in (kept, roomy):
        observe(part, (8, 0, 12))
    assert same(kept.state(), roomy.state())
    assert kept.slot_count == 9


def test_a_forgotten_vertex_is_new_and_its_neighbours_keep_what_they_took():
    kept, other = memory(), memory()
    observe(kept, (0, 1, 10), (2, 3, 11))
    observe(other, (0, 1, 10), (2, 3, 11))
    kept.forget(ids(0))
    assert torch.equal(kept.read(ids(0)), kept.read(ids(5)))
    assert torch.equal(kept.read(ids(1)), other.read(ids(1)))
    assert kept.state()["pending"].tolist() == [False, False, True, True, False, False]


@pytest.mark.parametrize("training", [True, False])
def test_state_is_saved_and_loaded_exactly(training):
    kept, fresh = memory(), memory(0)
    kept.train(training)
    fresh.train(training)
    observe(kept, (0, 1, 10), (2, 2, 11))
    file = io.BytesIO()
    torch.save(kept.state(), file)
    file.seek(0)
    fresh.load_state(torch.load(file))
    assert same(fresh.state(), kept.state())
    for part in (kept, fresh):
        observe(part, (1, 2, 13))
    assert same(fresh.state(), kept.state())
    everyone = torch.arange(6)
    assert torch.equal(fresh.read(everyone), kept.read(everyone))


def test_state_comes_to_the_device_of_the_memory():
    """A checkpoint is read to the CPU. Torch's device of shapes without numbers stands for a GPU."""
    kept, other = memory(), memory().to("meta")
    observe(kept, (0, 1, 10), (2, 1, 11))
    other.load_state(kept.state())
    other.grow(9)
    assert {name: part.device.type for name, part in other.state().items() if name != "origin"} == dict.fromkeys(
        ("rows", "last", "other", "time", "raw", "known", "pending"), "meta"
    )


def test_state_is_a_copy():
    kept = memory()
    state = kept.state()
    observe(kept, (0, 1, 10))
    assert not state["pending"].any()
    kept.load_state(state)
    observe(kept, (0, 1, 10))
    assert not state["pending"].any()


def test_reset_forgets_all():
    kept = memory()
    observe(kept, (0, 1, 10))
    kept.reset(6)
    assert same(kept.state(), memory().state())


def test_a_batch_without_events_changes_nothing():
    kept = memory()
    before = kept.state()
    kept.observe(ids(), ids(), ids(), torch.zeros(0, 2))
    assert same(kept.state(), before)


BAD_EVENTS = [
    (VertexUnknown, r"expected slots in \[0, 6\), got 6 to 6; call grow\(7\)", (ids(6), ids(0), ids(1), 2)),
    (VertexUnknown, "got -1 to -1", (ids(0), ids(-1), ids(1), 2)),
    (DtypeInvalid, "int32", (ids(0).to(torch.int32), ids(0), ids(1), 2)),
    (DtypeInvalid, r"\(1, 1\)", (ids(0).view(1, 1), ids(0), ids(1), 2)),
    (DtypeInvalid, "times of int64", (ids(0), ids(0), torch.ones(1), 2)),
    (WidthMismatch, "got 1, 2, 1", (ids(0), ids(0, 1), ids(1), 2)),
    (WidthMismatch, r"shape \(1, 2\)", (ids(0), ids(0), ids(1), 3)),
]


@pytest.mark.parametrize(("error", "text", "events"), BAD_EVENTS)
def test_bad_events_are_refused_and_change_nothing(error, text, events):
    kept = memory()
    before = kept.state()
    with pytest.raises(error, match=text):
        kept.observe(*events[:3], torch.ones(1, events[3]))
    assert same(kept.state(), before)


def test_bad_calls_are_refused():
    kept = memory()
    with pytest.raises(ValueInvalid, match="slot_count of 0 or more, got -1"):
        kept.reset(-1)
    with pytest.raises(VertexUnknown):
        kept.read(ids(6))
    with pytest.raises(VertexUnknown):
        kept.forget(ids(6))
    with pytest.raises(StoredStateInvalid, match="same widths"):
        kept.load_state(memory(edge_width=1).state())
    state = kept.state()
    del state["time"]
    with pytest.raises(StoredStateInvalid, match="expected the state's parts"):
        kept.load_state(state)
