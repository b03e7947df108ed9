"""A log in a NATS JetStream stream: entry k is the message with sequence k + 1.

stream  = the log's name, subject "livegnn.log." name, file storage, no limits, deletion denied; purging, too, unless
          the stream was made releasable; metadata livegnn.released = entries before it may have been released
message = frame (frame.py), header Nats-Msg-Id = key

An append carries Nats-Expected-Last-Sequence: the server writes it at its offset or not at all, so a repeated try
after a lost acknowledgement finds its own entry there. nats-py is asynchronous: a thread of the log's own runs its
event loop, reconnects, and every call waits for its answer, trying again for at most timeout_seconds_max.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NoReturn, TypeVar

from livegnn.errors import DataMissing, LogDamaged, LogUnavailable, UsageError, ValueInvalid
from livegnn.graph import checks
from livegnn.log.brokers import BrokerLog
from livegnn.log.interface import KEYS_KEPT_MAX, checked_count
from livegnn.log.secrets import masked_url
from livegnn.optional import need

_WRONG_LAST_SEQUENCE = 10071  # the server's code for "another message has this sequence"
_TRY_SECONDS_MAX = 2.0
_PAUSE_SECONDS = 0.05
_FETCH_COUNT_MAX = 64
_FEW = 4  # so many entries are asked for one by one
_RELEASED = "livegnn.released"
_IDLE_SECONDS_MAX = 30.0  # the server forgets a reader after that

Answer = TypeVar("Answer")


class NatsLog(BrokerLog):
    """A log on a NATS server; `open_log("nats://host:4222/updates")` opens it, and makes it where there is none.

    Args:    timeout_seconds_max: how long a call waits for the server to come back.  replicas: of a stream that is made
             now.  releasable: a stream that is made now can release() entries.  keys_kept_max: keys of so many of the
             latest entries are known.  connect: more arguments for nats.connect, such as user, password, token or tls.
             must_exist: never makes a stream.
    """

    def __init__(
        self,
        host: str,
        name: str,
        *,
        timeout_seconds_max: float = 30.0,
        replicas: int = 1,
        releasable: bool = False,
        keys_kept_max: int = KEYS_KEPT_MAX,
        connect: dict[str, Any] | None = None,
        must_exist: bool = False,
    ) -> None:
        super().__init__(name, host, "connect", connect, timeout_seconds_max, keys_kept_max)
        replicas = checked_count("replicas", replicas)
        releasable = checks.flag("open_log", "releasable", releasable)
        must_exist = checks.flag("open_log", "must_exist", must_exist)
        self._nats = need("nats", "nats")
        self._api = need("nats.js.api", "nats")
        self._refusals = need("nats.js.errors", "nats").APIError
        self._subject = f"livegnn.log.{name}"
        self._reader: tuple[Any, int] | None = None  # a subscription, and the sequence that comes next
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"livegnn-nats-{name}", daemon=True)
        self._thread.start()
        self._client: Any = None
        try:
            self._client = self._connected(f"nats://{host}", self._settings)
            self._stream = self._client.jetstream(timeout=_TRY_SECONDS_MAX)
            self._ask("open_log", lambda: self._make_stream(replicas, releasable, must_exist))
            self.can_release = not self._ask("open_log", self._info).config.deny_purge
        except BaseException:
            self._closed = True
            self._close()
            raise

    # ---- what ByteLog asks

    def _tail(self) -> int:
        info = self._ask("tail", self._info)
        state, released = info.state, _released(info.config)
        if state.last_seq and state.first_seq - 1 > released:
            begin = f"sequence {released + 1}" if released else "its first message"
            raise LogDamaged(
                f"[{self.name}, offset {released}] expected the stream from {begin} on, got it from sequence "
                f"{state.first_seq}; restore it from a copy and set no limits"
            )
        return int(state.last_seq)

    def _first(self) -> int:
        info = self._ask("first", self._info)
        return max(0, int(info.state.first_seq) - 1) if info.state.last_seq else 0

    def _release(self, first: int, before: int) -> None:
        async def release() -> None:
            config = (await self._info()).config
            if _released(config) < before:  # first: a stream that has lost more than it says is damaged
                config.metadata = {**(config.metadata or {}), _RELEASED: str(before)}
                await self._stream.update_stream(config)
            await self._stream.purge_stream(self.name, seq=before + 1)

        self._ask("release", release)

    def _put(self, offset: int, key: str, framed: bytes) -> int | None:
        most = self._client.max_payload - 1024  # the headers count too
        if len(framed) > most:
            raise ValueInvalid(
                f"[append, log {self.name}] expected an entry of at most {most} bytes, got {len(framed)}; "
                "split the batch, or raise max_payload of the server (a swapped model is one entry)"
            )
        headers = {"Nats-Msg-Id": key, "Nats-Expected-Last-Sequence": str(offset)}
        publish = lambda: self._stream.publish(self._subject, framed, stream=self.name, headers=dict(headers))  # noqa: E731
        try:
            answer = self._ask("append", publish)
            found = int(answer.seq) - 1
        except self._refusals as cause:
            if cause.err_code != _WRONG_LAST_SEQUENCE:
                self._refuse("append", cause)
            if self._key_at(offset) != key:
                return None
            found = offset  # an earlier try of this append, whose acknowledgement was lost
        self._note(found, key)
        return found

    def _frames(self, first: int, last: int) -> list[bytes]:
        if last - first <= _FEW:
            return [self._message(first).data]
        return [message.data for message in self._fetch(first, last, headers_only=False)]

    def _close(self) -> None:
        async def end() -> None:
            if self._client is not None:
                with contextlib.suppress(OSError, self._nats.errors.Error):  # the server may be gone
                    await self._client.close()
            others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        try:
            asyncio.run_coroutine_threadsafe(end(), self._loop).result(_TRY_SECONDS_MAX)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    # ---- the connection

    def _connected(self, url: str, options: dict[str, Any]) -> Any:
        async def quiet(_: Exception) -> None:
            """Lost connections are seen by the calls that need them."""

        asked = {"max_reconnect_attempts": -1, "reconnect_time_wait": _PAUSE_SECONDS, "error_cb": quiet, **options}

        async def connect() -> Any:
            return await asyncio.wait_for(self._nats.connect(url, **asked), self._seconds_max)

        try:
            return asyncio.run_coroutine_threadsafe(connect(), self._loop).result()
        except ImportError as cause:
            raise DataMissing(
                f"[open_log] expected the package {cause.name} for these settings in connect=, got none installed; "
                "install it"
            ) from cause
        except TypeError as cause:
            raise ValueInvalid(
                f"[open_log] expected settings that nats.connect takes in connect=, got others "
                f"({self._secrets.masked(cause)}); leave them out"
            ) from self._secrets.cause(cause)
        except (TimeoutError, OSError, ValueError, self._nats.errors.Error) as cause:
            raise LogUnavailable(
                f"[open_log] expected a NATS server at {masked_url(url)}, got no connection "
                f"({self._secrets.masked(repr(cause))}); start it, or correct the URL"
            ) from self._secrets.cause(cause)

    async def _info(self) -> Any:
        return await self._stream.stream_info(self.name)

    async def _make_stream(self, replicas: int, releasable: bool, must_exist: bool) -> None:
        config = self._api.StreamConfig(
            name=self.name,
            subjects=[self._subject],
            storage=self._api.StorageType.FILE,
            num_replicas=replicas,
            deny_delete=True,
            deny_purge=not releasable,
        )
        try:
            found = (await self._stream.stream_info(self.name)).config
        except self._refusals as cause:
            if cause.code != 404:
                raise
            if must_exist:
                raise UsageError(
                    f"[open_log] expected a stream {self.name} on the server, got none; correct the URL, or leave "
                    "must_exist out"
                ) from cause
            await self._stream.add_stream(config)
            return
        limits = (found.max_msgs, found.max_bytes, found.max_msgs_per_subject)
        if found.subjects != [self._subject] or any((limit or -1) > 0 for limit in limits) or found.max_age:
            raise LogDamaged(
                f"[open_log] expected stream {self.name} with subject {self._subject} and no limits, got another; "
                "choose another name, or fix the stream"
            )

    def _ask(self, where: str, question: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to a question, asked again until the server gives one; refusals of the server are raised."""
        deadline = time.monotonic() + self._seconds_max

        async def ask() -> Answer:
            return await question()

        while True:
            try:
                return asyncio.run_coroutine_threadsafe(ask(), self._loop).result()
            except self._refusals as cause:
                if cause.code is None or cause.code >= 500:
                    failure: Exception = cause
                elif where == "append" or cause.code == 404:
                    raise
                else:
                    self._refuse(where, cause)
            except (TimeoutError, OSError, self._nats.errors.Error) as cause:
                failure = cause
            if time.monotonic() >= deadline:
                raise LogUnavailable(
                    f"[{where}, log {self.name}] expected an answer within {self._seconds_max} s, got none "
                    f"({self._secrets.masked(repr(failure))}); see to the server and try again"
                ) from self._secrets.cause(failure)
            time.sleep(_PAUSE_SECONDS)

    def _refuse(self, where: str, cause: Exception) -> NoReturn:
        raise LogUnavailable(
            f"[{where}, log {self.name}] expected the server to take the call, got {self._secrets.masked(cause)}; "
            "see its configuration"
        ) from self._secrets.cause(cause)

    # ---- reading

    def _message(self, offset: int) -> Any:
        try:
            return self._ask("read", lambda: self._stream.get_msg(self.name, offset + 1))
        except self._refusals as cause:
            raise self._missing(offset) from cause

    def _key_at(self, offset: int) -> str | None:
        if offset >= self._tail():
            return None
        return str((self._message(offset).headers or {}).get("Nats-Msg-Id"))

    def _keys_of(self, first: int, last: int) -> Iterable[str]:
        while first < last:
            for message in self._fetch(first, last, headers_only=True):
                yield str((message.headers or {}).get("Nats-Msg-Id"))
                first += 1

    def _fetch(self, first: int, last: int, *, headers_only: bool) -> list[Any]:
        """Messages of [first, last) from `first` on, at least one."""
        count = min(last - first, _FETCH_COUNT_MAX)

        async def fetch() -> list[Any]:
            reader: Any
            reader, following = self._reader or (None, -1)
            self._reader = None  # a failure ends it
            if headers_only or following != first + 1:
                if reader is not None:
                    await reader.unsubscribe()
                reader = await self._subscribe(first + 1, headers_only)
            messages: list[Any] = await reader.fetch(count, timeout=_TRY_SECONDS_MAX)
            if headers_only:
                await reader.unsubscribe()
            else:
                self._reader = reader, first + 1 + len(messages)
            return messages

        messages = self._ask("read", fetch)
        for place, message in enumerate(messages, start=first):
            if message.metadata.sequence.stream != place + 1:
                raise self._missing(place)
        return messages

    async def _subscribe(self, sequence: int, headers_only: bool) -> Any:
        config = self._api.ConsumerConfig(
            deliver_policy=self._api.DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=sequence,
            ack_policy=self._api.AckPolicy.NONE,
            inactive_threshold=_IDLE_SECONDS_MAX,
            mem_storage=True,
            num_replicas=1,
            headers_only=headers_only,
        )
        return await self._stream.pull_subscribe(self._subject, stream=self.name, config=config)

    def _missing(self, offset: int) -> LogDamaged:
        return LogDamaged(
            f"[{self.name}, offset {offset}] expected an entry, got none in the stream; restore it from a copy"
        )


def _released(config: Any) -> int:
    return int((config.metadata or {}).get(_RELEASED, 0))
