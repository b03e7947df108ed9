"""The Ray cluster that this process works with: one on this machine, or one that runs already."""

from __future__ import annotations

import os
from typing import Any

from livegnn.errors import UsageError
from livegnn.optional import need

_ANY = ("auto", "local")


def connect(address: str | None = None) -> Any:
    """The module ray, initialised.

    Args:    address: of a Ray cluster, as ray.init takes it; None is RAY_ADDRESS, or else a cluster of this machine,
             which ends with this process. A process that ray.init() has initialised keeps its cluster.
    Raises:  DataMissing without ray; UsageError if the process is in another cluster; ConnectionError of Ray's.
    """
    ray = need("ray", "distributed")
    if not ray.is_initialized():
        found = address or os.environ.get("RAY_ADDRESS") or "local"
        ray.init(address=found, **({"include_dashboard": False} if found == "local" else {}), log_to_driver=False)
    elif address is not None and address not in (*_ANY, ray.get_runtime_context().gcs_address):
        raise UsageError(
            f"[ray] expected the cluster {ray.get_runtime_context().gcs_address} that this process is in, "
            f"got {address}; call ray.shutdown() first, or leave address out"
        )
    return ray
