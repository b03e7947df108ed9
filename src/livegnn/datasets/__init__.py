"""Real graphs for the demo, the benchmarks and the examples; never shipped with the package.

`load` gives streams between vertices of one kind (streams.py), `load_typed` streams between several (typed.py);
folder.py finds the files. `load(name, download=True)` fetches what PyG's and OGB's classes can (published.py).
"""

from livegnn.datasets.folder import data_folder
from livegnn.datasets.streams import (
    EventStream,
    downloadable,
    from_pyg,
    generate_like,
    load,
    load_or_generate,
    names,
)
from livegnn.datasets.typed import TypedStream, generate_typed, load_or_generate_typed, load_typed, typed_names

__all__ = [
    "EventStream",
    "TypedStream",
    "data_folder",
    "downloadable",
    "from_pyg",
    "generate_like",
    "generate_typed",
    "load",
    "load_or_generate",
    "load_or_generate_typed",
    "load_typed",
    "names",
    "typed_names",
]
