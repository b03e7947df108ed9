"""The soak: random work on every part of livegnn for an hour, from one seed; docs/soak.md.

__main__.py   the command line                 scheduler.py  slices as processes, two at a time, watched
slices.py     what one of these processes does  scenarios.py  the list of scenarios
counts.py     what was done and covered        memory.py     resident bytes, and what counts as growth
table.py      what is said at the end          world.py      random graphs and batches, as arrays
"""
