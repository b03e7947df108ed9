"""HTTP in front of a sample server. Start here: routes.py; docs/serving.md has the routes, bodies and metrics."""

from livegnn.serve.limits import Limits
from livegnn.serve.routes import app
from livegnn.serve.runner import background, even_latency, run

__all__ = ["Limits", "app", "background", "even_latency", "run"]
