"""A page of the service in a browser, and what went wrong on it."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import httpx

WAIT_MS = 120_000


class Seen:
    """A page, and what went wrong on it."""

    def __init__(self, browser, url, *, width=1280, height=900, scheme="light", place=""):
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.context.set_default_timeout(WAIT_MS)
        self.page = self.context.new_page()
        self.faults, self.hosts, self.url = [], set(), url
        self.page.on("console", lambda said: self.faults.append(said.text) if said.type != "log" else None)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        self.page.goto(url + "/" + place)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.context.close()

    def text(self, selector):
        return self.page.inner_text(selector).strip()

    def texts(self, selector):
        return [each.strip() for each in self.page.locator(selector).all_inner_texts()]

    def cells(self, rows):
        """Of each row, the text of each cell."""
        return self.page.eval_on_selector_all(
            rows, "rows => rows.map((r) => [...r.children].map((c) => c.textContent))"
        )

    def until(self, condition, argument=None):
        self.page.wait_for_function(condition, arg=argument, timeout=WAIT_MS)

    def until_version(self, version):
        self.until("v => document.getElementById('n-version').textContent === v", f"{version:,}")

    def is_live(self):
        self.until("() => document.getElementById('state').dataset.state === 'live'")
        self.until("() => document.getElementById('flips-scroll').dataset.state === 'open'")


def get(url, path):
    return httpx.get(url + path, timeout=60).raise_for_status().json()


def in_time(check, seconds=60):
    """Repeats a check until it holds."""
    began = time.monotonic()
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() - began > seconds:
                raise
            time.sleep(0.5)
