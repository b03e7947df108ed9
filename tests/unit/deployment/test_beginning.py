"""The first graph of a deployment: from files, without vertices, or from a function."""

from __future__ import annotations

import numpy as np
import pytest

import livegnn as lg
from livegnn.deployment import DeploymentConfig, printed, read_config
from livegnn.deployment.beginning import first_graph
from livegnn.deployment.config import GraphConfig, checked_config
from livegnn.errors import ColumnMissing, FileMissing, UsageError, ValueInvalid

WHOLE = """
models = "elsewhere"
[graph]
features = "accounts.csv"
id = "account"
attributes = ["amount", "fee"]
ttl = 3
[log]
keys_max = 7
[[engine]]
name = "scores"
model = "fraud/2"
shadow = "next"
[[readout]]
name = "all"
engine = "scores"
[[sampler]]
name = "near"
query = "g.V(ID).OutV().sample(10).by('Random').values"
[[token]]
name = 'a "quoted" one'
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
"""


def test_what_is_printed_is_what_was_read(tmp_path):
    path = tmp_path / "livegnn.toml"
    path.write_text(WHOLE)
    config = read_config(path)
    assert (config.log.keys_max, config.engine[0].shadow, config.token[0].name) == (7, "next", 'a "quoted" one')
    (tmp_path / "again.toml").write_text(printed(config))
    assert read_config(tmp_path / "again.toml") == config
    (tmp_path / "default.toml").write_text(printed(DeploymentConfig()))
    assert read_config(tmp_path / "default.toml") == DeploymentConfig()


def test_a_bad_file_is_named(tmp_path):
    with pytest.raises(FileMissing, match=r"none\.toml"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = ")
    with pytest.raises(ValueInvalid, match=r"bad\.toml.*expected TOML"):
        read_config(tmp_path / "bad.toml")


def of(tmp_path, **graph):
    return first_graph(checked_config({"graph": graph}).graph, tmp_path)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "accounts.csv").write_text("account,age,sum\nann,1,2.5\nbob,3,4\ncid,5,6\n")
    (tmp_path / "transfers.csv").write_text(
        "from,to,amount,fee,date,kind\nann,bob,1,0.5,2026-01-02,0\nbob,cid,2,0.25,2026-01-03,1\n"
    )
    return tmp_path


def test_a_graph_of_files_has_their_columns(files):
    named = {"features": "accounts.csv", "id": "account", "edges": "transfers.csv", "src": "from", "dst": "to"}
    graph = of(files, **named, time="date", edge_type="kind", attributes=["amount", "fee"])
    np.testing.assert_array_equal(graph.features(["ann", "cid"]), [[1, 2.5], [5, 6]])
    edges = graph.edges()
    assert (edges["src"].tolist(), edges["dst"].tolist(), edges["type"].tolist()) == (
        ["ann", "bob"],
        ["bob", "cid"],
        [0, 1],
    )
    np.testing.assert_array_equal(edges["attr"], [[1, 0.5], [2, 0.25]])
    assert np.diff(edges["time"]).tolist() == [24 * 3600 * 10**6]
    weighted = of(files, **named, weight="amount", undirected=True, feature_dtype="float16")
    assert (weighted.undirected, weighted.feature_dtype) == (True, "float16")
    np.testing.assert_array_equal(weighted.out_neighbours("bob")["weight"], [1, 2])
    assert of(files, features="accounts.csv", id="account").edge_count == 0
    with pytest.raises(ColumnMissing, match=r"transfers\.csv.*'src'"):
        of(files, features="accounts.csv", id="account", edges="transfers.csv")


def test_columns_choose_features_and_their_order(files):
    named = {"features": "accounts.csv", "id": "account"}
    np.testing.assert_array_equal(of(files, **named, columns=["sum", "age"]).features(["ann"]), [[2.5, 1]])
    np.testing.assert_array_equal(of(files, **named, columns=["sum"]).features(["cid"]), [[6]])
    with pytest.raises(ColumnMissing, match=r"accounts\.csv.*'amount', got account, age, sum"):
        of(files, **named, columns=["age", "amount"])
    np.save(files / "x.npy", np.zeros((2, 2), np.float32))
    with pytest.raises(ColumnMissing, match="got 'age'"):
        of(files, features="x.npy", columns=["age"])


@pytest.mark.parametrize("ids", ["integer", "text"])
def test_a_graph_may_begin_without_vertices(tmp_path, ids):
    graph = of(tmp_path, feature_width=2, ids=ids, has_weight=True, has_time=True, attribute_width=3)
    a, b = ("a", "b") if ids == "text" else (0, 1)
    updates = lg.Updates()
    updates.add_vertex(a, [1, 2])
    updates.add_vertex(b, [3, 4])
    updates.add_edge(a, b, weight=2.0, time=5, edge_attr=[1, 2, 3])
    graph.apply(updates)
    assert (graph.vertex_count, graph.edge_count, graph.attr_width, graph.has_time) == (2, 1, 3, True)


def made():
    return lg.Graph(np.eye(3, dtype=np.float32), [0], [1])


def wrong():
    return 7


def test_a_function_of_the_users_own_code_may_make_it(tmp_path):
    assert of(tmp_path, factory=f"{__name__}:made").vertex_count == 3
    with pytest.raises(UsageError, match=r"return a livegnn\.Graph, got int"):
        of(tmp_path, factory=f"{__name__}:wrong")
    with pytest.raises(UsageError, match="features, parts, feature_width or factory"):
        first_graph(GraphConfig(), tmp_path)
