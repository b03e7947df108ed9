"""One ordered, durable history: offset -> batch of updates, or any bytes. Start with open_log and UpdateLog.

log = UpdateLog(open_log("sqlite:history.db"))
with log.attach(engine.graph):
    engine.apply(updates)            # is in the log before anyone sees it
replay(log, graph)                   # brings another graph, and its engines, to the same state
"""

from livegnn.log.interface import ByteLog, Entry
from livegnn.log.open import open_log
from livegnn.log.updates import Attachment, UpdateEntry, UpdateLog, replay

__all__ = ["Attachment", "ByteLog", "Entry", "UpdateEntry", "UpdateLog", "open_log", "replay"]
