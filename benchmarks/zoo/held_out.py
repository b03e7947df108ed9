"""A second set of public classes, chosen before any was tried: how import does on code that it was not built for.

Rules of choice, set before any was tried: every class of a chosen file that is a network with one row per vertex or
edge. Left out are plain perceptrons, copies of classes in either set, layers that their file's networks hold, networks
that take no edges or no arguments at all, and classes that do not run with the installed PyG on a CPU. Nothing here is
code of theirs.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.zoo import held_out_adapters as wrap
from benchmarks.zoo.adapters import OnAdjacencies, OnGraphDict
from benchmarks.zoo.classes import ALL_VERTICES, ATTENTION, FIXED_GRAPH, FIXED_SIZE
from benchmarks.zoo.entries import Entry
from benchmarks.zoo.held_out_small import SMALL

#: More reasons of what is impossible, for any engine.
BATCH_STATISTICS = "its batch norm keeps no running statistics: it takes those of all vertices, also in use"
REWRITES_WEIGHTS = "every forward writes new values over its weights: its output is no function of the graph"
GRAM = "it multiplies by the inverse of a matrix summed over all vertices: one update would change every row"

_DATASET = SimpleNamespace(num_features=8, num_classes=4)


def _reset(net: Any) -> nn.Module:
    """For classes that leave memory uninitialized until the training script resets them."""
    net.reset_parameters()
    made: nn.Module = net
    return made


# ---- self-supervised encoders
_GCA: dict[str, Any] = {"repository": "CRIPAC-DIG/GCA", "file": "pGRACE/model.py"}
_BGRL: dict[str, Any] = {"repository": "nerdslab/bgrl", "file": "bgrl/models.py", "data": True}
_ENCODERS = [
    Entry(**_GCA, name="Encoder", make=lambda m: m.Encoder(8, 6, functional.relu, k=3, skip=True)),
    Entry(**_GCA, name="GRACE", make=lambda m: m.GRACE(m.Encoder(8, 6, nn.PReLU(), k=2, skip=True), 6, 6)),
    Entry(
        repository="Namkyeong/AFGRL",
        file="embedder.py",
        name="Encoder",
        make=lambda m: m.Encoder([8, 6, 4]),
        columns=("weight",),
        absent=("models", "utils"),
    ),
    Entry(
        **_BGRL,
        name="GCN",
        make=lambda m: m.GCN([8, 6, 4], batchnorm=True, weight_standardization=True),
        expected="impossible",
        why=REWRITES_WEIGHTS,
    ),
    Entry(
        **_BGRL,
        name="GraphSAGE_GCN",
        make=lambda m: m.GraphSAGE_GCN(8, 6, 4),
        expected="impossible",
        why=f"layer norm over the graph: {ALL_VERTICES}",
    ),
]

# ---- fraud and anomalies
_DGRAPH: dict[str, Any] = {"repository": "DGraphXinye/DGraphFin_baseline"}
_HEADS: dict[str, Any] = {"num_layers": 2, "dropout": 0.5, "layer_heads": [2, 1]}
_FRAUD = [
    Entry(
        **_DGRAPH,
        file="models/gcn.py",
        name="GCN",
        make=lambda m: m.GCN(8, 6, 4, 3, 0.5),
        options={"ignore_cached": True},
    ),
    Entry(**_DGRAPH, file="models/sage.py", name="SAGE", make=lambda m: m.SAGE(8, 6, 4, 3, 0.5)),
    Entry(**_DGRAPH, file="models/gat.py", name="GAT", make=lambda m: m.GAT(8, 6, 4, **_HEADS)),
    Entry(**_DGRAPH, file="models/gat.py", name="GATv2", make=lambda m: m.GATv2(8, 6, 4, **_HEADS)),
    Entry(
        **_DGRAPH,
        file="models/gat_neighsampler.py",
        name="GAT_NeighSampler",
        make=lambda m: m.GAT_NeighSampler(8, 6, 4, **_HEADS),
        adapter=OnAdjacencies,
    ),
    Entry(
        **_DGRAPH,
        file="models/gat_neighsampler.py",
        name="GATv2_NeighSampler",
        make=lambda m: m.GATv2_NeighSampler(8, 6, 4, **_HEADS),
        adapter=OnAdjacencies,
    ),
    Entry(
        **_DGRAPH,
        file="models/sage_neighsampler.py",
        name="SAGE_NeighSampler",
        make=lambda m: m.SAGE_NeighSampler(8, 6, 4, 2, 0.5),
        adapter=OnAdjacencies,
    ),
]

_PYGOD: dict[str, Any] = {"repository": "pygod-team/pygod"}
_ANOMALIES = [
    Entry(**_PYGOD, file="pygod/nn/dominant.py", name="DOMINANTBase", make=lambda m: m.DOMINANTBase(8, 6), take=0),
    Entry(**_PYGOD, file="pygod/nn/gae.py", name="GAEBase", make=lambda m: m.GAEBase(8, 6)),
    Entry(**_PYGOD, file="pygod/nn/cola.py", name="CoLABase", make=lambda m: m.CoLABase(8, 6, 2), take=0),
    Entry(**_PYGOD, file="pygod/nn/ocgnn.py", name="OCGNNBase", make=lambda m: m.OCGNNBase(8, 6)),
    Entry(
        **_PYGOD,
        file="pygod/nn/guide.py",
        name="GUIDEBase",
        make=lambda m: m.GUIDEBase(5, 3, hid_a=6),
        adapter=lambda net: wrap.FeaturesAndStructure(net, 3),
        options={"input_width": 8},
        take=1,
    ),
    Entry(
        **_PYGOD,
        file="pygod/nn/encoder.py",
        name="GNA",
        make=lambda m: m.GNA(8, 6, 3, 4, 0.5, functional.relu),
    ),
    Entry(
        **_PYGOD,
        file="pygod/nn/done.py",
        name="DONEBase",
        make=lambda m: m.DONEBase(8, 24, 6),
        adapter=wrap.AdjacencyAsStructure,
        take=5,
        expected="impossible",
        why=FIXED_SIZE,
    ),
]

# ---- spectral filters and propagation
_CHEB_ARGS = SimpleNamespace(hidden=6, K=3, q=0, dprate=0.5, dropout=0.5)
_CHEB_LARGE = SimpleNamespace(
    dataset="pokec", hidden_channels=6, num_layers=2, dropout=0.5, is_bns=True, K=3, dprate=0.5
)
_CHEB: dict[str, Any] = {"repository": "ivam-he/ChebNetII"}
_JACOBI: dict[str, Any] = {
    "repository": "GraphPKU/JacobiConv",
    "file": "impl/PolyConv.py",
    "columns": ("weight",),
    "options": {"input_width": 8},
}
_SPECTRAL = [
    *(
        Entry(
            **_CHEB,
            file="main/models.py",
            name=name,
            make=lambda m, name=name: getattr(m, name)(_DATASET, _CHEB_ARGS),
            data=True,
        )
        for name in ("ChebBase", "ChebNetII", "ChebNetII_V")
    ),
    *(
        Entry(
            **_CHEB,
            file="non-homophilous/models.py",
            name=name,
            make=lambda m, name=name: getattr(m, name)(8, 4, _CHEB_LARGE),
            adapter=OnGraphDict,
        )
        for name in ("ChebNetII", "ChebNetII_V")
    ),
    Entry(**_JACOBI, name="PolyConvFrame", make=lambda m: m.PolyConvFrame(m.JacobiConv, depth=3, cached=False)),
    Entry(**_JACOBI, name="Bern_prop", make=lambda m: m.Bern_prop(3)),
    Entry(
        repository="mengliu1998/DeeperGNN",
        file="DeeperGNN/dagnn.py",
        name="Net",
        make=lambda m: m.Net(_DATASET),
        data=True,
        given={"args": SimpleNamespace(hidden=6, K=3, dropout=0.5)},
    ),
    Entry(
        repository="mengliu1998/DeeperGNN",
        file="DeeperGNN/main_ogbnarxiv.py",
        name="Net",
        make=lambda m: m.Net(8, 4, 6, 3, 0.5),
        adapter=wrap.WeightsAsNorm,
        columns=("weight",),
        absent=("texttable", "ogb"),
    ),
    Entry(
        repository="chennnM/GCNII",
        file="PyG/ogbn-arxiv/arxiv.py",
        name="GCNIIdense_model",
        make=lambda m: m.GCNIIdense_model(8, 6, 4, 3, 0.5, 0.5, "bn"),
        data=True,
        options={"ignore_cached": True},
        absent=("ogb",),
    ),
    Entry(
        repository="gasteigerjo/gdc",
        file="models.py",
        name="GCN",
        make=lambda m: m.GCN(SimpleNamespace(data=SimpleNamespace(x=torch.ones(1, 8)), num_classes=4), hidden=[6]),
        adapter=wrap.WeightsAsAttributes,
        columns=("weight",),
    ),
]

# ---- heterophily
_GLO: dict[str, Any] = {
    "repository": "RecklessRonan/GloGNN",
    "file": "large-scale/models.py",
}
_LOCAL: dict[str, Any] = {"repository": "susheels/gnns-and-local-assortativity", "file": "models.py", "take": 1}
_HETEROPHILY = [
    Entry(
        **_GLO,
        name="LINK_Concat",
        make=lambda m: m.LINK_Concat(8, 6, 4, 2, 24, cache=False),
        adapter=OnGraphDict,
        expected="impossible",
        why=FIXED_SIZE,
    ),
    Entry(
        **_GLO,
        name="LINKX",
        make=lambda m: m.LINKX(8, 6, 4, 2, 24),
        adapter=OnGraphDict,
        expected="impossible",
        why=FIXED_SIZE,
    ),
    Entry(
        **_GLO,
        name="MLPNORM",
        make=lambda m: m.MLPNORM(24, 8, 6, 4, 0.5, 0.1, 0.5, 0.5, 0.5, 2, 2, 2, 2, "cpu"),
        adapter=wrap.DenseAdjacency,
        expected="impossible",
        why=f"{GRAM}; and {FIXED_SIZE}",
    ),
    Entry(
        **_GLO,
        name="GGCN",
        make=lambda m: m.GGCN(8, 3, 6, 4, 0.5, 1.0, 3.0, "cpu", use_degree=False),
        adapter=wrap.DenseAdjacency,
    ),
    Entry(
        **_GLO,
        name="ACMGCN",
        make=lambda m: m.ACMGCN(8, 6, 4, 0.5, "acmgcn"),
        adapter=wrap.LowAndHighPass,
        columns=("weight",),
    ),
    Entry(
        **_GLO,
        name="WRGAT",
        make=lambda m: m.WRGAT(8, 4, 3, dims=6),
        adapter=wrap.TypesAsColors,
        columns=("weight", "type"),
        types=3,
    ),
    Entry(**_LOCAL, name="GAT", make=lambda m: m.GAT(8, 4, 6)),
    Entry(**_LOCAL, name="GIN", make=lambda m: m.GIN(8, 4, 6)),
    Entry(**_LOCAL, name="GCN", make=lambda m: m.GCN(8, 4, 6)),
    Entry(**_LOCAL, name="SAGE", make=lambda m: m.SAGE(8, 4, 6)),
]

# ---- directed graphs
_MAGNET: dict[str, Any] = {"repository": "matthew-hirn/magnet"}
_SYM: dict[str, Any] = {**_MAGNET, "file": "src/layer/DGCN.py", "columns": ("weight", "type"), "types": 3}
_DI: dict[str, Any] = {**_MAGNET, "file": "src/layer/DiGCN.py", "options": {"ignore_cached": True}}
_PROXIMITY: dict[str, Any] = {"columns": ("weight", "type"), "types": 2}
_BASE: dict[str, Any] = {**_MAGNET, "file": "src/layer/geometric_baselines.py"}
_DIRECTED = [
    Entry(**_SYM, name="SymModel", make=lambda m: m.SymModel(8, 4, 6), adapter=wrap.Symmetrized),
    Entry(
        **_SYM,
        name="Sym_Link",
        make=lambda m: m.Sym_Link(8, 4, 6),
        adapter=lambda net: wrap.Symmetrized(net, pairs=True),
        rows="edge",
    ),
    Entry(**_DI, name="DiModel", make=lambda m: m.DiModel(8, 4, 6), columns=("weight",)),
    Entry(
        **_DI,
        name="DiGCNet",
        make=lambda m: m.DiGCNet(8, 4, 6),
        adapter=wrap.ScoresWeightedEdges,
        columns=("weight",),
        rows="edge",
    ),
    Entry(**_DI, **_PROXIMITY, name="DiGCN_IB", make=lambda m: m.DiGCN_IB(8, 6, 4), adapter=wrap.TwoProximities),
    Entry(
        **_DI,
        **_PROXIMITY,
        name="DiGCNet_IB",
        make=lambda m: m.DiGCNet_IB(8, 4, 6),
        adapter=lambda net: wrap.TwoProximities(net, pairs=True),
        rows="edge",
    ),
    *(
        Entry(**_BASE, name=name, make=make, adapter=wrap.ScoresEdges, rows="edge")
        for name, make in {
            "APPNP_Link": lambda m: m.APPNP_Link(8, 4, 6, K=3),
            "GIN_Link": lambda m: m.GIN_Link(8, 4, 6),
            "GCN_Link": lambda m: m.GCN_Link(8, 4, 6),
            "Cheb_Link": lambda m: m.Cheb_Link(8, 4, 6, 2),
            "SAGE_Link": lambda m: m.SAGE_Link(8, 4, 6),
            "GAT_Link": lambda m: m.GAT_Link(8, 4, 2, 6),
        }.items()
    ),
    *(
        Entry(**_BASE, name=name, make=make, data=True)
        for name, make in {
            "GATModel": lambda m: m.GATModel(8, 4, 2, 6),
            "SAGEModel": lambda m: m.SAGEModel(8, 4, 6),
            "GCNModel": lambda m: m.GCNModel(8, 4, 6),
            "ChebModel": lambda m: m.ChebModel(8, 4, 6, 2),
            "APPNP_Model": lambda m: m.APPNP_Model(8, 4, 6),
            "GIN_Model": lambda m: m.GIN_Model(8, 4, 6),
        }.items()
    ),
]

# ---- robustness, fairness, calibration
_ROBUST: dict[str, Any] = {"repository": "DSE-MSU/DeepRobust"}
_PYG_DEFENSE = "deeprobust/graph/defense_pyg"
_DEFENSE = "deeprobust/graph/defense"
_ROBUSTNESS = [
    Entry(
        **_ROBUST, file=f"{_PYG_DEFENSE}/gcn.py", name="GCN", make=lambda m: m.GCN(8, 6, 4, with_bn=True, device="cpu")
    ),
    Entry(**_ROBUST, file=f"{_PYG_DEFENSE}/sage.py", name="SAGE", make=lambda m: m.SAGE(8, 6, 4, with_bn=True)),
    Entry(
        **_ROBUST,
        file=f"{_PYG_DEFENSE}/appnp.py",
        name="APPNP",
        make=lambda m: m.APPNP(8, 6, 4, K=3, device="cpu"),
        columns=("weight",),
    ),
    Entry(**_ROBUST, file=f"{_PYG_DEFENSE}/gpr.py", name="GPRGNN", make=lambda m: m.GPRGNN(8, 6, 4, K=3)),
    Entry(**_ROBUST, file=f"{_PYG_DEFENSE}/gat.py", name="GAT", make=lambda m: m.GAT(8, 6, 4, 2, device="cpu")),
    Entry(
        **_ROBUST,
        file=f"{_DEFENSE}/chebnet.py",
        name="ChebNet",
        make=lambda m: m.ChebNet(8, 6, 4, device="cpu"),
        data=True,
    ),
    Entry(
        **_ROBUST,
        file=f"{_DEFENSE}/median_gcn.py",
        name="MedianGCN",
        make=lambda m: m.MedianGCN(8, 6, 4, device="cpu"),
        data=True,
    ),
    Entry(
        **_ROBUST,
        file=f"{_DEFENSE}/sgc.py",
        name="SGC",
        make=lambda m: m.SGC(8, 4, device="cpu"),
        data=True,
        options={"ignore_cached": True},
    ),
    Entry(**_ROBUST, file=f"{_DEFENSE}/gat.py", name="GAT", make=lambda m: m.GAT(8, 6, 4, 2, device="cpu"), data=True),
    Entry(
        repository="EnyanDai/RSGNN",
        file="models/GCN.py",
        name="GCN",
        make=lambda m: m.GCN(8, 6, 4, device="cpu"),
        columns=("weight",),
        absent=("deeprobust",),
    ),
]

_NIFTY: dict[str, Any] = {"repository": "chirag126/nifty", "absent": ("ipdb", "aif360")}
_FAIR_ARGS = SimpleNamespace(num_features=8, hidden=6, num_classes=4, dropout=0.5, clip_e=1.0)
_FAIR: dict[str, Any] = {
    "repository": "yushundong/PyGDebias",
    "file": "pygdebias/debiasing/FairVGNN.py",
    "absent": ("matplotlib",),
}
_GUIDE: dict[str, Any] = {"repository": "yushundong/PyGDebias", "file": "pygdebias/debiasing/GUIDE.py"}
_FAIRNESS = [
    Entry(**_NIFTY, file="models/gcn.py", name="GCN", make=lambda m: m.GCN(8, 6, 4, 0.5)),
    Entry(**_NIFTY, file="models/gin.py", name="GIN", make=lambda m: m.GIN(8, 6, 4, 0.5)),
    Entry(**_NIFTY, file="models/sage.py", name="SAGE", make=lambda m: m.SAGE(8, 6, 4, 0.5)),
    Entry(**_NIFTY, file="models/jk.py", name="JK", make=lambda m: m.JK(8, 6, 4, 0.5)),
    Entry(
        **_NIFTY,
        file="models/infomax.py",
        name="GraphInfoMax",
        make=lambda m: m.GraphInfoMax(m.Encoder_DGI(8, 6), m.Encoder_CLS(6, 4)),
    ),
    Entry(**_NIFTY, file="models/ssf.py", name="Encoder", make=lambda m: m.Encoder(8, 6, "sage")),
    Entry(**_NIFTY, file="models/ssf.py", name="SSF", make=lambda m: m.SSF(m.Encoder(8, 6, "gin"), 6, 6)),
    Entry(
        **_FAIR,
        name="GCN_encoder_scatter",
        make=lambda m: _reset(m.GCN_encoder_scatter(_FAIR_ARGS)),
        adapter=wrap.NoAdjacency,
    ),
    Entry(
        **_FAIR,
        name="GCN_encoder_spmm",
        make=lambda m: _reset(m.GCN_encoder_spmm(_FAIR_ARGS)),
        adapter=wrap.SparseAdjacencyToo,
        columns=("weight",),
    ),
    Entry(**_FAIR, name="GIN_encoder", make=lambda m: m.GIN_encoder(_FAIR_ARGS), adapter=wrap.NoAdjacency),
    Entry(**_FAIR, name="SAGE_encoder", make=lambda m: m.SAGE_encoder(_FAIR_ARGS), adapter=wrap.NoAdjacency),
    Entry(**_GUIDE, name="JK", make=lambda m: m.JK(8, 6, 4, 0.5)),
    Entry(**_GUIDE, name="GIN", make=lambda m: m.GIN(8, 6, 4, 0.5)),
]

_CONFORMAL: dict[str, Any] = {"repository": "snap-stanford/conformalized-gnn"}
_MODEL = "conformalized_gnn/model.py"
_CALIBRATOR: dict[str, Any] = {**_CONFORMAL, "file": "conformalized_gnn/calibrator.py"}


def _ensemble(m: Any) -> nn.Module:
    """ETS after its fit, which sets the three weights."""
    net: Any = m.ETS(_classifier(m), 4, "cpu")
    net.w1, net.w2, net.w3 = 0.5, 0.3, 0.2
    made: nn.Module = net
    return made


def _classifier(m: Any) -> Any:
    return m.GCN(8, 4, 6, 0.5, 2)


_CALIBRATION = [
    Entry(
        **_CONFORMAL,
        file=_MODEL,
        name="GNN",
        make=lambda m: m.GNN(8, 6, 4, "GCN"),
        columns=("weight",),
        options={"ignore_cached": True},
    ),
    Entry(
        **_CONFORMAL,
        file=_MODEL,
        name="GNN_Multi_Layer",
        make=lambda m: m.GNN_Multi_Layer(8, 6, 4, "GraphSAGE", aggr="sum", num_layers=3),
    ),
    Entry(
        **_CONFORMAL,
        file=_MODEL,
        name="ConfGNN",
        make=lambda m: m.ConfGNN(
            m.GNN(8, 6, 4, "GAT"),
            None,
            SimpleNamespace(confnn_hidden_dim=6, heads=1, aggr="sum"),
            2,
            "GAT",
            4,
            "classification",
        ),
        take=0,
    ),
    Entry(**_CALIBRATOR, name="ETS", make=_ensemble),
    Entry(**_CALIBRATOR, name="TS", make=lambda m: m.TS(_classifier(m), "cpu")),
    Entry(**_CALIBRATOR, name="VS", make=lambda m: m.VS(_classifier(m), 4, "cpu")),
    Entry(**_CALIBRATOR, name="GCN", make=_classifier),
    Entry(**_CALIBRATOR, name="CaGCN", make=lambda m: m.CaGCN(_classifier(m), 24, 4, 0.5, "cpu")),
    Entry(
        **_CALIBRATOR,
        name="GATS",
        make=lambda m: m.GATS(
            _classifier(m),
            torch.tensor([[0, 1, 2], [1, 2, 0]]),
            24,
            torch.ones(24, dtype=torch.bool),
            4,
            torch.zeros(24),
            2,
            1.0,
            "cpu",
        ),
        expected="impossible",
        why=FIXED_GRAPH,
    ),
]

# ---- distribution shifts
_SHIFT: dict[str, Any] = {"repository": "qitianwu/GraphOOD-EERM"}
_NETS = "multigraph/nets.py"
_SYNTHETIC = "synthetic/create_synthetic.py"
_SHIFTS = [
    Entry(**_SHIFT, file=_NETS, name="GCN", make=lambda m: m.GCN(8, 6, 4, 3, 0.5), columns=("weight",)),
    Entry(**_SHIFT, file=_NETS, name="SAGE", make=lambda m: m.SAGE(8, 6, 4, 3)),
    Entry(**_SHIFT, file=_NETS, name="GAT", make=lambda m: m.GAT(8, 6, 4, 3)),
    Entry(**_SHIFT, file=_NETS, name="GPRGNN", make=lambda m: m.GPRGNN(8, 6, 4, K=3)),
    Entry(**_SHIFT, file=_SYNTHETIC, name="GCN_gen", make=lambda m: m.GCN_gen(8, 6, 4, 3), columns=("weight",)),
    Entry(**_SHIFT, file=_SYNTHETIC, name="SGC_gen", make=lambda m: m.SGC_gen(8, 4, 2)),
    Entry(**_SHIFT, file=_SYNTHETIC, name="SAGE_gen", make=lambda m: m.SAGE_gen(8, 6, 4)),
    Entry(**_SHIFT, file=_SYNTHETIC, name="GAT_gen", make=lambda m: m.GAT_gen(8, 6, 4, 3)),
]

# ---- physics, wireless links, particles, meshes
_MESH: dict[str, Any] = {
    "repository": "echowve/meshGraphNets_pytorch",
    "columns": ("attribute",),
    "attributes": 3,
}
_AIRFOIL: dict[str, Any] = {"repository": "Extrality/AirfRANS"}
_ENCODER, _DECODER = [8, 6, 4], [4, 6, 2]
_LINKS: dict[str, Any] = {
    "repository": "yshenaw/GNN-Resource-Management",
    "name": "IGCNet",
    "make": lambda m: m.IGCNet(),
    "data": True,
    "columns": ("attribute",),
    "absent": (
        "matplotlib",
        "wireless_networks_generator",
        "wmmse",
        "function_wmmse_powercontrol",
        "FPLinQ",
        "helper_functions",
    ),
}


def _link(file: str, width: int, attributes: int, given: dict[str, Any] | None = None) -> Entry:
    """No layer states the widths: the file's networks are calls of perceptrons."""
    options = {"input_width": width, "edge_width": attributes}
    return Entry(**_LINKS, file=file, width=width, attributes=attributes, given=given or {}, options=options)


def _perceptron(widths: list[int]) -> nn.Module:
    return nn.Sequential(nn.Linear(widths[0], widths[1]), nn.ReLU(), nn.Linear(widths[1], widths[2]))


_PHYSICS = [
    Entry(
        **_MESH,
        file="model/model.py",
        name="EncoderProcesserDecoder",
        make=lambda m: m.EncoderProcesserDecoder(2, 8, 3, 6),
        data=True,
    ),
    Entry(
        **_MESH,
        file="model/simulator.py",
        name="Simulator",
        make=lambda m: m.Simulator(2, 11, 3, "cpu"),
        adapter=wrap.WithoutNoise,
        width=3,
        whole=9,
    ),
    Entry(
        **_AIRFOIL,
        file="models/GraphSAGE.py",
        name="GraphSAGE",
        make=lambda m: m.GraphSAGE(
            {
                "nb_hidden_layers": 2,
                "size_hidden_layers": 6,
                "bn_bool": True,
                "encoder": _ENCODER,
                "decoder": _DECODER,
            },
            _perceptron(_ENCODER),
            _perceptron(_DECODER),
        ),
        data=True,
        expected="impossible",
        why=BATCH_STATISTICS,
    ),
    Entry(
        repository="GageDeZoort/interaction_network_paper",
        file="models/interaction_network.py",
        name="InteractionNetwork",
        make=lambda m: m.InteractionNetwork(6),
        columns=("attribute",),
        options={"input_width": 3, "edge_width": 4},
        width=3,
        attributes=4,
        rows="edge",
    ),
    _link("D2D/Beamforming/main.py", 8, 4, {"Nt": 2, "device": torch.device("cpu")}),
    _link("D2D/Gaussian/weighted.py", 3, 2),
    _link("D2D/Gaussian/unweighted.py", 3, 2),
    _link("D2D/Spatial Deep Learning/main.py", 2, 1),
    _link("D2D/Weighted Power Control/main.py", 3, 1),
]

# ---- the rest: positions, explanations, attention, genes, recommendation, knowledge graphs
_POSITION: dict[str, Any] = {"repository": "JiaxuanYou/P-GNN", "file": "model.py", "data": True, "absent": ("pdb",)}
_GENES: dict[str, Any] = {"repository": "zjupgx/modig", "file": "modig.py"}
_RECOMMEND: dict[str, Any] = {"repository": "RUCAIBox/RecBole-GNN", "file": "recbole_gnn/model/layers.py"}
_STAR = {"STATEMENT_LEN": 3, "STAREARGS": {"GCN_DROP": 0.1, "ATTENTION": False, "BIAS": False, "OPN": "rotate"}}
_REST = [
    *(
        Entry(**_POSITION, name=name, make=lambda m, name=name: getattr(m, name)(8, 6, 6, 4, layer_num=3))
        for name in ("GCN", "SAGE", "GAT", "GIN")
    ),
    Entry(
        repository="RexYing/gnn-model-explainer",
        file="models_pyg.py",
        name="GCNNet",
        make=lambda m: m.GCNNet(8, 6, 4, 3),
        adapter=wrap.FeaturesAsFeat,
    ),
    Entry(
        repository="devnkong/FLAG",
        file="ogb/nodeproppred/products/gat_ns.py",
        name="GAT",
        make=lambda m: m.GAT(8, 6, 4, 2, 2, False, False),
        adapter=OnAdjacencies,
        given={"dataset": _DATASET},
        absent=("ogb", "attacks", "torch_geometric.data.NeighborSampler"),
    ),
    Entry(**_GENES, name="Gat_En", make=lambda m: m.Gat_En(8, 6, 4, 0.5), data=True),
    Entry(
        **_GENES,
        name="MODIG",
        make=lambda m: m.MODIG(8, 6, 4, 0.5),
        adapter=wrap.ListOfGraphs,
        expected="impossible",
        why=ATTENTION,
    ),
    Entry(
        **_RECOMMEND,
        name="LightGCNConv",
        make=lambda m: m.LightGCNConv(8),
        columns=("weight",),
        options={"input_width": 8},
    ),
    Entry(**_RECOMMEND, name="BiGNNConv", make=lambda m: m.BiGNNConv(8, 6), columns=("weight",)),
    Entry(**_RECOMMEND, name="SRGNNCell", make=lambda m: m.SRGNNCell(8)),
    Entry(
        repository="migalkin/StarE",
        file="models/gnn_layer.py",
        name="StarEConvLayer",
        make=lambda m: m.StarEConvLayer(8, 6, 3, torch.tanh, _STAR),
        adapter=lambda net: wrap.WithInverseRelations(net, 3, 8),
        columns=("type",),
        types=3,
        take=0,
    ),
]

ENTRIES: tuple[Entry, ...] = (
    *_ENCODERS,
    *_FRAUD,
    *_ANOMALIES,
    *_SPECTRAL,
    *_HETEROPHILY,
    *_DIRECTED,
    *_ROBUSTNESS,
    *_FAIRNESS,
    *_CALIBRATION,
    *_SHIFTS,
    *_PHYSICS,
    *_REST,
    *SMALL,
)
