"""Temporal GNNs in PyTorch (livegnn[train]). Start here: interface.py, then inputs.py."""
