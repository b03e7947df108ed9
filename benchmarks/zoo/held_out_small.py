"""The part of the held-out set from small repositories, chosen by their names alone: projects, theses, courses.

The rules are those of held_out.py. Left out too are networks of typed vertices and of a sampler's blocks.
"""

from __future__ import annotations

from typing import Any

from benchmarks.zoo import held_out_adapters as wrap
from benchmarks.zoo.entries import Entry

#: A reason of what is impossible, for any engine.
ATTENTION_OVER_EDGES = "attention over all edges of the graph: one update would change every row"

_FRAUD_THESIS: dict[str, Any] = {
    "repository": "MiaHenstridge/temporal-heterophily-aware-graph-neural-network-for-fraud-detection",
    "file": "src/models.py",
    "adapter": wrap.WholeBatch,
}
_TRADE: dict[str, Any] = {
    "repository": "ginofazzi/Detecting-Global-Trade-Vulnerabilities-via-Graph-Neural-Networks",
    "file": "code/gnn/models.py",
    "data": True,
    "absent": ("transformers", "xgboost"),
}
_FRAUD_AND_TRADE = [
    Entry(**_FRAUD_THESIS, name="GraphSAGEModel", make=lambda m: m.GraphSAGEModel(8, 6, 2, 0.5)),
    Entry(**_FRAUD_THESIS, name="GATModel", make=lambda m: m.GATModel(8, 6, 2, 2, 0.5)),
    Entry(**_FRAUD_THESIS, name="GATv2Model", make=lambda m: m.GATv2Model(8, 6, 2, 2, 0.5)),
    Entry(**_FRAUD_THESIS, name="FAGCNModel", make=lambda m: m.FAGCNModel(8, 6, 2, 0.5)),
    Entry(**_TRADE, name="GCN", make=lambda m: m.GCN(8, 6, 1, 0.5, 3), columns=("weight",)),
    Entry(**_TRADE, name="GAT", make=lambda m: m.GAT(8, 1, 6, 2, 3, 0.5), columns=("attribute",), attributes=3),
    Entry(**_TRADE, name="GraphSAGE", make=lambda m: m.GraphSAGE(8, 1, 6, 0.5, n_layers=3)),
]

_POWER_OF_MANY: dict[str, Any] = {
    "repository": ("AbhiJeet70/The-Power-of-Many-Investigating-Defense-Mechanisms-for-Resilient-Graph-Neural-Networks"),
}
_ATTACKS = [
    Entry(**_POWER_OF_MANY, file="gnn_models/gcn.py", name="GCN", make=lambda m: m.GCN(8, 6, 4)),
    Entry(**_POWER_OF_MANY, file="gnn_models/gat.py", name="GAT", make=lambda m: m.GAT(8, 6, 4)),
    Entry(**_POWER_OF_MANY, file="gnn_models/graph_sage.py", name="GraphSAGE", make=lambda m: m.GraphSAGE(8, 6, 4)),
    Entry(
        **_POWER_OF_MANY,
        file="attacks/ood_detector.py",
        name="OODDetector",
        make=lambda m: m.OODDetector(8, 6, 4),
        take=0,
    ),
    Entry(
        **_POWER_OF_MANY,
        file="attacks/ugba.py",
        name="GCNEncoder",
        make=lambda m: m.GCNEncoder(8, 4),
        absent=("attacks.trigger_generator",),
    ),
]

_STUDY: dict[str, Any] = {"repository": "lpsangg/research-GNN-GCN-GAT-GraphSAGE-RGCN-HAN"}
_STUDIES = [
    Entry(**_STUDY, file="GAT/model.py", name="GAT", make=lambda m: m.GAT(8, 6, 4, 3, heads=2)),
    Entry(**_STUDY, file="GAT/model.py", name="GATv2", make=lambda m: m.GATv2(8, 6, 4, 3, heads=2)),
    Entry(**_STUDY, file="GCN/model.py", name="GCN", make=lambda m: m.GCN(8, 6, 4, 3)),
    Entry(**_STUDY, file="GCN/model.py", name="DeepGCN", make=lambda m: m.DeepGCN(8, 6, 4)),
    Entry(**_STUDY, file="GCN/model.py", name="JKNetGCN", make=lambda m: m.JKNetGCN(8, 6, 4)),
    Entry(**_STUDY, file="GNN/model.py", name="BasicGNN", make=lambda m: m.BasicGNN(8, 6, 4)),
    Entry(**_STUDY, file="GNN/model.py", name="ImprovedGNN", make=lambda m: m.ImprovedGNN(8, 6, 4)),
    Entry(**_STUDY, file="GraphSAGE/model.py", name="GraphSAGE", make=lambda m: m.GraphSAGE(8, 6, 4, 3)),
    Entry(**_STUDY, file="GraphSAGE/model.py", name="DeepGraphSAGE", make=lambda m: m.DeepGraphSAGE(8, 6, 4)),
    Entry(
        **_STUDY,
        file="GraphSAGE/model.py",
        name="AttentionGraphSAGE",
        make=lambda m: m.AttentionGraphSAGE(8, 6, 4),
        expected="impossible",
        why=ATTENTION_OVER_EDGES,
    ),
    Entry(**_STUDY, file="GraphSAGE/model.py", name="MultiAggregatorSAGE", make=lambda m: m.MultiAggregatorSAGE(8, 6)),
]

_METAPATH: dict[str, Any] = {
    "repository": "francescoferrini/MPGNN-Metapath-Graph-Neural-Network",
    "file": "model.py",
    "columns": ("type",),
    "types": 3,
}
_OTHERS = [
    Entry(**_METAPATH, name="Net", make=lambda m: m.Net(8, 6, 3, 6, 4, 2)),
    Entry(**_METAPATH, name="MPNetm", make=lambda m: m.MPNetm(8, 6, 3, 6, 4, 2, [[0, 1], [2]])),
    Entry(
        repository="CNRC-NAJU/Prediction-and-mitigation-of-nonlocal-cascading-failures-using-graph-neural-networks",
        file="gnn/models/GINNet.py",
        name="SkipGINNet",
        make=lambda m: m.SkipGINNet(8, 8, 6, 2, 0.5, 0.1, 1, "sigmoid"),
        data=True,
    ),
    Entry(
        repository="YacineBenzerga/production-grade-large-scale-graphsage-training",
        file="src/model.py",
        name="GraphSAGEWithLabelCorrelation",
        make=lambda m: m.GraphSAGEWithLabelCorrelation(8, 6, 5, 4),
    ),
    Entry(
        repository="hodfernando/Leveraging-graph-neural-networks-and-mobility-data-for-COVID-19-forecasting",
        file="models/stsgt_model.py",
        name="STSGT",
        make=lambda m: m.STSGT(8, 8),
        columns=("weight",),
    ),
]

SMALL: tuple[Entry, ...] = (*_FRAUD_AND_TRADE, *_ATTACKS, *_STUDIES, *_OTHERS)
