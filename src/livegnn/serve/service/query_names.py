"""Names of a route's query: an unknown one is refused, since a filter that is misspelt would let everything through."""

from __future__ import annotations

from typing import Any

from litestar import Request
from litestar.handlers import BaseRouteHandler

from livegnn.serve.envelope import Refused


def check_names(request: Request[Any, Any, Any]) -> None:
    """Before a route of /v1. Raises: Refused, which names the keys that the route has."""
    if not request.query_params or not request.url.path.startswith("/v1/"):
        return
    known = _names_of(request)
    unknown = sorted(set(request.query_params.keys()) - known)
    if unknown:
        expected = f"keys from {', '.join(sorted(known))}" if known else "none"
        shown = ", ".join(name[:40] for name in unknown[:5])
        raise Refused(400, "QueryInvalid", f"[query] expected {expected} in the query, got {shown}; correct the query")


def written_name(handler: BaseRouteHandler, name: str) -> str:
    """The name of an argument of a route's function as callers write it."""
    field = handler.parsed_fn_signature.parameters.get(name)
    return str(getattr(field and field.kwarg_definition, "name", None) or name)


def _names_of(request: Request[Any, Any, Any]) -> set[str]:
    item = (request.app.openapi_schema.paths or {})[request.scope["path_template"]]
    operation = getattr(item, request.method.lower(), None)
    return {each.name for each in (operation and operation.parameters) or () if each.param_in == "query"}
