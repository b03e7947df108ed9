"""Registry: each form of a model, versions, and what is refused."""

from __future__ import annotations

import hashlib
import json
import warnings

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg

import livegnn as lg
from livegnn.cli import main
from livegnn.deployment import Registry
from livegnn.errors import DataMissing, ModelError, StoredStateInvalid, UsageError, ValueInvalid
from tests.unit.deployment.world import deployment, edge, model, prepared, sealed

CLASS = 'class = "torch_geometric.nn:GCN"\n[arguments]\nin_channels = 4\nhidden_channels = 5\nnum_layers = 2\n'


def write_safetensors(weights, path):
    """The format by its grammar: an 8-byte length, JSON, and the numbers."""
    head, numbers = {"__metadata__": {"format": "pt"}}, b""
    names = {torch.float32: "F32", torch.int64: "I64", torch.bfloat16: "BF16"}
    for name, tensor in weights.items():
        raw = tensor.contiguous().view(torch.uint8 if tensor.dim() else tensor.dtype).numpy().tobytes()
        offsets = [len(numbers), len(numbers) + len(raw)]
        head[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
        numbers += raw
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers)


def class_folder(place, document=CLASS, weights="weights.pt"):
    place.mkdir(parents=True)
    (place / "model.toml").write_text(document)
    if weights == "weights.pt":
        torch.save(trained().state_dict(), place / weights)
    elif weights:
        write_safetensors(trained().state_dict(), place / weights)
    sealed(place)
    return place


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
    class_folder(tmp_path / "class" / "1")
    class_folder(tmp_path / "safe" / "1", weights="weights.safetensors")
    pickled = tmp_path / "pickle" / "1"
    pickled.mkdir(parents=True)
    torch.save(trained(), pickled / "module.pt")
    sealed(pickled)
    expected = rows(lg.from_pyg(trained()))
    for name in ("own", "class", "safe", "pickle"):
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
    class_folder(tmp_path / "a" / "1", document)
    registry = Registry(tmp_path)
    with pytest.raises(error, match=message):
        registry.load(registry.key("a"))


def test_weights_are_read_without_running_code(tmp_path):
    place = class_folder(tmp_path / "a" / "1", weights="")
    registry = Registry(tmp_path)
    with pytest.raises(DataMissing, match=r"weights\.pt"):
        registry.load(registry.key("a"))
    torch.save(trained(), place / "weights.pt")  # a pickle in the place of a state_dict
    sealed(place)
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


@pytest.mark.parametrize("file", ["model.toml", "weights.pt", "weights.safetensors", "module.pt", "model.livegnn"])
def test_a_flipped_bit_is_refused_before_the_running_model_is_touched(tmp_path, file):
    prepared(tmp_path)
    place = tmp_path / "models" / "next" / "1"
    if file == "model.livegnn":
        Registry(tmp_path / "models").add("next", model(1))
    elif file == "module.pt":
        place.mkdir(parents=True)
        torch.save(trained(), place / file)
        sealed(place)
    else:
        class_folder(place, weights="weights.pt" if file == "model.toml" else file)
    content = bytearray((place / file).read_bytes())
    content[len(content) // 2] ^= 4
    (place / file).write_bytes(content)
    with deployment(tmp_path, trust_pickle=True) as one:
        one.apply(edge(1, 2))
        digest = one.engine("scores").state_digest()
        with pytest.raises(StoredStateInvalid, match=file):
            one.swap("scores", "next")
        assert (one.version, one.models["scores"], one.engine("scores").state_digest()) == (1, "fraud/1", digest)


def test_a_folder_without_checksums_is_refused_with_the_command(tmp_path):
    place = class_folder(tmp_path / "a" / "1")
    (place / "SHA256SUMS").unlink()
    registry = Registry(tmp_path)
    with pytest.raises(StoredStateInvalid, match=r"expected SHA256SUMS in .*sha256sum"):
        registry.load(registry.key("a"))
    (place / "SHA256SUMS").write_text(f"{hashlib.sha256(CLASS.encode()).hexdigest()}  model.toml\n")
    with pytest.raises(StoredStateInvalid, match=r"expected weights\.pt in .*SHA256SUMS, got others"):
        registry.load(registry.key("a"))


@pytest.mark.parametrize("damage", [b"", b"\xff" * 20, b"\x02" + b"\0" * 7 + b"[]", b"\x05" + b"\0" * 7 + b'{"a":'])
def test_what_is_no_safetensors_is_refused(tmp_path, damage):
    place = class_folder(tmp_path / "a" / "1", weights="weights.safetensors")
    (place / "weights.safetensors").write_bytes(damage)
    sealed(place)
    registry = Registry(tmp_path)
    with pytest.raises((StoredStateInvalid, ModelError)):
        registry.load(registry.key("a"))


def test_safetensors_beyond_its_end_is_refused(tmp_path):
    place = class_folder(tmp_path / "a" / "1", weights="weights.safetensors")
    content = (place / "weights.safetensors").read_bytes()
    (place / "weights.safetensors").write_bytes(content[:-8])
    sealed(place)
    registry = Registry(tmp_path)
    with pytest.raises(StoredStateInvalid, match="as safetensors"):
        registry.load(registry.key("a"))


def exported(path):
    vertices, edges = torch.export.Dim("V", min=2), torch.export.Dim("E", min=2)
    given = (torch.randn(7, 4), torch.tensor([[0, 1, 2], [1, 2, 3]]))
    shapes = {"x": {0: vertices}, "edge_index": {1: edges}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(torch.export.export(trained().eval(), given, dynamic_shapes=shapes, strict=False), path)


def test_the_command_adds_every_form_as_data(tmp_path, capsys):
    place = class_folder(tmp_path / "class", weights="weights.safetensors")
    torch.save(trained(), tmp_path / "whole.pt")
    lg.from_pyg(trained()).save(tmp_path / "own.livegnn")
    exported(tmp_path / "program.pt2")
    torch.save(trained().state_dict(), tmp_path / "state.pt")
    registry, expected = Registry(tmp_path / "models"), rows(lg.from_pyg(trained()))
    files = [place / "model.toml", tmp_path / "whole.pt", tmp_path / "own.livegnn", tmp_path / "program.pt2"]
    where = ["--models", str(registry.folder)]
    for number, file in enumerate(files, 1):
        assert main(["models", "add", "fraud", str(file), "--trust-pickle", *where]) == 0
        assert f"fraud/{number}: Model(4 -> 5" in capsys.readouterr().out
        found = registry.load(registry.key(f"fraud/{number}"))
        np.testing.assert_allclose(rows(found), expected, rtol=1e-5, atol=1e-6)
    for file in (files[1], files[3]):
        assert main(["models", "add", "fraud", str(file), *where]) == 1
        assert "expected trust_pickle" in capsys.readouterr().err
    assert main(["models", "add", "fraud", str(tmp_path / "state.pt"), "--trust-pickle", *where]) == 1
    assert "expected a whole module" in capsys.readouterr().err
    assert main(["models", "add", "fraud", str(tmp_path / "none.pt"), *where]) == 1
    assert main(["models", "list", *where]) == 0
    assert capsys.readouterr().out.count("sound") == 4
    damaged = registry.place(registry.key("fraud/2")) / "model.livegnn"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    assert main(["models", "list", *where]) == 1
