"""Benchmarks: one file per question; peers run in turns, and a wrong answer fails (docs/benchmarks.md)."""
