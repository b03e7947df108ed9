"""Lines of the log: their form, what of an error they show, how many there are."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from livegnn.errors import StorageFailed, VertexUnknown
from livegnn.serve.service.log_lines import FAILURE, JsonLines, RequestLog


def line(error, **options):
    try:
        raise error
    except Exception:
        record = logging.LogRecord("livegnn", logging.ERROR, "x.py", 1, "it %s", ("failed",), sys.exc_info())
    return json.loads(JsonLines(**options).format(record))


def test_a_message_that_may_name_vertices_is_left_out():
    found = line(VertexUnknown("[predict] expected vertex ids below 9, got 17; add it"))
    assert (found["error"], found["message"], found["level"]) == ("VertexUnknown", "it failed", "error")
    assert found["stack"][0].endswith(":line")
    assert "detail" not in found
    assert "17" in line(VertexUnknown("[predict] expected less, got 17; add it"), show_messages=True)["detail"]
    assert "detail" not in line(KeyError("account-17"))
    assert "No space" in line(StorageFailed("[snapshot] expected to write, got No space; make room"))["detail"]


@pytest.mark.parametrize(("count", "lines"), [(3, 3), (500, 12)])
def test_a_flood_of_refusals_is_counted(caplog, monkeypatch, count, lines):
    now = [1.0]
    monkeypatch.setattr("livegnn.serve.service.log_lines.time.monotonic", lambda: now[0])
    written = RequestLog()
    scope = {"method": "POST", FAILURE: VertexUnknown("[a] expected b, got 17; c")}
    with caplog.at_level(logging.INFO, logger="livegnn"):
        for _ in range(count):
            written.answered(scope, "/v1/predict", 404, 0.001)
        now[0] = 2.0
        if count > 10:
            written.answered(scope, "/v1/predict", 404, 0.001)
            written.answered(scope, "/v1/predict", 500, 0.001)
    assert len(caplog.records) == lines
    assert [one.fields.get("left_out") for one in caplog.records[10:]] == [490, None][: max(0, lines - 10)]
    assert "17" not in caplog.text


def test_without_an_access_log_good_requests_leave_no_line(caplog):
    with caplog.at_level(logging.INFO, logger="livegnn"):
        RequestLog().answered({"method": "GET"}, "/healthz", 200, 0.001)
        assert not caplog.records
        RequestLog(access=True).answered({"method": "GET", "client": ("127.0.0.1", 1)}, "/healthz", 200, 0.001)
    assert [(one.event, one.fields["client"]) for one in caplog.records] == [("request", "127.0.0.1")]
