"""Models by name, so that a config file can name one, and a checkpoint say what it is of."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from livegnn.errors import ModelMismatch
from livegnn.temporal.models.dysat import DySAT
from livegnn.temporal.models.interface import TemporalModel
from livegnn.temporal.models.layered import TGAT, TemporalGAT, TemporalSAGE
from livegnn.temporal.models.tgn import TGN

_MODELS: dict[str, Callable[..., TemporalModel]] = {
    "tgn": TGN,
    "tgat": TGAT,
    "dysat": DySAT,
    "sage": TemporalSAGE,
    "gat": TemporalGAT,
}


def names() -> tuple[str, ...]:
    """Every name that `build` knows."""
    return tuple(_MODELS)


def build(config: Mapping[str, Any]) -> TemporalModel:
    """A fresh model: `config["name"]` says which, the rest are its arguments; defaults for those that are missing.

    build(model.config) is a model of the same shape, with weights of its own.

    Raises:  ModelMismatch for an unknown name or argument; ValueInvalid for arguments that make no model.
    """
    arguments = dict(config)
    name = arguments.pop("name", None)
    if name not in _MODELS:
        raise ModelMismatch(f"[build] expected a name among {', '.join(_MODELS)}, got {name!r}; set config['name']")
    make = _MODELS[name]
    known = inspect.signature(make).parameters
    unknown = [argument for argument in arguments if argument not in known]
    if unknown:
        raise ModelMismatch(
            f"[build] expected arguments of {name} among {', '.join(known)}, got {', '.join(unknown)}; fix the config"
        )
    return make(**arguments)
