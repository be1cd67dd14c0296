"""The faults that are done to a scene, each with its end, and who picks them: always the same for the same seed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from chaos.clock import HOUR_S
from chaos.fleet import passed
from chaos.scene import Scene
from support.servers import until

from agentq.coordinator.clock import monotonic_ms


@contextmanager
def killed_worker(scene: Scene) -> Iterator[None]:
    """SIGKILL of a worker with runs in hand; another takes its place"""
    on_line = scene.workers[0]
    victim = scene.dice.choice(scene.workers)
    scene.dismiss(victim)
    yield
    scene.hire(scene.line.url if victim is on_line else "")
    if victim is on_line:
        scene.workers.insert(0, scene.workers.pop())


@contextmanager
def frozen_worker(scene: Scene) -> Iterator[None]:
    """SIGSTOP of a worker for longer than its lease, while its runs go on"""
    victim = scene.dice.choice(scene.workers)
    scene.frozen.add(scene.name_of(victim))
    victim.send_signal(signal.SIGSTOP)
    last(scene, 1.5)
    yield
    victim.send_signal(signal.SIGCONT)


@contextmanager
def killed_server(scene: Scene) -> Iterator[None]:
    """SIGKILL of the server, with its append-only file"""
    scene.server.signal(signal.SIGKILL)
    last(scene, scene.dice.choice([0, 0.2]))
    scene.server.start()
    yield


@contextmanager
def away_server(scene: Scene) -> Iterator[None]:
    """SIGKILL of the server, which stays away for longer than a lease"""
    scene.server.signal(signal.SIGKILL)
    last(scene, 1.3)
    scene.server.start()
    yield


@contextmanager
def frozen_server(scene: Scene) -> Iterator[None]:
    """SIGSTOP of the server for half a lease"""
    scene.server.signal(signal.SIGSTOP)
    last(scene, 0.5)
    scene.server.signal(signal.SIGCONT)
    yield


@contextmanager
def short_cut(scene: Scene) -> Iterator[None]:
    """A worker's line is a black hole for a third of a lease"""
    scene.line.cut()
    last(scene, 0.33)
    scene.line.mend()
    yield


@contextmanager
def long_cut(scene: Scene) -> Iterator[None]:
    """A worker's line is a black hole for longer than its lease"""
    scene.line.cut()
    last(scene, 1.8)
    yield
    scene.line.mend()


@contextmanager
def reset_line(scene: Scene) -> Iterator[None]:
    """RST on every connection of a worker"""
    scene.line.reset()
    yield


@contextmanager
def flushed_scripts(scene: Scene) -> Iterator[None]:
    """SCRIPT FLUSH"""
    scene.crew.queue.store.connection.command("SCRIPT", "FLUSH")
    yield


@contextmanager
def destroyed_group(scene: Scene) -> Iterator[None]:
    """XGROUP DESTROY of the lane"""
    store = scene.crew.queue.store
    store.connection.command("XGROUP", "DESTROY", store.key(0, "lane", "default:5:"), "workers")
    yield


@contextmanager
def clock_ahead(scene: Scene) -> Iterator[None]:
    """The server's clock is set three hours ahead"""
    set_clock(scene, 3 * HOUR_S)
    yield


@contextmanager
def clock_back(scene: Scene) -> Iterator[None]:
    """The server's clock is set back by more than a lease"""
    # By hours, and whatever is to be tried again would be, after hours.
    set_clock(scene, -scene.crew.settings.lease_ms // 1000 - 2)
    yield


Fault = Callable[[Scene], AbstractContextManager[None]]
FAULTS: tuple[Fault, ...] = (
    killed_worker,
    frozen_worker,
    killed_server,
    away_server,
    frozen_server,
    short_cut,
    long_cut,
    reset_line,
    flushed_scripts,
    destroyed_group,
    clock_ahead,
    clock_back,
)


def set_clock(scene: Scene, seconds: int) -> None:
    if scene.clock is not None:
        scene.clock.jump(seconds)


def last(scene: Scene, leases: float) -> None:
    """Let a fault last for so many leases."""
    until(passed(int(leases * scene.crew.settings.lease_ms)), "a fault to last", 60)


def torment(scene: Scene, for_ms: int) -> list[str]:
    """One fault after the other, with little time between them; the names of those there were."""
    done, over_at_ms = [], monotonic_ms() + for_ms
    while monotonic_ms() < over_at_ms:
        fault = scene.dice.choice(FAULTS)
        done.append(fault.__name__)
        with fault(scene):
            last(scene, scene.dice.uniform(0, 0.2))
        last(scene, scene.dice.uniform(0, 0.3))
    return done
