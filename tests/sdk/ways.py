"""The two ways to a server, which the same tests take: straight to Redis, and through a coordinator over HTTP."""

from __future__ import annotations

from agentq.sdk import Client

BOTH_WAYS = (
    "test_sdk_administration",
    "test_sdk_event_loops",
    "test_sdk_following",
    "test_sdk_results",
    "test_sdk_submitting",
)
"""The modules whose claims hold for either."""
BESIDE: dict[Client, Client] = {}


def beside(client: Client) -> Client:
    """A client of the same namespace that reaches Redis, for what workers and tests do."""
    return BESIDE.get(client, client)
