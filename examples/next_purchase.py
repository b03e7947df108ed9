"""What will a customer buy next? A typed temporal model with string ids, trained and asked while purchases stream in.

Customers view and buy products. Both kinds of edges are in the samples; purchases alone are events to learn. The model
reads the amount of each edge, and which kind it is. Every batch is live at once, tested on, and then trained on.
"""

import numpy as np
import torch

import livegnn as lg
from livegnn.temporal.models import TGN

torch.manual_seed(0)
rng = np.random.default_rng(0)
BUYS, VIEWED = ("customer", "buys", "product"), ("product", "viewed by", "customer")
customers = ["ada", "ben", "eve", "kim", "lee", "max"]
products = ["tea", "cup", "pot", "ink", "pen", "pad"]
taste = {name: products[:3] if i % 2 else products[3:] for i, name in enumerate(customers)}  # half of them drink tea


def purchases(count: int) -> list[tuple[str, str]]:
    chosen = rng.choice(customers, count).tolist()
    return [(name, str(rng.choice(taste[name] if rng.random() < 0.9 else products))) for name in chosen]


first = purchases(240)
graph = lg.Graph(
    {"customer": np.eye(6, dtype=np.float16), "product": np.eye(6, 4, dtype=np.float16)},
    {BUYS: [name for name, _ in first], VIEWED: [product for _, product in first]},
    {BUYS: [product for _, product in first], VIEWED: [name for name, _ in first]},
    time={BUYS: 2 * np.arange(240) + 1, VIEWED: 2 * np.arange(240)},
    weight={BUYS: rng.uniform(1, 9, 240).astype(np.float32), VIEWED: np.ones(240, np.float32)},
    ids={"customer": customers, "product": products},
)
reads = {"edge_types": ["buys"], "edge_columns": ["weight", "type"]}
sampler = lg.TemporalSampler(graph, fanouts=[8])
model = TGN(x_width=graph.feature_widths, edge_width=3, embed_width=16, memory_width=16, time_width=8)


def stream():
    for hour in range(3):
        updates, now = lg.Updates(), 480 + 60 * hour
        for place, (name, product) in enumerate(purchases(30)):
            updates.add_edge(product, name, edge_type="viewed by", time=now + 2 * place, weight=1)
            updates.add_edge(name, product, edge_type="buys", time=now + 2 * place + 1, weight=rng.uniform(1, 9))
        yield updates


with lg.ContinuousTrainer(model, graph, sampler, batch_size=30, epochs=2, learning_rate=0.03, **reads) as trainer:
    trainer.fit(epochs=20)
    engine = lg.TemporalEngine(model, graph, sampler, **reads)
    trainer.publish_to(engine)
    for report in trainer.run(stream()):
        print(f"round {report.round}: {report.events} purchases, average precision {report.ap:.2f} before training")

for name in ("ada", "ben"):
    best = engine.next([name], 700, k=3)
    print(f"{name} likes {', '.join(taste[name])}; next: {', '.join(best.dst[0])}")
hops = sampler.sample(["ben"], [700], vertex_type="customer")
print("the sample for PyG:", sampler.to_pyg(hops).metadata()[1])
