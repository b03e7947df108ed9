"""The sizing table: one small row, whose state after a start is the one before."""

from benchmarks.service_sizing import measured


def test_a_row_is_measured():
    row = measured(1_000, 5_000, 8)
    assert row[:3] == ["1,000", "5,000", "8"]
    assert float(row[6]) > 0
