"""SampleServer: samples, and predictions of a model on them, for many callers at once.

Callers' seeds are put together (micro_batch.py): one call of the source and one call of the model answer all that wait.
An answer depends on its own seeds and on the version alone, never on who else was in the batch (floats of a model may
differ in their last bits, as its products are summed in another order). An error of one request is its own: when a
batch is refused, its requests are run one by one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any, Self, Unpack

import numpy as np

from livegnn.errors import UsageError, ValueInvalid
from livegnn.graph import Updates, checks
from livegnn.sampling.presample.micro_batch import AnyFuture, MicroBatcher, QueuedRequest
from livegnn.sampling.presample.model_call import Inputs, ModelCall, trial_sample
from livegnn.sampling.presample.sample import Sample
from livegnn.sampling.presample.source import ReadArguments, SampleSource, planned_query, read_options, seed_names
from livegnn.types import AnyArray, Float32Array


@dataclass(frozen=True)
class Prediction:
    """values: (B, d) float32, row i for seed i.  version: of the graph that the samples were of."""

    values: Float32Array
    version: int


@dataclass(frozen=True)
class ServerStats:
    """What a sample server has done.

    requests, seeds: answered, errors included.  batches: calls of the source.  waiting: requests in the queue.
    overloaded: refused by a full queue or by their own timeout.  sample_s, model_s: seconds in the source and in the
    model.
    """

    version: int
    requests: int
    seeds: int
    batches: int
    waiting: int
    overloaded: int
    sample_s: float
    model_s: float


class SampleServer:
    """Answers sample and predict requests of many threads or coroutines, in micro-batches.

    prediction(seeds) = head(model(sample(seeds)));  livegnn.sampling.presample.model_call says what the model is given

    Args:    source: a PreSampler or another SampleSource.  model: a torch module, a TorchScript or ONNX file, an
             onnxruntime session, or a callable; None serves samples only.  query: the number of the query to serve,
             needed where several run.  inputs: "tree", "pyg" or "data".  merge: copies of a vertex become one ("pyg",
             "data").  head: called with the seeds' rows of the model's output.  device: of torch modules.
             batch_max: seeds in one batch; a larger request goes alone.  wait_us: how long a request waits for others
             to come; with 0 a batch is what came during the one before.  queue_max: requests that may wait.
    Raises:  UsageError, ValueInvalid; ModelUnsupported, ModelMismatch, ModelError, DataMissing from the model, which is
             tried on two seeds without neighbours.

    >>> import numpy as np, livegnn as lg
    >>> graph = lg.Graph(np.eye(3, dtype=np.float32), [0, 0, 1], [1, 2, 2])
    >>> sampler = lg.PreSampler(graph, lg.query().out().sample(2))
    >>> with lg.SampleServer(sampler, lambda features, masks: features[1].sum(axis=1)) as server:
    ...     server.predict([0, 1]).values
    array([[0., 1., 1.],
           [0., 0., 1.]], dtype=float32)
    """

    def __init__(
        self,
        source: SampleSource,
        model: object = None,
        *,
        query: int | None = None,
        inputs: Inputs = "tree",
        merge: bool = False,
        head: Callable[[Any], Any] | None = None,
        device: object = "cpu",
        batch_max: int = 256,
        wait_us: float = 0.0,
        queue_max: int = 4096,
    ) -> None:
        if not isinstance(source, SampleSource):
            raise UsageError(
                f"[SampleServer] expected a PreSampler or another SampleSource, got {type(source).__name__}; make one "
                "with livegnn.PreSampler"
            )
        _whole("batch_max", batch_max)
        _whole("queue_max", queue_max)
        if isinstance(wait_us, bool) or not isinstance(wait_us, int | float) or not 0 <= wait_us <= 1e6:
            raise ValueInvalid(f"[SampleServer] expected wait_us from 0 to 1000000, got {wait_us!r}; choose one")
        self.source = source
        self._query = planned_query(source.plan, query, "SampleServer").number
        self._model = None
        if model is not None:
            self._model = ModelCall(model, inputs=inputs, merge=merge, head=head, device=device)
            trial = trial_sample(source.plan, source.plan.query(self._query), source.edge_columns)
            if trial is not None:
                self._model(trial)
        self._counts = _Counts()
        self._batcher = MicroBatcher(
            self._work, lambda: source.version, batch_max=batch_max, wait_us=wait_us, queue_max=queue_max
        )

    # ---- requests

    def sample(self, seeds: object, **options: Unpack[ReadArguments]) -> Sample:
        """The samples of some seeds, B >= 1, all of one version; equal to source.sample, with the same options.

        Args:    query: the server's own unless given.  timeout: above 0, also for a turn; 10 s unless given.
        Raises:  as SampleSource.sample; Overloaded.
        """
        future: Future[Sample] = Future()
        request = self._put("sample", seeds, future, **options)
        sample = future.result()
        return sample.part(0, len(sample), copy=True) if request.shared else sample  # not to keep the batch alive

    def predict(self, seeds: object, *, at_least: int | None = None, timeout: float | None = 10.0) -> Prediction:
        """The model's output for some seeds, (B, d) float32, and its version.

        Raises:  as sample; UsageError without a model; ModelError if the model raises.
        """
        future: Future[Prediction] = Future()
        self._put("predict", seeds, future, at_least=at_least, timeout=timeout)
        return future.result()

    async def sample_async(self, seeds: object, **options: Unpack[ReadArguments]) -> Sample:
        """sample() for coroutines: the event loop goes on. The arrays are views of the batch: copy what you keep."""
        future: asyncio.Future[Sample] = asyncio.get_running_loop().create_future()
        self._put("sample", seeds, future, **options)
        return await future

    async def predict_async(
        self, seeds: object, *, at_least: int | None = None, timeout: float | None = 10.0
    ) -> Prediction:
        """predict() for coroutines: the event loop goes on."""
        future: asyncio.Future[Prediction] = asyncio.get_running_loop().create_future()
        self._put("predict", seeds, future, at_least=at_least, timeout=timeout)
        return await future

    def sample_bytes(
        self,
        count: int,
        *,
        query: int | None = None,
        features: bool = True,
        edge_ids: bool = True,
        edge_data: bool = True,
    ) -> int:
        """How many bytes the arrays of a sample of `count` seeds have; string ids count as 8.

        Raises:  UsageError for an unknown query.
        """
        plan = self.source.plan
        planned = plan.query(self._query if query is None else query, "sample")
        per_edge = 8 + 8 * edge_ids + (4 * self.source.edge_columns.words if edge_data else 0)
        levels = list(accumulate((hop.fanout for hop in planned.query.hops), mul, initial=count))
        rows = sum(map(mul, levels, plan.level_widths(planned))) if features else 0
        return 8 * count + per_edge * sum(levels[1:]) + 4 * rows

    def apply(self, updates: Updates) -> int:
        """Applies a batch through the source; returns the version. Raises: as graph.apply; UsageError without it."""
        apply = getattr(self.source, "apply", None)
        if apply is None:
            raise UsageError(
                f"[apply] expected a source that takes updates, got {type(self.source).__name__}; send them to the one "
                "that it follows"
            )
        version: int = apply(updates)
        return version

    # ---- what it is

    @property
    def version(self) -> int:
        """The newest version that a request can get."""
        return self.source.version

    @property
    def has_model(self) -> bool:
        """Whether predictions are served."""
        return self._model is not None

    @property
    def is_open(self) -> bool:
        """Whether it takes requests."""
        return self._batcher.is_open

    @property
    def stats(self) -> ServerStats:
        """What it has done so far."""
        waiting, overloaded = self._batcher.waiting, self._batcher.overloaded
        return ServerStats(version=self.version, waiting=waiting, overloaded=overloaded, **vars(self._counts))

    def close(self) -> None:
        """Answers what waits, refuses what comes later, and ends its thread. The source stays open."""
        self._batcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    # ---- inside: the caller's side

    def _put(self, where: str, seeds: object, future: AnyFuture, **asked: Unpack[ReadArguments]) -> QueuedRequest:
        predict = where == "predict"
        if predict and self._model is None:
            raise UsageError(
                "[predict] expected a server with a model, got none; make it with SampleServer(source, model)"
            )
        names: AnyArray
        if isinstance(seeds, np.ndarray) and seeds.dtype == np.int64 and seeds.ndim == 1:
            names = seeds  # the source looks at the values
        else:
            names = seed_names(seeds)
        if len(names) == 0:
            raise ValueInvalid(f"[{where}] expected at least one seed, got none; leave the call out")
        timeout = asked.pop("timeout", 10.0)
        timeout_s = None if timeout is None else _seconds(where, timeout)
        if asked.get("query") is None:
            asked["query"] = self._query
        if self._model is not None and predict:
            asked["edge_ids"], asked["edge_data"] = self._model.wants_edge_ids, self._model.wants_edge_data
        options = read_options(where, self.source.plan, asked)
        request = QueuedRequest(where, names, options, timeout_s, future)
        self._batcher.put(request)
        return request

    # ---- inside: the thread that answers

    def _work(self, batch: list[QueuedRequest]) -> None:
        groups: dict[tuple[int, str], list[QueuedRequest]] = {}
        for request in batch:
            groups.setdefault((request.options.query, request.seeds.dtype.kind), []).append(request)
        for group in groups.values():
            self._answer(group)
        self._counts.requests += len(batch)
        self._counts.seeds += sum(len(request.seeds) for request in batch)

    def _answer(self, group: list[QueuedRequest]) -> None:
        """One call of the source and one of the model for all, or, when that is refused, one by one."""
        group.sort(key=lambda request: request.where != "predict")  # the model's rows stand together
        try:
            self._answer_together(group)
        except Exception as error:  # of any kind: each caller gets it, and the thread goes on
            if len(group) == 1:
                group[0].error = error
                return
            for request in group:
                request.answer = None
                self._answer([request])

    def _answer_together(self, group: list[QueuedRequest]) -> None:
        start = time.perf_counter()
        seeds = group[0].seeds if len(group) == 1 else np.concatenate([request.seeds for request in group])
        asked = [request.options.at_least for request in group if request.options.at_least is not None]
        sample = self.source.sample(
            seeds,
            query=group[0].options.query,
            features=any(request.options.features for request in group),
            edge_ids=any(request.options.edge_ids for request in group),
            edge_data=any(request.options.edge_data for request in group),
            at_least=max(asked) if asked else None,
        )
        sampled = time.perf_counter()
        self._counts.batches += 1
        self._counts.sample_s += sampled - start
        predictors = [request for request in group if request.where == "predict"]
        first = sum(len(request.seeds) for request in predictors)
        if predictors:
            self._predict(predictors, sample.part(0, first))
            self._counts.model_s += time.perf_counter() - sampled
        for request in group[len(predictors) :]:
            last = first + len(request.seeds)
            request.shared = len(group) > 1
            wanted = {key: getattr(request.options, key) for key in ("features", "edge_ids", "edge_data")}
            request.answer = sample.part(first, last, **wanted)
            first = last

    def _predict(self, requests: list[QueuedRequest], sample: Sample) -> None:
        assert self._model is not None
        values = self._model(sample) if self._model.shares_calls else None
        first = 0
        for request in requests:
            last = first + len(request.seeds)
            own = self._model(sample.part(first, last)) if values is None else values[first:last].copy()
            request.answer = Prediction(own, sample.version)
            first = last


class _Counts:
    """Written by the thread that answers only."""

    def __init__(self) -> None:
        self.requests = self.seeds = self.batches = 0
        self.sample_s = self.model_s = 0.0


def _whole(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise ValueInvalid(f"[SampleServer] expected {name} of at least 1, got {value!r}; give a whole number")


def _seconds(where: str, timeout: object) -> float:
    seconds = checks.as_seconds(timeout)
    if seconds is None or not seconds > 0:
        expected = f"a timeout above 0 and at most {threading.TIMEOUT_MAX:.0f} seconds"
        raise ValueInvalid(f"[{where}] expected {expected}, got {checks.shown(timeout)}; None waits for ever")
    return seconds
