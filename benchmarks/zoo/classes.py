"""The classes that the zoo tries: all that give rows of vertices in the files chosen, not the easy ones.

Left out are classes of a single layer that their file's networks hold, of plain perceptrons, of graphs as a whole
without rows of vertices, and of libraries that no PyG brings (DGL, torchdiffeq). Nothing here is code of theirs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional

from benchmarks.zoo.adapters import (
    ByType,
    FeaturesLast,
    OnAdjacencies,
    OnDataWithBatch,
    OneBatch,
    OnGraphDict,
    OnListOfEdges,
    Periods,
    RealAndImaginary,
)
from benchmarks.zoo.entries import Entry

#: Reasons of what is impossible, for any engine.
ATTENTION = "attention over all vertices: one update would change every row"
ALL_VERTICES = "it sorts or averages all vertices: one update would change every row"
RANDOM = "it draws random numbers in eval mode: there is no one output to keep"
FIXED_GRAPH = "the graph is taken when the module is made, not in its forward"
FIXED_SIZE = "a layer has one column for each vertex (a dense adjacency): a new vertex needs another network"
NEIGHBOURS_BY_FEATURES = "it builds a graph of nearest features (geometry)"
SNAPSHOTS = "vertices of several snapshots lie in one tensor, its layout fixed when the module is made"
STATE = "it keeps state, or the first graph, from call to call: its output is no function of the graph"


def _dataset(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(num_features=8, num_classes=4, **more)


# ---- CRIPAC-DIG/GRACE
_GRACE = [
    Entry(
        repository="CRIPAC-DIG/GRACE",
        file="model.py",
        name="Encoder",
        make=lambda m: m.Encoder(8, 6, functional.relu, k=3),
    ),
    Entry(
        repository="CRIPAC-DIG/GRACE",
        file="model.py",
        name="Model",
        make=lambda m: m.Model(m.Encoder(8, 6, torch.nn.PReLU()), 6, 6),
    ),
]

# ---- CUAI/Non-Homophily-Large-Scale, and the two that took its models.py over
_CUAI: dict[str, Any] = {
    "repository": "CUAI/Non-Homophily-Large-Scale",
    "file": "models.py",
    "adapter": OnGraphDict,
}
_NON_HOMOPHILY = [
    Entry(**_CUAI, name="SGC", make=lambda m: m.SGC(8, 4, 2), options={"ignore_cached": True}),
    Entry(**_CUAI, name="SGCMem", make=lambda m: m.SGCMem(8, 4, 2)),
    Entry(**_CUAI, name="GCN", make=lambda m: m.GCN(8, 6, 4, num_layers=3)),
    Entry(**_CUAI, name="GAT", make=lambda m: m.GAT(8, 5, 4, num_layers=3)),
    Entry(**_CUAI, name="MixHop", make=lambda m: m.MixHop(8, 6, 4)),
    Entry(**_CUAI, name="GCNJK", make=lambda m: m.GCNJK(8, 6, 4, num_layers=3, jk_type="cat")),
    Entry(**_CUAI, name="GATJK", make=lambda m: m.GATJK(8, 5, 4, num_layers=3)),
    Entry(**_CUAI, name="APPNP_Net", make=lambda m: m.APPNP_Net(8, 6, 4, K=3)),
    Entry(**_CUAI, name="GPRGNN", make=lambda m: m.GPRGNN(8, 6, 4, K=3)),
]

_NF: dict[str, Any] = {"repository": "qitianwu/NodeFormer", "file": "gnns.py", "adapter": OnGraphDict}
_NODEFORMER = [
    Entry(**_NF, name="SGC", make=lambda m: m.SGC(8, 4, 2), options={"ignore_cached": True}),
    Entry(**_NF, name="SGCMem", make=lambda m: m.SGCMem(8, 4, 2)),
    Entry(**_NF, name="GCN", make=lambda m: m.GCN(8, 6, 4, num_layers=3)),
    Entry(**_NF, name="GAT", make=lambda m: m.GAT(8, 5, 4, num_layers=3)),
    Entry(**_NF, name="MixHop", make=lambda m: m.MixHop(8, 6, 4)),
    Entry(**_NF, name="GCNJK", make=lambda m: m.GCNJK(8, 6, 4, num_layers=3), options={"ignore_cached": True}),
    Entry(**_NF, name="GATJK", make=lambda m: m.GATJK(8, 5, 4, num_layers=3)),
    Entry(**_NF, name="APPNP_Net", make=lambda m: m.APPNP_Net(8, 6, 4, K=3)),
    Entry(**_NF, name="GPRGNN", make=lambda m: m.GPRGNN(8, 6, 4, K=3)),
    Entry(
        repository="qitianwu/NodeFormer",
        file="nodeformer.py",
        name="NodeFormer",
        make=lambda m: m.NodeFormer(8, 6, 4, num_heads=2, nb_random_features=5, rb_order=0),
        adapter=OnListOfEdges,
        take=0,
        expected="impossible",
        why=ATTENTION,
    ),
]

_LARGE: dict[str, Any] = {"repository": "qitianwu/SGFormer", "file": "large/gnns.py"}
_MEDIUM: dict[str, Any] = {"repository": "qitianwu/SGFormer", "file": "medium/models.py", "adapter": OnGraphDict}
_SGFORMER = [
    Entry(
        **_LARGE,
        name="LINK",
        make=lambda m: m.LINK(24, 4),
        expected="impossible",
        why=FIXED_SIZE,
    ),
    Entry(**_LARGE, name="SGC", make=lambda m: m.SGC(8, 4, 2)),
    Entry(**_LARGE, name="SGCMem", make=lambda m: m.SGCMem(8, 4, 2, use_bn=True)),
    Entry(**_LARGE, name="SGC2", make=lambda m: m.SGC2(8, 6, 4, 2, 3, 0.5, use_bn=True)),
    Entry(**_LARGE, name="GCN", make=lambda m: m.GCN(8, 6, 4, num_layers=3)),
    Entry(**_LARGE, name="SIGN", make=lambda m: m.SIGN(8, 6, 4, 2, 3, 0.5)),
    Entry(**_LARGE, name="GAT", make=lambda m: m.GAT(8, 5, 4, num_layers=3)),
    Entry(**_LARGE, name="MixHop", make=lambda m: m.MixHop(8, 6, 4)),
    Entry(**_LARGE, name="GCNJK", make=lambda m: m.GCNJK(8, 6, 4, num_layers=3), options={"ignore_cached": True}),
    Entry(**_LARGE, name="GATJK", make=lambda m: m.GATJK(8, 5, 4, num_layers=3)),
    Entry(**_LARGE, name="APPNP_Net", make=lambda m: m.APPNP_Net(8, 6, 4, K=3)),
    Entry(**_LARGE, name="GPRGNN", make=lambda m: m.GPRGNN(8, 6, 4, K=3)),
    Entry(
        repository="qitianwu/SGFormer",
        file="large/ours.py",
        name="GraphConv",
        make=lambda m: m.GraphConv(8, 6, num_layers=2, use_init=True),
    ),
    Entry(
        repository="qitianwu/SGFormer",
        file="large/ours.py",
        name="SGFormer",
        make=lambda m: m.SGFormer(8, 6, 4),
        expected="impossible",
        why=ATTENTION,
    ),
    Entry(**_MEDIUM, name="GCN", make=lambda m: m.GCN(8, 6, 4, num_layers=3)),
    Entry(**_MEDIUM, name="SGC", make=lambda m: m.SGC(8, 4, 2), options={"ignore_cached": True}),
    Entry(**_MEDIUM, name="GAT", make=lambda m: m.GAT(8, 5, 4, num_layers=3, use_bn=True)),
    Entry(**_MEDIUM, name="GCNJK", make=lambda m: m.GCNJK(8, 6, 4, num_layers=3), options={"ignore_cached": True}),
    Entry(**_MEDIUM, name="APPNP_Net", make=lambda m: m.APPNP_Net(8, 6, 4, K=3)),
    Entry(**_MEDIUM, name="SIGN", make=lambda m: m.SIGN(8, 6, 4, 2, 3, 0.5)),
    Entry(
        repository="qitianwu/SGFormer",
        file="medium/difformer.py",
        name="DIFFormer",
        make=lambda m: m.DIFFormer(8, 6, 4),
        adapter=OnGraphDict,
        expected="impossible",
        why=ATTENTION,
    ),
    Entry(
        repository="qitianwu/SGFormer",
        file="medium/graphtrans.py",
        name="graphTrans",
        make=lambda m: m.graphTrans(8, 8, 4, gnn_emb_dim=8, d_model=8, num_trans_head=2, dim_feedforward=8),
        adapter=OnGraphDict,
        expected="impossible",
        why=ATTENTION,
    ),
]

# ---- VITA-Group/Deep_GCN_Benchmarking
_ARGS = SimpleNamespace(
    num_feats=8,
    dim_hidden=6,
    num_classes=4,
    num_layers=3,
    dropout=0.5,
    embedding_dropout=0.5,
    alpha=0.1,
    lamda=0.5,
    lr=0.01,
    weight_decay=0.0,
    weight_decay1=0.0,
    weight_decay2=0.0,
    type_norm="batch",
    transductive=False,
    dataset="ogbn-arxiv",
)
_VITA: dict[str, Any] = {"repository": "VITA-Group/Deep_GCN_Benchmarking"}
_DEEP = [
    Entry(**_VITA, file="models/APPNP.py", name="APPNP", make=lambda m: m.APPNP(_ARGS), columns=("weight",)),
    Entry(
        **_VITA, file="models/DAGNN.py", name="DAGNN", make=lambda m: m.DAGNN(_ARGS), options={"ignore_cached": True}
    ),
    Entry(**_VITA, file="models/GAT.py", name="GAT", make=lambda m: m.GAT(_ARGS)),
    Entry(**_VITA, file="models/GCN.py", name="GCN", make=lambda m: m.GCN(_ARGS)),
    Entry(
        **_VITA, file="models/GCNII.py", name="GCNII", make=lambda m: m.GCNII(_ARGS), options={"ignore_cached": True}
    ),
    Entry(**_VITA, file="models/GPRGNN.py", name="GPRGNN", make=lambda m: m.GPRGNN(_ARGS)),
    Entry(**_VITA, file="models/JKNet.py", name="JKNet", make=lambda m: m.JKNet(_ARGS)),
    Entry(**_VITA, file="models/SGC.py", name="SGC", make=lambda m: m.SGC(_ARGS)),
]

# ---- spectral filters: BernNet and GPRGNN
_SPECTRAL_ARGS = SimpleNamespace(
    hidden=6,
    K=3,
    alpha=0.1,
    Init="PPR",
    Gamma=None,
    ppnp="GPR_prop",
    dprate=0.5,
    dropout=0.5,
    heads=2,
    output_heads=1,
)


def _spectral(repository: str, file: str, name: str) -> Entry:
    return Entry(
        repository=repository,
        file=file,
        name=name,
        make=lambda m: getattr(m, name)(_dataset(), _SPECTRAL_ARGS),
        data=True,
    )


_BERN = [
    _spectral("ivam-he/BernNet", "NodeClassification/models.py", name)
    for name in ("GPRGNN", "BernNet", "GCN_Net", "ChebNet", "GAT_Net", "APPNP_Net")
]
_GPR = [
    _spectral("jianhao2016/GPRGNN", "src/GNN_models.py", name)
    for name in ("GPRGNN", "GCN_Net", "ChebNet", "GAT_Net", "APPNP_Net", "GCN_JKNet")
]

# ---- directed graphs
_SCRIPT_ARGS = SimpleNamespace(hidden=6, dropout=0.5)
_DIGCN: dict[str, Any] = {
    "repository": "flyingtango/DiGCN",
    "given": {"args": _SCRIPT_ARGS},
    "absent": ("datasets", "train_eval"),
    "data": True,
}
_DIRECTED = [
    Entry(
        **_DIGCN,
        file="code/digcn.py",
        name="Net",
        make=lambda m: m.Net(_dataset()),
        columns=("weight",),
        options={"ignore_cached": True},
    ),
    Entry(**_DIGCN, file="code/gcn.py", name="Net", make=lambda m: m.Net(_dataset(), cached=False)),
    *(
        Entry(
            repository="emalgorithm/directed-graph-neural-network",
            file="src/model.py",
            name=name,
            make=make,
            absent=("pytorch_lightning", "ogb", "torch_geometric_signed_directed"),
            expected="impossible" if name == "DirGCNConv" else "imported",
            why=STATE if name == "DirGCNConv" else "",
        )
        for name, make in {
            "DirGCNConv": lambda m: m.DirGCNConv(8, 6, 0.3),
            "DirSageConv": lambda m: m.DirSageConv(8, 6, 0.3),
            "DirGATConv": lambda m: m.DirGATConv(8, 6, 1, 0.3),
            "GNN": lambda m: m.GNN(8, 4, 6, num_layers=3, conv_type="dir-sage", jumping_knowledge="cat"),
        }.items()
    ),
]

_PSSD: dict[str, Any] = {"repository": "SherylHYX/pytorch_geometric_signed_directed"}
_PSSD_NN = "torch_geometric_signed_directed/nn"
_SIGNED = [
    Entry(
        **_PSSD,
        file=f"{_PSSD_NN}/directed/DiGCN_node_classification.py",
        name="DiGCN_node_classification",
        make=lambda m: m.DiGCN_node_classification(8, 6, 4),
        options={"ignore_cached": True},
        columns=("weight",),
    ),
    Entry(
        **_PSSD,
        file=f"{_PSSD_NN}/directed/DGCN_node_classification.py",
        name="DGCN_node_classification",
        make=lambda m: m.DGCN_node_classification(8, 6, 4),
        adapter=lambda net: ByType(net, over=3),
        columns=("weight", "type"),
        types=3,
    ),
    Entry(
        **_PSSD,
        file=f"{_PSSD_NN}/directed/DiGCN_Inception_Block_node_classification.py",
        name="DiGCN_Inception_Block_node_classification",
        make=lambda m: m.DiGCN_Inception_Block_node_classification(8, 6, 4),
        options={"ignore_cached": True},
        adapter=lambda net: _InceptionPair(net),
        columns=("weight", "type"),
        types=2,
    ),
    Entry(
        **_PSSD,
        file=f"{_PSSD_NN}/directed/DiGCL.py",
        name="DiGCL_Encoder",
        make=lambda m: m.DiGCL_Encoder(8, 6, "prelu", 3),
        columns=("weight",),
    ),
    Entry(
        **_PSSD,
        file=f"{_PSSD_NN}/directed/DiGCL.py",
        name="DiGCL",
        make=lambda m: m.DiGCL(8, "relu", 6, 6, 0.5, 2),
        columns=("weight",),
    ),
    Entry(
        **_PSSD,
        file=f"{_PSSD_NN}/directed/DIGRAC_node_clustering.py",
        name="DIGRAC_node_clustering",
        make=lambda m: m.DIGRAC_node_clustering(8, 6, 4, 0.5, 0.5, 2),
        adapter=FeaturesLast,
        options={"input_width": 8},
        columns=("weight",),
        take=0,
    ),
    Entry(
        **_PSSD,
        file=f"{_PSSD_NN}/directed/MagNet_node_classification.py",
        name="MagNet_node_classification",
        make=lambda m: m.MagNet_node_classification(8, 6, label_dim=4, activation=True),
        adapter=RealAndImaginary,
        columns=("weight",),
    ),
    Entry(
        **_PSSD,
        file=f"{_PSSD_NN}/signed/SGCN.py",
        name="SGCN",
        make=lambda m: m.SGCN(
            24,
            torch.tensor([[0, 1, 1], [1, 2, -1], [2, 3, 1], [3, 0, -1]]),
            in_dim=8,
            out_dim=8,
            init_emb=torch.ones(24, 8),
        ),
        adapter=lambda net: _NoArguments(net),
        expected="impossible",
        why=FIXED_GRAPH,
    ),
]


class _InceptionPair(ByType):
    """Edges of type 0 and 1 as the two graphs of an inception block."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__(net)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_type: Any) -> Any:
        first, second = edge_type == 0, edge_type == 1
        pairs = (edge_index[:, first], edge_index[:, second])
        return self.net(x, pairs, (edge_weight[first], edge_weight[second]))


class _NoArguments(torch.nn.Module):
    """For forward(): the module holds features and edges."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Any, edge_index: Any) -> Any:
        del x, edge_index
        return self.net()


# ---- XiaoxinHe/TAPE
_TAPE = [
    Entry(
        repository="XiaoxinHe/TAPE",
        file=f"core/GNNs/{name}/model.py",
        name=name,
        make=lambda m, name=name: getattr(m, name)(8, 6, 4, 3, 0.5, False),
        options={"ignore_cached": name == "GCN"},
    )
    for name in ("GCN", "SAGE")
]

# ---- LUOyk1999/tunedGNN
_TUNED: dict[str, Any] = {"repository": "LUOyk1999/tunedGNN"}
_BASELINES = "medium_graph/GTs_baselines"
_TUNED_GNN = [
    Entry(
        **_TUNED,
        file="medium_graph/model.py",
        name="MPNNs",
        make=lambda m: m.MPNNs(8, 6, 4, res=True, ln=True, jk=True, pre_linear=True, gnn="gcn"),
    ),
    Entry(
        **_TUNED,
        file="large_graph/lg_model.py",
        name="MPNNs",
        make=lambda m: m.MPNNs(8, 6, 4, local_attn=True, jk=True),
    ),
    Entry(
        **_TUNED,
        file="large_graph/product.py",
        name="GNN",
        make=lambda m: m.GNN(8, 6, 4, 3, 0.5, True, "sage", True, True),
        absent=("ogb",),
    ),
    Entry(
        **_TUNED, file=f"{_BASELINES}/polynormer.py", name="Polynormer", make=lambda m: m.Polynormer(8, 5, 4, heads=2)
    ),
    Entry(**_TUNED, file=f"{_BASELINES}/sgformer.py", name="GCN", make=lambda m: m.GCN(8, 6, 4, num_layers=3)),
    Entry(
        **_TUNED,
        file=f"{_BASELINES}/sgformer.py",
        name="SGFormer",
        make=lambda m: m.SGFormer(8, 6, 4, gnn=m.GCN(8, 6, 6)),
        expected="impossible",
        why=ATTENTION,
    ),
]

# ---- EdisonLeeeee/GreatX
_GREATX: dict[str, Any] = {
    "repository": "EdisonLeeeee/GreatX",
    "columns": ("weight",),
    "absent": ("greatx.functional.dropouts", "torch_cluster", "ogb", "termcolor", "tabulate", "numba", "gdown"),
}


def _greatx(file: str, name: str, **more: Any) -> Entry:
    options = {"make": lambda m: getattr(m, name)(8, 4), **_GREATX, **more}
    return Entry(file=f"greatx/nn/models/supervised/{file}.py", name=name, **options)


_GREAT = [
    _greatx("gcn", "GCN", make=lambda m: m.GCN(8, 4, hids=[6], bn=True)),
    _greatx("sat", "SAT"),
    _greatx("air_gnn", "AirGNN", make=lambda m: m.AirGNN(8, 4, hids=[6])),
    _greatx("dagnn", "DAGNN", make=lambda m: m.DAGNN(8, 4, hids=[6], K=3)),
    _greatx("jknet", "JKNet", make=lambda m: m.JKNet(8, 4, hids=[6] * 3)),
    _greatx("gat", "GAT", columns=(), make=lambda m: m.GAT(8, 4, hids=[3], num_heads=[2])),
    _greatx("gnnguard", "GNNGUARD", columns=(), make=lambda m: m.GNNGUARD(8, 4, hids=[6])),
    _greatx("appnp", "APPNP", make=lambda m: m.APPNP(8, 4, hids=[6], K=3)),
    _greatx("ssgc", "SSGC", make=lambda m: m.SSGC(8, 4, K=3, cached=False)),
    _greatx("sgc", "SGC", make=lambda m: m.SGC(8, 4, cached=False)),
    _greatx("dgc", "DGC", make=lambda m: m.DGC(8, 4, K=3, cached=False)),
    _greatx("tagcn", "TAGCN", make=lambda m: m.TAGCN(8, 4, hids=[6])),
    _greatx("robust_gcn", "RobustGCN", expected="impossible", why=RANDOM),
    _greatx("nlgnn", "NLGCN", expected="impossible", why=ALL_VERTICES),
    _greatx("nlgnn", "NLGAT", columns=(), expected="impossible", why=ALL_VERTICES),
]

# ---- PyGCL/PyGCL
_GCL: dict[str, Any] = {"repository": "PyGCL/PyGCL", "absent": ("GCL", "tqdm", "pl_bolts"), "name": "GConv"}
_CONTRAST = [
    Entry(**_GCL, file="examples/MVGRL_node.py", make=lambda m: m.GConv(8, 6, 2), columns=("weight",)),
    Entry(**_GCL, file="examples/BGRL_L2L.py", make=lambda m: m.GConv(8, 6, 2), columns=("weight",), take=0),
    Entry(**_GCL, file="examples/BGRL_G2L.py", make=lambda m: m.GConv(8, 6, 2), take=0),
    Entry(**_GCL, file="examples/GBT.py", make=lambda m: m.GConv(8, 6), columns=("weight",)),
    Entry(**_GCL, file="examples/GRACE.py", make=lambda m: m.GConv(8, 6, torch.nn.ReLU, 2), columns=("weight",)),
    Entry(
        **_GCL, file="examples/GRACE_SupCon.py", make=lambda m: m.GConv(8, 6, torch.nn.RReLU, 2), columns=("weight",)
    ),
    Entry(**_GCL, file="examples/DGI_transductive.py", make=lambda m: m.GConv(8, 6, 2), columns=("weight",)),
    Entry(**_GCL, file="examples/DGI_inductive.py", make=lambda m: m.GConv(8, 6, 2), adapter=OnAdjacencies),
    Entry(
        **{**_GCL, "name": "Encoder"},
        file="examples/DGI_transductive.py",
        make=lambda m: m.Encoder(m.GConv(8, 6, 2), 6),
        take=0,
    ),
]

# ---- snap-stanford/ogb
_OGB: dict[str, Any] = {"repository": "snap-stanford/ogb", "absent": ("ogb", "logger")}
_NODE_PROPERTY = "examples/nodeproppred"
_OGB_NODES = [
    Entry(
        **_OGB,
        file=f"{_NODE_PROPERTY}/{file}.py",
        name=name,
        make=lambda m, name=name: getattr(m, name)(8, 6, 4, 3, 0.5),
        options={"ignore_cached": name == "GCN"},
    )
    for file in ("arxiv/gnn", "products/gnn", "proteins/gnn")
    for name in ("GCN", "SAGE")
]
_OGB_NODES += [
    Entry(
        **_OGB,
        file=f"{_NODE_PROPERTY}/products/cluster_gcn.py",
        name="SAGE",
        make=lambda m: m.SAGE(8, 6, 4, 3, 0.5),
    ),
    Entry(
        **_OGB,
        file="examples/linkproppred/citation2/cluster_gcn.py",
        name="GCN",
        make=lambda m: m.GCN(8, 6, 4, 3, 0.5),
    ),
]

# ---- benedekrozemberczki/pytorch_geometric_temporal
_TEMPORAL: dict[str, Any] = {"repository": "benedekrozemberczki/pytorch_geometric_temporal"}
_RECURRENT = "torch_geometric_temporal/nn/recurrent"
_PYG_TEMPORAL = [
    Entry(
        **_TEMPORAL,
        file=f"{_RECURRENT}/temporalgcn.py",
        name="TGCN",
        make=lambda m: m.TGCN(8, 6),
        columns=("weight",),
    ),
    Entry(
        **_TEMPORAL,
        file=f"{_RECURRENT}/temporalgcn.py",
        name="TGCN2",
        make=lambda m: m.TGCN2(8, 6, 1),
        adapter=OneBatch,
        columns=("weight",),
    ),
    Entry(
        **_TEMPORAL,
        file=f"{_RECURRENT}/attentiontemporalgcn.py",
        name="A3TGCN",
        make=lambda m: m.A3TGCN(2, 6, 4),
        adapter=lambda net: Periods(net, 4),
        options={"input_width": 8},
        columns=("weight",),
    ),
    Entry(
        **_TEMPORAL,
        file=f"{_RECURRENT}/gconv_gru.py",
        name="GConvGRU",
        make=lambda m: m.GConvGRU(8, 6, 2),
        columns=("weight",),
    ),
    Entry(
        **_TEMPORAL,
        file=f"{_RECURRENT}/gconv_lstm.py",
        name="GConvLSTM",
        make=lambda m: m.GConvLSTM(8, 6, 2),
        columns=("weight",),
        take=0,
    ),
    Entry(
        **_TEMPORAL,
        file=f"{_RECURRENT}/gc_lstm.py",
        name="GCLSTM",
        make=lambda m: m.GCLSTM(8, 6, 2),
        columns=("weight",),
        take=0,
    ),
    Entry(
        **_TEMPORAL,
        file=f"{_RECURRENT}/lrgcn.py",
        name="LRGCN",
        make=lambda m: m.LRGCN(8, 6, 3, 2),
        columns=("type",),
        types=3,
        take=0,
    ),
    Entry(
        **_TEMPORAL,
        file=f"{_RECURRENT}/dygrae.py",
        name="DyGrEncoder",
        make=lambda m: m.DyGrEncoder(8, 2, "mean", 6, 1),
        columns=("weight",),
        take=0,
    ),
    Entry(
        **_TEMPORAL,
        file=f"{_RECURRENT}/evolvegcno.py",
        name="EvolveGCNO",
        make=lambda m: m.EvolveGCNO(8),
        columns=("weight",),
        expected="impossible",
        why=STATE,
    ),
    Entry(
        **_TEMPORAL,
        file=f"{_RECURRENT}/evolvegcnh.py",
        name="EvolveGCNH",
        make=lambda m: m.EvolveGCNH(24, 8),
        columns=("weight",),
        expected="impossible",
        why=f"top-k pooling of all vertices; {STATE}",
    ),
    Entry(
        **_TEMPORAL,
        file=f"{_RECURRENT}/mpnn_lstm.py",
        name="MPNNLSTM",
        make=lambda m: m.MPNNLSTM(8, 6, 24, 1, 0.5),
        columns=("weight",),
        expected="impossible",
        why=SNAPSHOTS,
    ),
]

# ---- networks with edge attributes
_IBM: dict[str, Any] = {
    "repository": "IBM/Multi-GNN",
    "file": "models.py",
    "columns": ("attribute",),
    "attributes": 5,
    "rows": "edge",
}
_EDGE_NETWORKS = [
    Entry(**_IBM, name="GINe", make=lambda m: m.GINe(8, 2, n_hidden=6, edge_updates=True, edge_dim=5)),
    Entry(**_IBM, name="GATe", make=lambda m: m.GATe(8, 2, n_hidden=8, n_heads=2, edge_dim=5)),
    Entry(
        **_IBM,
        name="PNA",
        make=lambda m: m.PNA(8, 2, n_hidden=10, edge_updates=True, edge_dim=5, deg=torch.tensor([2, 3, 4])),
    ),
]
# ---- lightaime/deep_gcns_torch
_DEEP_GCNS: dict[str, Any] = {
    "repository": "lightaime/deep_gcns_torch",
    "absent": ("torch_cluster", "__init__", "ogb", "h5py", "utils.data_util"),
}
_DEEPER = SimpleNamespace(
    num_layers=3,
    dropout=0.5,
    block="res+",
    in_channels=8,
    hidden_channels=6,
    num_tasks=4,
    conv="gen",
    gcn_aggr="softmax",
    t=0.5,
    learn_t=True,
    p=1.0,
    learn_p=False,
    y=0.0,
    learn_y=False,
    msg_norm=True,
    learn_msg_scale=True,
    norm="layer",
    mlp_layers=2,
)
_OPT = SimpleNamespace(
    in_channels=8,
    n_filters=6,
    act="relu",
    norm="batch",
    bias=True,
    conv="mr",
    n_heads=1,
    n_blocks=3,
    block="res",
    dropout=0.2,
    n_classes=4,
)
_DEEP_GCN = [
    Entry(
        **_DEEP_GCNS,
        file="examples/ogb/ogbn_arxiv/model.py",
        name="DeeperGCN",
        make=lambda m: m.DeeperGCN(_DEEPER),
    ),
    Entry(
        **_DEEP_GCNS,
        file="examples/ogb/ogbn_products/model.py",
        name="DeeperGCN",
        make=lambda m: m.DeeperGCN(SimpleNamespace(**{**vars(_DEEPER), "gcn_aggr": "max", "block": "plain"})),
    ),
    Entry(
        **_DEEP_GCNS,
        file="examples/ppi/architecture.py",
        name="DeepGCN",
        make=lambda m: m.DeepGCN(_OPT),
        data=True,
        given={},
    ),
]

# ---- divelab/DIG
_DIG: dict[str, Any] = {
    "repository": "divelab/DIG",
    "file": "dig/sslgraph/utils/encoders.py",
    "adapter": OnDataWithBatch,
    "take": 1,
}
_DIG_ENCODERS = [
    Entry(**_DIG, name="GIN", make=lambda m: m.GIN(8, 6, 2, bn=True)),
    Entry(**_DIG, name="GCN", make=lambda m: m.GCN(8, 6, 2, act="prelu")),
    Entry(**_DIG, name="ResGCN", make=lambda m: m.ResGCN(8, 6, num_conv_layers=2)),
]

ENTRIES: tuple[Entry, ...] = (
    *_GRACE,
    *_NON_HOMOPHILY,
    *_NODEFORMER,
    *_SGFORMER,
    *_DEEP,
    *_BERN,
    *_GPR,
    *_DIRECTED,
    *_SIGNED,
    *_TAPE,
    *_TUNED_GNN,
    *_GREAT,
    *_CONTRAST,
    *_OGB_NODES,
    *_PYG_TEMPORAL,
    *_EDGE_NETWORKS,
    *_DEEP_GCN,
    *_DIG_ENCODERS,
)
