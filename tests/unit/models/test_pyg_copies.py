"""Private copies: what cannot be copied is shared, and what a run sets is put back."""

import copy
import inspect
import threading
from collections import deque

import pytest
import torch
from torch import nn

import livegnn as lg
from livegnn.models.pyg.copies import Contents, private_copy, unchanged


class Signed(nn.Sequential):
    """Keeps the signatures of its layers, as published containers do."""

    def __init__(self, *layers):
        super().__init__(*layers)
        self.signatures = [inspect.signature(each.forward).parameters for each in layers]
        self.lock = threading.Lock()


def test_parameters_are_copied_and_locks_are_shared():
    module = Signed(nn.Linear(3, 2))
    with pytest.raises(TypeError):
        copy.deepcopy(module)
    twin = private_copy(module)
    with torch.no_grad():
        twin[0].weight.zero_()
    assert module[0].weight.abs().sum() > 0
    assert twin.lock is module.lock


def test_a_module_that_cannot_be_copied_whole_goes_in():
    assert lg.from_pyg(Signed(nn.Linear(3, 2), nn.ReLU())).input_width == 3


def test_unchanged_puts_back_what_is_set_replaced_and_deleted():
    module = nn.Sequential(nn.ReLU())
    module.kept, module.gone = 1, 2
    with unchanged(module):
        module.kept, module.new = 5, 6
        del module.gone
        module[0].inside = 7
    assert (module.kept, module.gone) == (1, 2)
    assert not hasattr(module, "new")
    assert not hasattr(module[0], "inside")


def test_values_whose_class_cannot_be_hashed():
    class Compared(type):
        def __eq__(cls, other):
            return cls is other

    class Value(metaclass=Compared):
        pass

    module = nn.Sequential(nn.Linear(3, 2))
    module.value, module.several = Value(), [Value()]
    assert lg.from_pyg(module).input_width == 3


def test_containers_may_hold_themselves_and_be_shared():
    module = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    module.whole = {"count": [0]}
    module.whole["whole"], module[1].same = module.whole, module.whole
    contents = Contents(module)
    with unchanged(module):
        module[1].same["count"][0] = 1
        assert contents.changed() == ["whole"]
    assert module.whole["count"] == [0]
    assert lg.from_pyg(module).input_width == 3


def test_unchanged_puts_back_tensors_and_what_is_in_containers():
    module = nn.BatchNorm1d(3)
    module.parts, module.queue, module.names = {"a": [1, torch.ones(2)]}, deque([1], maxlen=3), {"x"}
    weight, running, ones = module.weight, module.running_mean, module.parts["a"][1]
    contents = Contents(module)
    with unchanged(module), torch.no_grad():
        module(torch.randn(5, 3))  # its statistics move
        module.weight.data = torch.zeros(4)
        module.bias.mul_(2).add_(1)
        module.parts["a"].append(2)
        module.parts["b"] = ones.zero_()
        module.queue.extend([2, 3, 4])
        module.names.clear()
        changed = contents.changed()
        assert set(changed) == {
            "num_batches_tracked", "running_mean", "running_var", "weight", "bias", "parts", "queue", "names",
        }  # fmt: skip
    assert contents.changed() == []
    assert module.weight is weight
    assert torch.equal(weight, torch.ones(3))
    assert module.running_mean is running
    assert not running.any()
    assert module.parts["a"][1] is ones
    assert ones.sum() == 2
    assert (list(module.queue), module.queue.maxlen, module.names) == ([1], 3, {"x"})
