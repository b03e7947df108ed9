"""Files, folders and standard input as sources: what is read, once, and what is not."""

from __future__ import annotations

import io
import json

import pytest

pytest.importorskip("msgspec")

from livegnn.deployment.config import checked_config
from livegnn.deployment.pipes.lines import BadHeader, CsvLines
from livegnn.deployment.pipes.standard_input import StdinReader
from livegnn.errors import ColumnMissing, FileMissing, LogUnavailable, UsageError
from tests.unit.deployment.world import ENGINES, abandon
from tests.unit.pipes.flowing import EDGE, flowing, pairs, run_dry, until


def table(path, rows, header="from,to\n"):
    path.parent.mkdir(exist_ok=True)
    path.write_text(header + "".join(f"{u},{v}\n" for u, v in rows))
    return path


def csv(path, **more):
    return {"name": "s", "kind": "csv", "path": str(path), "update": [EDGE], **more}


def letters(place):
    lines = (place / "data" / "dead-letters.jsonl").read_text().splitlines()
    return sorted(tuple(json.loads(line)[key] for key in ("part", "place", "record")) for line in lines)


def test_a_folder_is_read_once_over_restarts(tmp_path):
    table(tmp_path / "in" / "b.csv", [(3, 4)] * 7)
    table(tmp_path / "in" / "a.csv", [(1, 2), (1, 99), ("x", 1)])
    for _ in range(3):
        with flowing(tmp_path, [csv(tmp_path / "in", batch=2)]) as one:
            state = run_dry(one)["s"]
            assert pairs(one) == [(1, 2)] + [(3, 4)] * 7
            assert state.life == "ended"
    assert letters(tmp_path) == [("a.csv", 2, "1,99"), ("a.csv", 3, "x,1")]
    table(tmp_path / "in" / "aa.csv", [(5, 6)])  # new, though its name is not the last
    with flowing(tmp_path, [csv(tmp_path / "in")]) as one:
        run_dry(one)
        assert pairs(one)[8:] == [(5, 6)]


def test_a_watched_folder_and_a_followed_file(tmp_path):
    table(tmp_path / "in" / "a.csv", [(1, 2)])
    with flowing(tmp_path, [csv(tmp_path / "in", follow=True)], once=False) as one:
        until(lambda: pairs(one) == [(1, 2)])
        with (tmp_path / "in" / "a.csv").open("a") as file:
            file.write("3,4\n5,")
            file.flush()
            until(lambda: pairs(one) == [(1, 2), (3, 4)])
            file.write("6\n")
        until(lambda: len(pairs(one)) == 3)
        table(tmp_path / "in" / "b.csv", [(7, 8)])
        until(lambda: len(pairs(one)) == 4)
        assert pairs(one)[2:] == [(5, 6), (7, 8)]
        assert one.pipes.sources[0].life == "running"


def test_half_a_line_is_left_for_the_next_start(tmp_path):
    path = table(tmp_path / "a.csv", [(1, 2)])
    for text in ("3,4", "\n5", ",6\n"):
        with path.open("a") as file:
            file.write(text)
        with flowing(tmp_path, [csv(path, follow=True)]) as one:
            run_dry(one)
            found = pairs(one)
    assert found == [(1, 2), (3, 4), (5, 6)]


def test_a_file_that_was_cut_stops_its_source(tmp_path):
    path = table(tmp_path / "a.csv", [(1, 2), (3, 4)])
    with flowing(tmp_path, [csv(path, follow=True)], once=False) as one:
        until(lambda: len(pairs(one)) == 2)
        path.write_text("from,to\n5,6\n")
        state = until(lambda: next((each for each in one.pipes.sources if each.life == "failed"), None))
        assert "shorter than what was read of it" in state.error
    with flowing(tmp_path, [csv(path, follow=True)]) as one:
        assert "ends 1 records earlier" in run_dry(one)["s"].error
        assert len(pairs(one)) == 2


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_other_forms_of_files(tmp_path, kind):
    rows = [{"from": k % 30, "to": 1, "x": None} for k in range(50)]
    path = tmp_path / f"a.{kind}"
    if kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, rows)) + '\n[1]\n{"from": \n{"from": 5}\n')
    else:
        pyarrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=7)
    with flowing(tmp_path, [csv(path, kind=kind, batch=20)]) as one:
        until(lambda: len(pairs(one)) >= 20)
        one.pipes.stop_sources()
        abandon(one)
    with flowing(tmp_path, [csv(path, kind=kind, batch=20)]) as one:
        run_dry(one)
        assert pairs(one) == [(k % 30, 1) for k in range(50)]
    if kind == "jsonl":
        assert [place for _, place, _ in letters(tmp_path)] == [51, 52, 53]


def test_a_file_that_is_none_is_one_bad_record(tmp_path):
    table(tmp_path / "in" / "a.csv", [(1, 2)])
    table(tmp_path / "in" / "b.csv", [(1, 2)], header="from,upto\n")
    (tmp_path / "in" / "c.csv").write_bytes(b"\xff\xfe\n")
    table(tmp_path / "in" / "d.csv", [(3, 4)])
    with flowing(tmp_path, [csv(tmp_path / "in")]) as one:
        assert run_dry(one)["s"].bad == 2
        assert pairs(one) == [(1, 2), (3, 4)]
    assert [(part, record) for part, _, record in letters(tmp_path)] == [("b.csv", "b.csv"), ("c.csv", "c.csv")]


def test_what_is_missing_at_the_first_start_is_refused(tmp_path):
    with pytest.raises(FileMissing, match=r"\[source s\] expected a file or a folder"):
        flowing(tmp_path, [csv(tmp_path / "none.csv")]).start()
    path = table(tmp_path / "a.csv", [], header="from\n")
    with pytest.raises(ColumnMissing, match=r"a.csv\] expected a column 'to', got from"):
        flowing(tmp_path, [csv(path)]).start()
    sink = {"name": "t", "kind": "webhook", "url": "http://127.0.0.1:9", "secret_env": "LIVEGNN_NOT_THERE"}
    with pytest.raises(UsageError, match="expected a secret in the environment variable LIVEGNN_NOT_THERE, got none"):
        flowing(tmp_path, [], [sink]).start()
    with flowing(tmp_path) as one:  # nothing stayed open
        assert one.version == 0


def test_csv_is_that_of_the_csv_module_and_says_what_it_is_not():
    lines = CsvLines(["a"])
    assert lines.feed("﻿a, b\r\n".encode()) == []
    assert lines.feed(b'"x\n') == []
    (found,) = lines.feed(b'y", 2\n')
    assert found.values == {"a": "x\ny", "b": "2"}
    assert lines.feed(b"\n") == []
    assert [each.fault[:21] for each in lines.feed(b"1\n")] == ["expected 2 columns, g"]
    assert [each.fault[:13] for each in lines.feed(b"\xff,1\n")] == ["expected text"]
    assert lines.feed(b'"open,1\n') == []
    assert lines.feed(b"3,4\n") == []
    ended = lines.end()
    assert [each.values for each in ended] == [None, {"a": "3", "b": "4"}]
    with pytest.raises(BadHeader, match="each column once"):
        CsvLines([]).feed(b"a,a\n")


@pytest.mark.parametrize("repeats", [False, True])
def test_standard_input_goes_on_where_it_was(repeats):
    document = {"name": "s", "kind": "stdin", "update": [EDGE], "repeats": repeats}
    (config,) = checked_config({**ENGINES, "source": [document]}).source
    reader = StdinReader(config, {"stdin": 2}, [], io.BytesIO(b'{"k":1}\n{"k":2}\n{"k":3}\n'))
    found = []
    while not reader.is_ended:
        found += reader.read(10, 0.2)
    assert [one.values["k"] for one in found] == ([3] if repeats else [1, 2, 3])
    assert [one.place for one in found] == ([3] if repeats else [3, 4, 5])


def test_a_batch_of_unknown_fate_is_written_once(tmp_path, monkeypatch):
    """The log fails after it wrote, twice in a row: the source submits again, and the log has each record once."""
    path = table(tmp_path / "a.csv", [(k % 30, 1) for k in range(100)])
    one = flowing(tmp_path, [csv(path, batch=10)])
    real, calls = one.pipes.start, []

    def start(*arguments):
        log = one.log.log
        append, tail = log.append, type(log).tail.fget
        down = {"until": 0}

        def failing(*given, **more):
            calls.append(1)
            if down["until"] > len(calls):
                raise LogUnavailable("[append] expected an answer, got none; try later")
            offset = append(*given, **more)
            if len(calls) in (3, 7):
                down["until"] = len(calls) + 1
                monkeypatch.setattr(one._attachment.log, "read", broken_once(one._attachment.log.read))
                raise LogUnavailable("[append] expected an answer, got none; try later")
            return offset

        monkeypatch.setattr(log, "append", failing)
        assert tail(log) == 0
        real(*arguments)

    def broken_once(read):
        state = {"left": 1}

        def reading(*given, **more):
            if state["left"]:
                state["left"] -= 1
                raise LogUnavailable("[read] expected an answer, got none; try later")
            return read(*given, **more)

        return reading

    monkeypatch.setattr(one.pipes, "start", start)
    with one:
        state = run_dry(one)["s"]
        assert state.retries >= 2
        assert pairs(one) == [(k % 30, 1) for k in range(100)]


def test_a_key_of_unknown_fate_is_written_once(tmp_path, monkeypatch):
    from tests.unit.deployment.world import edge

    with flowing(tmp_path) as one:
        log, attached = one.log.log, one._attachment.log
        append, read = log.append, attached.read

        def failing(*given, **more):
            append(*given, **more)
            raise LogUnavailable("[append] expected an answer, got none; try later")

        def down(*given, **more):
            raise LogUnavailable("[read] expected an answer, got none; try later")

        monkeypatch.setattr(log, "append", failing)
        monkeypatch.setattr(attached, "read", down)
        with pytest.raises(LogUnavailable):
            one.apply(edge(1, 2), key="a")
        monkeypatch.setattr(log, "append", append)
        monkeypatch.setattr(attached, "read", read)
        assert one.apply(edge(1, 2), key="a").repeated
        assert pairs(one) == [(1, 2)]
