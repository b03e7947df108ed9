import pytest


@pytest.fixture(autouse=True, scope="module")
def _one_thread_of_torch():
    """Steps are tiny: threads that wait for each other would take four times as long."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
