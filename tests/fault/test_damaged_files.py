"""Every file but the log's, damaged in every region: refused by name, never read as other content."""

import hashlib
import json
import os
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("pyarrow")

import livegnn as lg
from livegnn.errors import LiveGnnError, StoredStateInvalid
from tests.fault import written

SEED = 17
TRAILER = len("\nlivegnn-sum 1 ") + 16 + 1 + 64 + 1
SMALL = ("engine", "cache", "worker", "cluster", "edges")  # each byte of them is tried, of the others a sample
SAMPLE = 150
OLD = Path(__file__).parent / "files_0_1.zip"


@pytest.fixture(params=written.KINDS)
def kind(request, tmp_path):
    path, read = written.KINDS[request.param](tmp_path)
    return request.param, path, read


def refused(path, read):
    """Whether reading fails by our error that names the file."""
    try:
        read()
    except StoredStateInvalid as error:
        return path.name in str(error)
    return False


def places(name, length, sample=SAMPLE):
    """Every byte of a small file, of a large one a sample and its ends."""
    if name in SMALL and length < 20_000:
        return range(length)
    ends = {*range(16), *range(length - 24, length)}
    return sorted(ends | set(np.random.default_rng(SEED).integers(0, length, sample).tolist()))


def test_a_flipped_bit_in_any_byte(kind):
    name, path, read = kind
    whole = path.read_bytes()
    rng = np.random.default_rng(SEED)
    with open(path, "r+b", buffering=0) as file:
        for place in places(name, len(whole)):
            bit = int(rng.integers(8))
            os.pwrite(file.fileno(), bytes([whole[place] ^ 1 << bit]), place)
            assert refused(path, read), f"seed {SEED}: bit {bit} of byte {place} of {len(whole)} went by"
            os.pwrite(file.fileno(), whole[place : place + 1], place)
    assert read() == read()


def test_every_bit_of_the_trailer(kind):
    name, path, read = kind
    if name == "edges":
        pytest.skip("other programs read Parquet: the graph keeps its checksum")
    whole = path.read_bytes()
    assert whole[-TRAILER:].startswith(b"\nlivegnn-sum 1 ")
    for place in range(len(whole) - TRAILER, len(whole)):
        for bit in range(8) if name in SMALL else (place % 8,):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            assert refused(path, read), f"bit {bit} of byte {place} of {len(whole)} went by"


def test_files_cut_and_prolonged(kind):
    name, path, read = kind
    whole, content = path.read_bytes(), read()
    lengths = {0, 1, 21, 22, len(whole) // 2, len(whole) - TRAILER - 1, len(whole) - TRAILER, len(whole) - 1}
    lengths |= set(np.random.default_rng(SEED).integers(0, len(whole), 40).tolist())
    changed = {f"cut to {length}": whole[:length] for length in sorted(lengths)}
    changed |= {"one byte more": whole + b"\0", "twice": whole + whole, "its trailer twice": whole + whole[-TRAILER:]}
    changed |= {"another's trailer": whole[:-TRAILER] + other_trailer(), "letters": b"a letter\n" * 50}
    changed |= {"an empty zip": empty_zip(), "a zip of one array": one_array(), "bytes before it": b"\0" * 64 + whole}
    for what, data in changed.items():
        path.write_bytes(data)
        if name == "worker" and data == whole[:-TRAILER]:
            assert read() == content  # as livegnn 0.1 wrote it: the message has a checksum of its own
        else:
            assert refused(path, read), what
    path.write_bytes(whole)
    assert read() == content


def other_trailer():
    return f"\nlivegnn-sum 1 {0:016x} {hashlib.blake2b(digest_size=32).hexdigest()}\n".encode()


def empty_zip():
    return b"PK\x05\x06" + bytes(18)


def one_array():
    file = BytesIO()
    np.savez(file, x=np.zeros(3))
    return file.getvalue()


def test_what_is_no_file(kind):
    _, path, read = kind
    path.unlink()
    loop = path.name
    for make in (
        path.mkdir,
        lambda: os.mkfifo(path),
        lambda: path.symlink_to("/dev/zero"),
        lambda: path.symlink_to(loop),
    ):
        make()
        with pytest.raises(LiveGnnError, match=path.name):
            read()
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.fixture
def old(tmp_path):
    with zipfile.ZipFile(OLD) as files:
        files.extractall(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [name for name in written.KINDS if name != "edges"])
def test_files_of_0_1_load_and_damaged_ones_never_give_another_content(name, old, tmp_path):
    folder = tmp_path / "new"
    folder.mkdir()
    path, read = written.KINDS[name](folder)
    file, content = json.loads((old / "expected.json").read_text())[name]
    whole = (old / file).read_bytes()
    path.write_bytes(whole)
    assert read() == content
    for place in places("", len(whole), 40):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        if name != "cluster":  # whose JSON had no checksum
            assert refused(path, read) or read() == content, f"seed {SEED}: byte {place} of {len(whole)}"
    for data in (whole[:-1], whole + b"\0", whole[: len(whole) // 2]):
        path.write_bytes(data)
        assert refused(path, read)


def test_edges_of_0_1_come_back(old, monkeypatch):
    monkeypatch.chdir(old)
    with np.load("edges_graph.npz") as arrays:
        graph = lg.Graph.from_arrays(dict(arrays))
    assert [file.digest for file in graph.offloaded.files] == [""]
    assert graph.digest() == written.temporal_graph().digest()
    assert graph.reload() == 2
