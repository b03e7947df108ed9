"""Queries as values, as text and as JSON, and their plan."""
