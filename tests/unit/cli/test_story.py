"""The demo's experiment: what a prediction may have seen, and the measures."""

import numpy as np
import pytest

from livegnn.cli.demo import experiment as st
from livegnn.datasets import generate_like
from livegnn.errors import DataMissing


@pytest.fixture(scope="module")
def story() -> st.Story:
    return st.prepare(generate_like("ethereum_phishing", 1, scale=0.02), seed=1)


def test_vertices_are_numbered_by_appearance(story: st.Story) -> None:
    stream = story.stream
    ends = np.stack([stream.src, stream.dst], axis=1).max(axis=1)
    assert np.array_equal(story.seen[1:], np.maximum.accumulate(ends) + 1)
    assert (np.diff(story.first) >= 0).all()
    assert story.seen[-1] == stream.vertex_count == len(story.first)


def test_training_and_judging_vertices_are_apart(story: st.Story) -> None:
    assert len(np.intersect1d(story.train_ids, story.judge_ids)) == 0
    assert len(story.train_ids) > 0
    known = np.concatenate([story.train_ids, story.judge_ids])
    assert set(story.truth[known].tolist()) == {0, 1}


def test_live_features_equal_features_from_scratch(story: st.Story) -> None:
    live = st.LiveFeatures(story)
    for begin in range(0, 700, 70):
        touched = live.absorb(begin, begin + 70)
        assert set(touched.tolist()) == set(story.stream.src[begin : begin + 70]) | set(
            story.stream.dst[begin : begin + 70]
        )
    assert np.allclose(live.rows(slice(0, int(story.seen[700]))), st.features_at(story, 700), rtol=1e-6)


def test_features_count_what_the_formula_says() -> None:
    story = st.prepare(generate_like("bitcoin_otc", 1, scale=0.02))
    stream, event, v = story.stream, 300, 0
    got = st.features_at(story, event)[v]
    assert stream.weight is not None
    into, out = stream.weight[:event][stream.dst[:event] == v], stream.weight[:event][stream.src[:event] == v]
    counters = [
        f(w)
        for w in (into, out)
        for f in (len, lambda w: (w < 0).sum(), lambda w: w[w > 0].sum(), lambda w: -w[w < 0].sum())
    ]
    assert np.allclose(got, np.log1p(np.asarray(counters, dtype=float)) / 2, rtol=1e-6)


def test_a_judged_event_lies_in_the_future() -> None:
    story = st.prepare(generate_like("bitcoin_otc", 1, scale=0.02))
    ids, truth = st.cases_at(story, 400, 50)
    assert np.array_equal(ids, story.stream.dst[400:450])
    assert story.stream.weight is not None
    assert np.array_equal(truth, story.stream.weight[400:450] < 0)


def test_measures_on_a_small_case() -> None:
    scores = np.array([2.0, 1.0, -1.0, -2.0], dtype=np.float32)
    quality = st.evaluate(scores, np.array([True, False, True, False]))
    assert quality.auc == pytest.approx(0.75)
    assert quality.average_precision == pytest.approx((1 / 1 + 2 / 3) / 2)
    assert quality.accuracy == 0.5
    assert st.evaluate(np.zeros(4, dtype=np.float32), np.array([True, False, True, False])).auc == pytest.approx(0.5)


def test_one_class_alone_has_no_auc() -> None:
    assert np.isnan(st.evaluate(np.zeros(3, dtype=np.float32), np.ones(3, dtype=np.bool_)).auc)


def test_vertices_without_a_score_get_the_base_score() -> None:
    picked = st.pick(np.array([1.0, 2.0], dtype=np.float32), np.array([1, 5]), -0.5)
    assert picked.tolist() == [2.0, -0.5]


def test_a_graph_without_dates_is_refused() -> None:
    stream = generate_like("jodie_wikipedia", 1, scale=0.02)
    with pytest.raises(DataMissing, match="labels or ratings"):
        st.prepare(stream)


def test_training_learns_the_planted_pattern(story: st.Story) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    trained = st.train(story, epochs=60)
    x = torch.from_numpy(st.features_at(story, story.event_count))
    scores = st.scores_of(st.run_pyg(trained.module, x, st.edge_index(story, story.event_count)))
    assert st.evaluate(scores[story.judge_ids], story.truth[story.judge_ids] == 1).auc > 0.75
