"""The service on a graph with vertex types: types in updates, rows of each level as wide as its type."""

import numpy as np

import livegnn as lg
from livegnn.serve import frames
from tests.serve.client import FRAME, error_of, serving

CLICK, RELATED = ("user", "click", "item"), ("item", "related", "item")


def typed_sampler():
    users, items = np.eye(3, 2, dtype=np.float32), np.arange(12, dtype=np.float32).reshape(4, 3)
    src = {CLICK: [0, 0, 1], RELATED: [1, 2]}
    dst = {CLICK: [1, 2, 3], RELATED: [0, 3]}
    graph = lg.Graph({"user": users, "item": items}, src, dst)
    return lg.PreSampler(graph, lg.query("user").out("click").sample(2).out("related").sample(1))


def clicked(features, masks):
    return features[1].sum(axis=1)


def test_samples_predictions_and_updates_of_a_typed_graph():
    sampler = typed_sampler()
    with serving(sampler, clicked) as client:
        found = client.post("/v1/sample", {"seeds": [0, 2]}).json()
        assert sorted(found["hops"][0][0]) == [1, 2]
        frame = frames.decode_sample(
            client.post("/v1/sample", frames.encode_request(np.array([0])), headers=FRAME).content
        )
        assert [level.shape for level in frame.features] == [(1, 2), (1, 2, 3), (1, 2, 1, 3)]
        np.testing.assert_array_equal(frame.features[1], sampler.sample([0]).features(1))
        batch = [
            {"op": "add_edge", "u": 2, "v": 1, "edge_type": "click"},
            {"op": "add_edge", "u": 3, "v": 1, "edge_type": list(RELATED)},
            {"op": "set_features", "u": 1, "x": [7, 8, 9], "vertex_type": "item"},
        ]
        assert client.post("/v1/updates", {"updates": batch}).json()["version"] == 1
        assert client.post("/v1/predict", {"seeds": [2], "at_least": 1}).json()["predictions"] == [[7, 8, 9]]
        unknown = client.post("/v1/updates", {"updates": [{"op": "add_edge", "u": 2, "v": 1, "edge_type": "sell"}]})
        assert "sell" in error_of(unknown, unknown.status_code)["message"]
        assert sampler.version == 1
