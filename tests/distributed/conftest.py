"""One Ray cluster of this machine for all tests of this folder."""

import shutil
import tempfile

import pytest

ray = pytest.importorskip("ray", reason="needs the extra distributed")


@pytest.fixture(scope="session", autouse=True)
def ray_cluster():
    if ray.is_initialized():
        yield ray
        return
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # a short path: sockets lie in it
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
        _temp_dir=folder,
    )
    yield ray
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
