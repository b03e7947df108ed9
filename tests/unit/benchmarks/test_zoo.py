"""The zoo on a checkout of our own: what it loads, what it leaves out, and each of its verdicts."""

import sys

import pytest
from torch_geometric import nn as pyg

from benchmarks.zoo import __main__ as zoo
from benchmarks.zoo import held_out, trial
from benchmarks.zoo.entries import Entry
from benchmarks.zoo.summary import Result, write

NETWORKS = '''
"""A script with networks, as papers publish them."""
import os
import torch
from torch_geometric.nn import GCNConv, PairNorm
from torch_scatter import scatter_add
from torch_sparse import SparseTensor, matmul
from never_installed.tools import Logger
from .layers import double

WIDTH = 6
args = Logger().parse()  # the script part, which must not run


class Plain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GCNConv(8, WIDTH)

    def forward(self, x, edge_index):
        return double(self.conv(x, edge_index))


class Global(Plain):
    def forward(self, x, edge_index):
        return PairNorm()(self.conv(x, edge_index))


class Ending(Plain):
    def forward(self, x, edge_index):
        if type(x).__name__ == "Proxy":
            os._exit(7)
        return self.conv(x, edge_index)


class Endless(Plain):
    def forward(self, x, edge_index):
        while type(x).__name__ == "Proxy":
            pass
        return self.conv(x, edge_index)


class Summed(Plain):
    def forward(self, x, edge_index):
        row, col = edge_index
        matrix = SparseTensor(row=col, col=row, sparse_sizes=(x.size(0), x.size(0)))
        assert torch.equal(matmul(matrix, x), scatter_add(x[row], col, 0, dim_size=x.size(0)))
        return x


raise SystemExit("the script part ran")
'''


@pytest.fixture
def checkouts(tmp_path, monkeypatch):
    folder = tmp_path / "someone+networks" / "code"
    folder.mkdir(parents=True)
    (folder / "nets.py").write_text(NETWORKS)
    (folder / "layers.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def entry(name, **more):
    return Entry(
        repository="someone/networks",
        file="code/nets.py",
        name=name,
        make=lambda m: getattr(m, name)(),
        absent=("never_installed",),
        **more,
    )


def verdict(name, checkouts, limit=60.0, **more):
    return zoo._apart(entry(name, **more), checkouts, limit)


def test_a_class_goes_in_without_the_script_around_it(checkouts):
    assert verdict("Plain", checkouts) == ("imported", "Model(8 -> 6, depth 1, 4 values, weights none)")


def test_a_refusal_is_a_miss_unless_nothing_could_keep_it(checkouts):
    found, reason = verdict("Global", checkouts)
    assert found == "refused"
    assert "it reduces over all vertices" in reason
    assert Result(entry("Global"), found, reason).outcome == "refused"
    impossible = entry("Global", expected="impossible", why="it mixes all vertices")
    assert Result(impossible, found, reason).outcome == "impossible"


def test_a_class_that_ends_the_process_or_never_ends_is_a_crash(checkouts):
    assert verdict("Ending", checkouts) == ("crash", "the process ended with code 7")
    assert verdict("Endless", checkouts, limit=5.0) == ("crash", "no answer within 5 s")


def test_a_class_that_does_not_run_by_itself_is_not_counted(checkouts):
    found, reason = verdict("Plain", checkouts, width=5)
    assert found == "unfit"
    assert "RuntimeError" in reason
    assert verdict("Missing", checkouts)[0] == "unfit"


def test_the_stand_ins_are_pygs_sums(checkouts):
    assert verdict("Summed", checkouts)[0] != "unfit"


def test_a_model_that_is_not_the_module_is_wrong(checkouts, monkeypatch):
    read = trial.lg.from_pyg
    monkeypatch.setattr(trial.lg, "from_pyg", lambda module, **options: read(pyg.GCN(8, 4, 1, 6), **options))
    found, reason = verdict("Plain", checkouts)
    assert found == "wrong"
    assert "at creation" in reason


def test_the_report_counts_and_names_reasons(capsys):
    from benchmarks.report import Report

    results = [
        Result(entry("Plain"), "imported", "Model(...)"),
        Result(entry("A"), "refused", "[from_pyg] expected a model that can be kept exact, got sort in A: no; do B"),
        Result(entry("C"), "refused", "[from_pyg] expected a model that can be kept exact, got sort in C: no; do B"),
        Result(entry("D", expected="impossible", why="attention"), "refused", "reason"),
        Result(entry("E"), "wrong", "E is off"),
    ]
    write(Report(), results, ["other/repository"], "command", "machine")
    said = capsys.readouterr().out
    assert "5 classes of 1 repositories." in said
    assert "Checkouts that are missing: other/repository." in said
    assert "| 1 | 2 | 1 | 0 | 1 | 25 % |" in said
    assert "| 2 | sort: no | A, C |" in said
    assert "Why no engine can: attention." in said


@pytest.mark.parametrize("entries", [zoo.ENTRIES, held_out.ENTRIES], ids=["zoo", "held_out"])
def test_the_table_names_each_class_once_and_says_why_it_is_impossible(entries):
    titles = [each.title for each in entries]
    assert len(titles) == len(set(titles))
    assert all((each.expected == "impossible") == bool(each.why) for each in entries)
    assert len({each.repository for each in entries}) >= 10


def test_the_held_out_set_is_of_other_repositories():
    assert not {each.repository for each in zoo.ENTRIES} & {each.repository for each in held_out.ENTRIES}


def test_the_option_takes_the_held_out_set(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("LIVEGNN_ZOO", str(tmp_path))
    assert zoo.main(["--held-out", "gasteigerjo", "XiaoxinHe"]) == 0
    said = capsys.readouterr().out
    assert "Checkouts that are missing: gasteigerjo/gdc." in said
    assert "python -m benchmarks.zoo --held-out gasteigerjo XiaoxinHe" in said


def test_without_checkouts_the_command_says_what_it_needs(monkeypatch, capsys):
    monkeypatch.delenv("LIVEGNN_ZOO", raising=False)
    assert zoo.main([]) == 2
    assert "LIVEGNN_ZOO" in capsys.readouterr().err
