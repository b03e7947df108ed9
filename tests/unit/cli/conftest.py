"""Small tensors on busy machines: more threads of PyTorch only wait for each other."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """PyTorch on one thread while these tests run; tests without PyTorch do not need it."""
    try:
        import torch
    except ModuleNotFoundError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
