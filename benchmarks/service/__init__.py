"""Benchmarks of a deployment and its service."""
