"""Benchmarks of pre-sampling and its serving."""
