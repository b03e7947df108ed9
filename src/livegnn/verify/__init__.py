"""Message-passing operators of the user's own, proved before they are trusted and run (docs/verify.md)."""

from livegnn.verify.layer import OperatorLayer, layer
from livegnn.verify.operator import Operator
from livegnn.verify.propose import Attempt, Proposal, propose
from livegnn.verify.prove import prove
from livegnn.verify.report import Condition, Counterexample, Report

__all__ = [
    "Operator",
    "prove",
    "propose",
    "layer",
    # what they give
    "Attempt",
    "Condition",
    "Counterexample",
    "OperatorLayer",
    "Proposal",
    "Report",
]
