"""Benchmarks of temporal sampling, caches and training."""
