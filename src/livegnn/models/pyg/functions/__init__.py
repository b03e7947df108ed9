"""Functions and methods on rows that a forward may call, by subject; registry.py has all of them."""
