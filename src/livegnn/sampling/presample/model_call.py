"""From a sample to a prediction: how a model of any kind is called.

inputs   the model gets                                                       and gives rows for
"tree"   features [x0, ..., xK], xk (B, C1, ..., Ck, Fk) float32, zeros       the seeds, B
         where there is no vertex; masks [m0, ..., mK], mk (B, C1, ..., Ck) bool
"pyg"    x, edge_index of sample.to_pyg(merge); x_dict, edge_index_dict on a   the seeds first, at least B;
         graph with vertex types                                              a dict by vertex type likewise
"data"   the torch_geometric data itself, with the columns of edges            as "pyg"

A torch module, scripted or not, gets tensors; an ONNX model is fed by name, x0 ... xK and mask0 ... maskK, or x and
edge_index, those it declares; any other callable gets numpy arrays with "tree", else tensors.

With merge=False a row depends on its own seed's samples alone, so that requests may share a call. merge=True makes one
vertex of all its copies, from any request: then every request has a call of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from livegnn.errors import LiveGnnError, ModelError, ModelMismatch, ModelUnsupported, UsageError, ValueInvalid
from livegnn.optional import need
from livegnn.sampling.presample.sample import EdgeDataSpec, Sample
from livegnn.sampling.queries.plan import Plan, PlannedQuery
from livegnn.types import AnyArray, Float32Array

Inputs: TypeAlias = Literal["tree", "pyg", "data"]
_FORMS = ("tree", "pyg", "data")
_TRIAL_SEEDS = 2


class ModelCall:
    """A model as a function of a sample: (B, d) float32, row i for seed i.

    Args:    model: a torch module or TorchScript module (put into eval mode), a path of a TorchScript file (.pt) or an
             ONNX file (.onnx), an onnxruntime session, or any callable.  inputs, merge: see above.  head: called with
             the seeds' rows of the output.  device: of torch modules.
    Raises:  ModelUnsupported, DataMissing, UsageError, ValueInvalid.
    """

    def __init__(
        self, model: object, *, inputs: Inputs, merge: bool, head: Callable[[Any], Any] | None, device: object
    ) -> None:
        if inputs not in _FORMS:
            raise ValueInvalid(f"[SampleServer] expected inputs from {', '.join(_FORMS)}, got {inputs!r}; use one")
        if merge and inputs == "tree":
            raise UsageError('[SampleServer] expected merge=True with inputs="pyg" or "data", got "tree"; leave it out')
        if head is not None and not callable(head):
            raise UsageError(f"[SampleServer] expected head as a callable, got {type(head).__name__}; leave it out")
        model = _opened(model)
        self._inputs, self._merge = inputs, merge
        self.shares_calls = not merge  # whether a seed's rows are the same whichever other seeds are in the call
        self.wants_edge_ids, self.wants_edge_data = inputs == "data" or merge, inputs == "data"
        self._torch = need("torch", "pyg") if inputs != "tree" or _is_module(model) or _is_module(head) else None
        self._tensors = inputs != "tree" or _is_module(model)
        self._device = device
        self._onnx_names: list[str] | None = None
        if _is_session(model):
            if inputs == "data":
                raise UsageError('[SampleServer] expected inputs="tree" or "pyg" for an ONNX model, got "data"')
            self._onnx_names = [declared.name for declared in model.get_inputs()]  # type: ignore[attr-defined]
            self._tensors = False
        elif not callable(model):
            raise ModelUnsupported(
                f"[SampleServer] expected a torch module, an ONNX session, a path or a callable as model, got "
                f"{type(model).__name__}; wrap it in a function"
            )
        self._model: Any = _ready(model, device)
        self._head: Any = _ready(head, device)

    def __call__(self, sample: Sample) -> Float32Array:
        """Runs the model. Raises: ModelError if it raises; ModelMismatch if its output is not (B, d)."""
        try:
            with nullcontext() if self._torch is None else self._torch.inference_mode():
                output = self._run(sample)
        except LiveGnnError:
            raise
        except Exception as cause:  # the user's own code
            raise ModelError(
                f"[predict] expected the model to answer {len(sample)} seeds, got {type(cause).__name__}: {cause}; "
                "call it by hand on server.sample(seeds) to see where"
            ) from cause
        return _rows(output, len(sample))

    def _run(self, sample: Sample) -> AnyArray:
        output = self._tree(sample) if self._inputs == "tree" else self._graph(sample)
        if isinstance(output, Mapping):
            output = output[sample.vertex_types[0]]
        if self._inputs != "tree":
            output = output[: len(sample)]
        if self._head is not None:
            output = self._head(output)
        detach = getattr(output, "detach", None)
        return np.asarray(output if detach is None else detach().cpu().numpy())

    def _tree(self, sample: Sample) -> Any:
        levels = range(sample.hops + 1)
        features: list[Any] = [sample.features(k) for k in levels]
        masks: list[Any] = [sample.mask(k) for k in levels]
        if self._onnx_names is not None:
            return self._onnx(
                {f"x{k}": features[k] for k in levels} | {f"mask{k}": masks[k] for k in levels}, self._onnx_names
            )
        if self._tensors:
            features, masks = [self._tensor(x) for x in features], [self._tensor(m) for m in masks]
        return self._model(features, masks)

    def _graph(self, sample: Sample) -> Any:
        data = sample.to_pyg(merge=self._merge)
        if self._onnx_names is not None:
            return self._onnx({"x": data.x.numpy(), "edge_index": data.edge_index.numpy()}, self._onnx_names)
        data = data.to(self._device)
        if self._inputs == "data":
            return self._model(data)
        if sample.plan.schema.vertex_types is not None:
            return self._model(data.x_dict, data.edge_index_dict)
        return self._model(data.x, data.edge_index)

    def _onnx(self, given: dict[str, AnyArray], wanted: list[str]) -> Any:
        unknown = [name for name in wanted if name not in given]
        if unknown:
            raise ModelMismatch(
                f"[SampleServer] expected ONNX inputs from {', '.join(given)}, got {', '.join(unknown)}; rename them "
                "when you export"
            )
        return self._model.run(None, {name: np.ascontiguousarray(given[name]) for name in wanted})[0]

    def _tensor(self, array: AnyArray) -> Any:
        assert self._torch is not None
        return self._torch.from_numpy(array).to(self._device)


def trial_sample(plan: Plan, planned: PlannedQuery, columns: EdgeDataSpec) -> Sample | None:
    """Two seeds without neighbours, of zeros: shows whether a model fits the query. None if widths are not known."""
    widths = plan.level_widths(planned)
    if not widths:
        return None
    shapes: list[tuple[int, ...]] = [(_TRIAL_SEEDS,)]
    for table in planned.tables:
        shapes.append((*shapes[-1], plan.one_hop(table).fanout))
    vertices = [np.full(shape, -1, np.int64) for shape in shapes[1:]]
    features = [np.zeros((*shape, width), np.float32) for shape, width in zip(shapes, widths, strict=True)]
    seeds = np.arange(_TRIAL_SEEDS, dtype=np.int64)
    edges = columns.of_rows([np.zeros((*shape, columns.words), np.float32) for shape in shapes[1:]])
    return Sample(planned, plan, seeds, 0, vertices, [level.copy() for level in vertices], features, edges=edges)


def _is_module(model: object) -> bool:
    """Whether it is a torch module, without importing torch for a model that is none."""
    return any(kind.__module__.startswith("torch.") and kind.__name__ == "Module" for kind in type(model).__mro__)


def _is_session(model: object) -> bool:
    return callable(getattr(model, "get_inputs", None)) and callable(getattr(model, "run", None))


def _opened(model: object) -> object:
    """A path as the model in that file; anything else as it is."""
    if not isinstance(model, str | os.PathLike):
        return model
    path = Path(model)
    if not path.is_file():
        raise UsageError(f"[SampleServer] expected the path of a model, got {path}, which is no file; fix the path")
    try:
        if path.suffix == ".onnx":
            return need("onnxruntime", "onnx").InferenceSession(str(path), providers=["CPUExecutionProvider"])
        if path.suffix == ".pt":
            return need("torch", "pyg").jit.load(str(path), map_location="cpu")
    except LiveGnnError:
        raise
    except Exception as cause:  # what a damaged file raises is the reader's own affair
        raise ModelUnsupported(
            f"[SampleServer] expected {path.name} to hold a model, got {type(cause).__name__}: {cause}; export it again"
        ) from cause
    raise ModelUnsupported(
        f"[SampleServer] expected a TorchScript file (.pt) or an ONNX file (.onnx), got {path.name}; load it yourself "
        "and give the module"
    )


def _ready(model: Any, device: object) -> Any:
    return model.to(device).eval() if _is_module(model) else model


def _rows(output: AnyArray, count: int) -> Float32Array:
    if output.ndim == 1:
        output = output[:, None]
    if output.ndim != 2 or len(output) != count or output.dtype.kind not in "fiub":
        raise ModelMismatch(
            f"[predict] expected a model that gives ({count}, d) numbers for {count} seeds, got {output.dtype} of "
            f"shape {output.shape}; return a row for each seed"
        )
    return np.ascontiguousarray(output, dtype=np.float32)
