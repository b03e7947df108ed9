"""Benchmarks of the exact engine and the graph store."""
