"""Forms of answers that hold rows: JSON, an Arrow stream or a frame, as the request's Accept says."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from litestar import Request, Response
from litestar.openapi.spec import OpenAPIFormat, OpenAPIMediaType, OpenAPIResponse, OpenAPIType, Operation, Schema

from livegnn.optional import need
from livegnn.sampling import Prediction
from livegnn.serve import frames
from livegnn.serve.envelope import Refused
from livegnn.serve.service.context import ReadResult
from livegnn.serve.writing import JSON
from livegnn.types import AnyArray

ARROW = "application/vnd.apache.arrow.stream"
FRAME = frames.CONTENT_TYPE
FORMS = (JSON, ARROW, FRAME)
SAMPLE_FORMS = (JSON, FRAME)


@dataclass
class RowsOperation(Operation):
    """Describes that the answer comes in other forms, too."""

    def __post_init__(self) -> None:
        answer = (self.responses or {}).get("200")
        if isinstance(answer, OpenAPIResponse) and answer.content is not None:
            stream = Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY)
            answer.content |= {form: OpenAPIMediaType(schema=stream) for form in (ARROW, FRAME)}


def answer_form(request: Request[Any, Any, Any], forms: Sequence[str] = FORMS) -> str:
    """The first form in Accept that there is; JSON where it leaves that open. Raises: Refused."""
    accept = request.headers.get("accept", "*/*")
    named = [part.split(";")[0].strip().lower() for part in accept.split(",")]
    for form in named:
        if form in forms:
            return form
    if {"*/*", "application/*", ""} & set(named):
        return JSON
    raise Refused(406, "AcceptUnknown", f"[accept] expected {', '.join(forms)}, got {accept[:80]}; ask for one of them")


def binary(form: str, ids: Sequence[int | str], read: ReadResult[AnyArray], column: str) -> Response[Any]:
    """What was read as an Arrow stream or a frame; version, engine and model are in headers, too.

    column: the name of what was read in an Arrow stream, next to "id".
    """
    about = {"version": str(read.version), "engine": read.engine, "model": read.model}
    body = _stream(ids, read.found, column, about) if form == ARROW else _frame(read)
    return Response(body, media_type=form, headers={f"livegnn-{name}": value for name, value in about.items()})


def _frame(read: ReadResult[AnyArray]) -> bytes:
    values = np.asarray(read.found, np.float32)
    return frames.encode_prediction(Prediction(values.reshape(len(values), -1), read.version))


def _stream(ids: Sequence[int | str], found: AnyArray, column: str, about: dict[str, str]) -> bytes:
    arrow = need("pyarrow", "arrow")
    if found.ndim == 2:
        values = arrow.FixedSizeListArray.from_arrays(arrow.array(found.reshape(-1)), found.shape[1])
    else:
        values = arrow.array(found)
    named = arrow.array(ids, arrow.utf8() if isinstance(ids[0], str) else arrow.int64())
    schema = arrow.schema({"id": named.type, column: values.type}, {f"livegnn.{key}": v for key, v in about.items()})
    sink = io.BytesIO()
    with arrow.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(arrow.record_batch([named, values], schema=schema))
    return sink.getvalue()
