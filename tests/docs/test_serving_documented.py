"""docs/serving.md names every route, limit, metric, status and kind of update."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from livegnn import serve
from livegnn.serve.envelope import STATUSES
from livegnn.serve.json_bodies import OPERATIONS
from livegnn.serve.metrics import METRICS
from livegnn.serve.routes import ROUTES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text()


@pytest.mark.parametrize(
    "names",
    [
        [f"{method} {route}" for route, method in ROUTES.items()],
        [f"| `{one.name}` | {one.default:,} |" for one in fields(serve.Limits) if one.name != "body_bytes_max"],
        [f"`{name}`" for name in METRICS],
        [f"`{name}`" for name in OPERATIONS],
        [str(status) for _, status in STATUSES],
    ],
    ids=["routes", "limits", "metrics", "updates", "statuses"],
)
def test_it_is_on_the_page(names):
    assert names
    assert not [name for name in names if name not in PAGE]


def test_every_refusal_of_http_is_on_the_page():
    sources = "".join(path.read_text() for path in (ROOT / "src" / "livegnn" / "serve").glob("*.py"))
    kinds = set(re.findall(r'Refused\(\s*\d+,\s*"(\w+)"', sources))
    assert len(kinds) >= 10
    assert not [kind for kind in kinds if f"`{kind}`" not in PAGE]
