"""An import in one thread leaves modules of other threads alone, and takes one thread of PyTorch's."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch_geometric import nn as pyg

import livegnn as lg
from livegnn.models.pyg.trace import partial_graph


class Net(nn.Module):
    """Its forward goes on when another thread has answered."""

    def __init__(self, meet):
        super().__init__()
        self.meet, self.conv, self.scale = meet, pyg.GCNConv(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x, edge_index):
        self.meet()
        return self.conv(x, edge_index) * self.scale


def meeting(others):
    """A function that runs `others` in a thread while it is called, and what came of it."""
    found = []

    def meet():
        def run():
            try:
                found.append(others())
            except Exception as error:
                found.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()

    return meet, found


def test_modules_of_another_thread_compute_while_a_forward_is_traced():
    plain, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2))), torch.randn(3, 4)
    layer, edges = pyg.GCNConv(4, 4), torch.tensor([[0, 1], [1, 2]])
    want = plain(x), layer(x, edges)
    meet, found = meeting(lambda: (plain(x), layer(x, edges), plain[0].weight))
    model = lg.from_pyg(Net(meet).eval())
    assert model.depth == 1
    assert found
    for each in found:
        assert isinstance(each, tuple), each
        assert all(torch.equal(*pair) for pair in zip(each[:2], want, strict=True))
        assert each[2] is plain[0].weight


@pytest.fixture
def three():
    """PyTorch has three threads; what a thread that comes has of them."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)

    def of_another():
        with ThreadPoolExecutor(1) as other:
            return other.submit(torch.get_num_threads).result()

    yield of_another
    torch.set_num_threads(before)


@pytest.mark.parametrize("fails", [False, True])
def test_that_torch_computes_an_import_on_one_thread_and_all_else_on_as_many_as_before(three, fails):
    seen = set()

    def meet():
        seen.add((torch.get_num_threads(), three()))
        if fails:
            raise ValueError

    with pytest.raises(lg.errors.ModelError) if fails else contextlib.nullcontext():
        lg.from_pyg(Net(meet).eval())
    assert (seen, torch.get_num_threads(), three()) == ({(1, 3)}, 3, 3)


def test_that_an_import_that_ends_later_leaves_the_number_of_threads_alone(three):
    begun, ended = threading.Event(), threading.Event()

    def late():
        begun.set()
        assert ended.wait(20)

    def early():
        if not begun.is_set():
            other.start()
            assert begun.wait(20)

    other = threading.Thread(target=lambda: lg.from_pyg(Net(late).eval()))
    lg.from_pyg(Net(early).eval())
    ended.set()
    other.join()
    assert (torch.get_num_threads(), three()) == (3, 3)


def test_two_traces_do_not_restore_each_others_patches():
    call = nn.Module.__call__, nn.Module.__getattr__
    barrier = threading.Barrier(2, timeout=1)

    def meet():
        with contextlib.suppress(threading.BrokenBarrierError):  # the other waits for this trace's end
            barrier.wait()

    threads = [
        threading.Thread(target=partial_graph, args=(Net(meet), lambda module, *given: module(*given[:2]), (1, 2)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (nn.Module.__call__, nn.Module.__getattr__) == call
