"""PyG's convolutions as values. `registry` lists them; each family has a file of its own."""
