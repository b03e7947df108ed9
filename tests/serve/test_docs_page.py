"""The page of routes at /docs in headless Chromium: it shows the OpenAPI document, and asks no other host."""

from __future__ import annotations

import os
import shlex
import subprocess
from urllib.parse import urlsplit

import pytest

from livegnn.serve.runner import background_app
from livegnn.serve.service.access import AccessToken, new_token
from livegnn.serve.service.app import service
from tests.serve.seen import Seen, get
from tests.unit.deployment.world import deployment, prepared

READY = "() => document.querySelectorAll('.route').length > 0"


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    with deployment(prepared(tmp_path_factory.mktemp("docs"))) as one:
        yield one


@pytest.fixture(scope="module")
def url(live):
    with background_app(service(live), for_others=False) as found:
        yield found


def opened(seen, method, path):
    """The element of a route, opened."""
    route = seen.page.locator(f'[id="{method}{path}"]')
    route.locator("> summary").click()
    return route


def said_rows(route, title):
    """Of the tables of a part of a route, the first cell of each row."""
    part = route.locator(".route-body > section").filter(has=route.page.get_by_role("heading", name=title))
    return part.locator("tbody tr td:first-child code").all_text_contents()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_it_shows_every_route_of_the_document_and_asks_no_other_host(browser, url, width, scheme):
    document = get(url, "/openapi.json")
    wanted = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    with Seen(browser, url, width=width, scheme=scheme, place="docs") as seen:
        seen.until(READY)
        shown = zip(seen.texts(".route .method"), seen.texts(".route .path"), strict=True)
        assert set(shown) == wanted
        assert seen.text("#count") == f"{len(wanted)} routes"
        for path, item in document["paths"].items():
            for method, operation in item.items():
                route = opened(seen, method, path)
                assert said_rows(route, "Parameters") == [each["name"] for each in operation.get("parameters", [])]
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        assert seen.faults == []
        assert seen.hosts == {urlsplit(url).netloc}


def test_bodies_are_resolved_and_routes_are_found(browser, url):
    schemas = get(url, "/openapi.json")["components"]["schemas"]
    with Seen(browser, url, place="docs#post/v1/what-if") as seen:
        seen.until(READY)
        route = seen.page.locator('[id="post/v1/what-if"]')
        assert route.evaluate("one => one.open")
        assert set(said_rows(route, "Body")) == set(schemas["WhatIfBody"]["properties"])
        assert set(said_rows(route, "Answer")) == set(schemas["WhatIfAnswer"]["properties"])
        needed = route.locator("tr").filter(has_text="required").locator("code").all_text_contents()
        assert needed[:2] == ["updates", "ids"]
        seen.page.fill("#words", "post metric")
        assert seen.page.locator(".route:visible .path").all_text_contents() == ["/v1/topk"]
        assert seen.text("#count").startswith("1 of ")


def test_its_lines_of_curl_are_answered(browser, live, url):
    """Those of routes that this deployment has an answer for, with ids that the graph has."""
    paths = ["/v1/updates", "/v1/what-if", "/v1/edges", "/v1/stats", "/v1/models", "/v1/pipes", "/healthz"]
    version = live.version
    with Seen(browser, url, place="docs") as seen:
        seen.until(READY)
        for path in paths:
            method = "post" if seen.page.locator(f'[id="post{path}"]').count() else "get"
            words = shlex.split(opened(seen, method, path).locator(".curl").inner_text())
            line = [word.replace("$URL", url) for word in words]
            environment = {**os.environ, "no_proxy": "*"}
            done = subprocess.run([*line, "-s", "--fail-with-body"], capture_output=True, text=True, env=environment)
            assert done.returncode == 0, (line, done.stdout)
    assert live.version == version + 1  # POST /v1/updates alone


def test_a_token_is_asked_for_and_named_in_curl(browser, live):
    token, sha256 = new_token()
    guarded = service(live, tokens=[AccessToken("a", sha256)])
    with background_app(guarded, for_others=False) as url, Seen(browser, url, place="docs") as seen:
        seen.page.wait_for_selector("#token-form:visible")
        seen.page.fill("#token", token)
        seen.page.keyboard.press("Enter")
        seen.until(READY)
        assert "$TOKEN" in opened(seen, "get", "/v1/stats").locator(".curl").inner_text()
        assert token not in seen.page.content()
