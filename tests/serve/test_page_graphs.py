"""The page on graphs of other kinds: with times that are dates, with vertex types, with several results."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager

import httpx
import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import Registry
from livegnn.models import ir
from livegnn.serve.runner import background_app
from livegnn.serve.service.app import service
from tests.serve.seen import Seen, in_time
from tests.unit.deployment.world import deployment, edge, prepared
from tests.unit.deployment.world import graph as world_graph


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


BUY, FOLLOW, BOUGHT = ("User", "Buy", "Item"), ("User", "Follow", "User"), ("Item", "Bought", "User")


def shop():
    """Three users, two items, and a type that the model has no rows for."""
    return lg.Graph(
        {"Item": np.arange(4, dtype=np.float32).reshape(2, 2), "User": np.eye(3, dtype=np.float32), "Tag": [[1.0]]},
        {BUY: [0, 1, 2], FOLLOW: [0, 0], BOUGHT: [0]},
        {BUY: [0, 1, 1], FOLLOW: [2, 2], BOUGHT: [1]},
    )


def shop_model():
    """Of users: the mean of the items bought, and their own row; of items: the sum of the buyers."""
    x = ir.Input(3)
    users, items = ir.OfType(x, 0, 3), ir.OfType(x, 1, 2)
    of_users = ir.Concat((ir.Propagate(items, "mean", relation=2, target=0), users))
    of_items = ir.Propagate(users, relation=0, target=1)
    whole = ir.ByType((of_users, of_items))
    return lg.Model.from_output(whole, vertex_types=("User", "Item"), edge_types=(BUY, FOLLOW, BOUGHT))


@pytest.fixture(scope="module")
def shop_world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    Registry(folder / "models").add("typed", shop_model())
    with served(folder, shop, engine=[{"name": "scores", "model": "typed"}]) as found:
        yield found


def shows(seen, vertex):
    seen.until("v => document.querySelector('#near-about b')?.textContent === v", f"Vertex {vertex}")


def bought(user, item):
    updates = lg.Updates()
    updates.add_edge(user, item, edge_type=BUY)
    return updates


def test_a_typed_graph_is_shown_type_by_type(browser, shop_world):
    url = shop_world[1]
    with Seen(browser, url, place="#type=Item&vertex=1") as seen:
        seen.is_live()
        shows(seen, 1)
        found = httpx.get(f"{url}/v1/explain/1", params={"type": "Item"}).json()
        feeding = {str(each["vertex"]) for part in found["aggregations"] for each in part["in_neighbours"]}
        assert feeding == {"1", "2"}
        points = {one.get_attribute("data-vertex") for one in seen.page.query_selector_all("#picture .point")}
        assert points == feeding
        assert seen.page.text_content("#picture .middle-class") == str(found["prediction"])
        seen.page.click('#picture .point[data-vertex="2"]')  # a user
        shows(seen, 2)
        assert "type=User" in seen.page.url
        user = httpx.get(f"{url}/v1/explain/2", params={"type": "User"}).json()
        assert seen.page.text_content("#picture .middle-class") == str(user["prediction"])
        seen.page.go_back()
        shows(seen, 1)
        assert "type=Item" in seen.page.url
        assert seen.faults == []


def test_flips_and_lists_follow_the_type_that_is_chosen(browser, shop_world):
    live, url = shop_world
    with Seen(browser, url) as seen:
        seen.is_live()
        assert seen.page.locator("#type option").all_text_contents() == ["Item", "User"]  # no model has rows for tags
        for kind, vertex in (("Item", 0), ("User", 1), ("Item", 1)):
            seen.page.select_option("#type", kind)
            seen.until("t => location.hash.includes('type=' + t)", kind)
            seen.is_live()
            before, version = flips(live, kind, vertex)
            seen.until_version(version)
            row = [f"{version:,}", str(vertex), f"{before[0]}→{before[1]}"]
            in_time(lambda row=row: equal(row in [each[1:] for each in seen.cells("#flip-rows tr")], True))
        assert seen.faults == []


def flips(live, kind, vertex):
    """A batch that changes the class of a vertex: its class before and after, and the version."""
    engine = live.engine("scores")
    before = engine.predict([vertex], vertex_type=kind)[0]
    for k in range(100):
        updates = lg.Updates()
        rows = np.random.default_rng(k).normal(size=(3, 3)).astype(np.float32) * 9
        for user in range(3):
            updates.set_features(user, rows[user], vertex_type="User")
        with engine.what_if(updates) as view:
            after = view.predict([vertex], vertex_type=kind)[0]
        if after != before:
            return (before, after), live.apply(updates).version
    raise AssertionError("no batch changes it")


def equal(shown, wanted):
    assert shown == wanted


def test_what_if_of_a_typed_graph_names_its_types(browser, shop_world):
    live, url = shop_world
    with Seen(browser, url, place="#type=Item") as seen:
        seen.is_live()
        filled(seen, "#updates", {"u": "0", "v": "0"})
        seen.page.select_option("#updates [name=edge_type]", label="User Buy Item")
        seen.page.fill("#whatif-ids", "0 1")
        supposed, status = asked(seen)
        assert (supposed, status) == ([{"op": "add_edge", "u": 0, "v": 0, "edge_type": ["User", "Buy", "Item"]}], 200)
        with live.engine("scores").what_if(bought(0, 0)) as view:
            then = view.predict([0, 1], vertex_type="Item").tolist()
        now = live.engine("scores").predict([0, 1], vertex_type="Item").tolist()
        seen.until("() => document.querySelectorAll('.what-list li').length === 2")
        assert [row[1:] for row in seen.cells(".what-list li")] == [
            [str(before), "→", str(after)] for before, after in zip(now, then, strict=True)
        ]
        assert seen.faults == []


@pytest.fixture(scope="module")
def two_results(tmp_path_factory):
    x = ir.Input(4)
    of_both = ir.Concat((ir.Propagate(x, "mean"), x))
    two = lg.Model.from_output(of_both, outputs={"classes": (0, 4), "rows": (4, 8)})
    folder = tmp_path_factory.mktemp("two")
    Registry(folder / "models").add("two", two)
    with served(folder, world_graph, engine=[{"name": "scores", "model": "two"}]) as found:
        yield found


def test_a_model_with_several_results_is_shown_by_its_first(browser, two_results):
    live, url = two_results
    engine = live.engine("scores")
    assert list(engine.model.outputs) == ["classes", "rows"]
    with Seen(browser, url, place="#vertex=4") as seen:
        seen.is_live()
        shows(seen, 4)
        found = httpx.get(f"{url}/v1/explain/4").json()
        feeding = {str(each["vertex"]) for part in found["aggregations"] for each in part["in_neighbours"]}
        points = {one.get_attribute("data-vertex") for one in seen.page.query_selector_all("#picture .point")}
        assert points == feeding != set()
        assert "is predicted" not in seen.text("#near-about")
        before = engine.predict(np.arange(30), output="classes")
        updates = lg.Updates()
        updates.set_features(3, np.array([90, -90, 90, -90], np.float32))
        version = live.apply(updates).version
        seen.until_version(version)
        after = engine.predict(np.arange(30), output="classes")
        wanted = {(str(v), f"{before[v]}→{after[v]}") for v in np.flatnonzero(before != after)}
        assert wanted
        in_time(lambda: equal({tuple(row[2:4]) for row in seen.cells("#flip-rows tr")}, wanted))
        seen.page.fill("#whatif-ids", "3 4")
        filled(seen, "#updates", {"u": "1", "v": "4"})
        assert asked(seen)[1] == 200
        with engine.what_if(edge(1, 4)) as view:
            then = view.predict([3, 4], output="classes").tolist()
        seen.until("() => document.querySelectorAll('.what-list li').length === 2")
        assert [row[3] for row in seen.cells(".what-list li")] == [str(each) for each in then]
        assert seen.faults == []
