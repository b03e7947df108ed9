"""The exact engine over many workers: lg.Cluster. docs/distributed.md has the rules.

Start here: cut.py, what a part of a graph is; part.py, the engine of one; worker.py, what it remembers; recovery.py,
how all of them go on where one is lost; shuffle.py, how they cut the graph anew; directory.py, what the driver keeps;
cluster.py, the verbs. Nothing but ray_crew.py knows of Ray.
"""
