"""LiveModule: an engine's outputs behind the face of the module that was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from livegnn.errors import ColumnMissing, UsageError
from livegnn.inference import Engine


class LiveState(NamedTuple):
    """What a LiveModule answers from: the version of the outputs, and the digest of all that they follow from."""

    version: int
    digest: str


class LiveModule(nn.Module):
    """The trained module with the graph inside: module(ids) is its output for these vertices, of the graph as it is.

    module(ids)[i] = trained(data of now)[row of ids[i]]

    Args:    engine: whose outputs are read; batches are applied to it, or to its graph, as before.
    Raises:  UsageError for what is no Engine.
    Exactness: the engine's rows, bit for bit.   Cost: of engine.embeddings(ids).
    """

    engine: Engine

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        if not isinstance(engine, Engine):
            raise UsageError(f"[LiveModule] expected a livegnn.Engine, got {type(engine).__name__}; make one")
        self.engine = engine
        self.register_buffer("_place", torch.empty(0), persistent=False)  # moves with .to(device)
        self.eval()

    def forward(self, ids: Any = None, *, vertex_type: str | None = None) -> Any:
        """(k, d) float32 output rows on the module's device, all of one version; of every live vertex without ids, in
        the order of graph.vertices(). Over vertex types name one, or give a dict of ids by type and get one of rows.

        Raises:  VertexUnknown; ColumnMissing without a type where vertices have types.
        """
        engine, graph = self.engine, self.engine.graph
        if isinstance(ids, Mapping):
            if vertex_type is not None:
                raise UsageError("[LiveModule] expected a dict of ids or vertex_type=, got both; leave one out")
            with engine.snapshot() as view:
                return {
                    name: self._tensor(view.embeddings(_plain(part), vertex_type=name)) for name, part in ids.items()
                }
        if graph.vertex_types is not None and vertex_type is None:
            raise ColumnMissing(
                f"[LiveModule] expected vertex_type= among {', '.join(graph.vertex_types)}, or a dict of ids by type, "
                "got neither; say which type is meant"
            )
        if ids is not None:
            return self._tensor(engine.embeddings(_plain(ids), vertex_type=vertex_type))
        with graph.host.lock:
            return self._tensor(engine.embeddings(graph.vertices(vertex_type), vertex_type=vertex_type))

    @property
    def version(self) -> int:
        """The version that reads are of; as engine.version."""
        return self.engine.version

    @property
    def state(self) -> LiveState:
        """Version and digest, of one moment. Cost: of engine.state_digest(): the whole graph and state."""
        with self.engine.graph.host.lock:
            return LiveState(self.engine.version, self.engine.state_digest())

    def train(self, mode: bool = True) -> LiveModule:
        """Stays in eval mode, whatever the module around it does: live outputs have no gradient."""
        super().train(False)
        return self

    def extra_repr(self) -> str:
        """What it answers from."""
        return repr(self.engine)

    def _tensor(self, rows: Any) -> Tensor:
        place: Tensor = self.get_buffer("_place")
        return torch.from_numpy(rows).to(place.device)


def _plain(ids: Any) -> Any:
    """A tensor on any device as NumPy reads it."""
    return ids.detach().cpu().numpy() if isinstance(ids, Tensor) else ids
