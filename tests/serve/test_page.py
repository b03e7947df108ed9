"""The page at / in headless Chromium: what it shows is what the API says, and it asks no other host."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import Registry
from livegnn.serve.runner import background_app
from livegnn.serve.service.access import AccessToken, new_token
from livegnn.serve.service.app import service
from tests.serve.seen import Seen, get, in_time
from tests.unit.deployment.world import deployment, model, prepared

VERTICES = 30
ENGINES = {"engine": [{"name": "scores", "model": "fraud", "shadow": "other"}, {"name": "risk", "model": "risk"}]}
ENGINES["changes"] = {"ping_ms": 500}


@contextmanager
def served(folder, **options):
    prepared(folder)
    registry = Registry(folder / "models")
    registry.add("other", model(3))
    registry.add("risk", lg.Model([lg.layers.GCN(np.random.default_rng(5).normal(size=(1, 4)))]))
    with deployment(folder, **ENGINES) as live, background_app(service(live, **options), for_others=False) as url:
        yield live, url


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with served(tmp_path_factory.mktemp("page")) as found:
        yield found


def move(live, rng, count=1):
    """Random batches: edges, and features that move predictions."""
    for _ in range(count):
        updates = lg.Updates()
        updates.add_edge(*rng.integers(0, VERTICES, 2).tolist())
        updates.set_features(int(rng.integers(VERTICES)), rng.normal(size=4).astype(np.float32) * 3)
        live.apply(updates)


@contextmanager
def streaming(live):
    stop, rng = threading.Event(), np.random.default_rng(0)

    def stream():
        while not stop.wait(0.01):
            move(live, rng)

    thread = threading.Thread(target=stream)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def digits(value, most=2):
    places = 0 if value == 0 or abs(value) >= 100 else min(1, most) if abs(value) >= 10 else most
    return f"{value:,.{places}f}"


def amount(value, signed):
    size = abs(value)
    plain = "0" if size == 0 else f"{value:.3f}" if size < 1 else digits(value)
    return ("+" if signed and value > 0 else "") + plain.replace("-", "−")


CONTRAST = """() => {
  const probe = document.body.appendChild(document.createElement("i"));
  const light = (name) => {
    probe.style.color = `var(--${name})`;
    const parts = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255);
    const [r, g, b] = parts.map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const pairs = [["text", "back"], ["quiet", "back"], ["bad", "bad-back"], ["on-accent", "accent"]];
  for (const name of ["text", "quiet", "accent", "good", "warn", "bad"]) pairs.push([name, "panel"], [name, "raised"]);
  for (let k = 0; k < 8; k += 1) pairs.push(["on-class", `c${k}`]);
  return pairs.map(([a, b]) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return [`${a} on ${b}`, (high + 0.05) / (low + 0.05)];
  });
}"""
UNNAMED = """() => [...document.querySelectorAll("button, input, select, [role=button], svg[role]")].filter((one) =>
  !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length)).map((one) => one.outerHTML)"""


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_loads_alone_and_fits(browser, world, width, scheme):
    live, url = world
    with Seen(browser, url, width=width, height=800, scheme=scheme, place="#vertex=3") as seen:
        seen.is_live()
        move(live, np.random.default_rng(width), 3)
        seen.until_version(live.version)
        seen.until("() => document.querySelectorAll('#near-rows tr').length > 0")
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        ground = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (int(ground.split("(")[1].split(",")[0]) < 128) == (scheme == "dark")
        assert not [pair for pair in seen.page.evaluate(CONTRAST) if pair[1] < 4.5]
        assert seen.page.evaluate(UNNAMED) == []
        assert seen.faults == []
        assert seen.hosts == {urlsplit(url).netloc}


def test_the_theme_is_chosen_and_kept(browser, world):
    with Seen(browser, world[1]) as seen:
        seen.page.click("#theme")
        assert seen.page.evaluate("document.documentElement.dataset.theme") == "dark"
        seen.page.reload()
        assert seen.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
        assert seen.page.get_attribute("#theme", "title") == "Light theme"


def test_numbers_move_while_a_stream_runs_and_equal_the_api_when_it_rests(browser, world):
    live, url = world
    with Seen(browser, url) as seen:
        seen.is_live()
        began = live.version
        with streaming(live):
            seen.until("() => Number(document.getElementById('n-rate').textContent) > 0")
            first = seen.text("#n-version")
            seen.until("v => document.getElementById('n-version').textContent !== v", first)
            seen.until("() => document.querySelectorAll('#flip-rows tr').length > 3")
            seen.until("() => document.querySelectorAll('#most-rows tr').length > 3")
            seen.until("() => document.querySelector('#c-rate .spark-line').getAttribute('d').includes('L')")
        seen.until_version(live.version)
        shown_flips(seen, url, began, live.version)
        in_time(lambda: shown_numbers(seen, get(url, "/v1/stats")))  # sizes are up to five seconds old
        assert seen.faults == []


def shown_numbers(seen, stats):
    engine, fresh = stats["engines"][0], stats["freshness_ms"]
    assert seen.text("#s-version") == f"offset {stats['offset']:,} of the log"
    assert seen.text("#n-queue") == f"{stats['queue']['updates']:,}"
    assert seen.text("#s-queue") == f"room for {stats['queue']['updates_max']:,} · 0 refused"
    assert f"{stats['updates']:,} in all" in seen.text("#s-rate")
    assert seen.text("#n-p50") == digits(fresh["p50"])
    assert seen.text("#s-fresh") == f"p99 {digits(fresh['p99'])} ms · max {digits(fresh['max'])} ms"
    assert seen.text("#n-affected") == digits(engine["affected"], 1)
    assert seen.text("#s-snapshot") == f"version {stats['snapshot']['version']:,}"
    assert seen.text("#s-behind") == f"{stats['snapshot']['behind']:,} versions since"
    size = sum(stats["memory"].values())
    assert seen.text("#memory-total") == f"{digits(size / 1024, 1 if size < 10240 else 0)} KiB"
    assert seen.text("#graph-size") == f"{VERTICES} vertices, {stats['graph']['edges']:,} edges"
    shadow = engine["shadow"]
    assert f"{shadow['differing']:,} of {shadow['compared']:,}" in seen.text("#models")
    assert shadow["model"] in seen.text("#models")
    differing = [[str(vertex), f"{served}≠{other}"] for vertex, served, other in shadow["newest"][:3]]
    assert seen.cells("#models tbody tr") == differing
    most = [[str(one["vertex"]), str(one["prediction"]), digits(one["moved"])] for one in engine["most_changed"][:7]]
    assert [each[:3] for each in seen.cells("#most-rows tr")] == most


def shown_flips(seen, url, began, version):
    """The rows of the list are flips of GET /v1/changes, the newest first, and none is left out."""
    promised = []
    with httpx.stream("GET", f"{url}/v1/changes?engine=scores&flips=true&from={began}", timeout=60) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                data = json.loads(line[6:])
                promised += [(data["version"], *each) for each in data.get("changes", [])]
                if data["version"] >= version:
                    break
    wanted = [[f"{at:,}", str(vertex), f"{before}→{after}"] for at, vertex, before, after in promised[::-1]][:200]
    in_time(lambda: equal([row[1:] for row in seen.cells("#flip-rows tr")], wanted))


def equal(shown, wanted):
    assert shown == wanted


def explained(url, vertex):
    """What the page is to show of an answer: in-neighbours with the sums of their shares, and itself."""
    found = get(url, f"/v1/explain/{vertex}?engine=scores&limit=60&rows=false")
    shares = {}
    for part in found["aggregations"]:
        for each in part["in_neighbours"]:
            shares[str(each["vertex"])] = shares.get(str(each["vertex"]), 0.0) + each["share"]
        if part["own"] is not None:
            shares["itself"] = shares.get("itself", 0.0) + part["own"]["share"]
    return found, {name: amount(share, found["linear"]) for name, share in shares.items()}


def near_rows(seen):
    return {re.match(r"\d+|itself", who)[0]: share for who, _, share in seen.cells("#near-rows tr")}


def shows(seen, vertex):
    seen.until("v => document.querySelector('#near-about b')?.textContent === v", f"Vertex {vertex}")


def test_clicking_a_vertex_shows_who_feeds_it(browser, world):
    live, url = world
    with Seen(browser, url, place="#vertex=7") as seen:
        shows(seen, 7)
        found, shares = explained(url, 7)
        assert near_rows(seen) == shares
        points = {one.get_attribute("data-vertex") for one in seen.page.query_selector_all("#picture .point")}
        assert points == set(shares) - {"itself"}
        assert seen.page.text_content("#picture .middle-class") == str(found["prediction"])
        assert f"at version {live.version:,}" in seen.text("#near-about")
        other = sorted(points - {"7"})[0]
        seen.page.click(f'#picture .point[data-vertex="{other}"]')
        shows(seen, other)
        assert near_rows(seen) == explained(url, other)[1]
        assert seen.page.input_value("#whatif-ids") == other
        seen.page.go_back()
        shows(seen, 7)
        seen.page.focus(f'#picture .point[data-vertex="{other}"]')
        seen.page.keyboard.press("Enter")
        shows(seen, other)
        seen.page.fill("#vertex", "11")
        seen.page.keyboard.press("Enter")
        shows(seen, 11)
        seen.page.check("input[name=hops][value='2']", force=True)
        seen.until("() => document.querySelectorAll('#picture .point-far').length > 0")
        seen.page.fill("#vertex", "5000")
        seen.page.keyboard.press("Enter")
        seen.until("() => document.getElementById('near-about').textContent.includes('5000')")
        assert seen.page.get_attribute("#near-body", "data-empty") == "true"


def test_a_click_in_a_list_leads_to_the_neighbourhood(browser, world):
    live, url = world
    with Seen(browser, url, place="#vertex=7") as seen:
        shows(seen, 7)
        move(live, np.random.default_rng(3), 20)
        seen.until("() => document.querySelectorAll('#most-rows .vertex').length > 1")
        button = seen.page.locator("#most-rows .vertex").filter(has_not_text="7").first
        vertex = button.inner_text()
        button.click()
        shows(seen, vertex)
        assert near_rows(seen) == explained(url, vertex)[1]


def test_what_if_says_what_the_api_says(browser, world):
    live, url = world
    version = live.version
    x = [9, -9, 9, -9]
    updates = [{"op": "set_features", "u": 2, "x": x}, {"op": "add_edge", "u": 2, "v": 5}]
    wanted = httpx.post(
        f"{url}/v1/what-if", json={"engine": "scores", "ids": [2, 5, 9], "updates": updates}, timeout=60
    ).json()
    with Seen(browser, url) as seen:
        seen.is_live()
        seen.page.select_option("#updates [name=op]", "set_features")
        seen.page.fill("#updates [name=u]", "2")
        seen.page.fill("#updates [name=x]", ", ".join(map(str, x)))
        seen.page.click("#more")
        seen.page.fill("#updates li:nth-child(2) [name=u]", "2")
        seen.page.fill("#updates li:nth-child(2) [name=v]", "5")
        seen.page.fill("#whatif-ids", "2, 5 9")
        seen.page.keyboard.press("Enter")
        seen.until("() => document.querySelectorAll('.what-list li').length === 3")
        assert seen.cells(".what-list li") == [
            [str(vertex), str(now), "→", str(then)]
            for vertex, now, then in zip([2, 5, 9], wanted["now"], wanted["then"], strict=True)
        ]
        moved = sum(now != then for now, then in zip(wanted["now"], wanted["then"], strict=True))
        assert seen.text(".answer p").startswith(f"{moved} of 3 predictions would change")
        seen.page.fill("#updates li:nth-child(2) [name=v]", "5000")
        seen.page.click("#whatif .strong")
        seen.until("() => document.querySelector('.refusal')?.textContent.includes('5000')")
    assert live.version == version


def test_ids_beyond_what_a_float_holds_are_not_rounded(browser, tmp_path):
    first, second = 2**60 + 1, 2**60 + 3  # one float for both

    def graph():
        return lg.Graph(np.eye(3, 4, dtype=np.float32), [second], [first], ids=np.array([first, second, 5]))

    prepared(tmp_path)
    with ExitStack() as stack:
        live = stack.enter_context(deployment(tmp_path, graph))
        url = stack.enter_context(background_app(service(live), for_others=False))
        with Seen(browser, url, place=f"#vertex={first}") as seen:
            shows(seen, first)
            assert set(near_rows(seen)) == {str(second)}
            seen.page.click("#near-rows .vertex")
            shows(seen, second)
            assert set(near_rows(seen)) == set()
            seen.page.fill("#whatif-ids", f"{first}, {second}")
            seen.page.select_option("#updates [name=op]", "add_edge")
            seen.page.fill("#updates [name=u]", str(first))
            seen.page.fill("#updates [name=v]", str(second))
            seen.page.click("#whatif .strong")
            seen.until("() => document.querySelectorAll('.what-list li').length === 2")
            assert [row[0] for row in seen.cells(".what-list li")] == [str(first), str(second)]


def test_engines_are_chosen_by_name(browser, world):
    live, url = world
    with Seen(browser, url, place="#vertex=4") as seen:
        seen.is_live()
        shows(seen, 4)
        assert seen.texts("#engines label") == ["scores", "risk"]
        seen.page.check("#engines input[value=risk]", force=True)
        seen.until("() => document.getElementById('models').textContent.includes('risk/1')")
        assert "No shadow" in seen.text("#models")
        chance = get_prediction(url, "risk", 4)
        seen.until("v => document.querySelector('#picture .middle-class')?.textContent === v", f"{chance:.3f}")
        move(live, np.random.default_rng(9), 30)
        seen.until_version(live.version)
        seen.until("() => document.querySelectorAll('#flip-rows tr').length > 0")
        assert all("." in each for each in seen.texts("#flip-rows .badge"))
        assert "engine=risk" in seen.page.url


def get_prediction(url, engine, vertex):
    found = httpx.post(f"{url}/v1/predict", json={"engine": engine, "ids": [vertex]}, timeout=60)
    return found.json()["predictions"][0]


def test_a_token_is_asked_for_and_stays_in_the_session(browser, tmp_path):
    token, sha256 = new_token()
    with served(tmp_path, tokens=[AccessToken("a", sha256)]) as (_, url), Seen(browser, url) as seen:
        seen.page.wait_for_selector("#ask-token[open]")
        seen.page.fill("#token", "wrong")
        seen.page.keyboard.press("Enter")
        seen.until("() => document.getElementById('token-why').textContent.includes('not taken')")
        seen.page.fill("#token", token)
        seen.page.keyboard.press("Enter")
        seen.is_live()
        assert seen.page.evaluate("sessionStorage.getItem('livegnn-token')") == token
        assert token not in seen.page.evaluate("JSON.stringify({...localStorage}) + document.cookie + location.href")
        seen.page.reload()
        seen.is_live()
        assert not seen.page.is_visible("#ask-token")


def test_it_says_when_the_service_is_away_and_goes_on_when_it_is_back(browser, tmp_path):
    prepared(tmp_path)
    with (
        deployment(tmp_path) as live,
        background_app(service(live), for_others=False) as url,
        Seen(browser, url) as seen,
    ):
        seen.is_live()
        move(live, np.random.default_rng(0), 5)
        seen.until_version(5)
        leave_and_return(seen, live)


def leave_and_return(seen, live):
    """Requests fail as those to a service that is away, and then are answered again."""
    seen.context.set_offline(True)
    seen.until("() => document.getElementById('state').dataset.state === 'away'")
    assert "Last seen at" in seen.text("#notice")
    assert "version 5" in seen.text("#notice")
    move(live, np.random.default_rng(1), 40)
    seen.context.set_offline(False)
    seen.is_live()
    seen.until_version(45)
    assert not seen.page.is_visible("#notice")
    assert all("Failed to load resource" in fault or "ERR_" in fault for fault in seen.faults)
    began = time.monotonic()
    while not seen.texts("#flip-rows tr") and time.monotonic() - began < 60:
        move(live, np.random.default_rng(int(began) + 2), 5)
        seen.page.wait_for_timeout(200)
    assert seen.texts("#flip-rows tr")
