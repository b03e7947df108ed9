"""Models and weights travel between processes that see other devices: what lay on a GPU is read where none is."""

import copy
import io
import zipfile

import pytest
import torch

import livegnn as lg
from livegnn.distributed import train
from livegnn.distributed.report import DistributedReport
from livegnn.distributed.train import packed_model, unpacked_model
from tests.unit.temporal.training import graph_of, model_of, same_tensors

train_module = __import__(train.__module__, fromlist=["run_group"])


def as_from_a_gpu(packed):
    """What torch.save() would have made of the same tensors on the 100th GPU, which no machine has."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(packed)) as given, zipfile.ZipFile(changed, "w") as made:
        for name in given.namelist():
            content = given.read(name)
            if name.endswith("data.pkl"):
                place = [b"X" + len(word).to_bytes(4, "little") + word for word in (b"cpu", b"cuda:99")]
                assert place[0] in content
                content = content.replace(*place)
            made.writestr(name, content)
    with pytest.raises(RuntimeError, match="CUDA"):
        torch.load(io.BytesIO(changed.getvalue()), weights_only=False)
    return changed.getvalue()


def test_a_model_is_unpacked_on_the_cpu():
    model = model_of()
    found = unpacked_model(as_from_a_gpu(packed_model("here", model)))
    same_tensors(found.state_dict(), model.state_dict())


def test_weights_and_memory_of_workers_on_a_gpu_come_to_the_callers_model(monkeypatch):
    graph, model = graph_of(100), model_of()
    trained, file = copy.deepcopy(model), io.BytesIO()
    with torch.no_grad():
        for weight in trained.parameters():
            weight.add_(1.0)
    trained.memory.reset(graph.slot_count)
    trained.memory.observe(torch.arange(3), torch.arange(3, 6), torch.arange(3), torch.zeros(3, 0))
    torch.save({"weights": trained.state_dict(), "memory": trained.memory.state()}, file)
    answer = [(DistributedReport(), as_from_a_gpu(file.getvalue()))]
    monkeypatch.setattr(train_module, "run_group", lambda *given, **options: answer)
    train(model, graph, lg.TemporalSampler(graph, [5]), workers=1)
    same_tensors(model.state_dict(), trained.state_dict())
    same_tensors(model.memory.state(), trained.memory.state())
