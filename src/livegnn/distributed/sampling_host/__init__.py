"""Sampling and serving workers as Ray actors.

Start here: cluster.py, what users call. actors.py: which actors there are, and whether they work. worker_host.py: the
inside of an actor. The workers themselves are state machines over logs, in livegnn.sampling.cluster.
"""
