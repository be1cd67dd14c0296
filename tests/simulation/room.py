"""Limits as the model sees them: who has room is derived from the runs, and nobody is let in beyond what there is."""

from __future__ import annotations

from dataclasses import dataclass

from simulation.heard import Heard
from simulation.life import Life
from simulation.seats import Seats


@dataclass(slots=True)
class Under:
    """What there is of a key."""

    most: int | None = None
    shut_until: int = 0


class Room(Seats):
    """The part of the model that knows the limits."""

    def __init__(self, *, gap_ms: int, lease_ms: int, grace_ms: int, forget_ms: int) -> None:
        super().__init__(gap_ms=gap_ms, lease_ms=lease_ms, grace_ms=grace_ms, forget_ms=forget_ms)
        self.room: dict[str, Under] = {}

    def hear_limit_set(self, heard: Heard) -> None:
        if heard.reply == "not_found":
            return
        self.room.setdefault(heard["limit"], Under()).most = int(heard["max"]) if heard["max"] != "" else None

    def hear_limit_block_until(self, heard: Heard) -> None:
        until = int(heard["until_ms"])
        self.room.setdefault(heard["limit"], Under()).shut_until = until if until > heard.now else 0

    def hear_duty_run_timers(self, heard: Heard) -> None:
        """A gate whose time has come is forgotten; though the clock be set back later."""
        for under in self.room.values():
            under.shut_until *= under.shut_until > heard.now

    def keys_of(self, life: Life) -> list[str]:
        """Limits that exist at all apply by themselves; a gate that has opened may linger until somebody looks."""
        return life.keys(self.room)

    def must_wait(self, heard: Heard, life: Life) -> bool:
        """Whether some key has no room for a run."""
        return any(self._refuses(heard, key, life) for key in self.keys_of(life))

    def may_wait(self, heard: Heard, life: Life) -> bool:
        """The same, or others wait, perhaps for that key, and it has not waited yet."""
        waiting = {key for other in self.runs.values() if other.in_line for key in self.keys_of(other)}
        keys = self.keys_of(life)
        behind = not life.reserved and not waiting.isdisjoint(keys)
        return behind or any(self._refuses(heard, key, life, reserved=True) for key in keys)

    def let_in(self, heard: Heard, life: Life) -> None:
        for key in self.keys_of(life):
            assert not self._refuses(heard, key, life), f"{life.line} was let in, and {key} has no room: {self.room}"
        life.in_line, life.reserved = False, True

    def take_room(self, heard: Heard, life: Life) -> None:
        """It is claimed. One that was let in has its room, though there may be less by now."""
        if not life.reserved:
            for key in self.keys_of(life):
                assert not self._refuses(heard, key, life), f"{life.line} was claimed beyond {key}: {self.room}"
        life.reserved = False

    def _refuses(self, heard: Heard, key: str, life: Life, *, reserved: bool = False) -> bool:
        """A run that was let in before a limit was set that applies by itself may count under it, or not yet."""
        under = self.room.get(key, Under())
        reserved = reserved or not (key == "global" or key.startswith("queue:"))
        holders = [each for each in self.runs.values() if each is not life and (each.held or each.reserved * reserved)]
        held = sum(key in self.keys_of(other) for other in holders)
        return under.shut_until > heard.now or (under.most is not None and held >= under.most)
