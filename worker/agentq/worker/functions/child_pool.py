"""The children of a worker: how many there are, and which of them gets which calls.

1. A child is started when there is a call that none of the others can take; one at a time, since most calls are short.
2. One that has something to do takes a slot of the worker. It keeps it for a moment after, so that a slot does not
   change hands with each of many short calls.
3. Calls are spread over those that have room. Once it is known that a function is asynchronous, its calls stay apart
   from the others.
4. A run that asks for limits, variables or a folder of its own has a child of its own, which ends with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.model.spec import parse_spec
from agentq.coordinator.runs.verbs import Claim
from agentq.worker.functions.child_config import ChildConfig, OwnChildConfig
from agentq.worker.functions.child_process import ChildProcess
from agentq.worker.functions.slot_sharing import SlotSharing
from agentq.worker.slots import WorkerSlots

SLOT_LINGER_MS = 20
"""How long a child that has nothing to do keeps its slot."""
_OWN_CHILD_FIELDS = ('"caps":', '"env":', '"cwd":')


class ChildPool:
    """Used by one thread at a time: `engine` sees to that."""

    def __init__(self, making: ChildConfig, hands: WorkerSlots, most: Callable[[], int]) -> None:
        self.making = making
        self._hands = hands
        self._most = most
        """How many there may be, but for those that are about to end."""
        self.all: list[ChildProcess] = []
        self.waiting: deque[Claim] = deque()
        """Calls that no child has been sent."""
        self.alone: deque[tuple[Claim, OwnChildConfig]] = deque()
        """Calls that need a child of their own."""
        self.awaited: set[str] = set()
        """Paths of asynchronous functions."""
        self._seated: dict[ChildProcess, int] = {}
        """Those that have a slot, and since when they have had nothing to do; 0 while they have."""
        self.turns = SlotSharing(hands)

    # ---- what there is room for

    def wanted(self, *, eager: bool) -> int:
        """How many more calls would find a place at once; if there is much to do, also in a child not started yet."""
        free = self._hands.child_slots_free()
        if self.alone and not free:
            return 0
        wanted = sum(self._room(child) for child in self._seated)
        resting = [child for child in self._shared() if child not in self._seated][:free]
        wanted += sum(child.room() for child in resting)
        if len(resting) < free and (eager or not wanted) and self.can_start():
            wanted += 1
        left = self._hands.runs_left()
        wanted -= len(self.waiting) + len(self.alone)
        return max(0, wanted if left is None else min(wanted, left))

    def _room(self, child: ChildProcess) -> int:
        return 0 if self.turns.is_leaving(child) else child.room()

    def can_start(self) -> bool:
        """Whether one more may be started: the last one has shown what it can do."""
        shared = list(self._shared())
        return len(shared) < self._most() and all(child.proven or child.idle for child in shared)

    @property
    def starting(self) -> bool:
        """Whether one is on its way that may have room soon."""
        return any(not child.proven for child in self._shared())

    def _shared(self) -> Iterator[ChildProcess]:
        return (child for child in self.all if child.own is None and not child.retiring)

    # ---- who gets what

    def needs_care(self) -> bool:
        """Whether something waits, to be sent or for a child."""
        return bool(self.waiting or self.alone) or any(child.unsent for child in self.all)

    def forget(self, claim: Claim) -> bool:
        """Whether it was waiting; it is not any more."""
        if claim in self.waiting:
            self.waiting.remove(claim)
            return True
        before = len(self.alone)
        self.alone = deque(each for each in self.alone if each[0] != claim)
        return len(self.alone) < before

    def taken_back(self) -> list[Claim]:
        """All that waits; it does not any more."""
        claims = [*self.waiting, *(claim for claim, _ in self.alone)]
        self.waiting.clear()
        self.alone.clear()
        return claims

    def take(self, claims: Sequence[Claim]) -> None:
        """Note what has to be called."""
        for claim in claims:
            if "\n" in claim.spec:  # which can only stand between the words of its JSON
                claim = claim._replace(spec=claim.spec.replace("\n", " "))
            brings = claim.spec.startswith("{") and any(word in claim.spec for word in _OWN_CHILD_FIELDS)
            if brings or not self.making.is_one_for_all:
                own = self._own(claim)
                if own is not None:
                    self.alone.append((claim, own))
                    continue
            self.waiting.append(claim)

    def _own(self, claim: Claim) -> OwnChildConfig | None:
        try:
            spec = parse_spec(claim.spec, claim.lane)
        except Exception:  # noqa: BLE001 - the child that it goes to says what is wrong with it
            return None
        caps = spec.caps.model_dump(exclude_none=True) if spec.caps is not None else {}
        return self.making.own(claim.lane, caps, spec.env, spec.cwd)

    def spread(self) -> None:
        """Send out what waits, as far as there is room."""
        if not self.waiting or (self.alone and not self._hands.child_slots_free()):
            return  # what wants a child of its own gets the slot of the next that has nothing to do
        if self.awaited:
            self._spread_apart()
        while self.waiting:
            open_ = self._open()
            if not open_:
                return
            share = -(-len(self.waiting) // len(open_))
            for child in open_:
                self._send(child, min(share, self._room(child)))

    def _spread_apart(self) -> None:
        """Asynchronous calls go where others are awaited; only what has no place there may go anywhere."""
        host = next((child for child in self._open() if child.asynchronous), None)
        mine = [claim for claim in self.waiting if _get_function_path(claim.spec) in self.awaited]
        if host is not None and mine:
            these = mine[: self._room(host)]
            gone = set(these)
            rest = [claim for claim in self.waiting if claim not in gone]
            self.waiting.clear()
            self.waiting.extend(rest)
            host.send(these)

    def _open(self) -> list[ChildProcess]:
        """Those that can take calls now: first those that have least to do."""
        found = [child for child in self._shared() if self._room(child) > 0]
        found.sort(key=lambda child: (bool(child.asynchronous), len(child.calls)))
        return [child for child in found if self._has_seat(child)]

    def _has_seat(self, child: ChildProcess) -> bool:
        if child in self._seated:
            self._seated[child] = 0
        elif not self._hands.take_child_slot():
            return False
        self._seated[child] = 0
        return True

    def _send(self, child: ChildProcess, number: int) -> None:
        claims = [self.waiting.popleft() for _ in range(min(number, len(self.waiting)))]
        if claims:
            child.send(claims)

    def start(self) -> ChildProcess | None:
        """Start what is missing: a child for a run that wants it alone, or one more for all."""
        if self.alone and self._hands.take_child_slot():
            claim, own = self.alone.popleft()
            child = self._begun(own, claim)
            child.send([claim])
            return child
        if self.waiting and self.can_start() and self._hands.child_slots_free() and not self._open():
            return self._begun(None, self.waiting[0], seated=False)
        return None

    def replace(self, child: ChildProcess) -> ChildProcess | None:
        """One is about to end: another takes its place before it does."""
        child.retiring = True
        return self._begun(None, None, seated=False) if len(list(self._shared())) < self._most() else None

    def _begun(self, own: OwnChildConfig | None, claim: Claim | None, *, seated: bool = True) -> ChildProcess:
        try:
            child = ChildProcess(self.making, own)
        except OSError as error:
            if seated:
                self._hands.free_child_slot()
            raise ChildNotStarted(claim, f"A child of the worker cannot be started: {error}.") from error
        self.all.append(child)
        if seated:
            self._seated[child] = 0
        return child

    def gone(self, child: ChildProcess) -> None:
        """It has ended."""
        self.all.remove(child)
        if child in self._seated:
            self._unseat(child, monotonic_ms())

    def _unseat(self, child: ChildProcess, now: int) -> None:
        del self._seated[child]
        self._hands.free_child_slot(reserve=self.turns.is_due(now))
        self.turns.look(self._seated, now)

    def take_turns(self, now: int) -> None:
        """Give up a slot for a run of another kind, if it is time for that."""
        self.turns.look(self._seated, now)
        idle = next((child for child in self._seated if child.idle), None)
        if idle is not None and self.turns.is_due(now):
            self._unseat(idle, now)

    def lingering(self) -> bool:
        """Give back the slots of those that have had nothing to do for a while; whether some are still to be."""
        now, still = monotonic_ms(), False
        for child, since in list(self._seated.items()):
            if not child.idle:
                self._seated[child] = 0
            elif not since and not self.alone:
                self._seated[child] = now
                still = True
            elif now - since < SLOT_LINGER_MS and not self.alone:
                still = True
            else:
                self._unseat(child, now)
        return still


class ChildNotStarted(Exception):
    """The system has no room for another process."""

    def __init__(self, claim: Claim | None, message: str) -> None:
        super().__init__(message)
        self.claim = claim


def _get_function_path(spec: str) -> str:
    return spec.partition("[")[0].partition("{")[0]
