"""The slow, obvious truth in float64 NumPy, straight from the formulas; for tests and for the engine's audits.

Imports NumPy and `livegnn.types` only: an oracle that shared code with what it judges would lie.
"""
