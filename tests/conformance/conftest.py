"""Every implementation of the log, as a function from a name to a URL."""

import itertools

import pytest

from tests.brokers import MockKafka, NatsServer

_numbers = itertools.count()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory):
    server = NatsServer(tmp_path_factory.mktemp("jetstream"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def mock_kafka():
    return MockKafka()


@pytest.fixture(params=["sqlite", "nats", "kafka"])
def url(request, tmp_path):
    """The URL of a log that is empty and this test's own."""
    name = f"log-{next(_numbers)}"
    if request.param == "sqlite":
        return f"sqlite:{tmp_path}/history.db?name={name}"
    return request.getfixturevalue("nats_server" if request.param == "nats" else "mock_kafka").url(name)
