"""Metrics that an operator needs of the process and its disk."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from livegnn.deployment import Deployment
from livegnn.serve.metrics import Facts

PROCESS_METRICS = {
    "livegnn_data_free_bytes": ("gauge", "Room on the disk of the data folder."),
    "livegnn_resident_bytes": ("gauge", "Memory of the process that is in RAM."),
}
_STATM = Path("/proc/self/statm")


def process_facts(deployment: Deployment) -> Facts:
    """Samples of PROCESS_METRICS; memory only where the system has /proc."""
    facts: dict[str, list[tuple[str, object]]] = {
        "livegnn_data_free_bytes": [("", shutil.disk_usage(deployment.data).free)]
    }
    if _STATM.exists():
        pages = int(_STATM.read_text().split()[1])
        facts["livegnn_resident_bytes"] = [("", pages * os.sysconf("SC_PAGE_SIZE"))]
    return facts
