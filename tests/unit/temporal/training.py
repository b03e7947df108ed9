"""A small stream with a habit to learn: vertices are of five kinds, which features tell, and links join equal kinds."""

import numpy as np
import torch

import livegnn as lg
from livegnn.temporal.models import TGAT, TGN

SOURCES, DESTINATIONS, KINDS, EVENTS = 30, 20, 5, 900
VERTICES = SOURCES + DESTINATIONS


def habits(events=EVENTS, seed=0):
    """(src, dst, time) of events in time order; times repeat."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, SOURCES, events)
    equal = SOURCES + src % KINDS + KINDS * rng.integers(0, DESTINATIONS // KINDS, events)
    dst = np.where(rng.random(events) < 0.9, equal, rng.integers(SOURCES, VERTICES, events))
    return src, dst, np.cumsum(rng.integers(0, 3, events))


def graph_of(count, events=EVENTS, attributes=0):
    src, dst, time = (column[:count] for column in habits(events))
    x = np.eye(KINDS, dtype=np.float32)[np.concatenate([np.arange(SOURCES), np.arange(DESTINATIONS)]) % KINDS]
    edge_attr = np.random.default_rng(2).normal(size=(count, attributes)).astype(np.float32) if attributes else None
    return lg.Graph(x, src, dst, time=time, edge_attr=edge_attr, undirected=True)


def batches(first, size, events=EVENTS, attributes=0):
    src, dst, time = habits(events)
    for begin in range(first, events, size):
        part = slice(begin, begin + size)
        updates = lg.Updates()
        rows = np.ones((len(src[part]), attributes), np.float32) if attributes else None
        updates.add_edges(src[part], dst[part], time=time[part], edge_attr=rows)
        yield updates


def mixed_batch(first, number):
    """20 events of known vertices, other features, a vertex that goes and comes back, and a new one."""
    src, dst, time = (column[first + 20 * number :][:20] for column in habits())
    updates = lg.Updates()
    updates.remove_vertex(number)
    updates.add_vertex(number, np.full(KINDS, 5, np.float32))
    updates.set_features(SOURCES + number, np.full(KINDS, 7, np.float32))
    updates.add_vertex(VERTICES + number, np.ones(KINDS, np.float32))
    updates.add_edges(src, dst, time=time)
    return updates


def model_of(name="tgn", **options):
    torch.manual_seed(5)
    small = {"x_width": KINDS, "embed_width": 16, "time_width": 8, "heads": 2, "dropout": 0.1, **options}
    return TGN(memory_width=16, **small) if name == "tgn" else TGAT(hop_count=1, **small)


def trainer_of(graph, model=None, **options):
    sampler = lg.TemporalSampler(graph, fanouts=[5], strategy="recent", threads=1)
    return lg.ContinuousTrainer(model or model_of(), graph, sampler, **{"batch_size": 50, "epochs": 2, **options})


def engine_of(graph, model=None, **options):
    sampler = lg.TemporalSampler(graph, fanouts=[5], threads=1)
    return lg.TemporalEngine(model or model_of(), graph, sampler, **{"memory_step": 64, **options})


def numbers(report):
    """A report without what a clock says."""
    rounds = [(r.round, r.version, r.events, r.replayed, r.loss, r.ap, r.auc, r.mrr) for r in report.rounds]
    return np.nan_to_num(np.array(rounds), nan=-1.0), [(e.round, e.epoch, e.loss) for e in report.epochs]


def same_numbers(got, expected):
    (rounds, epochs), (their_rounds, their_epochs) = numbers(got), numbers(expected)
    np.testing.assert_array_equal(rounds, their_rounds)
    assert epochs == their_epochs


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same_tensors(got, expected):
    assert got.keys() == expected.keys()
    for name, value in got.items():
        assert torch.equal(value, expected[name]), name
