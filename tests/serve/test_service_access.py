"""Who may call: every route of the table by every kind of token; no secret in what leaves the service."""

from __future__ import annotations

import logging
import re

import pytest

from livegnn.serve.runner import background_app
from livegnn.serve.service.access import SCOPES, AccessToken, new_token, scope_of
from livegnn.serve.service.app import HANDLERS, service
from tests.serve.client import Client, error_of
from tests.unit.deployment.world import deployment, prepared

RANKS = {"open": 0, "read": 1, "write": 2, "admin": 3}
MADE = {scope: new_token() for scope in RANKS if scope != "open"}
TOKENS = [AccessToken(scope, MADE[scope][1], scope) for scope in MADE]
ROUTES = sorted(
    (method, re.sub(r":\w+}", "}", path))
    for handler in HANDLERS
    for path in handler.paths
    for method in handler.http_methods
)


@pytest.fixture
def live(tmp_path):
    with deployment(prepared(tmp_path)) as one:
        yield one


def test_every_route_states_its_scope():
    assert {path for _, path in ROUTES} == set(SCOPES)
    assert set(SCOPES.values()) == set(RANKS)
    for path, scope in SCOPES.items():
        assert scope_of(re.sub("{.*?}", "any", path)) == scope
    assert scope_of("/v1/nothing") == "read"
    assert scope_of("/v1/admin/nothing") == "admin"


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_route_answers_those_whose_scope_reaches(live, method, path):
    """Bodies and queries are wrong, so that nothing is done: what counts is who gets as far as that."""
    client = Client(service(live, tokens=TOKENS))
    asked = re.sub("{.*?}", "none", path) + ("?engine=none" if path == "/v1/changes" else "")

    def call(token):
        headers = {"host": "any.example", **({} if token is None else {"authorization": token})}
        return client.request(method, asked, content=b"[]", headers={"content-type": "application/json", **headers})

    needed = RANKS[SCOPES[path]]
    digests = [token.sha256 for token in TOKENS]
    for wrong in (None, "Bearer wrong", "Bearer ", MADE["admin"][0], *(f"Bearer {digest}" for digest in digests)):
        answer = call(wrong)
        if needed:
            assert error_of(answer, 401)["kind"] == "TokenInvalid"
            assert answer.headers["www-authenticate"] == "Bearer"
        else:
            assert answer.status_code == 200
    for scope, (token, _) in MADE.items():
        answer = call(f"Bearer {token}")
        if RANKS[scope] < needed:
            assert error_of(answer, 403)["kind"] == "ScopeMissing"
        else:
            assert answer.status_code not in (401, 403)
            assert answer.status_code < 500
    assert live.version == 0


@pytest.mark.parametrize("path", ["/v1/updates/", "//v1/updates", "/v1//updates", "/v1/updates//", "/%2Fv1/updates"])
def test_another_spelling_of_a_path_is_no_way_around_a_scope(live, path):
    client = Client(service(live, tokens=TOKENS))
    body = {"updates": [{"op": "add_edge", "u": 1, "v": 2}]}
    for scope in ("read", "admin"):
        answer = client.post(path, body, headers={"authorization": f"Bearer {MADE[scope][0]}"})
        assert answer.status_code in (404, 405)
    assert live.version == 0


def test_no_secret_is_in_logs_errors_or_metrics(live, caplog, capfd, monkeypatch):
    caplog.set_level(logging.DEBUG)
    answers = []

    def broken(*_, **__):
        raise RuntimeError("a fault of this side")

    with background_app(service(live, tokens=TOKENS), for_others=False) as url:
        import httpx

        for token in (*(token for token, _ in MADE.values()), "a-wrong-secret"):
            headers = {"authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
                answers += [client.post("/v1/updates", json={"updates": []})]
                answers += [client.post("/v1/admin/swap", json={"engine": "none", "model": token})]
                answers += [client.get(path) for path in ("/metrics", "/openapi.json", "/v1/models", "/v1/nothing")]
                answers += [client.get("/v1/readouts/none", params={"token": "x"})]
        monkeypatch.setattr(type(live), "version", property(broken))
        answers += [httpx.get(url + "/healthz", timeout=60)]
        monkeypatch.undo()
    assert answers[-1].status_code == 500
    swaps = {answer.request.content for answer in answers}
    said = [text for answer in answers if answer.request.url.path != "/v1/admin/swap" for text in _said(answer)]
    said += [caplog.text, *capfd.readouterr()]
    assert len(swaps) > 1
    assert "a fault of this side" in caplog.text
    secrets = [*(token for token, _ in MADE.values()), *(sha256 for _, sha256 in MADE.values()), "a-wrong-secret"]
    for secret in secrets:
        assert not [text for text in said if secret in text]


def _said(answer):
    return answer.text, str(answer.headers)
