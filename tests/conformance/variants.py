"""Every state, in every way of being in it that makes a difference, and where each way leads from there.

`moves` says by which verb and to which state a way takes the run: what the table allows, narrowed to one arrow. All
other ways change nothing: what answers them follows from the state and from what the last fence is worth, unless
`refused` says otherwise. `idle` ways are those that the table allows and that find nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from conformance import lives
from conformance.lives import Build, blocked, started, stopping, submitted, then, wanted

from agentq.coordinator.errors import AgentqError, Stopping
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State

S = State
Move = tuple[str, State]


class Fence(Enum):
    """What the fence of the last attempt is worth."""

    NONE = "there was no attempt"
    VALID = "the attempt goes on, or ended as its own worker said"
    GONE = "the attempt was superseded"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of being in a state. None is the state of what does not exist."""

    name: str
    state: State | None
    build: Build
    moves: Mapping[str, Move]
    fence: Fence = Fence.NONE
    ended_by: str = ""
    """The verb by which the worker let go of it: said again, it is answered, though the fence is gone."""
    idle: frozenset[str] = frozenset()
    refused: Mapping[str, type[AgentqError]] = field(default_factory=dict)
    next: Build = lives.nothing
    """What comes next in any case, and belongs to the verb."""
    children: int = 1
    """Runs that wait for it, while it goes along an arrow."""


def _not_there() -> tuple[Variant, ...]:
    return (
        Variant("unborn", None, lives.unborn(), {"submit": ("submit", S.PENDING)}),
        Variant("unborn, due later", None, lives.unborn(delay_ms=1000), {"submit": ("submit", S.SCHEDULED)}),
        Variant("unborn, behind a live run", None, lives.unborn_behind, {"submit": ("submit", S.BLOCKED)}),
        Variant("unborn, shut out", None, lives.unborn_and_shut_out, {"submit": ("submit", S.BLOCKED)}),
        Variant("unborn, a turn", None, lives.imagined_turn, {"submit": ("submit", S.PENDING)}),
        Variant(
            "unborn, behind a turn", None, then(lives.rival, lives.imagined_turn), {"submit": ("submit", S.BLOCKED)}
        ),
        Variant("forgotten", None, lives.forgotten, {"submit": ("submit", S.PENDING)}),
    )


CANCELLED: Move = ("cancel", S.CANCELLED)
EXPIRED: Move = ("expire", S.FAILED)
UNBLOCKED: Move = ("unblock", S.PENDING)
TAKEN: Move = ("claim", S.CLAIMED)


def _blocked() -> tuple[Variant, ...]:
    anyway = {"cancel": CANCELLED, "its queue is moved": ("transfer", S.BLOCKED)}
    moves = anyway | {"parents complete": UNBLOCKED, "parents fail": ("skip", S.SKIPPED)}
    shut_out = anyway | {"room comes": UNBLOCKED}
    later = {"parents complete": ("unblock", S.SCHEDULED)}
    several = then(blocked(3), lives.one_parent_ends, lives.one_parent_ends)
    timed = {"time comes": EXPIRED}
    in_turn = anyway | {"turns before it end": UNBLOCKED}
    turn_later = then(lives.rival, lives.turn(delay_ms=1000))
    return (
        Variant("blocked", S.BLOCKED, blocked(), moves),
        Variant("blocked behind a turn", S.BLOCKED, then(lives.rival, lives.turn()), in_turn),
        Variant(
            "blocked behind a turn, in time", S.BLOCKED, then(lives.rival, lives.turn(expires_ms=1000)), in_turn | timed
        ),
        Variant(
            "blocked behind a turn, due later",
            S.BLOCKED,
            turn_later,
            in_turn | {"turns before it end": ("unblock", S.SCHEDULED)},
        ),
        Variant("blocked, the first turn", S.BLOCKED, then(lives.turn_on_others, lives.rival), moves),
        Variant(
            "blocked behind a turn, since a run has ended",
            S.BLOCKED,
            then(lives.rival, lives.turn_on_others, lives.one_parent_ends),
            in_turn,
        ),
        Variant("blocked on several", S.BLOCKED, blocked(3), moves),
        Variant("blocked on the last of several", S.BLOCKED, several, moves),
        Variant("blocked, run", S.BLOCKED, blocked(2, on_failed="run"), moves | {"parents fail": UNBLOCKED}),
        Variant("blocked, fail", S.BLOCKED, blocked(on_failed="fail"), moves | {"parents fail": ("skip", S.FAILED)}),
        Variant("blocked, due later", S.BLOCKED, blocked(delay_ms=1000), moves | later),
        Variant("blocked, due by now", S.BLOCKED, blocked(due_at_ms=1), moves),
        Variant("blocked, in time", S.BLOCKED, blocked(expires_ms=1000), moves | timed),
        Variant("blocked by a limit", S.BLOCKED, lives.limited(), shut_out),
        Variant("blocked by a limit, in time", S.BLOCKED, lives.limited(expires_ms=1000), shut_out | timed),
        Variant("blocked when claimed", S.BLOCKED, lives.held_up_and_claimed, shut_out),
    )


def _scheduled() -> tuple[Variant, ...]:
    moves = {"cancel": CANCELLED, "time comes": ("promote", S.PENDING), "its queue is moved": ("transfer", S.SCHEDULED)}
    impatient = submitted(delay_ms=1000, expires_ms=500)
    unblocked = then(blocked(delay_ms=1000), lives.one_parent_ends)
    return (
        Variant("scheduled by a delay", S.SCHEDULED, submitted(delay_ms=1000), moves),
        Variant("scheduled past its patience", S.SCHEDULED, impatient, moves | {"time comes": EXPIRED}),
        Variant("scheduled when unblocked", S.SCHEDULED, unblocked, moves),
        Variant("scheduled by a retry", S.SCHEDULED, lives.retried, moves, Fence.GONE, "fail"),
        Variant("scheduled by a deferral", S.SCHEDULED, lives.deferred, moves, Fence.GONE, "defer"),
        Variant("scheduled by a second loss", S.SCHEDULED, lives.lost_twice, moves, Fence.GONE),
    )


def _pending() -> tuple[Variant, ...]:
    anyway = {"cancel": CANCELLED, "its queue is moved": ("transfer", S.PENDING)}
    moves = anyway | {"claim": TAKEN, "adopt": TAKEN}
    timed = {"time comes": EXPIRED}
    too_late = anyway | {"claim": EXPIRED, "adopt": EXPIRED, "time comes": EXPIRED}
    held_up = anyway | {"claim": ("block", S.BLOCKED), "adopt": ("block", S.BLOCKED)}
    read = anyway | {"adopt": TAKEN}
    due, gone = lives.come, Fence.GONE
    return (
        Variant("pending", S.PENDING, submitted(), moves),
        Variant("pending and alone", S.PENDING, submitted(), moves, children=0),
        Variant("pending, in time", S.PENDING, submitted(expires_ms=1000), moves | timed),
        Variant("pending, too late", S.PENDING, lives.out_of_patience, too_late),
        Variant("pending when unblocked", S.PENDING, then(blocked(), lives.one_parent_ends), moves),
        Variant("pending, the first turn", S.PENDING, then(lives.turn(), lives.rival), moves),
        Variant(
            "pending, now that it is its turn", S.PENDING, then(lives.rival, lives.turn(), lives.rivals_end), moves
        ),
        Variant("pending in line", S.PENDING, submitted(fair_key="a"), moves),
        Variant("pending, to be held up", S.PENDING, lives.held_up, held_up),
        Variant("pending when let in", S.PENDING, then(lives.limited(), lives.open_gate), moves),
        Variant("pending since due", S.PENDING, then(submitted(delay_ms=1000), due), moves),
        Variant("pending for a retry", S.PENDING, then(lives.retried, due), moves, gone, "fail"),
        Variant("pending after a deferral", S.PENDING, then(lives.deferred, due), moves, gone, "defer"),
        Variant("pending when released", S.PENDING, lives.released, moves, gone, "release"),
        Variant("pending when lost", S.PENDING, lives.lost_once, moves, gone),
        Variant("pending when woken", S.PENDING, then(lives.asleep, lives.wake), moves, gone, "park"),
        Variant("pending when requeued", S.PENDING, then(lives.completed, lives.requeue), moves, gone),
        Variant("pending and read", S.PENDING, lives.delivered, read, idle=frozenset({"claim"}), next=lives.adopted),
    )


def _held_moves(state: State) -> dict[str, Move]:
    """Of an attempt with a budget for everything."""
    claimed = state is S.CLAIMED
    asleep = {"park": S.WAITING, "park with alarm": S.WAITING, "park past alarm": S.PENDING}
    asleep |= {"park for a signal": S.WAITING, "park for no children": S.PENDING}
    return {
        "report": ("report", state),
        "wake": ("wake", state),
        "cancel": ("cancel", state),
        "finish": ("finish", S.COMPLETED),
        "fail": ("fail", S.SCHEDULED),
        "fail to spawn": ("fail", S.SCHEDULED),
        "fail for good": ("fail", S.FAILED),
        "give up": ("fail", S.CANCELLED),
        "defer": ("defer", S.SCHEDULED),
        "release": ("release", S.PENDING),
        "leave": ("release", S.PENDING),
        "reap": ("lose", S.PENDING),
        "restart": ("lose", S.PENDING),
        "be ousted": ("lose", S.PENDING),
        # What a worker never heard of has not begun, so nothing crashed.
        "forget": ("release" if claimed else "lose", S.PENDING),
        **{way: ("park", into) for way, into in asleep.items()},
        **({"start": ("start", S.RUNNING), "never begin": ("lose", S.PENDING)} if claimed else {}),
    }


def _held(state: State) -> tuple[Variant, ...]:
    moves, claimed = _held_moves(state), state is S.CLAIMED
    idle = frozenset({"time comes"})

    def variant(name: str, build: Build, changes: dict[str, Move], children: int = 1) -> Variant:
        begun = build if claimed else started(build)
        return Variant(f"{state}{name}", state, begun, moves | changes, Fence.VALID, idle=idle, children=children)

    def lost(into: State) -> dict[str, Move]:
        return {way: (verb, into) for way, (verb, _) in moves.items() if verb == "lose"}

    parks = {way: ("park", S.PENDING) for way, (verb, _) in moves.items() if verb == "park"}
    turn = then(lives.turn(retry=lives.RETRY), lives.rival, lives.take)
    return (
        variant("", lives.claimed, {}),
        variant(", the first turn", turn, {}),
        variant(" and alone", then(submitted(), lives.take), {"fail": ("fail", S.FAILED)}, children=0),
        variant(" for the last failure", lives.claimed_on_the_last_failure, {"fail": ("fail", S.FAILED)}),
        variant(" for the last deferral", lives.claimed_on_the_last_deferral, {"defer": ("defer", S.FAILED)}),
        variant(" after a crash", lives.claimed_on_the_second_crash, lost(S.SCHEDULED)),
        variant(
            " for the last crash",
            lives.claimed_on_the_last_crash,
            lost(S.FAILED) | {"fail to spawn": ("fail", S.FAILED)},
        ),
        variant(" and signalled", lives.signalled(lives.claimed), {"park for a signal": ("park", S.PENDING)}),
        _wanted(state, moves, parks),
        _stopping(state, moves),
    )


def _wanted(state: State, moves: dict[str, Move], parks: dict[str, Move]) -> Variant:
    begun = lives.claimed if state is S.CLAIMED else lives.running
    idle = frozenset({"time comes", "wake"})
    rest = {way: move for way, move in moves.items() if way not in idle}
    return Variant(f"{state} and wanted", state, wanted(begun), rest | parks, Fence.VALID, idle=idle)


def _stopping(state: State, moves: dict[str, Move]) -> Variant:
    """Whatever the worker says, or does not say, the run ends; but what is done is done."""
    begun = lives.claimed if state is S.CLAIMED else lives.running
    kept = {way: moves[way] for way in ("report", "wake", "finish")}
    ends = {way: (verb, S.CANCELLED) for way, (verb, _) in moves.items() if way not in {*kept, "cancel", "start"}}
    return Variant(
        f"{state}, to be stopped",
        state,
        stopping(begun),
        kept | ends | {"time comes": ("expire", S.CANCELLED)},
        Fence.VALID,
        idle=frozenset({"cancel"}),
        refused={"start": Stopping} if state is S.CLAIMED else {},
    )


def _waiting() -> tuple[Variant, ...]:
    moves = {"cancel": CANCELLED, "wake": ("wake", S.PENDING)}
    rung = {"time comes": ("promote", S.PENDING)}
    idle = frozenset({"time comes"})
    return (
        Variant("waiting", S.WAITING, lives.asleep, moves, Fence.GONE, "park", idle),
        Variant("waiting for its alarm", S.WAITING, lives.asleep_until, moves | rung, Fence.GONE, "park"),
        *(
            Variant(f"waiting for {what}", S.WAITING, build, moves | {way: (verb, S.PENDING)}, Fence.GONE, "park", idle)
            for what, build, way, verb in (
                ("a signal", lives.asleep_for(signals=("stop", "go")), "signal", "signal"),
                ("an approval", lives.asleep_for(approval=True), "approve", "signal"),
                ("its children", lives.asleep_for_children, "children end", "wake"),
            )
        ),
        Variant(
            "waiting for a signal or a time",
            S.WAITING,
            lives.asleep_for(signals=("go",), for_ms=5_000),
            moves | rung | {"signal": ("signal", S.PENDING)},
            Fence.GONE,
            "park",
        ),
    )


def _ended() -> tuple[Variant, ...]:
    moves = {"requeue": ("requeue", S.PENDING)}
    valid, gone = Fence.VALID, Fence.GONE
    confirmed, unconfirmed = lives.stop_confirmed, then(stopping(lives.running), lives.come)
    asleep, out = then(lives.asleep, lives.cancel), then(submitted(expires_ms=1000), lives.come)
    lost = then(stopping(lives.running), lives.lose)
    orphan = then(blocked(on_failed="fail"), lives.dependency_failed)
    behind = {"requeue": ("requeue", S.BLOCKED)}
    done, gave_up = then(lives.turn(), lives.take, lives.finish), then(lives.turn(expires_ms=1000), lives.come)
    waited = then(lives.turn_on_others, lives.dependency_failed)
    return (
        Variant("completed, a turn", S.COMPLETED, done, moves, valid),
        Variant("completed, another turn being live", S.COMPLETED, then(done, lives.rival), behind, valid),
        Variant("failed, another turn being live", S.FAILED, then(gave_up, lives.rival), behind),
        Variant(
            "cancelled, another turn being live", S.CANCELLED, then(lives.turn(), lives.cancel, lives.rival), behind
        ),
        Variant("skipped, another turn being live", S.SKIPPED, then(waited, lives.rival), behind),
        Variant("completed", S.COMPLETED, lives.completed, moves, valid),
        Variant("completed before it began", S.COMPLETED, then(lives.claimed, lives.finish), moves, valid),
        Variant("failed", S.FAILED, lives.failed, moves, valid),
        Variant("failed by deferrals", S.FAILED, lives.deferred_too_often, moves, valid),
        Variant("failed by crashes", S.FAILED, lives.lost_for_good, moves, gone),
        Variant("failed, never claimed", S.FAILED, out, moves),
        Variant("failed by a dependency", S.FAILED, orphan, moves),
        Variant("cancelled, never claimed", S.CANCELLED, then(submitted(), lives.cancel), moves),
        Variant("cancelled while blocked", S.CANCELLED, then(blocked(), lives.cancel), moves),
        Variant("cancelled while asleep", S.CANCELLED, asleep, moves, gone, "park"),
        Variant("cancelled as confirmed", S.CANCELLED, confirmed, moves, valid),
        Variant("cancelled unconfirmed", S.CANCELLED, unconfirmed, moves, gone),
        Variant("cancelled when lost", S.CANCELLED, lost, moves, gone),
        Variant("skipped", S.SKIPPED, then(blocked(), lives.dependency_failed), moves),
    )


def _with_signals(variant: Variant) -> Variant:
    """A live run keeps every signal, also one that it does not wait for."""
    if variant.state is None or variant.state in TERMINAL_STATES:
        return variant
    kept: dict[str, Move] = dict.fromkeys(("signal", "approve"), ("signal", variant.state))
    return replace(variant, moves=kept | dict(variant.moves))


ALIKE = {
    "back off": "defer",
    "claim: fresh": "adopt",
    "exchange: more": "claim",
    "exchange: finish": "finish",
    "exchange: fail": "fail",
    "exchange: fail for good": "fail for good",
}
"""Ways that lead where another does."""


def _with_exchange(variant: Variant) -> Variant:
    moves, idle = dict(variant.moves), {*variant.idle}
    for way, other in ALIKE.items():
        if other in moves:
            moves[way] = moves[other]
        if other in idle:
            idle.add(way)
    return replace(variant, moves=moves, idle=frozenset(idle))


VARIANTS = tuple(
    _with_exchange(_with_signals(variant))
    for variants in (
        _not_there(),
        _blocked(),
        _scheduled(),
        _pending(),
        _held(S.CLAIMED),
        _held(S.RUNNING),
        _waiting(),
        _ended(),
    )
    for variant in variants
)
