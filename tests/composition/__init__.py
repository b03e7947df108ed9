"""Every part with every other: one oracle test for each cell of docs/composition.md."""
