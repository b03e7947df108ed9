"""Parts of operators, right and wrong, to be put together at random."""

import itertools
import random

import numpy as np

from livegnn.verify import Operator

W = np.random.default_rng(0).normal(size=(3, 1))


def unless_zero(nct):
    return np.where(nct == 0, 1, nct)


MESSAGES = (
    None,
    lambda h_u: h_u @ W,
    lambda h_u: np.exp(h_u @ W),
    lambda h_u: np.maximum(h_u @ W, 0),
    lambda h_u: h_u,
    lambda h_u: np.abs(h_u),
    lambda h_u, h_v: np.tanh(h_u @ W + h_v @ W),
    lambda h_u: -np.exp(h_u @ W),
    lambda weight: weight,
    lambda h_u: 1 / (1 + np.exp(-(h_u @ W))),
)
CONTEXTS = (
    None,
    "count",
    "sum",
    "max",
    "min",
    lambda mlc: np.exp(mlc).sum(axis=0),
    lambda mlc: (mlc**2).sum(axis=0),
    lambda mlc: np.log(np.exp(mlc).sum(axis=0)),
    lambda mlc: mlc.mean(axis=0),
    lambda mlc: mlc.prod(axis=0),
    lambda mlc: np.ones(1) * mlc.shape[0] ** 2,
)
COMBINATIONS = (
    (None, None),
    (lambda nct, mlc: mlc / nct, lambda nct, msg: msg * nct),
    (lambda nct, mlc: mlc * nct, lambda nct, msg: msg / nct),
    (lambda nct, mlc: mlc / np.sqrt(nct), lambda nct, msg: msg * np.sqrt(nct)),
    (lambda nct, mlc: mlc * np.exp(-nct), lambda nct, msg: msg * np.exp(nct)),
    (
        lambda nct, mlc: np.where(nct == 0, 0, mlc / unless_zero(nct)),
        lambda nct, msg: np.where(nct == 0, 0, msg * nct),
    ),
    (lambda nct, mlc: mlc / np.maximum(nct, 1), lambda nct, msg: msg * np.maximum(nct, 1)),
    (lambda nct, mlc: mlc + nct, lambda nct, msg: msg - nct),
    (lambda nct, mlc: -mlc, lambda nct, msg: -msg),
    (lambda nct, mlc: mlc / (1 + np.abs(nct)), lambda nct, msg: msg * (1 + np.abs(nct))),
    (lambda nct, mlc: nct / mlc, lambda nct, msg: nct / msg),
)
AGGREGATES = (
    "sum",
    "max",
    "min",
    "mean",
    lambda msg: np.sqrt((msg**2).sum(axis=0)),
    lambda msg: np.log(np.exp(msg).sum(axis=0)),
    lambda msg: np.abs(msg).sum(axis=0),
    lambda msg: msg.prod(axis=0),
)
SOURCES = (None, lambda h_u: h_u, lambda h_u: np.abs(h_u))


def drawn(count, seed):
    """That many operators, and their parts by index."""
    parts = (MESSAGES, CONTEXTS, COMBINATIONS, AGGREGATES, SOURCES)
    every = list(itertools.product(*(range(len(part)) for part in parts)))
    for chosen in random.Random(seed).sample(every, count):
        message, context, (there, back), aggregate, source = (part[i] for part, i in zip(parts, chosen, strict=True))
        yield (
            chosen,
            Operator(
                3,
                msg_local=message,
                nbr_ctx=context,
                msg_cbn=there,
                msg_cbn_inverse=back,
                aggregate=aggregate,
                source_nn=source,
            ),
        )
