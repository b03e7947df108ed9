"""The border as data: enumerations and structs of the core keep their names, their defaults and what is stored."""

import subprocess
import sys

import numpy as np
import pytest

from livegnn import _native
from livegnn.models import ir


def test_numbers_that_logs_store_stay():
    names = "AddEdge RemoveEdge RemoveEdgesBefore SetWeight SetEdgeAttr SetFeatures AddVertex RemoveVertex"
    assert {kind.name: kind.value for kind in _native.UpdateKind} == {name: i for i, name in enumerate(names.split())}


def test_every_activation_of_a_model_has_its_instruction():
    kinds = {"".join(map(str.capitalize, name.split("_"))) for name in ir.ACTIVATIONS}
    assert {kind.name for kind in _native.ActivationKind} == kinds
    assert {name.capitalize() for name in ir.ELEMENTWISE} <= {op.name for op in _native.Op}


def test_structs_are_made_by_names_and_take_members_alone():
    op = _native.Op.Gemm
    _native.Instruction(op=op, out=1)
    for wrong in ({}, {"op": op, "ot": 1}, {"op": 3}, {"op": _native.Norm.Sum}, {"op": op, "out": "1"}):
        with pytest.raises(TypeError):
            _native.Instruction(**wrong)
    with pytest.raises(TypeError):
        _native.Instruction(op)
    with pytest.raises(TypeError):
        _native.WeightSpec(np.zeros((2, 2)))  # float64


def test_a_name_that_python_keeps_for_itself_is_another():
    assert [member.name for member in _native.Root] == ["Unset", "Message", "Table"]
    assert _native.Path.Unset.value == 0


READER = """
import sys, threading
import numpy as np
import livegnn as lg

weights = np.eye(2, dtype=np.float32)
engine = lg.Engine(lg.Model([lg.layers.GraphConv(weights, weights)]), lg.Graph(np.ones((2, 2), np.float32), [0], [1]))
sys.kept = engine
def read():
    while True:
        engine.embeddings([0])
threading.Thread(target=read, daemon=True).start()
"""


def test_a_process_ends_quietly_while_a_thread_reads():
    ended = subprocess.run([sys.executable, "-c", READER], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
