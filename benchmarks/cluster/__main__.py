"""python -m benchmarks.cluster [--tiny] [--out FILE]: all tables of the cluster; `python -m benchmarks cluster_wire`
is one of them."""

from __future__ import annotations

import sys

from benchmarks.__main__ import main

sys.exit(main(["cluster", *sys.argv[1:]]))
