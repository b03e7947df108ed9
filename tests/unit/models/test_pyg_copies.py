"""Private copies: what cannot be copied is shared, and what a run sets is put back."""

import copy
import inspect
import threading

import pytest
import torch
from torch import nn

import livegnn as lg
from livegnn.models.pyg.copies import private_copy, unchanged


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
