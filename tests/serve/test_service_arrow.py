"""Arrow streams that would decode to far more than they are; and the forms of texts that go in."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest

import livegnn as lg
from livegnn.serve.service.app import service
from livegnn.serve.service.forms import ARROW
from tests.serve.client import Client
from tests.unit.deployment.world import deployment, prepared

HEADERS = {"content-type": ARROW}


def stream(columns, compression=None):
    batch = pa.record_batch(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def views_of_one(text, count):
    """A column of views, all of the same bytes."""
    _, view, *data = pa.array([text], pa.string_view()).buffers()
    views = pa.py_buffer(view.to_pybytes()[:16] * count)
    return pa.Array.from_buffers(pa.string_view(), count, [None, views, *data])


@pytest.fixture
def texts(tmp_path):
    def graph():
        return lg.Graph(np.ones((3, 4), np.float32), ["a"], ["b"], ids=["a", "b", "c"])

    with deployment(prepared(tmp_path), graph) as live:
        yield live


def refused(live, body, status):
    answer = Client(service(live)).post("/v1/updates", body, headers=HEADERS)
    assert answer.status_code == status, answer.text
    assert live.version == 0
    return answer.json()["error"]["message"]


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_compressed_streams_are_refused(texts, compression, kind):
    ends = pa.array(["a"] * 1000).cast(kind)
    assert "compression" in refused(texts, stream({"src": ends, "dst": ends}, compression), 415)


@pytest.mark.parametrize(
    "column",
    [
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(9000, np.int32)), pa.array(["x" * 100_000])),
        views_of_one("x" * 100_000, 9000),
    ],
    ids=["dictionary", "views"],
)
def test_one_long_text_that_all_rows_name_is_refused(texts, column):
    got = refused(texts, stream({"src": column, "dst": column}), 413)
    assert str(9000 * 100_000) in got


def test_a_dictionary_of_rows_is_refused(texts):
    ends = pa.array(["a"] * 2)
    rows = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array([[1.0] * 4]))
    assert "feature" in refused(texts, stream({"src": ends, "dst": ends, "feature": rows}), 422)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_texts_in_any_form_go_in(texts, kind):
    body = stream({"src": pa.array(["a", "c"]).cast(kind), "dst": pa.array(["c", "b"]).cast(kind)})
    assert Client(service(texts)).post("/v1/updates", body, headers=HEADERS).json()["version"] == 1
    assert texts.graph.edge_count == 3
