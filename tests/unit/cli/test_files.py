"""Errors in the user's files name file, row and column."""

from pathlib import Path

import numpy as np
import pytest

from livegnn import files
from livegnn.errors import ColumnMissing, DataMissing, DtypeInvalid, ValueInvalid, WidthMismatch


def _csv(folder: Path, text: str) -> Path:
    path = folder / "events.csv"
    path.write_text(text)
    return path


def test_csv_columns_become_numbers(tmp_path: Path) -> None:
    table = files.read_table(_csv(tmp_path, "src,dst,amount\n0,1,2.5\n1,2,3\n"))
    assert len(table) == 2
    assert table.int64("src").tolist() == [0, 1]
    assert table.float32("amount").dtype == np.float32
    assert table.ids("dst").tolist() == [1, 2]


def test_string_ids_stay_strings(tmp_path: Path) -> None:
    table = files.read_table(_csv(tmp_path, "src,dst\nann,bob\nbob,7\n"))
    assert table.ids("src").tolist() == ["ann", "bob"]
    assert table.ids("dst").tolist() == ["bob", "7"]


def test_wrong_number_names_row_and_column(tmp_path: Path) -> None:
    table = files.read_table(_csv(tmp_path, "src,dst,amount\n0,1,2.5\n1,2,much\n"))
    with pytest.raises(ValueInvalid, match=r"events\.csv, row 2, column amount\] expected a number, got 'much'"):
        table.float32("amount")
    table = files.read_table(_csv(tmp_path, "src,dst,amount\n0,1,nan\n"))
    with pytest.raises(ValueInvalid, match=r"row 1, column amount\] expected a finite float32"):
        table.float32("amount")


def test_missing_column_lists_those_that_are_there(tmp_path: Path) -> None:
    table = files.read_table(_csv(tmp_path, "from,to\n0,1\n"))
    with pytest.raises(ColumnMissing, match=r"expected a column 'src', got from, to"):
        table.ids("src")


def test_ragged_row_is_named(tmp_path: Path) -> None:
    with pytest.raises(WidthMismatch, match=r"row 2\] expected 2 columns, got 3"):
        files.read_table(_csv(tmp_path, "src,dst\n0,1\n0,1,2\n"))


def test_empty_id_is_named(tmp_path: Path) -> None:
    table = files.read_table(_csv(tmp_path, "src,dst\n0,1\n,1\n"))
    with pytest.raises(ValueInvalid, match=r"row 2, column src\] expected a vertex id"):
        table.ids("src")


def test_unknown_op_is_named(tmp_path: Path) -> None:
    table = files.read_table(_csv(tmp_path, "src,dst,op\n0,1,add\n0,1,drop\n"))
    with pytest.raises(ValueInvalid, match=r"row 2, column op\] expected one of add, remove, set_weight, got 'drop'"):
        table.ops("op")


def test_parquet_reads_like_csv(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "events.parquet"
    pq.write_table(pa.table({"src": [0, 1], "dst": ["a", "b"], "amount": [1.0, None]}), path)
    table = files.read_table(path)
    assert table.ids("src").tolist() == [0, 1]
    assert table.ids("dst").tolist() == ["a", "b"]
    with pytest.raises(ValueInvalid, match=r"row 2, column amount"):
        table.float32("amount")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"nothing\.csv"):
        files.read_table(tmp_path / "nothing.csv")
    (tmp_path / "events.json").write_text("{}")
    with pytest.raises(DtypeInvalid, match=r"\.parquet or \.csv"):
        files.read_table(tmp_path / "events.json")


def test_features_from_npy_and_csv(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(3, 2))
    features, ids = files.read_features(tmp_path / "x.npy", None)
    assert features.dtype == np.float32
    assert ids is None
    features, ids = files.read_features(_csv(tmp_path, "id,a,b\n10,1,2\n20,3,4\n"), "id")
    assert features.tolist() == [[1, 2], [3, 4]]
    assert ids is not None
    assert ids.tolist() == [10, 20]


def test_bad_features_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[0.0, 1.0], [2.0, np.inf]]))
    with pytest.raises(ValueInvalid, match=r"x\.npy, row 2, column 2\]"):
        files.read_features(tmp_path / "x.npy", None)
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(WidthMismatch, match=r"shape \(3,\)"):
        files.read_features(tmp_path / "x.npy", None)


def test_text_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_bytes(b"src,dst\nann,\xff\n")
    with pytest.raises(DtypeInvalid, match=r"events\.csv\] expected text in UTF-8, got the bytes b'\\xff'"):
        files.read_table(tmp_path / "events.csv")
    (tmp_path / "seeds.txt").write_bytes(b"ann\n\xed\xa0\x80\n")  # a surrogate as UTF-8 would write it
    with pytest.raises(DtypeInvalid, match=r"seeds\.txt\] expected text in UTF-8"):
        files.read_lines(tmp_path / "seeds.txt")
    pyarrow = pytest.importorskip("pyarrow")
    offsets, data = pyarrow.py_buffer(np.array([0, 1], np.int32)), pyarrow.py_buffer(b"\xff")
    table = pyarrow.table({"src": pyarrow.Array.from_buffers(pyarrow.utf8(), 1, [None, offsets, data])})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "events.parquet")
    with pytest.raises(DtypeInvalid, match=r"events\.parquet\] expected columns of numbers or UTF-8"):
        files.read_table(tmp_path / "events.parquet")


def test_a_cell_beyond_what_csv_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DtypeInvalid, match=r"events\.csv\] expected a CSV file, got: field larger"):
        files.read_table(_csv(tmp_path, f"src,dst\nann,{'x' * 200_000}\n"))
