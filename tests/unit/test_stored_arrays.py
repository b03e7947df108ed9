"""Files of arrays, read by several threads at once."""

import gc
import threading
import time

import numpy as np
import pytest

from livegnn.stored import checked, replaced
from livegnn.stored_arrays import read_arrays


@pytest.fixture
def interrupted():
    """Threads change whenever the garbage collector runs, which is in the middle of what else takes no turns."""

    def rest(_phase, _info):
        time.sleep(0.0001)

    threshold = gc.get_threshold()
    gc.freeze()
    gc.callbacks.append(rest)
    yield
    gc.callbacks.remove(rest)
    gc.set_threshold(*threshold)
    gc.unfreeze()


@pytest.mark.usefixtures("interrupted")
def test_that_threads_read_files_at_once(tmp_path):
    with replaced(tmp_path / "file", "save") as file:
        np.savez(file, **{f"a{k}": np.full((3, 4), k) for k in range(100)})
    found = []

    def read():
        with checked(tmp_path / "file", "load", expected="a file", advice="use another") as content:
            found.append(read_arrays(content))

    for allocations in (11, 13, 17, 19):
        gc.set_threshold(allocations)
        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 16
    for arrays in found:
        assert {name: int(array.max()) for name, array in arrays.items()} == {f"a{k}": k for k in range(100)}
