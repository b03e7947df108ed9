"""In-process transport: requests straight into the ASGI application, each with an event loop of its own."""

import asyncio
import json
import urllib.request
from contextlib import contextmanager

import httpx

import livegnn as lg
from livegnn import serve
from livegnn.errors import Facts
from livegnn.serve import frames

FRAME = {"content-type": frames.CONTENT_TYPE}


class Client:
    def __init__(self, app):
        self.app = app

    def request(self, method, path, **options):
        return self.all_at_once([(method, path, options)])[0]

    def all_at_once(self, requests):
        async def ask():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await asyncio.gather(*(client.request(m, path, **options) for m, path, options in requests))

        return asyncio.run(ask())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, document=None, **options):
        if document is not None:
            options["content"] = document if isinstance(document, bytes) else json.dumps(document)
            if not isinstance(document, bytes):
                options["headers"] = {"content-type": "application/json", **options.get("headers", {})}
        return self.request("POST", path, **options)


@contextmanager
def serving(sampler, model=None, *, token=None, limits=None, read_only=False, **options):
    """A client of an application on a sample server of its own."""
    with lg.SampleServer(sampler, model, **options) as server:
        yield Client(serve.app(server, token=token, limits=limits, read_only=read_only))


FIELDS = {"kind", "message", "retryable", *Facts.__annotations__}


def error_of(response, status):
    """The envelope of a refusal, whose form is the same everywhere."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert set(document) == {"error"}
    assert {"kind", "message", "retryable"} <= set(document["error"]) <= FIELDS
    return document["error"]


def post(url, document, **headers):
    """The answer of a real server to a JSON document."""
    request = urllib.request.Request(
        url, json.dumps(document).encode(), {"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(request, timeout=90) as response:
        return json.load(response)
