"""Registry: each form of a model, versions, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import livegnn as lg
from livegnn.deployment import Registry
from livegnn.errors import DataMissing, ModelError, StoredStateInvalid, UsageError, ValueInvalid
from tests.unit.deployment.world import model

CLASS = 'class = "torch_geometric.nn:GCN"\n[arguments]\nin_channels = 4\nhidden_channels = 5\nnum_layers = 2\n'


def trained():
    torch.manual_seed(0)
    return pyg.GCN(4, 5, 2)


def rows(found):
    rng = np.random.default_rng(1)
    graph = lg.Graph(rng.normal(size=(9, 4)).astype(np.float32), [0, 1, 2, 3], [1, 2, 3, 4])
    return lg.Engine(found, graph).embeddings(np.arange(9))


def test_each_form_gives_the_same_model(tmp_path):
    registry = Registry(tmp_path, trust_pickle=True)
    registry.add("own", lg.from_pyg(trained()))
    for name, document in (("class", CLASS), ("pickle", None)):
        place = tmp_path / name / "1"
        place.mkdir(parents=True)
        if document is None:
            torch.save(trained(), place / "module.pt")
        else:
            (place / "model.toml").write_text(document)
            torch.save(trained().state_dict(), place / "weights.pt")
    expected = rows(lg.from_pyg(trained()))
    for name in ("own", "class", "pickle"):
        np.testing.assert_array_equal(rows(registry.load(registry.key(name))), expected)
    with pytest.raises(UsageError, match="expected trust_pickle"):
        Registry(tmp_path).load(registry.key("pickle"))


def test_versions_count_up_and_the_newest_is_meant(tmp_path):
    registry = Registry(tmp_path)
    assert registry.versions() == {}
    assert [str(registry.add("a", model(k))) for k in range(11)] == [f"a/{k}" for k in range(1, 12)]
    (tmp_path / "a" / "12").mkdir()  # of a writer that was killed
    assert str(registry.key("a")) == "a/11"
    assert str(registry.key("a/2")) == "a/2"
    assert str(registry.add("a", model())) == "a/13"


@pytest.mark.parametrize(
    ("document", "error", "message"),
    [
        ('class = "os:system"\n[arguments]\ncommand = "true"\n', UsageError, "subclass of torch.nn.Module"),
        ('class = "no.such:Thing"\n', UsageError, "module:name of installed code"),
        ('class = "torch_geometric.nn"\n', UsageError, "no colon"),
        (CLASS.replace("hidden_channels = 5", "hidden_channels = 6"), ModelError, "the weights next to it"),
        (CLASS + "more = 1\n", ModelError, "more"),
        ('klass = "a:b"\n', StoredStateInvalid, "the keys class and arguments"),
        ("no toml", StoredStateInvalid, "expected TOML"),
    ],
)
def test_a_bad_class_file_is_refused(tmp_path, document, error, message):
    place = tmp_path / "a" / "1"
    place.mkdir(parents=True)
    (place / "model.toml").write_text(document)
    torch.save(trained().state_dict(), place / "weights.pt")
    registry = Registry(tmp_path)
    with pytest.raises(error, match=message):
        registry.load(registry.key("a"))


def test_weights_are_read_without_running_code(tmp_path):
    place = tmp_path / "a" / "1"
    place.mkdir(parents=True)
    (place / "model.toml").write_text(CLASS)
    registry = Registry(tmp_path)
    with pytest.raises(DataMissing, match=r"weights\.pt"):
        registry.load(registry.key("a"))
    torch.save(trained(), place / "weights.pt")  # a pickle in the place of a state_dict
    with pytest.raises(StoredStateInvalid, match="cannot be read"):
        registry.load(registry.key("a"))


def test_what_is_not_there_is_named(tmp_path):
    registry = Registry(tmp_path)
    registry.add("a", model())
    for reference, error, message in [
        ("b", UsageError, "a model 'b'"),
        ("a/2", UsageError, "version 2 of 'a'"),
        ("../a", ValueInvalid, "NAME or NAME/VERSION"),
        ("a/0", ValueInvalid, "NAME or NAME/VERSION"),
        ("a/1/2", ValueInvalid, "NAME or NAME/VERSION"),
    ]:
        with pytest.raises(error, match=message):
            registry.key(reference)
    with pytest.raises(ValueInvalid, match="a letter first"):
        registry.add("1", model())
    with pytest.raises(UsageError, match="a livegnn Model"):
        registry.add("c", trained())
