"""A robust model, exact while its graph changes: every vertex takes the median of its in-neighbours.

One sensor that reports nonsense moves a mean far away; a median stays. The engine keeps the median exact under every
update, the same bits as a run from scratch.

The median is an operator of its own. These files define it, and no other asks for it by name:
  core/inference/operators/median.cc     what is kept of a vertex, and what a batch does to it
  core/inference/operators/registry.cc   one line
  core/include/livegnn/program.h         the name, in the enumerations Reduce and Gathering
  src/livegnn/models/ir.py               the same name for Python, in Reduce; every layer spec takes it from there
  src/livegnn/reference/edges.py         the formula in float64, which the tests compare with
  src/livegnn/models/pyg/convs/aggregation.py   the module of PyTorch Geometric that it stands for
edge_reduce.cc has it, too, for messages that are computed edge by edge.
"""

import numpy as np

import livegnn as lg

readings = np.array([[20.1], [19.8], [20.4], [20.0], [0.0]], np.float32)  # the last one is a room without a sensor
graph = lg.Graph(readings, src=[0, 1, 2, 3], dst=[4, 4, 4, 4])
weight = np.eye(1)
room = {kind: lg.Engine(lg.Model([lg.layers.SAGE(weight, aggregate=kind)]), graph) for kind in ("mean", "median")}


def show(title: str) -> None:
    print(f"{title}:", ", ".join(f"{kind} {float(engine.embeddings([4])[0, 0]):.1f}" for kind, engine in room.items()))


show("At first")

updates = lg.Updates()
updates.set_features(2, [9999.0])  # a broken sensor
graph.apply(updates)
show("With a broken sensor")

updates = lg.Updates()
updates.remove_edge(2, 4)
graph.apply(updates)
show("Without it")

for engine in room.values():
    engine.verify()  # state and outputs against a run from scratch
