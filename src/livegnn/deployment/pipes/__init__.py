"""Sources and sinks of a deployment: records in, changes out. docs/pipes.md describes them.

    reader (files, stdin, broker) -> mapping -> batches -> committer      one thread for each source: source.py
    ring of changes -> filter -> events -> target (webhook, broker, files)     one thread for each sink: sink.py

The place of a source is in the log, with the batch that was read up to it. The place of a sink is a file of its own.
"""
