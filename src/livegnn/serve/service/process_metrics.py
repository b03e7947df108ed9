"""Metrics that an operator needs of the process and its disk."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from livegnn.deployment import Deployment, snapshots
from livegnn.serve.metrics import Facts

PROCESS_METRICS = {
    "livegnn_snapshot_age_seconds": ("gauge", "Since the newest snapshot was written."),
    "livegnn_data_free_bytes": ("gauge", "Room on the disk of the data folder."),
    "livegnn_resident_bytes": ("gauge", "Memory of the process that is in RAM."),
}
_STATM = Path("/proc/self/statm")


def process_facts(deployment: Deployment) -> Facts:
    """Samples of PROCESS_METRICS; memory only where the system has /proc."""
    facts: dict[str, list[tuple[str, object]]] = {
        "livegnn_data_free_bytes": [("", shutil.disk_usage(deployment.data).free)]
    }
    if places := snapshots.listed(deployment.data):
        written = (places[-1] / snapshots.MANIFEST).stat().st_mtime
        facts["livegnn_snapshot_age_seconds"] = [("", f"{max(0.0, time.time() - written):.1f}")]
    if _STATM.exists():
        pages = int(_STATM.read_text().split()[1])
        facts["livegnn_resident_bytes"] = [("", pages * os.sysconf("SC_PAGE_SIZE"))]
    return facts
