"""Alerts the moment a prediction turns: a callback after every batch of payments."""

import numpy as np

import livegnn as lg
from livegnn.datasets import generate_like

stream = generate_like("ethereum_phishing", seed=7, scale=0.05)
start = stream.event_count // 2

# x[v] = (log(1 + payments received), log(1 + payments sent)); the weights below stand for a trained model:
# a first layer that looks at the accounts that pay v, and a head that likes many payers who pay little else.
received = np.zeros(stream.vertex_count)
sent = np.zeros(stream.vertex_count)


def features(ids: np.ndarray) -> np.ndarray:
    return np.log1p(np.stack([received[ids], sent[ids]], axis=1)).astype(np.float32)


np.add.at(received, stream.dst[:start], 1)
np.add.at(sent, stream.src[:start], 1)
model = lg.Model(
    [
        lg.layers.SAGE(
            np.array([[0.0, -0.6], [0.0, 0.4]], dtype=np.float32),  # what the payers did
            np.array([[1.2, -0.2], [0.1, 0.3]], dtype=np.float32),  # what v itself did
            activation="relu",
        ),
        lg.layers.Dense(np.array([[2.0, -1.0]], dtype=np.float32), np.array([-2.5], dtype=np.float32)),
    ]
)
graph = lg.Graph(features(np.arange(stream.vertex_count)), stream.src[:start], stream.dst[:start])
engine = lg.Engine(model, graph)
flagged = set(np.flatnonzero(engine.predict(np.arange(stream.vertex_count)) > 0.5).tolist())
print(f"{len(flagged)} accounts flagged at the start")


def alert(changes: lg.Changes) -> None:
    ids = changes.vertices
    for account, p in zip(ids.tolist(), engine.predict(ids).tolist(), strict=True):
        if p > 0.5 and account not in flagged:
            flagged.add(account)
            if len(flagged) % 10 == 0:  # one in ten, to keep this short
                print(f"version {changes.version}: account {account} now at {p:.2f}")


handle = engine.on_change(alert)
for begin in range(start, stream.event_count, 100):
    src, dst = stream.src[begin : begin + 100], stream.dst[begin : begin + 100]
    np.add.at(received, dst, 1)
    np.add.at(sent, src, 1)
    ends = np.unique(np.concatenate([src, dst]))
    updates = lg.Updates()
    updates.set_features(ends, features(ends))
    updates.add_edges(src, dst)
    engine.apply(updates)
handle.cancel()
print(f"{len(flagged)} accounts flagged at version {graph.version}")
