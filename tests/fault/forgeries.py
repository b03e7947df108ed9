"""Saved engines with a right checksum and contents that cannot be: each is loaded here, in little memory.

Run as a program, since a fault in the native core would end the process. It prints what was not refused, and at the end
how many were tried.
"""

import json
import resource
import sys
from pathlib import Path

import numpy as np

import livegnn as lg
from livegnn.errors import StoredStateInvalid
from livegnn.stored import checked, replaced
from livegnn.stored_arrays import read_arrays
from tests.unit.inference import samples

ROOM_BYTES = 1 << 30  # far above what these engines take, far below what forged sizes ask for
ODD = (None, -1, 2**31 - 1, 2**70, float("nan"), "x", [], {}, [1e308])


def saved(path):
    """An engine whose graph has ids and every column that a graph without types may have."""
    columns = {"time": np.arange(6) * 10, "edge_type": np.arange(6) % 2, "edge_attr": np.ones((6, 2), np.float32)}
    engine = lg.Engine(samples.model(), samples.graph(samples.STR_IDS, **columns), threads=1)
    engine.save(path)
    with checked(path, "forgeries", expected="an engine", advice="none") as content:
        return read_arrays(content)


def shapes(array):
    """Other lengths, shapes and dtypes; None: no array at all."""
    flat = array.reshape(-1)
    yield from (None, flat[:0], np.tile(flat, 2), np.full(3, 1, array.dtype), array.reshape(1, 1, -1))
    yield from (array.astype(np.complex64), array.astype("S3"), array.astype(np.float16))


def numbers(array):
    """Other numbers: what no id, count, width or scale can be."""
    if array.dtype.kind == "f":
        values = [np.nan, np.inf]
    else:
        info = np.iinfo(array.dtype)
        values = [info.max, info.min, min(info.max // 2, 2**40)]
    for value in values if array.size else ():
        yield np.full_like(array, value)
        changed = array.copy().reshape(-1)
        changed[-1] = value
        yield changed.reshape(array.shape)


def settings(meta):
    for key in meta:
        for odd in ODD:
            yield {**meta, key: odd}
        yield {name: value for name, value in meta.items() if name != key}
    for key in meta["settings"]:
        for odd in ODD[:2] + ODD[4:]:
            if key == "name" and isinstance(odd, str):  # any text names an engine
                continue
            yield {**meta, "settings": {**meta["settings"], key: odd}}
    for key in meta["model"]:
        for odd in ODD:
            if meta["model"][key] != odd and (odd not in ([], {}) or "types" not in key):
                yield {**meta, "model": {**meta["model"], key: odd}}


def forgeries(arrays):
    for name, array in arrays.items():
        if name == "meta":
            continue
        for other in shapes(array):
            yield name, other
        for other in numbers(array) if array.dtype != np.bool_ else (~array,):
            if name != "graph.store.counters" or other.min() < 0 or other.max() > 2**62:  # else it is a later version
                yield name, other
    for meta in settings(json.loads(arrays["meta"].tobytes())):
        yield "meta", np.frombuffer(json.dumps(meta).encode(), np.uint8)
    yield "meta", np.frombuffer(b"[" * 100_000, np.uint8)


def main(folder):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    path, count = Path(folder) / "engine.lg", 0
    arrays = saved(path)
    for name, other in forgeries(arrays):
        forged = {key: value for key, value in {**arrays, name: other}.items() if value is not None}
        with replaced(path, "forgeries") as file:
            np.savez(file, **forged)
        count += 1
        try:
            lg.Engine.load(path, threads=1)
        except StoredStateInvalid as error:
            if str(path) not in str(error):
                print("unnamed", name, error)
        except Exception as error:
            print(type(error).__name__, name, error)
        else:
            print("loaded", name, "none" if other is None else bytes(other.tobytes()[-400:]))
    print("tried", count)


if __name__ == "__main__":
    main(sys.argv[1])
