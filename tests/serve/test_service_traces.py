"""Spans: of a request, its group's commit, apply and append; none without a provider, or without the package."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk import trace as sdk
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from livegnn.deployment import tracing
from livegnn.serve.service.app import service
from tests.serve.client import Client
from tests.unit.deployment.world import deployment, edge, prepared

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def spans(monkeypatch):
    """What is traced, by a provider for this test alone."""
    kept, provider = InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield kept
    provider.shutdown()


def by_name(spans):
    return {one.name: one for one in spans.get_finished_spans()}


def test_a_request_is_followed_to_the_log(tmp_path, spans):
    with deployment(prepared(tmp_path)) as one:
        client = Client(service(one))
        body = {"updates": [{"op": "add_edge", "u": 1, "v": 2}]}
        assert client.post("/v1/updates", body, headers={"traceparent": f"00-{TRACE}-{SPAN}-01"}).status_code == 200
        found = by_name(spans)
        chain = ["POST /v1/updates", "livegnn.commit", "livegnn.apply", "livegnn.durable"]
        assert set(found) == set(chain)
        assert {format(each.context.trace_id, "032x") for each in found.values()} == {TRACE}
        parents = [int(SPAN, 16), *(found[name].context.span_id for name in chain[:-1])]
        assert [found[name].parent.span_id for name in chain] == parents
        assert found["POST /v1/updates"].attributes["http.response.status_code"] == 200
        assert found["livegnn.commit"].attributes == {"livegnn.requests": 1, "livegnn.updates": 1}
        spans.clear()
        assert client.post("/v1/predict", {"ids": [987_654_321]}).status_code == 404
        (refused,) = spans.get_finished_spans()
        assert refused.parent is None
        assert "987654321" not in refused.to_json()


def test_a_group_has_links_to_its_requests(tmp_path, spans):
    with deployment(prepared(tmp_path)) as one:
        tracer = trace.get_tracer("test")
        with one.graph.host.lock:  # the first commit waits here, the others gather
            futures = []
            for u in range(4):
                with tracer.start_as_current_span(f"caller-{u}"):
                    futures.append(one.submit(edge(u, u + 1)))
        versions = {future.result(60).version for future in futures}
        found = spans.get_finished_spans()
        commits = [each for each in found if each.name == "livegnn.commit"]
        assert len(commits) == len(versions) < 4
        assert sum(1 + len(each.links) for each in commits) == 4
        callers = {each.context.span_id for each in found if each.name.startswith("caller")}
        assert {each.parent.span_id for each in commits} <= callers
        assert {link.context.span_id for each in commits for link in each.links} <= callers


def test_without_a_provider_nothing_is_made(tmp_path):
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert tracing.current() is None
    assert tracing.inner_span("livegnn.apply") is tracing.request_span("GET", "/healthz", {})
    with deployment(prepared(tmp_path)) as one:
        assert one.apply(edge(1, 2)).version == 1


def test_the_package_is_not_needed():
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from livegnn.deployment import tracing\n"
        "with tracing.commit_span([None], 1, 1), tracing.inner_span('a') as span: print(span, tracing.current())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "None None\n"
