"""Benchmarks: one file per question; peers run beside, and a wrong answer fails (docs/benchmarks.md)."""
