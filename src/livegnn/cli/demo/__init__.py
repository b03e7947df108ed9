"""`livegnn demo`: its experiment, its replay and its plot. Start at command.py."""
