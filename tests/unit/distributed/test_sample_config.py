"""What the folder of a cluster keeps."""

import json

import numpy as np
import pytest

import livegnn as lg
from livegnn.distributed.sampling_host.config import ClusterConfig
from livegnn.errors import UsageError
from livegnn.sampling import ClusterSpec
from livegnn.sampling.cluster.runtime import Settings


def new_spec():
    graph = lg.Graph(np.ones((6, 2), np.float32), [0, 0, 0], [1, 2, 3])
    return ClusterSpec.of(graph, lg.query().out().sample(2))


@pytest.mark.parametrize("column", ["history", "logs"])
def test_settings_that_differ_are_shown_without_passwords(column):
    one = ClusterConfig(new_spec(), "sqlite:a.db", "sqlite:{name}.db", {}, Settings())
    other = one._replace(**{column: "nats://me:hunter2@localhost/{name}"})
    for stored, given in ((one, other), (other, one)):
        with pytest.raises(UsageError, match=f"expected the {column}") as refused:
            given.check_same(stored)
        assert "hunter2" not in str(refused.value)
        assert "localhost" in str(refused.value)


@pytest.mark.parametrize(
    "names",
    [
        ("beat_ms", "silence_ms_max", "start_ms_max"),
        ("heartbeat_ms", "heartbeat_timeout_ms", "startup_timeout_ms"),
    ],
)
def test_settings_of_processes_that_livegnn_hosted_are_passed_over(tmp_path, names):
    config = ClusterConfig(new_spec(), "sqlite:a.db", "sqlite:{name}.db", {}, Settings(checkpoint_steps=7))
    document = json.loads(config.to_json())
    del document["format"]
    document["settings"] |= dict.fromkeys(names, 9.0)
    (tmp_path / "cluster.json").write_text(json.dumps(document))
    assert ClusterConfig.read(tmp_path) == config


def test_a_config_survives_its_text():
    config = ClusterConfig(new_spec(), "sqlite:a.db", "sqlite:{name}.db", {"timeout": 2}, Settings())
    assert ClusterConfig.from_json(config.to_json()) == config
    with pytest.raises(ValueError, match="format 2"):
        ClusterConfig.from_json(config.to_json(), (1,))


def test_a_folder_without_a_cluster_is_refused(tmp_path):
    with pytest.raises(UsageError, match="name the folder of a cluster"):
        ClusterConfig.read(tmp_path)
