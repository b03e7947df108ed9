"""NATS JetStream: a stream as a source, and a subject as the target of changes. Needs the extra nats.

place = { stream: sequence of the last message }. nats-py is asynchronous: a link has an event loop in a thread of its
own.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

from livegnn.deployment.config_pipes import Scalar, SinkConfig, SourceConfig
from livegnn.deployment.pipes.events import SinkEvent
from livegnn.deployment.pipes.lines import decoded_json
from livegnn.deployment.pipes.records import Lag, PipeBroken, SourceRecord, Unreachable
from livegnn.log.secrets import Secrets, masked_url
from livegnn.optional import need

Answer = TypeVar("Answer")
_CONNECT_S = 5.0
_ASK_S = 5.0
_LOOK_S = 2.0  # of silence, after which the server is asked whether it still knows the reader
_FETCH_MAX = 256


class NatsLink:
    """A connection to a server. Raises: Unreachable."""

    def __init__(self, url: str, options: Mapping[str, Scalar]) -> None:
        self.nats = need("nats", "nats")
        self.api = need("nats.js.api", "nats")
        parts = urlsplit(url)
        self.name = parts.path.strip("/")
        self._secrets = Secrets(parts.netloc, options)
        self._shown = masked_url(url)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="livegnn-nats-pipe", daemon=True)
        self._thread.start()
        self.client: Any = None

        async def quiet(_: Exception) -> None:
            """Lost connections are seen by the calls that need them."""

        asked = {"allow_reconnect": False, "error_cb": quiet, "connect_timeout": _CONNECT_S, **options}

        async def connect() -> Any:
            return await asyncio.wait_for(self.nats.connect(f"nats://{parts.netloc}", **asked), _CONNECT_S)

        try:
            self.client = self.ask(connect, _CONNECT_S + 1.0)
            self.stream = self.client.jetstream(timeout=_ASK_S)
        except BaseException:
            self.close()
            raise

    def ask(self, question: Callable[[], Awaitable[Answer]], wait_s: float = _ASK_S + 1.0) -> Answer:
        """The answer of the server. Raises: Unreachable; TimeoutError of nats-py where it gave none in time."""

        async def asked() -> Answer:
            return await question()

        future = asyncio.run_coroutine_threadsafe(asked(), self._loop)
        try:
            return future.result(wait_s)
        except TimeoutError:
            future.cancel()
            raise
        except (OSError, ValueError, TypeError, self.nats.errors.Error) as cause:
            raise Unreachable(
                f"expected a NATS server at {self._shown}, got {self._secrets.masked(repr(cause))[:200]}"
            ) from self._secrets.cause(cause)

    def close(self) -> None:
        """Ends connection and thread."""

        async def end() -> None:
            if self.client is not None:
                with contextlib.suppress(Exception):  # the server may be gone
                    await asyncio.wait_for(self.client.close(), 1.0)
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(end(), self._loop).result(_ASK_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class NatsReader:
    """The messages of a stream, or of some of its subjects: JSON objects."""

    def __init__(self, config: SourceConfig, place: Mapping[str, int], once: bool) -> None:
        self._link = NatsLink(config.url, config.options)
        self._once, self.is_ended = once, False
        self._part = self._link.name
        self._looked = time.monotonic()
        try:
            state = self._asked(lambda: self._link.stream.stream_info(self._part)).state
            self._place = place.get(self._part, state.last_seq if config.begin == "new" else state.first_seq - 1)
            self._place = max(self._place, 0)
            self._end = self._newest = state.last_seq
            if self._part in place and (state.first_seq > self._place + 1 or state.last_seq < self._place):
                raise PipeBroken(
                    f"expected message {self._place + 1} of stream {self._part}, got one from {state.first_seq} to "
                    f"{state.last_seq}; keep messages for longer, and begin with a source of another name"
                )
            self._reader = self._asked(lambda: self._subscribed(config.subject))
        except BaseException:
            self._link.close()
            raise

    async def _subscribed(self, subject: str) -> Any:
        api = self._link.api
        asked = api.ConsumerConfig(
            deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._place + 1,
            ack_policy=api.AckPolicy.NONE,
            inactive_threshold=60.0,
            filter_subject=subject or None,
        )
        return await self._link.stream.pull_subscribe(subject or ">", stream=self._part, config=asked)

    def _asked(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        try:
            return self._link.ask(question)
        except TimeoutError as cause:
            raise Unreachable(f"expected an answer of NATS for stream {self._part}, got none in time") from cause

    def read(self, count_max: int, wait_s: float) -> list[SourceRecord]:
        """As Reader."""
        wait_s = max(wait_s, 0.01)
        try:
            messages = self._link.ask(
                lambda: self._reader.fetch(min(count_max, _FETCH_MAX), timeout=wait_s), wait_s + _ASK_S
            )
        except TimeoutError:
            messages = []
        found = []
        for message in messages:
            place = message.metadata.sequence.stream
            if place <= self._place:
                continue
            self._place = place
            found.append(SourceRecord(self._part, place, *decoded_json(message.data)))
        if found:
            self._looked = time.monotonic()
        elif time.monotonic() - self._looked > _LOOK_S or self._once or not self._link.client.is_connected:
            self._looked = time.monotonic()
            info = self._asked(self._reader.consumer_info)  # raises where the server forgot it
            self._newest = self._place + info.num_pending
            if self._once and (info.num_pending == 0 or self._place >= self._end):
                self.is_ended = True
        return found

    def lag(self) -> Lag | None:
        """Messages after the place, when the server was last asked."""
        return Lag(max(0, self._newest - self._place), "records")

    def close(self) -> None:
        """As Reader."""
        self._link.close()


class NatsTarget:
    """Changes as messages of a subject, which a stream keeps; each has the event's key as Nats-Msg-Id."""

    def __init__(self, config: SinkConfig) -> None:
        self._config = config
        self._link: NatsLink | None = None

    def deliver(self, events: Sequence[SinkEvent]) -> None:
        """Publishes them, and waits until the stream has all. Raises: Unreachable."""
        try:
            if self._link is None:
                self._link = NatsLink(self._config.url, self._config.options)
            link = self._link

            async def publish() -> None:
                for event in events:  # in order: each waits for its acknowledgement
                    headers = {"Nats-Msg-Id": f"{self._config.name}:{event.key}"}
                    await link.stream.publish(link.name, event.body, headers=headers)

            link.ask(publish, self._config.timeout_ms / 1e3 * max(1, len(events) // 100 + 1))
        except (Unreachable, TimeoutError) as cause:
            self.close()
            raise Unreachable(str(cause) or "expected acknowledgements of NATS, got none in time") from cause

    def close(self) -> None:
        """Ends the connection."""
        if self._link is not None:
            self._link.close()
            self._link = None
