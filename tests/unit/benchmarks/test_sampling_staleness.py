"""Accuracy against ingestion lag, in small: what a lagging sampler sees, and the table."""

import numpy as np
import pytest
import torch

from benchmarks.machine import REFERENCE
from benchmarks.options import Options
from benchmarks.report import Report
from benchmarks.sampling import staleness
from livegnn import datasets

OPTIONS = Options(full=False, tiny=True, threads=1, machine=REFERENCE)


@pytest.fixture(scope="module")
def stream() -> datasets.EventStream:
    return datasets.generate_like("jodie_wikipedia", seed=1, scale=0.02)


@pytest.mark.parametrize(("unit", "size"), [("s", 0), ("s", 1), ("s", 5_000), ("events", 1), ("events", 70)])
def test_what_is_visible_when_an_event_is_predicted(stream, unit, size):
    event = np.arange(50, stream.event_count, 37)
    for i, visible in zip(event.tolist(), staleness._visible(stream, event, unit, size).tolist(), strict=True):
        if unit == "events":
            seen = list(range(max(i - size, 0)))
        else:
            seen = [j for j in range(i) if size == 0 or stream.time[j] <= stream.time[i] - size]
        assert visible == len(seen)


def test_a_case_has_the_page_of_its_event_and_another(stream):
    cases = staleness._cases(stream, 100, 1000, 200, 1000, seed=3)
    assert (np.diff(cases.event) > 0).all()
    assert cases.event[0] >= 100 > 0
    assert cases.event[-1] < 1000
    assert np.array_equal(cases.user, stream.src[cases.event])
    assert np.array_equal(cases.pages[:, 0], stream.dst[cases.event])
    assert (cases.pages[:, 0] != cases.pages[:, 1]).all()
    assert np.isin(cases.pages[:, 1], stream.dst[:1000]).all()


def test_samples_are_those_of_the_visible_events(stream):
    cases = staleness._cases(stream, 500, 1000, 60, 1000, seed=3)
    visible = staleness._visible(stream, cases.event, "events", 25)
    report = Report()
    features = np.zeros((stream.vertex_count, staleness.WIDTH), np.float32)
    found = staleness._samples(stream, features, cases, visible, report)
    for row, until in enumerate(visible.tolist()):
        mine = [
            page for user, page in zip(stream.src[:until], stream.dst[:until], strict=True) if user == cases.user[row]
        ]
        latest = mine[::-1][:10]
        assert found.users[1][row].tolist() == latest + [-1] * (10 - len(latest))
        for place, page in enumerate(cases.pages[row]):
            others = stream.src[:until][stream.dst[:until] == page][::-1][:10].tolist()
            assert found.pages[1][row, place].tolist() == others + [-1] * (10 - len(others))
    assert found.missed == 25
    assert not report.failures


def test_a_mean_counts_what_is_there():
    values, ids = torch.tensor([[[2.0], [4.0], [99.0]], [[99.0]] * 3]), torch.tensor([[7, 8, -1], [-1, -1, -1]])
    assert staleness._mean(values, ids).tolist() == [[3.0], [0.0]]


def test_a_row_for_each_lag_and_none_differs_at_lag_0(capsys):
    report = Report()
    staleness.run(OPTIONS, report)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][1:]
    assert [row[0] for row in rows] == [name for name, _, _ in staleness.LAGS]
    assert rows[0][1:4] == ["0.0", "0 s", "0.0%"]
    assert rows[0][6] == "0.0000 +- 0.0000"
    assert float(rows[-1][1].replace(",", "")) == 1000
    assert rows[-1][3] != "0.0%"
    assert lines[-1].startswith("livegnn's own lag")
    assert not report.failures


def test_a_wrong_sample_fails_the_run(stream, monkeypatch):
    real = staleness.lg.PreSampler.sample

    def wrong(self, seeds, **options):
        sample = real(self, seeds, **options)
        for level in sample._vertices:
            level[level == level.max()] = 0
        return sample

    monkeypatch.setattr(staleness.lg.PreSampler, "sample", wrong)
    report = Report()
    staleness.run(OPTIONS, report)
    assert report.failures
