"""Kafka: a topic as a source, and as the target of changes. Needs the extra kafka.

place = { partition: the offset after the last record }. Nothing is committed to the group of the consumer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from livegnn.deployment.config_pipes import SinkConfig, SourceConfig
from livegnn.deployment.pipes.events import SinkEvent
from livegnn.deployment.pipes.lines import decoded_json
from livegnn.deployment.pipes.records import Lag, PipeBroken, SourceRecord, Unreachable
from livegnn.log.secrets import Secrets
from livegnn.optional import need

_ASK_S = 10.0
_LOOK_S = 30.0  # between two looks for new partitions


def _place_of(url: str) -> tuple[str, str]:
    """(servers, topic)."""
    parts = urlsplit(url)
    return parts.netloc, parts.path.strip("/")


class KafkaReader:
    """The records of all partitions of a topic: JSON objects."""

    def __init__(self, config: SourceConfig, place: Mapping[str, int], once: bool) -> None:
        self._kafka = need("confluent_kafka", "kafka")
        servers, self._topic = _place_of(config.url)
        self._secrets = Secrets(servers, config.options)
        self._begin, self._once = config.begin, once
        self._positions: dict[int, int] = {
            int(part): offset
            for part, offset in place.items()
            if part.isdecimal()  # others are of another kind
        }
        self._assigned: set[int] = set()
        self._ends: dict[int, int] = {}
        self._down_since: float | None = None
        self.is_ended = False
        self._consumer = self._kafka.Consumer(
            {
                "log_level": 0,
                "error_cb": self._noticed,
                "fetch.wait.max.ms": 50,
                **config.options,
                "bootstrap.servers": servers,
                "group.id": f"livegnn-{config.name}",  # asked for, though nothing is committed to it
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        try:
            self._assign(first=not self._positions)
        except BaseException:
            self._consumer.close()
            raise

    def read(self, count_max: int, wait_s: float) -> list[SourceRecord]:
        """As Reader."""
        if time.monotonic() > self._next_look:
            self._assign(first=False)
        found: list[SourceRecord] = []
        for message in self._consumer.consume(count_max, timeout=wait_s):
            error = message.error()
            if error is not None:
                if error.code() in (
                    self._kafka.KafkaError._AUTO_OFFSET_RESET,
                    self._kafka.KafkaError.OFFSET_OUT_OF_RANGE,
                ):
                    raise PipeBroken(self._gone(message.partition()))
                continue
            decoded = decoded_json(message.value())
            self._positions[message.partition()] = message.offset() + 1
            found.append(SourceRecord(str(message.partition()), message.offset() + 1, *decoded))
        if found:
            self._down_since = None
        elif self._down_since is not None:
            raise Unreachable(f"expected Kafka with topic {self._topic}, got no connection")
        self.is_ended = self._once and all(self._positions[part] >= end for part, end in self._ends.items())
        return found

    def lag(self) -> Lag | None:
        """Records between the place and the newest ones that the client knows of."""
        count = 0
        for part in self._assigned:
            _, high = self._consumer.get_watermark_offsets(self._kafka.TopicPartition(self._topic, part), cached=True)
            count += max(0, high - self._positions[part])
        return Lag(count, "records")

    def close(self) -> None:
        """As Reader."""
        self._consumer.close()

    def _noticed(self, error: Any) -> None:
        if error.code() == self._kafka.KafkaError._ALL_BROKERS_DOWN:
            self._down_since = time.monotonic()

    def _assign(self, *, first: bool) -> None:
        """Reads all partitions there are; new ones from their beginning. Raises: Unreachable, PipeBroken."""
        self._next_look = time.monotonic() + _LOOK_S
        try:
            topic = self._consumer.list_topics(self._topic, timeout=_ASK_S).topics[self._topic]
            if topic.error is not None:
                raise Unreachable(f"expected a topic {self._topic}, got: {topic.error}")
            parts = set(topic.partitions)
            if parts <= self._assigned:
                return
            for part in sorted(parts - self._assigned):
                asked = self._kafka.TopicPartition(self._topic, part)
                low, high = self._consumer.get_watermark_offsets(asked, timeout=_ASK_S)
                start = high if first and self._begin == "new" else low
                if self._positions.setdefault(part, start) < low:
                    raise PipeBroken(self._gone(part))
                if self._once:
                    self._ends[part] = high
        except self._kafka.KafkaException as cause:
            raise Unreachable(
                f"expected Kafka with topic {self._topic}, got {self._secrets.masked(cause.args[0])}"
            ) from self._secrets.cause(cause)
        self._assigned = parts
        self._consumer.assign(
            [self._kafka.TopicPartition(self._topic, part, self._positions[part]) for part in sorted(parts)]
        )

    def _gone(self, part: int) -> str:
        return (
            f"expected offset {self._positions[part]} of partition {part} of {self._topic}, got a topic that no longer "
            "has it; keep records for longer, and begin with a source of another name"
        )


class KafkaTarget:
    """Changes as records of a topic: the key is the event's, the value its JSON."""

    def __init__(self, config: SinkConfig) -> None:
        kafka = need("confluent_kafka", "kafka")
        servers, self._topic = _place_of(config.url)
        self._secrets = Secrets(servers, config.options)
        self._wait_s = config.timeout_ms / 1e3
        self._exception = kafka.KafkaException
        self._producer = kafka.Producer(
            {
                "log_level": 0,
                "error_cb": lambda _: None,
                "linger.ms": 0,
                **config.options,
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": True,
                "message.timeout.ms": config.timeout_ms,
            }
        )

    def deliver(self, events: Sequence[SinkEvent]) -> None:
        """Sends them, and waits until all are acknowledged. Raises: Unreachable."""
        faults: list[Any] = []
        done = [0]

        def delivered(error: Any, _: Any) -> None:
            done[0] += 1
            if error is not None:
                faults.append(error)

        try:
            for event in events:
                self._producer.produce(self._topic, event.body, key=event.key, on_delivery=delivered)
                self._producer.poll(0)
            self._producer.flush(self._wait_s + 1.0)
        except (self._exception, BufferError) as cause:
            raise Unreachable(self._secrets.masked(cause)) from self._secrets.cause(cause)
        if faults or done[0] < len(events):
            self._producer.purge()
            self._producer.flush(1.0)
            got = self._secrets.masked(faults[0]) if faults else "no answer"
            raise Unreachable(f"expected Kafka to take records for {self._topic}, got {got}")

    def close(self) -> None:
        """Nothing waits: a delivery is acknowledged, or has failed."""
