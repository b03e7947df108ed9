"""How many network classes of public repositories go in unchanged: `make zoo` (docs/benchmarks.md)."""
