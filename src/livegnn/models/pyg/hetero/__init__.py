"""Modules over several types of vertices."""
