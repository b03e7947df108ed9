"""The benchmarks of the service in small: they run, and their streams of updates are what they say."""

from __future__ import annotations

import json

import pytest

import livegnn as lg
from benchmarks.service.roles import BareEngine, Clients, Service, arrow_body
from benchmarks.service.world import LAG, ServiceWorld
from livegnn.serve.json_bodies import decode_updates
from livegnn.serve.update_frames import decode_updates as decode_frame
from livegnn.serve.update_frames import encode_updates

WORLD = ServiceWorld("tiny", 4)


def test_batches_follow_each_other_for_ever_and_the_graph_keeps_its_size():
    graph = WORLD.graph()
    edges = []
    for number in range(500, 500 + 2 * LAG):
        graph.apply(WORLD.batch(number, 30, 500).updates())
        edges.append(graph.edge_count)
    assert edges[LAG - 1 :] == [edges[LAG - 1]] * (LAG + 1)
    assert edges[LAG - 1] == WORLD.graph().edge_count + 10 * LAG


def test_all_forms_of_a_batch_say_the_same():
    batch = WORLD.batch(LAG + 3, 30)
    assert len(batch) == 30
    as_items = decode_updates(json.dumps({"updates": batch.items()}).encode(), 30)
    as_frame = decode_frame(encode_updates(batch.updates()), 30)
    digests = []
    for updates in (batch.updates(), as_items, as_frame):
        graph = WORLD.graph()
        added = lg.Updates()
        added.add_edges(*batch.removed)
        graph.apply(added)
        graph.apply(updates)
        digests.append(graph.host.store.digest())
    assert len(set(digests)) == 1
    pa = pytest.importorskip("pyarrow")
    table = pa.ipc.open_stream(arrow_body(batch)).read_all()
    assert table["op"].to_pylist() == ["add"] * 10 + ["remove"] * 10


def test_a_deployment_and_the_engine_alone_end_in_the_same_state(tmp_path):
    bare, service = BareEngine(WORLD, 1), Service(WORLD, str(tmp_path), 1, {})
    assert bare.apply(60, 0, 5) > 0
    assert service.apply(60, 0, 5, 2) > 0
    digest = service.digest()
    assert bare._engine.state_digest() == digest
    seconds, version = service.recover()
    assert seconds > 0
    assert 1 <= version <= 5
    assert service.digest() == digest
    service._deployment.close()


def test_clients_send_what_they_made(tmp_path):
    from benchmarks.http_load import Pace

    service, clients = Service(WORLD, str(tmp_path), 1, {}), Clients(WORLD)
    url = service.serve()
    clients.make_bulk(url, 30, 0, 4)
    found = clients.drive(url, Pace(None, 2, 60.0, 0.0))
    assert (found.requests, found.errors) == (4, {})  # it ends where the requests do
    clients.make_bulk(url, 30, 100, 2, arrow=True)
    assert clients.drive(url, Pace(None, 2, 60.0, 0.0)).requests == 2
    clients.make_singles(url, 200, 9)
    assert clients.drive(url, Pace(None, 3, 60.0, 0.0)).requests == 6  # nothing to remove yet
    assert service.counts()[1:3] == (12, 4 * 20 + 2 * 10 + 6)
    service._serving.close()
    service._deployment.close()
