"""Imported first by this package: without PyTorch or PyG, says which extra brings them."""

from livegnn.extras import need

need("torch", "train")
need("torch_geometric", "train")
