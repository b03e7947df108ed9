"""Which page will an editor edit next? A TGN trained while the edits stream in, and answering all the while.

The first 30% of Wikipedia's edits warm a model up. The rest arrives in batches: each is live in the engine at once,
scored against random pages before the model has been trained on it, and trained on then; the new weights, with the
memory that belongs to them, go to the engine without a pause. In the end the engine says what comes next.
An argument cuts the stream: `python examples/temporal_wikipedia.py 20000` takes a minute.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch

import livegnn as lg
from livegnn.datasets import load_or_generate
from livegnn.temporal.models import TGN

torch.manual_seed(0)
BATCH, OUT = 2000, Path("out") / "temporal_wikipedia"

# %% The stream: (editor, page, second), and a graph of the first 30%.
stream = load_or_generate("jodie_wikipedia")
print(stream.description)
count = int(sys.argv[1]) if len(sys.argv) > 1 else stream.event_count
warm = int(0.3 * count)
features = np.zeros((stream.vertex_count, 0), np.float32)  # this copy of the data has times and structure alone
first = slice(0, warm)
graph = lg.Graph(features, stream.src[first], stream.dst[first], time=stream.time[first], undirected=True)
print(graph)

# %% Samples of the past: the 10 latest edits before a moment, found in microseconds.
sampler = lg.TemporalSampler(graph, fanouts=[10], strategy="recent")
(hop,) = sampler.sample(stream.src[warm : warm + 2], stream.time[warm : warm + 2])
print(f"the first editor's past: pages {hop.src[hop.dst == 0].tolist()}, at {hop.times[hop.dst == 0].tolist()}")

# %% The model, its training, and the engine that serves it.
model = TGN(embed_width=64, memory_width=64, time_width=64)
trainer = lg.ContinuousTrainer(model, graph, sampler, epochs=1, replay=0.1)  # folder=: survives a kill
clock = time.perf_counter()
trainer.fit(epochs=2)
for epoch in trainer.report.epochs:
    print(f"warm start, epoch {epoch.epoch + 1}: loss {epoch.loss:.3f}")
engine = lg.TemporalEngine(model, graph, sampler)
trainer.publish_to(engine)
print(f"warm after {time.perf_counter() - clock:.0f} s")


# %% Test, then train, batch by batch.
def batches():
    for begin in range(warm, count, BATCH):
        part = slice(begin, min(begin + BATCH, count))
        updates = lg.Updates()
        updates.add_edges(stream.src[part], stream.dst[part], time=stream.time[part])
        yield updates


rounds = -(-(count - warm) // BATCH)
for report in trainer.run(batches()):
    if report.round % 10 == 0 or report.round == rounds:
        seconds = sum(report.seconds.values())
        print(f"batch {report.round:3} of {rounds}: AP {report.ap:.3f}  MRR {report.mrr:.3f}  {seconds:.1f} s")
print(f"mean AP {trainer.report.mean_ap:.4f} of edits that the model had not been trained on")
OUT.mkdir(parents=True, exist_ok=True)
trainer.report.to_csv(OUT / "rounds.csv")
trainer.report.plot(OUT / "curves.png", "TGN on Wikipedia's edits")

# %% What next? The engine is as new as the last edit.
editor, now = int(stream.src[count - 1]), int(stream.time[count - 1]) + 60
best = engine.next([editor], now, candidates=np.unique(stream.dst[:count]), k=5)
for page, probability in zip(best.dst[0], best.probability[0], strict=True):
    edits = int(np.sum((stream.src[:count] == editor) & (stream.dst[:count] == page)))
    print(f"editor {editor} in a minute: page {page}, probability {probability:.3f} (edited {edits} times before)")

updates = lg.Updates()
updates.add_edge(editor, int(best.dst[0, -1]), time=now)
clock = time.perf_counter()
engine.apply(updates)
chance = engine.predict([editor], [int(best.dst[0, -1])], now + 60)[0]
milliseconds = 1e3 * (time.perf_counter() - clock)
print(f"one more edit, and asked again: {chance:.3f}, after {milliseconds:.1f} ms for the edit and the answer")
trainer.close()
