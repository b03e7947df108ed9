"""The page on graphs of other kinds: with times that are dates, with vertex types, with several results."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager

import httpx
import numpy as np
import pytest

import livegnn as lg
from livegnn.serve.runner import background_app
from livegnn.serve.service.app import service
from tests.serve.seen import Seen
from tests.unit.deployment.world import deployment, prepared


@contextmanager
def served(folder, graph, **config):
    with ExitStack() as stack:
        live = stack.enter_context(deployment(prepared(folder), graph, **config))
        yield live, stack.enter_context(background_app(service(live), for_others=False))


def filled(seen, selector, values):
    """Writes into the fields of an update of the form, by their names."""
    for name, value in values.items():
        seen.page.fill(f"{selector} [name={name}]", value)


def asked(seen):
    """Sends the form; the updates that it sent, and the status of the answer."""
    with seen.page.expect_response("**/v1/what-if") as response:
        seen.page.click("#whatif .strong")
    return json.loads(response.value.request.post_data)["updates"], response.value.status


@pytest.mark.parametrize("unit", ["s", None])
def test_a_supposed_edge_may_have_a_date(browser, tmp_path, unit):
    def graph():
        times = np.zeros(1, np.int64 if unit is None else f"datetime64[{unit}]")
        return lg.Graph(np.eye(3, 4, dtype=np.float32), [0], [1], time=times)

    with served(tmp_path, graph) as (live, url), Seen(browser, url) as seen:
        seen.is_live()
        assert httpx.get(url + "/v1/stats").json()["graph"]["time_unit"] == unit
        filled(seen, "#updates", {"u": "2", "v": "1", "time": "2026-05-31T12:30"})
        seen.page.fill("#whatif-ids", "1")
        assert asked(seen) == ([{"op": "add_edge", "u": 2, "v": 1, "time": "2026-05-31T12:30"}], 200)
        filled(seen, "#updates", {"time": f"{2**60 + 1}"})
        with seen.page.expect_request("**/v1/what-if") as request:
            seen.page.click("#whatif .strong")
        assert f'"time":{2**60 + 1}}}' in request.value.post_data
        filled(seen, "#updates", {"time": "2026-05-31T12:30:00.5"})
        assert asked(seen)[1] == (400 if unit else 200)  # no whole number of seconds
        if unit:
            seen.until("() => document.querySelector('.refusal')?.textContent.includes('datetime64[s]')")
        added = {"op": "add_edge", "u": 2, "v": 1, "time": "2026-05-31T12:30"}
        assert httpx.post(url + "/v1/updates", json={"updates": [added]}).status_code == 200
        assert live.graph.edges()["time"].tolist()[1] == 1_780_230_600 * (1 if unit else 10**6)
