"""Benchmarks of the exact engine over parts: what crosses the wire, time, a cost model, two hosts."""
