"""The end of a seed: nothing is lost any more, duties run on time, and one patient worker does whatever is left.

Then everything must have ended, or wait for something that has a name; and when time has passed over that as well,
nothing may be left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulation.life import Life
from simulation.workers import HOSTS

from agentq.coordinator.bounds import KEEP_MS
from agentq.coordinator.duties.janitor import Janitor
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease, WorkerOrder

if TYPE_CHECKING:
    from simulation.simulator import Simulator

NAME = "healer"
ROUNDS = 40
ROUND_MS = 9_000
EMPTY_CLAIMS = 5
CLAIMS = 1000
FORGET_MS = 120_000
LASTING = {
    "schema",
    "partitions",
    "queues",
    "worker",
    "events",
    "reaper_watch",
    "cursors",
    "limits",
    "limit",
    "fair_weights",
    "made_by_token",
}
LASTING |= {"duty_wakeup", "duty_owner"}  # the keeper's time to live is the server's own, which does not pass here


def heal(sim: Simulator) -> None:
    """Let everything go well, and demand that every run ends, or waits for something that has a name."""
    relent(sim)
    for plan in sim.model.plans:
        sim.store.call("plan/seal", 0, plan)
    for worker in sim.workers:
        if not worker.dead and worker.registered and sim.chance.random() < 0.5:
            worker.say(worker.deregister)
    healers = [WorkerLease(sim.store, identity, sim.settings) for identity in map(_healer, HOSTS)]
    for healer in healers:
        healer.register()
    # Where a zombie read from a lane under a name that nobody remembers, its idle time alone tells, and it has passed.
    janitor = Janitor(sim.store, idle_ms=0)
    orders: dict[str, list[WorkerOrder]] = {}
    for _ in range(ROUNDS):
        sim.now_ms += ROUND_MS
        for healer in healers:
            orders[healer.identity.id] = healer.heartbeat((), orders.get(healer.identity.id, [])).orders
        sim.reap()
        sim.promote()
        work_off(sim, healers)
        if any(seat.present for worker, seat in sim.model.workers.items() if not worker.startswith(NAME)):
            continue
        if not any(unsettled(sim, life) for life in sim.model.runs.values()):
            break
        janitor.run_once(0)
    left = [life.line for life in sim.model.runs.values() if unsettled(sim, life)]
    assert not left, f"these neither end nor wait for anything: {left}"
    groom(sim)
    sim.inspect(settled=True)
    end_what_waits(sim, healers)
    forget(sim)


def _healer(host: str) -> WorkerIdentity:
    """A worker of everything that goes to a host."""
    labels = {"gpu": "1", "host": host, "agent.claude": "ready", "agent.codex": "ready"}
    return WorkerIdentity(id=f"{NAME}-{host}", queues=("default", "slow"), labels=labels, slots=10)


def relent(sim: Simulator) -> None:
    """No queue stays paused, and no limit lets nobody in."""
    for queue in sim.queues.paused():
        sim.queues.resume(queue)
    for limit in sim.limits.all():
        sim.limits.open(limit.key)
        if limit.max == 0:
            sim.limits.set(limit.key, most=1)


def work_off(sim: Simulator, healers: Sequence[WorkerLease]) -> None:
    """Claim whatever there is, and finish it. One that meets much that stands for nothing may be empty."""
    for _ in range(EMPTY_CLAIMS):
        while claims := [claim for healer in healers for claim in healer.claim(10, 10)]:
            assert not any(sim.queue.finish([(claim, Outcome()) for claim in claims]))
        if not any(life.state == "pending" for life in sim.model.runs.values()):
            return


def unsettled(sim: Simulator, life: Life) -> bool:
    """Whether a run is live and waits for nothing that has a name and is real."""
    if life.ended or (life.state == "waiting" and life.due_at is None):
        return False
    before = sim.model.line_of(life)[:1] if sim.model.is_behind(life) else []
    waits_for = [sim.model.runs[other] for other in (*life.needs, *before)]
    return life.state != "blocked" or not any(not other.ended and not unsettled(sim, other) for other in waits_for)


def lanes(sim: Simulator) -> list[str]:
    return list(sim.wire.command("ZRANGE", sim.probes.key("lanes"), 0, -1))


def groom(sim: Simulator) -> None:
    """All lanes, as a janitor does when nobody has used them for long."""
    for lane in lanes(sim):
        sim.store.call("repair/lane", 0, lane, 0)
    # A lane that is opened now must not look as old as one that was closed.
    sim.now_ms += ROUND_MS


def end_what_waits(sim: Simulator, healers: Sequence[WorkerLease]) -> None:
    """Somebody gives up what waits; the worker takes entries that stand for nothing out of the lanes, and leaves."""
    for life in list(sim.model.runs.values()):
        if not life.ended:
            sim.queue.cancel(life.id)
    for _ in range(CLAIMS):
        work_off(sim, healers)
        if not any(sim.wire.command("XLEN", sim.probes.key("lane", lane)) for lane in lanes(sim)):
            break
    for healer in healers:
        healer.deregister()
    for session in sim.model.sessions:
        sim.sessions.close(session)


def forget(sim: Simulator) -> None:
    """Let the time to keep what has ended pass, and demand that nothing is left of any of it."""
    for _ in range(3):
        sim.now_ms += FORGET_MS
        sim.promote()
    sim.now_ms += KEEP_MS
    for _ in range(len(sim.model.sessions) + 2):
        sim.promote()
    assert not sim.model.runs, f"these are never forgotten: {list(sim.model.runs.values())}"
    groom(sim)
    sim.lapse()
    snapshot = sim.probes.snapshot()
    left = snapshot.values.keys() - LASTING
    assert not left, f"nobody is there any more, and yet there are: {[snapshot.of(kind) for kind in left]}"
