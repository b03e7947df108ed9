"""Imported first by this package: without PyTorch or PyG, says which extra brings them."""

from livegnn.optional import need

need("torch", "train")
need("torch_geometric", "train")
