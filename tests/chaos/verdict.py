"""What must be true of a scene when it is over, whatever was done to it."""

from __future__ import annotations

from collections import Counter

from chaos.scene import Scene

from agentq.coordinator.events.stream import Event, PartitionEvents
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State


def judge(scene: Scene) -> None:
    """Every acknowledged run ended once, with its effect; no effect is a superseded attempt's; nothing is left over."""
    acknowledged = scene.acknowledged()
    assert len(acknowledged) == len(set(acknowledged))
    records = {run: scene.crew.records.get(run) for run in acknowledged}
    ends = Counter(event.run for event in events(scene) if event.state in TERMINAL_STATES)
    assert {run: record.state for run, record in records.items() if record.state is not State.COMPLETED} == {}
    assert {run: ends[run] for run in acknowledged if ends[run] != 1} == {}, "a run ends once"

    lives = scene.journal.lives()
    effects = {(life.run, life.attempt) for life in lives if life.ended}
    accepted = {(run, record.attempt) for run, record in records.items()}
    assert accepted - effects == set(), "the attempt that was accepted has had its effect"
    assert stale(scene) == [], "an effect of an attempt whose run had begun anew"
    scene.crew.check()
    assert [one for one in scene.crew.records.workers() if one.runs] == [], "nobody holds anything"
    assert scene.journal.survivors() == []


def events(scene: Scene) -> list[Event]:
    return list(PartitionEvents(scene.crew.queue.store).replay())


def stale(scene: Scene) -> list[str]:
    """Attempts that came to their end after the next of their run had begun, though their worker could have known."""
    return [
        f"{before.run} {before.fence}"
        for before, _ in scene.journal.overlaps()
        if before.ended and before.worker not in scene.frozen
    ]


def repeated(scene: Scene) -> int:
    """Attempts that did again what another had begun."""
    lives = scene.journal.lives()
    return len(lives) - len({life.run for life in lives})
