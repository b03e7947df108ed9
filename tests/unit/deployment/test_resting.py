"""Over workers small requests gather after an entry of several: there are fewer entries."""

import threading

import pytest

from livegnn.deployment import committer
from livegnn.deployment.committer import rest_after
from tests.unit.deployment.world import deployment, edge, prepared


@pytest.mark.parametrize(
    ("requests", "updates", "seconds"),
    [(1, 1, 0.0), (1, 5000, 0.0), (2, 2, 0.001), (8, 20, 0.007), (16, 16, 0.015), (900, 999, 0.015), (8, 1000, 0.0)],
)
def test_the_more_come_together_the_longer_they_gather(requests, updates, seconds):
    assert rest_after(requests, updates) == pytest.approx(seconds)


@pytest.mark.parametrize(("rests", "entries"), [(True, 2), (False, 6)])
def test_requests_of_a_rest_are_one_entry(tmp_path, monkeypatch, rests, entries):
    asked, goes_on = threading.Event(), threading.Event()

    def rest(seconds):
        asked.set()
        assert goes_on.wait(5)

    monkeypatch.setattr(committer, "rest_after", lambda requests, updates: 1.0 if requests == 1 else 0.0)
    monkeypatch.setattr(committer.time, "sleep", rest)
    with deployment(prepared(tmp_path)) as live:
        live._committer._rests = rests
        live.apply(edge(0, 1))
        if rests:
            assert asked.wait(5)
        futures = []
        for v in range(2, 7):
            futures.append(live.submit(edge(0, v)))
            if not rests:
                futures[-1].result(5)
        goes_on.set()
        assert {future.result(5).version for future in futures} == ({2} if rests else set(range(2, 7)))
        assert live.commits.entries == entries
