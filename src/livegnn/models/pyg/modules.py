"""Row-local modules of torch and PyG, by exact type: Linear, activations, eval norms, Dropout, JumpingKnowledge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn
from torch_geometric import nn as pyg

from livegnn.models import ir
from livegnn.models.edges import HeadDot
from livegnn.models.pyg.context import BATCH, Import, Shaped, Unfit, refuse, to_array
from livegnn.models.pyg.functions.registry import HANDLERS
from livegnn.models.pyg.recurrent import unrolled, weights_of

_GLOBAL = "its statistics run over all vertices even in eval mode, so one update would change every row"
#: Norms whose result for one vertex depends on all others, with the reason.
GLOBAL_NORMS: dict[Any, str] = {
    pyg.GraphNorm: _GLOBAL,
    pyg.InstanceNorm: _GLOBAL,
    pyg.PairNorm: _GLOBAL,
    pyg.MeanSubtractionNorm: _GLOBAL,
    pyg.GraphSizeNorm: "it divides by the number of vertices, so one new vertex would change every row",
    pyg.DiffGroupNorm: "its groups are not supported yet",
}


#: Row-local modules that do what a function does, and their attributes that it is given, as argument=attribute where
#: the names differ.
_BATCH_NORM = ("batch_norm", "running_mean", "running_var", "weight", "bias", "eps")
_CONVOLUTION = ("weight", "bias", "stride", "padding", "dilation", "groups", "padding_mode")
_MAX_POOL = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_MEAN_POOL = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_LAYER_NORM = ("layer_norm", "normalized_shape", "weight", "bias", "eps")
_AS_FUNCTIONS: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys((nn.Identity, nn.Dropout, nn.Dropout1d, nn.AlphaDropout, nn.FeatureAlphaDropout), ("clone",)),
    **dict.fromkeys((nn.Dropout2d, nn.Dropout3d), ("clone",)),
    **dict.fromkeys((nn.Linear, pyg.Linear), ("linear", "weight", "bias")),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d), _BATCH_NORM),
    nn.LayerNorm: _LAYER_NORM,
    nn.ReLU: ("relu",),
    nn.LeakyReLU: ("leaky_relu", "negative_slope"),
    nn.ELU: ("elu", "alpha"),
    nn.SELU: ("selu",),
    nn.CELU: ("celu", "alpha"),
    nn.GELU: ("gelu", "approximate"),
    nn.SiLU: ("silu",),
    nn.Sigmoid: ("sigmoid",),
    nn.Tanh: ("tanh",),
    nn.Softplus: ("softplus", "beta", "threshold"),
    nn.ReLU6: ("relu6",),
    nn.Hardtanh: ("hardtanh", "min_val", "max_val"),
    nn.Hardswish: ("hardswish",),
    nn.Softsign: ("softsign",),
    nn.LogSigmoid: ("logsigmoid",),
    nn.PReLU: ("prelu", "weight"),
    nn.Mish: ("mish",),
    nn.Tanhshrink: ("tanhshrink",),
    nn.Softmax: ("softmax", "dim"),
    nn.LogSoftmax: ("log_softmax", "dim"),
    nn.RMSNorm: ("rms_norm", "normalized_shape", "weight", "eps"),
    nn.GroupNorm: ("group_norm", "num_groups", "weight", "bias", "eps"),
    nn.GLU: ("glu", "dim"),
    nn.Threshold: ("threshold", "threshold", "value"),
    nn.Hardsigmoid: ("hardsigmoid",),
    nn.Hardshrink: ("hardshrink", "lambd"),
    nn.Softshrink: ("softshrink", "lambd"),
    nn.RReLU: ("rrelu", "lower", "upper"),
    nn.Bilinear: ("bilinear", "weight", "bias"),
    nn.CosineSimilarity: ("cosine_similarity", "dim", "eps"),
    nn.Conv1d: ("conv1d", *_CONVOLUTION),
    nn.Conv2d: ("conv2d", *_CONVOLUTION),
    nn.MaxPool1d: ("max_pool1d", *_MAX_POOL),
    nn.MaxPool2d: ("max_pool2d", *_MAX_POOL),
    nn.AvgPool1d: ("avg_pool1d", *_MEAN_POOL),
    nn.AvgPool2d: ("avg_pool2d", *_MEAN_POOL),
    nn.AdaptiveAvgPool1d: ("adaptive_avg_pool1d", "output_size"),
    nn.AdaptiveAvgPool2d: ("adaptive_avg_pool2d", "output_size"),
    nn.AdaptiveMaxPool1d: ("adaptive_max_pool1d", "output_size"),
    nn.Flatten: ("flatten", "start_dim", "end_dim"),
    nn.Unflatten: ("unflatten", "dim", "sizes=unflattened_size"),
    **dict.fromkeys((nn.ZeroPad1d, nn.ConstantPad1d, nn.ZeroPad2d, nn.ConstantPad2d), ("pad", "pad=padding", "value")),
}
_OF_TWO = (nn.Bilinear, nn.CosineSimilarity)
LOCAL_MODULES = {*_AS_FUNCTIONS, pyg.BatchNorm, pyg.LayerNorm}
SEVERAL_ARGUMENTS = (pyg.JumpingKnowledge, pyg.MessageNorm)  # row-local modules of several rows


def _on_rows(module: Any, x: Any, record: Import, where: str, *others: ir.Value) -> Any:
    """The value of a module of LOCAL_MODULES on rows. Raises: ModelUnsupported."""
    kind = type(module)
    if kind is pyg.LayerNorm and not isinstance(x, ir.Value):
        raise refuse(where, "a vertex's row is a matrix here", "flatten it to one row before")
    if kind is pyg.BatchNorm:
        return _on_rows(module.module, x, record, where)
    if kind is pyg.LayerNorm:
        if module.mode != "node":
            raise refuse(
                where,
                f"mode={module.mode!r} takes mean and deviation over all vertices even in eval mode",
                "train it with mode='node'",
            )
        return ir.LayerNorm(x, to_array(module.weight), to_array(module.bias), module.eps)
    function, *names = _AS_FUNCTIONS[kind]
    try:
        attributes = {name.split("=")[0]: getattr(module, name.split("=")[-1]) for name in names}
        return HANDLERS[function](record, x, *others, **attributes)
    except Unfit as error:
        raise refuse(where, error.reason, error.remedy) from error


def message_norm(module: Any, x: ir.Value, message: ir.Value) -> ir.Value:
    """scale ||x|| message / ||message||."""
    length = ir.Activation(HeadDot(x, x), "sqrt")
    return ir.Combine(((float(module.scale), ir.Multiply(ir.L2Normalize(message), length)),))


def convert_local(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], record: Import, where: str) -> Any:
    """The value of a row-local module of LOCAL_MODULES or SEVERAL_ARGUMENTS; extra arguments must be None."""
    given = [each for each in (*args, *kwargs.values()) if each is not None]
    if type(module) is pyg.LayerNorm and module.mode == "node":  # whose batch does not matter
        given = [each for each in given if each is not BATCH]
    if type(module) is pyg.MessageNorm:
        if len(given) != 2 or not all(isinstance(each, ir.Value) for each in given):
            raise refuse(where, "it is not called with rows and messages alone", "call it with these two")
        return message_norm(module, *given)
    if type(module) in _OF_TWO and len(given) == 2 and all(isinstance(each, ir.Value) for each in given):
        return _on_rows(module, given[0], record, where, given[1])
    if len(given) != 1 or type(module) in _OF_TWO:
        raise refuse(where, f"it is called with {len(given)} arguments", "call it with the rows alone")
    if type(module) is pyg.JumpingKnowledge:
        xs = given[0]
        if not isinstance(xs, (list, tuple)) or not all(isinstance(x, ir.Value) for x in xs):
            raise refuse(where, "it is not called with a list of rows", "pass the states of the layers")
        return _jumping_knowledge(module, xs)
    if not isinstance(given[0], (ir.Value, Shaped)):
        raise refuse(where, "its argument is not one row per vertex", "call it with the rows")
    return _on_rows(module, given[0], record, where)


def _jumping_knowledge(module: Any, xs: Sequence[ir.Value]) -> ir.Value:
    if module.mode == "cat":
        return ir.Concat(tuple(xs))
    if module.mode == "max":
        return ir.Maximum(tuple(xs))
    forward, _ = unrolled(weights_of(module.lstm, "LSTM", "_l0"), xs)
    backward, _ = unrolled(weights_of(module.lstm, "LSTM", "_l0_reverse"), xs[::-1])
    weight, bias = to_array(module.att.weight), to_array(module.att.bias)
    scores = [ir.Linear(ir.Concat(pair), weight, bias) for pair in zip(forward, backward[::-1], strict=True)]
    alpha = ir.Softmax(ir.Concat(tuple(scores)))
    return ir.Combine(tuple((1.0, ir.Multiply(x, ir.Slice(alpha, t, t + 1))) for t, x in enumerate(xs)))


def uninitialised(module: Any) -> bool:
    """Whether a lazy parameter has not been given its shape yet."""
    return any(isinstance(each, nn.UninitializedParameter) for each in module.parameters(recurse=False))
