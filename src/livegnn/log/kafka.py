"""A log in partition 0 of a Kafka topic.

record = frame (frame.py), record key = the entry's key

Kafka appends whatever it gets; it has no conditional write. So the log's order is settled by reading: every frame
carries the offset that it was written for, and

    a record counts  iff  its frame's offset = the number of records before it that count

All readers see the same records in the same order, hence the same log. A writer reads to the end, writes a frame for
the next offset, and reads on to its own record: if another one came first, its own does not count, and it tries again.
A record that was sent twice, or late, does not count either. Where no record was ever passed over, log offset = Kafka
offset, and the newest record proves it: a frame at place k for offset k was written by one who had counted k records.
Else the topic is read from its beginning when it is opened.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from livegnn.errors import LiveGnnError, LogDamaged, LogUnavailable, UsageError, ValueInvalid
from livegnn.graph import checks
from livegnn.log import frame
from livegnn.log.brokers import BrokerLog
from livegnn.log.interface import KEYS_KEPT_MAX, checked_count
from livegnn.optional import need

_READ_COUNT_MAX = 256
_POLL_SECONDS = 0.05
_CALL_SECONDS_MAX = 5.0


class KafkaLog(BrokerLog):
    """A log on a Kafka cluster; `open_log("kafka://host:9092/updates")` opens it, and makes it where there is none.

    Args:    timeout_seconds_max: how long a call waits for the cluster.  replicas: of a topic that is made now.
             keys_kept_max: keys of so many of the latest entries are known.  entry_bytes_max: as max.message.bytes of
             the topic.  config: more settings for librdkafka, such as security.protocol.
             must_exist: never makes a topic.
    """

    def __init__(
        self,
        host: str,
        name: str,
        *,
        timeout_seconds_max: float = 30.0,
        replicas: int = 1,
        keys_kept_max: int = KEYS_KEPT_MAX,
        entry_bytes_max: int = 16 << 20,
        config: dict[str, Any] | None = None,
        must_exist: bool = False,
    ) -> None:
        super().__init__(name, host, "config", config, timeout_seconds_max, keys_kept_max)
        replicas = checked_count("replicas", replicas)
        must_exist = checks.flag("open_log", "must_exist", must_exist)
        self._entry_bytes_max = checked_count("entry_bytes_max", entry_bytes_max)
        self._kafka = need("confluent_kafka", "kafka")
        self._scanned = 0  # records [0, _scanned) were looked at; those in _passed_over do not count
        self._passed_over: list[int] = []
        self._position: int | None = None  # where the consumer reads on
        self._clients: list[Any] = []
        quiet = lambda _: None  # noqa: E731  lost connections are seen by the calls that need them
        common = {"bootstrap.servers": host, "log_level": 0, "error_cb": quiet, **self._settings}
        room = self._entry_bytes_max + 65536  # for headers and the request
        try:
            self._consumer = self._consumer_of(common, room)
            self._watcher = self._consumer_of(common, room)  # a question does not wait behind a fetch
            self._producer = self._kafka.Producer(
                {
                    **common,
                    "acks": "all",
                    "enable.idempotence": True,
                    "linger.ms": 0,
                    "message.max.bytes": room,
                    "message.timeout.ms": int(self._seconds_max * 1000),
                }
            )
            self._make_topic(common, replicas, must_exist)
            self._begin()
        except BaseException as cause:
            self._closed = True
            self._close()
            if isinstance(cause, (self._kafka.KafkaException, TypeError, ValueError)) and not isinstance(
                cause, LiveGnnError
            ):
                raise ValueInvalid(
                    "[open_log] expected settings that librdkafka takes in config=, got others "
                    f"({self._secrets.masked(cause)}); correct them"
                ) from self._secrets.cause(cause)
            raise

    def _consumer_of(self, common: dict[str, Any], room: int) -> Any:
        fetch_max = max(50 << 20, room)
        client = self._kafka.Consumer(
            {
                **common,
                "group.id": "livegnn-log",  # asked for, though nothing is committed to it
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 10,
                "max.partition.fetch.bytes": room,
                "fetch.max.bytes": fetch_max,
                "receive.message.max.bytes": fetch_max + room,
            }
        )
        self._clients.append(client)
        return client

    # ---- what ByteLog asks

    def _tail(self) -> int:
        self._scan(self._end())
        return self._count()

    def _put(self, offset: int, key: str, framed: bytes) -> int | None:
        if len(framed) > self._entry_bytes_max:
            raise self._too_large(len(framed))
        if self._count() < offset:
            self._scan(self._end())
        if self._count() != offset:
            return None
        place, failure = self._send(key, framed)
        if place is not None and place == self._scanned:  # nothing came between: it counts
            self._scanned = place + 1
        else:
            self._scan(self._end())
        if offset < self._count() and self._key_at(offset, place, key) == key:
            self._note(offset, key)
            return offset
        if failure is not None:
            raise LogUnavailable(
                f"[append, log {self.name}] expected the record to be acknowledged, got "
                f"{self._secrets.masked(failure)}; see to the cluster and append again with the same key"
            )
        return None

    def _frames(self, first: int, last: int) -> list[bytes]:
        start = self._place(first)
        stop = min(self._place(last - 1) + 1, start + _READ_COUNT_MAX)
        passed_over = set(self._passed_over)
        return [record.value() for record in self._records(start, stop) if record.offset() not in passed_over]

    def _first(self) -> int:
        return 0

    def _release(self, first: int, before: int) -> None:
        raise AssertionError("can_release is False")  # a record's place says how many before it count

    def _close(self) -> None:
        for client in self._clients:
            client.close()

    # ---- which records count

    def _begin(self) -> None:
        """Finds out from the newest record whether all before it count."""
        end = self._end()
        if end > 0:
            (newest,) = self._records(end - 1, end)
            if frame.claimed_offset(self.name, end - 1, newest.value()) == end - 1:
                self._scanned = end

    def _scan(self, end: int) -> None:
        if end < self._scanned:
            raise LogDamaged(
                f"[{self.name}, record {end}] expected at least {self._scanned} records, got {end}: the topic has lost "
                "its end; restore it from a copy"
            )
        while self._scanned < end:
            for record in self._records(self._scanned, min(end, self._scanned + _READ_COUNT_MAX)):
                place = record.offset()
                count = self._count()
                if frame.claimed_offset(self.name, count, record.value()) != count:
                    self._passed_over.append(place)
                self._scanned = place + 1

    def _count(self) -> int:
        """Entries among the records that were looked at."""
        return self._scanned - len(self._passed_over)

    def _place(self, offset: int) -> int:
        """The Kafka offset of an entry."""
        place = offset
        for each in self._passed_over:
            if each > place:
                break
            place += 1
        return place

    def _key_at(self, offset: int, sent: int | None, key: str) -> str:
        """The key of an entry; `key` if it is the record that was just sent."""
        if sent == self._place(offset):
            return key
        return next(iter(self._keys_of(offset, offset + 1)))

    def _keys_of(self, first: int, last: int) -> Iterable[str]:
        while first < last:
            for each in self._frames(first, last):
                yield frame.decode(self.name, first, each)[0]
                first += 1

    # ---- the cluster

    def _make_topic(self, config: dict[str, Any], replicas: int, must_exist: bool) -> None:
        """The topic, kept for ever; the second caller finds it."""
        try:
            topics = self._watcher.list_topics(timeout=self._seconds_max).topics
            if self.name in topics and topics[self.name].error is None:
                return
            if must_exist:
                raise UsageError(
                    f"[open_log] expected a topic {self.name} on the cluster, got none; correct the URL, or leave "
                    "must_exist out"
                )
            admin = need("confluent_kafka.admin", "kafka")
            settings = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
            settings["max.message.bytes"] = str(self._entry_bytes_max)
            topic = admin.NewTopic(self.name, num_partitions=1, replication_factor=replicas, config=settings)
            client = admin.AdminClient(config)
            made = client.create_topics([topic], operation_timeout=_CALL_SECONDS_MAX)
            made[self.name].result(self._seconds_max)
        except (self._kafka.KafkaException, TimeoutError) as cause:
            error = cause.args[0] if cause.args else None
            if error is None or error.code() != self._kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise LogUnavailable(
                    f"[open_log] expected a Kafka cluster with topic {self.name}, got "
                    f"{self._secrets.masked(error or 'no answer')}; start it, correct the URL, or make the topic"
                ) from self._secrets.cause(cause)

    def _end(self) -> int:
        """The high watermark: records below it are acknowledged by all replicas in sync."""
        deadline = time.monotonic() + self._seconds_max
        partition = self._kafka.TopicPartition(self.name, 0)
        while True:
            try:
                low, high = self._watcher.get_watermark_offsets(partition, timeout=_CALL_SECONDS_MAX, cached=False)
            except self._kafka.KafkaException as cause:
                if time.monotonic() >= deadline:
                    raise self._unavailable(cause.args[0]) from self._secrets.cause(cause)
                time.sleep(_POLL_SECONDS)
                continue
            if low > 0:
                raise LogDamaged(
                    f"[{self.name}, offset 0] expected the topic from its first record on, got it from {low}; "
                    "restore it from a copy and set retention.ms=-1"
                )
            return int(high)

    def _records(self, start: int, stop: int) -> list[Any]:
        """Records [start, stop) of the partition, all of them."""
        deadline = time.monotonic() + self._seconds_max
        found: list[Any] = []
        while start + len(found) < stop:
            following = start + len(found)
            if self._position != following:
                self._consumer.assign([self._kafka.TopicPartition(self.name, 0, following)])
            self._position = None
            for record in self._consumer.consume(stop - following, timeout=_POLL_SECONDS):
                if record.error() is None:
                    if record.offset() != start + len(found):
                        raise LogDamaged(
                            f"[{self.name}, offset {start + len(found)}] expected a record, got the one at "
                            f"{record.offset()}; restore the topic from a copy and set no compaction"
                        )
                    found.append(record)
            self._position = start + len(found)
            if time.monotonic() >= deadline:
                raise self._unavailable(f"{len(found)} of {stop - start} records")
        return found

    def _send(self, key: str, framed: bytes) -> tuple[int | None, object]:
        """Sends one record and waits for its fate: its place, or None and what went wrong."""
        fate: list[Any] = []
        deadline = time.monotonic() + self._seconds_max + _CALL_SECONDS_MAX

        def delivered(error: Any, record: Any) -> None:
            fate.extend((error, record.offset()))

        error: Any = None
        try:
            self._producer.produce(self.name, framed, key=key, partition=0, on_delivery=delivered)
            while not fate and time.monotonic() < deadline:
                self._producer.poll(_POLL_SECONDS)
            if not fate:
                return None, "no answer"
            error = fate[0]
        except self._kafka.KafkaException as cause:
            error = cause.args[0]
        if error is None:
            return int(fate[1]), None
        if error.code() == self._kafka.KafkaError.MSG_SIZE_TOO_LARGE:
            raise self._too_large(len(framed))
        return None, error

    def _too_large(self, size: int) -> ValueInvalid:
        return ValueInvalid(
            f"[append, log {self.name}] expected an entry of at most {self._entry_bytes_max} bytes, got {size}; "
            "split the batch, or raise entry_bytes_max and max.message.bytes of the topic (a swapped model is one "
            "entry)"
        )

    def _unavailable(self, got: object) -> LogUnavailable:
        return LogUnavailable(
            f"[log {self.name}] expected an answer within {self._seconds_max} s, got {self._secrets.masked(got)}; "
            "see to the cluster"
        )
