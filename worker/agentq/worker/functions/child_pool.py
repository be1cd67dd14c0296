"""The children of a worker: how many there are, and which child gets which calls.

1. Start a child when no other can take a call; one at a time, because most calls are short.
2. A child with calls takes a slot of the worker, and keeps it for a moment after, so that a slot does not change hands
   with each of many short calls.
3. Calls are spread over children with room. Once a function is known to be asynchronous, its calls stay apart from the
   others.
4. A run with limits, variables or a folder of its own gets a child of its own, which ends with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.model.spec import parse_spec
from agentq.coordinator.runs.verbs import Claim
from agentq.worker.functions.child_config import ChildConfig, OwnChildConfig
from agentq.worker.functions.child_process import ChildProcess
from agentq.worker.slots import WorkerSlots

SLOT_LINGER_MS = 20
"""How long an idle child keeps its slot."""
FULL_SLOTS_MS = 1_000
"""How long children may hold every slot."""
_OWN_CHILD_FIELDS = ('"caps":', '"env":', '"cwd":')


class ChildPool:
    """Not thread-safe; the engine holds the lock."""

    def __init__(self, config: ChildConfig, slots: WorkerSlots, children_max: Callable[[], int]) -> None:
        self.config = config
        self._slots = slots
        self._children_max = children_max
        """How many children there may be, besides those about to end."""
        self.all: list[ChildProcess] = []
        self.waiting: deque[Claim] = deque()
        """Calls not sent to any child yet."""
        self.need_own_child: deque[tuple[Claim, OwnChildConfig]] = deque()
        """Calls that need a child of their own."""
        self.async_paths: set[str] = set()
        """Paths of asynchronous functions."""
        self._slot_idle_ms: dict[ChildProcess, int] = {}
        """The children with a slot, and since when each has been idle; 0 while it has calls."""
        self.slot_sharing = SlotSharing(slots)

    # ---- what there is room for

    def call_room(self, *, eager: bool) -> int:
        """How many more calls could be placed at once; if `eager`, also in a child not started yet."""
        free = self._slots.child_slots_free()
        if self.need_own_child and not free:
            return 0
        room = sum(self._child_room(child) for child in self._slot_idle_ms)
        without_slot = [child for child in self._shared() if child not in self._slot_idle_ms][:free]
        room += sum(child.room() for child in without_slot)
        if len(without_slot) < free and (eager or not room) and self.can_start():
            room += 1
        runs_left = self._slots.runs_left()
        room -= len(self.waiting) + len(self.need_own_child)
        return max(0, room if runs_left is None else min(room, runs_left))

    def _child_room(self, child: ChildProcess) -> int:
        return 0 if self.slot_sharing.is_leaving(child) else child.room()

    def can_start(self) -> bool:
        """Whether another child may be started: the last one has begun a call or is idle."""
        shared = list(self._shared())
        return len(shared) < self._children_max() and all(child.proven or child.idle for child in shared)

    @property
    def is_starting(self) -> bool:
        """Whether a child is starting that may have room soon."""
        return any(not child.proven for child in self._shared())

    def _shared(self) -> Iterator[ChildProcess]:
        return (child for child in self.all if child.own is None and not child.retiring)

    # ---- who gets what

    def needs_watcher(self) -> bool:
        """Whether calls wait to be sent, or for a child."""
        return bool(self.waiting or self.need_own_child) or any(child.unsent for child in self.all)

    def forget(self, claim: Claim) -> bool:
        """Remove a waiting call; returns whether it was waiting."""
        if claim in self.waiting:
            self.waiting.remove(claim)
            return True
        before = len(self.need_own_child)
        self.need_own_child = deque(each for each in self.need_own_child if each[0] != claim)
        return len(self.need_own_child) < before

    def take_back_all(self) -> list[Claim]:
        """Remove and return all waiting calls."""
        claims = [*self.waiting, *(claim for claim, _ in self.need_own_child)]
        self.waiting.clear()
        self.need_own_child.clear()
        return claims

    def take(self, claims: Sequence[Claim]) -> None:
        """Add claimed calls."""
        for claim in claims:
            if "\n" in claim.spec:  # only possible between JSON tokens
                claim = claim._replace(spec=claim.spec.replace("\n", " "))
            needs_own = claim.spec.startswith("{") and any(word in claim.spec for word in _OWN_CHILD_FIELDS)
            if needs_own or not self.config.has_one_policy:
                own = self._own_config(claim)
                if own is not None:
                    self.need_own_child.append((claim, own))
                    continue
            self.waiting.append(claim)

    def _own_config(self, claim: Claim) -> OwnChildConfig | None:
        try:
            spec = parse_spec(claim.spec, claim.lane)
        except Exception:  # noqa: BLE001 - the child reports what is wrong with the spec
            return None
        caps = spec.caps.model_dump(exclude_none=True) if spec.caps is not None else {}
        return self.config.own(claim.lane, caps, spec.env, spec.cwd)

    def distribute(self) -> None:
        """Send waiting calls to children, as far as there is room."""
        if not self.waiting or (self.need_own_child and not self._slots.child_slots_free()):
            return  # a call that needs its own child gets the slot of the next idle one
        if self.async_paths:
            self._distribute_async()
        while self.waiting:
            available = self._available()
            if not available:
                return
            share = -(-len(self.waiting) // len(available))
            for child in available:
                self._send(child, min(share, self._child_room(child)))

    def _distribute_async(self) -> None:
        """Send asynchronous calls to a child that awaits others; without room there, they may go to any."""
        host = next((child for child in self._available() if child.asynchronous), None)
        async_claims = [claim for claim in self.waiting if _get_function_path(claim.spec) in self.async_paths]
        if host is not None and async_claims:
            sent = async_claims[: self._child_room(host)]
            removed = set(sent)
            rest = [claim for claim in self.waiting if claim not in removed]
            self.waiting.clear()
            self.waiting.extend(rest)
            host.send(sent)

    def _available(self) -> list[ChildProcess]:
        """The children that can take calls now, the least busy first."""
        found = [child for child in self._shared() if self._child_room(child) > 0]
        found.sort(key=lambda child: (bool(child.asynchronous), len(child.calls)))
        return [child for child in found if self._has_slot(child)]

    def _has_slot(self, child: ChildProcess) -> bool:
        if child in self._slot_idle_ms:
            self._slot_idle_ms[child] = 0
        elif not self._slots.take_child_slot():
            return False
        self._slot_idle_ms[child] = 0
        return True

    def _send(self, child: ChildProcess, number: int) -> None:
        claims = [self.waiting.popleft() for _ in range(min(number, len(self.waiting)))]
        if claims:
            child.send(claims)

    def start(self) -> ChildProcess | None:
        """Start a missing child: one that a run needs for itself, or one more for all."""
        if self.need_own_child and self._slots.take_child_slot():
            claim, own = self.need_own_child.popleft()
            child = self._create(own, claim)
            child.send([claim])
            return child
        if self.waiting and self.can_start() and self._slots.child_slots_free() and not self._available():
            return self._create(None, self.waiting[0], with_slot=False)
        return None

    def replace(self, child: ChildProcess) -> ChildProcess | None:
        """Retire a child; its replacement starts before it ends."""
        child.retiring = True
        return self._create(None, None, with_slot=False) if len(list(self._shared())) < self._children_max() else None

    def _create(self, own: OwnChildConfig | None, claim: Claim | None, *, with_slot: bool = True) -> ChildProcess:
        try:
            child = ChildProcess(self.config, own)
        except OSError as error:
            if with_slot:
                self._slots.free_child_slot()
            raise ChildNotStarted(claim, f"A child of the worker cannot be started: {error}.") from error
        self.all.append(child)
        if with_slot:
            self._slot_idle_ms[child] = 0
        return child

    def remove(self, child: ChildProcess) -> None:
        """A child has ended."""
        self.all.remove(child)
        if child in self._slot_idle_ms:
            self._free_slot(child, monotonic_ms())

    def _free_slot(self, child: ChildProcess, now: int) -> None:
        del self._slot_idle_ms[child]
        self._slots.free_child_slot(reserve=self.slot_sharing.is_due(now))
        self.slot_sharing.update(self._slot_idle_ms, now)

    def share_slots(self, now: int) -> None:
        """Give up a slot for a process run, if it is due."""
        self.slot_sharing.update(self._slot_idle_ms, now)
        idle = next((child for child in self._slot_idle_ms if child.idle), None)
        if idle is not None and self.slot_sharing.is_due(now):
            self._free_slot(idle, now)

    def free_idle_slots(self) -> bool:
        """Free the slots of children that have been idle for a while; returns whether some still linger."""
        now, some_linger = monotonic_ms(), False
        for child, since in list(self._slot_idle_ms.items()):
            if not child.idle:
                self._slot_idle_ms[child] = 0
            elif not since and not self.need_own_child:
                self._slot_idle_ms[child] = now
                some_linger = True
            elif now - since < SLOT_LINGER_MS and not self.need_own_child:
                some_linger = True
            else:
                self._free_slot(child, now)
        return some_linger


class ChildNotStarted(Exception):
    """The system could not start another process."""

    def __init__(self, claim: Claim | None, message: str) -> None:
        super().__init__(message)
        self.claim = claim


def _get_function_path(spec: str) -> str:
    return spec.partition("[")[0].partition("{")[0]


class SlotSharing:
    """When children hold every slot, one gives its slot up now and then, so that a process run gets its turn.

    That child gets no more calls, and gives its slot up when it is idle. The slot is then reserved for one claim of
    process runs. If there are none, the children get it back a moment later.

    Not thread-safe; the engine holds the lock.
    """

    def __init__(self, slots: WorkerSlots) -> None:
        self._slots = slots
        self._full_since_ms: int | None = None
        """Since when children have held every slot that no process run has."""
        self._leaving: set[ChildProcess] = set()

    def update(self, with_slot: Collection[ChildProcess], now: int) -> None:
        """Check whether the children have held all slots for too long."""
        if not with_slot or self._slots.child_slots_free() or self._slots.reserved:
            self._full_since_ms = None
            self._leaving = set()
        elif self._full_since_ms is None:
            self._full_since_ms = now
        elif self.is_due(now):
            # Asynchronous calls overlap: draining such a child would take as long as its longest call.
            candidates = [child for child in with_slot if child.own is None and not child.asynchronous]
            self._leaving = {child for child in candidates if not child.has_waiting()}
            if candidates:
                self._leaving.add(min(candidates, key=lambda child: child.call_ms * len(child.calls)))

    def is_due(self, now: int) -> bool:
        """Whether the next slot freed by a child is reserved for process runs."""
        return self._full_since_ms is not None and now - self._full_since_ms >= FULL_SLOTS_MS

    def due_ms(self, now: int) -> int | None:
        """In how long that is due, if it is not yet."""
        return None if self._full_since_ms is None or self.is_due(now) else self._full_since_ms + FULL_SLOTS_MS - now

    def is_leaving(self, child: ChildProcess) -> bool:
        """Whether a child gets no more calls until it has given up its slot."""
        return child in self._leaving
