"""Frames of updates: what was written is read, by a service as by the library; whatever is damaged is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import livegnn as lg
from livegnn.errors import UpdateError, UsageError, ValueInvalid
from livegnn.log import codec
from livegnn.serve.service.app import service
from livegnn.serve.update_frames import decode_updates, encode_updates
from tests.serve.client import FRAME, Client, error_of
from tests.unit.deployment.world import deployment, edge, prepared

SMALL = st.integers(0, 30)
FLOATS = st.floats(-1e6, 1e6, width=32)
TYPES = st.sampled_from([None, 0, 3, "likes", ("user", "likes", "item")])
VERTEX_TYPES = st.sampled_from([None, 0, 2, "user"])
ROWS = st.lists(FLOATS, max_size=3)
CALLS = st.one_of(
    st.tuples(
        st.just("add_edge"),
        st.fixed_dictionaries({"u": SMALL, "v": SMALL}, optional={"weight": FLOATS, "time": SMALL, "edge_type": TYPES}),
    ),
    st.tuples(
        st.just("remove_edge"),
        st.fixed_dictionaries(
            {"u": SMALL, "v": SMALL},
            optional={"time": SMALL, "edge_id": SMALL, "edge_type": TYPES, "missing": st.just("ignore")},
        ),
    ),
    st.tuples(st.just("remove_edges_before"), st.fixed_dictionaries({"time": SMALL}, optional={"edge_type": TYPES})),
    st.tuples(
        st.just("set_weight"),
        st.fixed_dictionaries({"u": SMALL, "v": SMALL, "w": FLOATS}, optional={"edge_id": SMALL, "edge_type": TYPES}),
    ),
    st.tuples(
        st.just("set_edge_attr"),
        st.fixed_dictionaries({"u": SMALL, "v": SMALL, "attr": ROWS}, optional={"edge_id": SMALL, "edge_type": TYPES}),
    ),
    st.tuples(
        st.sampled_from(["set_features", "add_vertex"]),
        st.fixed_dictionaries({"u": SMALL, "x": ROWS}, optional={"vertex_type": VERTEX_TYPES}),
    ),
    st.tuples(st.just("remove_vertex"), st.fixed_dictionaries({"u": SMALL}, optional={"vertex_type": VERTEX_TYPES})),
)


def batch_of(calls):
    updates = lg.Updates()
    for method, arguments in calls:
        getattr(updates, method)(**arguments)
    return updates


@given(st.lists(CALLS, min_size=1, max_size=30))
@settings(max_examples=300, deadline=None)
def test_what_was_written_is_read(calls):
    updates = batch_of(calls)
    found = decode_updates(encode_updates(updates), len(calls))
    ours, theirs = updates.to_columns(), found.to_columns()
    assert codec.encode(found) == codec.encode(updates)
    assert ours[2] == theirs[2]
    with pytest.raises(ValueInvalid):
        decode_updates(encode_updates(updates), len(calls) - 1)


@given(st.lists(CALLS, min_size=1, max_size=6), st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_frame_is_refused_or_another_batch(calls, data):
    body = bytearray(encode_updates(batch_of(calls)))
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body) - 1)) :]
        with pytest.raises(UpdateError):
            decode_updates(bytes(body), 100)
        return
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_updates(bytes(body), 100)
    except UpdateError:
        return
    assert 1 <= len(found) <= 100
    assert codec.encode(decode_updates(encode_updates(found), 100)) == codec.encode(found)


def test_string_ids_take_another_form():
    updates = lg.Updates()
    updates.add_edge("ann", "bob")
    with pytest.raises(UsageError, match="Arrow or JSON"):
        encode_updates(updates)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"LGU1",
        b"LGU2\1\0\0\0",
        b"LGU1\0\0\0\0",
        b"LGU1\xff\xff\xff\xff",
        b"LGU1\1\0\0\0" + struct.pack("<BBHIII", 9, 0, 0, 1, 0, 0),
        b"LGU1\1\0\0\0" + struct.pack("<BBHIII", 0, 0, 0, 0, 0, 0),
        b"LGU1\1\0\0\0" + struct.pack("<BBHIII", 0, 32, 0, 2**32 - 1, 2**32 - 1, 0),
        b"LGU1\1\0\0\0" + struct.pack("<BBHIII", 0, 32, 0, 1, 2**32 - 1, 0) + bytes(16),
        b"LGU1\1\0\0\0" + struct.pack("<BBHIII", 7, 16, 1, 1, 0, 0) + b"\xff" + bytes(15),
        b"LGU1\1\0\0\0" + struct.pack("<BBHIII", 0, 0, 0, 1, 0, 0) + struct.pack("<qq", -1, 2),
        b"LGU1\1\0\0\0" + struct.pack("<BBHIII", 0, 1, 0, 1, 0, 0) + struct.pack("<qqf4x", 1, 2, np.nan),
    ],
)
def test_a_service_refuses_what_is_no_batch(tmp_path, body):
    with deployment(prepared(tmp_path)) as live:
        digest = live.engine("scores").state_digest()
        assert error_of(Client(service(live)).post("/v1/updates", body, headers=FRAME), 422)["kind"] == "ValueInvalid"
        assert (live.version, live.engine("scores").state_digest(), live.log.tail) == (0, digest, 0)


def test_a_service_applies_a_frame_as_the_library_does(tmp_path):
    updates = lg.Updates()
    updates.add_edges([1, 2, 3], [4, 5, 6])
    updates.add_vertex(30, [1.0, 2.0, 3.0, 4.0])
    updates.add_edge(30, 4)
    updates.set_features([1, 2], np.ones((2, 4), np.float32))
    updates.remove_edge(1, 4)
    updates.remove_vertex(7)
    headers = {**FRAME, "idempotency-key": "a"}
    with deployment(prepared(tmp_path / "served")) as live, deployment(prepared(tmp_path / "library")) as other:
        client = Client(service(live))
        answers = [client.post("/v1/updates", encode_updates(updates), headers=headers).json() for _ in range(2)]
        assert answers == [{"version": 1, "offset": 0, "updates": 9, "repeated": again} for again in (False, True)]
        other.apply(updates)
        assert live.engine("scores").state_digest() == other.engine("scores").state_digest()
        bad = edge(1, 2)
        bad.add_edge(1, 1000)
        assert error_of(client.post("/v1/updates", encode_updates(bad), headers=FRAME), 404)["kind"] == "VertexUnknown"
        assert live.engine("scores").state_digest() == other.engine("scores").state_digest()
