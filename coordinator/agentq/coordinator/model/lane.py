"""Parses lane names: `QUEUE:PRIORITY:DEMANDS`, with marks after the priority."""

from __future__ import annotations

from typing import Any


def parse_lane(lane: str) -> dict[str, Any]:
    """Queue, priority and demands, as a lane's name tells them."""
    queue, priority, demands = lane.split(":", 2)
    pairs = dict(pair.split("=", 1) for pair in demands.split(",")) if demands else {}
    return {"queue": queue, "priority": int(priority[0]), "demands": pairs}


def is_function_lane(lane: str) -> bool:
    """Whether function runs wait there, and nothing else."""
    return lane.split(":", 2)[1][1:2] == "f"


def is_front_lane(lane: str) -> bool:
    """Whether it is the lane before another, for runs that have had their wait."""
    return lane.split(":", 2)[1].endswith("+")
