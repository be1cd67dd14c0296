"""The server is killed with its append-only file, and frozen, under load: what was promised before holds after it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP

import pytest
from chaos.fleet import SETTINGS, Fleet, insist, passed
from support.concurrency import running
from support.requirements import binary
from support.servers import Server, until
from support.world import World, checked

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.storage.connection import Connection

MEMORY = "/dev/shm"
SYNCS = [("valkey", "no"), ("valkey", "always"), ("redis", "always")]
"""Every write is in the file before it is acknowledged, which is all that matters to a process that is killed.

Not so with `everysec`: while its sync of the last second is under way, it acknowledges writes that it puts off, and on
a busy machine that takes a while. What such a kill leaves is what a replica that lags has (test_servers.py).
"""


@pytest.fixture(params=SYNCS, ids=" ".join)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """With an append-only file in memory, so that a sync takes no time."""
    flavour, sync = request.param
    folder = Path(tempfile.mkdtemp(prefix="aq", dir=MEMORY if os.path.isdir(MEMORY) else None))
    server = Server(binary(flavour), folder, "--appendonly", "yes", "--appendfsync", sync).start()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    with closing(Connection(server.url)) as connection, checked(connection, real_time=True) as world:
        yield world


def kill(server: Server, down_ms: int = 0) -> None:
    """SIGKILL, and a new start over the same data some time later."""
    server.signal(SIGKILL)
    until(passed(down_ms), "the outage to last")
    server.start()


def freeze(server: Server, for_ms: int) -> None:
    """SIGSTOP, and SIGCONT some time later."""
    server.signal(SIGSTOP)
    until(passed(for_ms), "the freeze to last")
    server.signal(SIGCONT)


Outage = Callable[[Server, int], None]


@pytest.mark.full("takes 3 s")
def test_what_was_acknowledged_outlives_a_killed_server_and_ends_once(server: Server, world: World) -> None:
    """Killed twice at once and once for longer than a lease, while four clients and three workers go on."""
    fleet = Fleet(world)
    workers = [partial(fleet.work, f"w{number}") for number in range(3)]
    with running(*workers, *[fleet.submit] * 4, fleet.reap):
        for down_ms in (0, SETTINGS.lease_ms + SETTINGS.heartbeat_ms, 0):
            fleet.wait_for(300)
            kill(server, down_ms)
        fleet.wait_for(300)
        fleet.drain()

    assert set(fleet.finished) == fleet.submitted
    assert max(fleet.finished.values()) == 1
    assert world.records.count() == {"default": {State.COMPLETED: len(fleet.submitted)}}
    ends = Counter(event.run for event in world.events() if event.event == "completed")
    assert ends == fleet.finished
    assert (fleet.lost, fleet.refused) == ([], []), "an outage is nobody's fault"


@pytest.mark.parametrize("server", SYNCS[:2], indirect=True, ids=" ".join)
def test_runs_in_hand_when_the_server_is_killed_are_finished_with_the_fence_from_before(
    server: Server, world: World
) -> None:
    fleet = Fleet(world)
    lease, runs = fleet.lease("w1"), [world.submit() for _ in range(3)]
    claims = lease.claim(3)
    world.queue.start(claims[:2])

    kill(server)

    assert sorted(insist(lease.register)) == sorted((claim.id, claim.fence) for claim in claims)
    assert world.queue.finish([(claim, Outcome()) for claim in claims]) == [None] * 3
    assert world.states(runs) == ["completed"] * 3


@pytest.mark.full("takes 3 s")
@pytest.mark.parametrize("outage", [kill, freeze])
@pytest.mark.parametrize("server", SYNCS[:1], indirect=True, ids=" ".join)
def test_after_an_outage_everyone_has_a_full_lease_to_come_back(server: Server, world: World, outage: Outage) -> None:
    """Whoever does is not lost, though the evidence of it ran out; whoever does not is, a lease later."""
    fleet = Fleet(world)
    comes_back, stays_away = fleet.lease("w1"), fleet.lease("w2")
    runs = [world.submit(), world.submit()]
    held = comes_back.claim(1) + stays_away.claim(1)
    reaper = Reaper(world.store, SETTINGS)
    reaper.reap(0)

    outage(server, SETTINGS.lease_ms + SETTINGS.heartbeat_ms)
    back_at = monotonic_ms()
    lost: list[str] = []

    def reap() -> bool:
        # In this order: however long this test is kept from its cores, the worker speaks before it is judged.
        if monotonic_ms() > back_at + SETTINGS.lease_ms // 2:
            insist(partial(comes_back.heartbeat, held[:1]))
        lost.extend(insist(partial(reaper.reap, 0)).lost)
        return bool(lost)

    until(reap, "the worker that stays away to be lost")

    assert lost == ["w2"]
    assert monotonic_ms() >= back_at + SETTINGS.lease_ms
    assert world.states(runs) == ["claimed", "pending"]


@pytest.mark.full("takes 4 s")
@pytest.mark.parametrize("server", [SYNCS[0], SYNCS[2]], indirect=True, ids=" ".join)
def test_a_server_that_freezes_for_longer_than_a_lease_costs_nobody_a_run(server: Server, world: World) -> None:
    """It thaws, and by its clock every lease is over; but no reaper has watched it meanwhile."""
    fleet = Fleet(world)
    with running(partial(fleet.work, "w1"), partial(fleet.work, "w2"), *[fleet.submit] * 2, fleet.reap):
        for _ in range(2):
            fleet.wait_for(100)
            freeze(server, SETTINGS.lease_ms + SETTINGS.heartbeat_ms)
        fleet.wait_for(100)
        fleet.drain()

    assert (fleet.lost, fleet.refused) == ([], [])
    assert set(fleet.finished) == fleet.submitted
    assert max(fleet.finished.values()) == 1
