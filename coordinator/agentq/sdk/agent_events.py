"""What an agent does, as `Run.agent_events` tells it: `match doing: case Said(): …`."""

from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    AnyAgentEvent,
    FileChangeEvent,
    ModelTurnEvent,
    ResultEvent,
    SleepRequestEvent,
    SpendingEvent,
    StartedEvent,
    TextEvent,
    ThoughtEvent,
    ThrottledEvent,
    TodoListEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    ToolResultEvent,
    UnknownEvent,
)

__all__ = [
    "AccountLimitEvent",
    "AnyAgentEvent",
    "FileChangeEvent",
    "ModelTurnEvent",
    "ResultEvent",
    "SleepRequestEvent",
    "SpendingEvent",
    "StartedEvent",
    "TextEvent",
    "ThoughtEvent",
    "ThrottledEvent",
    "TodoListEvent",
    "ToolCallEvent",
    "ToolDeniedEvent",
    "ToolResultEvent",
    "UnknownEvent",
]
