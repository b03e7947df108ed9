import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread_of_torch():
    """Steps are tiny, and tests run side by side: threads that wait for each other would take longer."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
