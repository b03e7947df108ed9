"""Samples kept ready in one process, and their serving."""
