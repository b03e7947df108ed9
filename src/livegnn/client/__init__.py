"""A client of `livegnn serve`: Client, and AsyncClient for asyncio. Needs httpx (the extra client), and no NumPy.

It imports neither PyTorch nor the compiled module, so it suits programs that only ask.
"""

from livegnn.client.asynchronous import AsyncChangeStream, AsyncClient
from livegnn.client.edits import UpdateList
from livegnn.client.events import ChangeEvent, MissedEvent
from livegnn.client.replies import (
    ExplainReply,
    HealthReply,
    LinksReply,
    ModelsReply,
    NextReply,
    PipesReply,
    PredictionsReply,
    RepartitionReply,
    RowsReply,
    ScoresReply,
    SnapshotReply,
    TopReply,
    WhatIfReply,
    WriteReply,
)
from livegnn.client.retries import RetryPolicy
from livegnn.client.synchronous import ChangeStream, Client

__all__ = [
    "AsyncChangeStream",
    "AsyncClient",
    "ChangeEvent",
    "ChangeStream",
    "Client",
    "ExplainReply",
    "HealthReply",
    "LinksReply",
    "MissedEvent",
    "ModelsReply",
    "NextReply",
    "PipesReply",
    "PredictionsReply",
    "RepartitionReply",
    "RetryPolicy",
    "RowsReply",
    "ScoresReply",
    "SnapshotReply",
    "TopReply",
    "UpdateList",
    "WhatIfReply",
    "WriteReply",
]
