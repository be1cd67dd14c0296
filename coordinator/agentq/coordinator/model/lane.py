"""Parses lane names: `QUEUE:PRIORITY:DEMANDS`, with marks after the priority."""

from __future__ import annotations

from typing import Any


def parse_lane(lane: str) -> dict[str, Any]:
    """The queue, priority and demands in a lane's name."""
    queue, priority, demands = lane.split(":", 2)
    pairs = dict(pair.split("=", 1) for pair in demands.split(",")) if demands else {}
    return {"queue": queue, "priority": int(priority[0]), "demands": pairs}


def is_function_lane(lane: str) -> bool:
    """Whether the lane holds function runs only."""
    return lane.split(":", 2)[1][1:2] == "f"


def is_front_lane(lane: str) -> bool:
    """Whether it is the lane before another, for runs that have waited already."""
    return lane.split(":", 2)[1].endswith("+")
