"""`agentq doctor`: checks the server and the workers. Read-only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import typer

from agentq.cli.connect import ServerConnection, connect_server, embedded_server
from agentq.cli.options import Json
from agentq.cli.render import paint, print_json, print_sentence
from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.clock import monotonic_ms, wall_ms
from agentq.coordinator.errors import AgentqError, LoginFailed, NotAllowed, Unreachable
from agentq.coordinator.model.durations import format_duration
from agentq.coordinator.model.lifecycle import HELD_STATES, State
from agentq.coordinator.runs.queries import RunFilter
from agentq.coordinator.storage.embedded import DISK_FULL_BYTES
from agentq.coordinator.storage.server_version import parse_info, read_version
from agentq.coordinator.storage.store import SCHEMA_MARKER
from agentq.coordinator.storage.url import redact_url

PINGS = 20
SLOW_MS = 20
CLOCK_SKEW_MS = 5_000
FULL_PERCENT = 80
DISK_BYTES = 256 << 20
"""Less free space than this is worth a warning."""


class DoctorFinding(NamedTuple):
    """What one check found: ok, warn or fail, and what to do about it."""

    check: str
    verdict: str
    found: str
    do: str = ""


def doctor(ctx: typer.Context, json: Json = False) -> None:
    """Check the server and the workers. The exit code is 1 if a check fails.

    Each line begins with ok, warn or fail, and says what to do. The exit code is 4 if the server rejects the user or
    denies it a permission that agentq needs.

    \b
    Example: agentq doctor
    Example: agentq doctor --json
    """
    server = connect_server(ctx)
    findings, refusals = [], list[NotAllowed]()
    for finding in _run_checks(server, refusals):
        findings.append(finding)
        if json:
            print_json(finding._asdict())
        else:
            print_finding(finding)
    if refusals:
        raise typer.Exit(refusals[0].exit_code)
    raise typer.Exit(1 if any(finding.verdict == "fail" for finding in findings) else 0)


def print_finding(finding: DoctorFinding) -> None:
    do = f"; {finding.do}" if finding.do else ""
    print(f"{paint(finding.verdict)}{'':{5 - len(finding.verdict)}}", end="")
    print_sentence(f"{finding.check:12}  {finding.found}{do}.")


def _run_checks(server: ServerConnection, refusals: list[NotAllowed]) -> Iterator[DoctorFinding]:
    """Each check on its own: what one may not read, another still can. `refusals` gets what is not allowed."""
    checks: tuple[Callable[[ServerConnection], Iterator[DoctorFinding]], ...] = (
        _latency,
        _information,
        _disk,
        _clock,
        _schema,
        _workers,
        _waiting,
        _overdue,
        _orphans,
    )
    said = set[str]()
    for check in checks:
        name = check.__name__.strip("_")
        try:
            yield from check(server)
        except Unreachable:
            raise
        except NotAllowed as refused:
            refusals.append(refused)
            yield DoctorFinding("login" if isinstance(refused, LoginFailed) else name, "fail", str(refused).rstrip("."))
            if isinstance(refused, LoginFailed):
                return
        except AgentqError as fault:
            if str(fault) not in said:
                said.add(str(fault))
                yield DoctorFinding(name, "fail", str(fault).rstrip("."))


def _latency(server: ServerConnection) -> Iterator[DoctorFinding]:
    began_ms = monotonic_ms()
    for _ in range(PINGS):
        server.store.connection.command("PING")
    each = (monotonic_ms() - began_ms) / PINGS
    found = f"{redact_url(server.settings.url)} answers in {each:.1f} ms"
    if each > SLOW_MS:
        yield DoctorFinding("server", "warn", found, "bring it nearer, or every verb takes that long at least")
    else:
        yield DoctorFinding("server", "ok", found)


def _information(server: ServerConnection) -> Iterator[DoctorFinding]:
    """Version, eviction, persistence and memory: all that INFO tells."""
    facts: dict[str, str] = {}
    try:
        for section in ("server", "memory", "persistence", "replication"):
            facts |= parse_info(server.store.connection.command("INFO", section))
    except NotAllowed as refused:
        if isinstance(refused, LoginFailed):
            raise
        unknown = "its version, eviction, persistence and memory are unknown, and restarts go unnoticed"
        yield DoctorFinding("information", "warn", f"{unknown}: this user may not ask INFO", "allow it with ACL +info")
        return
    yield _version(facts)
    policy = facts.get("maxmemory_policy", "unknown")
    if policy == "noeviction":
        yield DoctorFinding("eviction", "ok", "the server keeps what it has (noeviction)")
    else:
        yield DoctorFinding(
            "eviction",
            "fail",
            f"with maxmemory-policy {policy} the server throws runs away when its memory is full",
            "set it to noeviction",
        )
    yield from _persistence(server, facts)
    yield _memory(facts)


def _version(facts: dict[str, str]) -> DoctorFinding:
    found = read_version(facts)
    if found is None:
        return DoctorFinding("version", "warn", "the server does not say which version it is")
    if found.is_supported:
        return DoctorFinding("version", "ok", f"{found.name} {found.text}")
    return DoctorFinding(
        "version", "fail", f"{found.name} {found.text} is too old", f"upgrade it to {found.least} or later"
    )


def _persistence(server: ServerConnection, facts: dict[str, str]) -> Iterator[DoctorFinding]:
    if facts.get("aof_enabled") != "1":
        snapshots = " beyond its last snapshot" if facts.get("rdb_last_save_time", "0") != "0" else ""
        found = f"without an append-only file the server forgets all{snapshots} when it stops"
        yield DoctorFinding("persistence", "warn", found, "set appendonly yes")
        return
    if facts.get("aof_last_write_status", "ok") != "ok":
        yield DoctorFinding(
            "persistence", "fail", "the last write to the append-only file failed", "see the server's log"
        )
        return
    sync = _server_setting(server, "appendfsync")
    if sync == "no":
        yield DoctorFinding("persistence", "warn", "appendfsync is no", "set it to everysec or always")
    else:
        at_most = {"always": "loses nothing", "everysec": "loses a second at the most"}.get(sync, "")
        yield DoctorFinding(
            "persistence", "ok", f"append-only file, {sync}: a crash {at_most}" if at_most else "append-only file"
        )


def _server_setting(server: ServerConnection, name: str) -> str:
    try:
        flat = server.store.connection.command("CONFIG", "GET", name)
    except AgentqError:
        return ""  # as on servers of a provider
    return str(flat[1]) if flat else ""


def _memory(facts: dict[str, str]) -> DoctorFinding:
    used, most = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    if not most:
        return DoctorFinding("memory", "ok", f"{_format_size(used)} used, with no limit")
    percent = used * 100 // most
    found = f"{_format_size(used)} of {_format_size(most)} used, {percent} %"
    if percent < FULL_PERCENT:
        return DoctorFinding("memory", "ok", found)
    return DoctorFinding(
        "memory", "warn", found, "when it is full no more runs are taken; raise maxmemory, or keep runs shorter"
    )


def _disk(server: ServerConnection) -> Iterator[DoctorFinding]:
    """Space for the server that agentq brings. What another server has cannot be seen from here."""
    own = embedded_server(server.settings)
    if server.settings.url != own.find():
        return
    free, found = own.free_bytes(), f"{_format_size(own.free_bytes())} free for {own.folder}"
    if free < DISK_FULL_BYTES:
        yield DoctorFinding(
            "disk", "fail", f"the disk of {own.folder} is full, and the server ends with the next write"
        )
    elif free < DISK_BYTES:
        yield DoctorFinding("disk", "warn", found, "free some space; the server ends when there is none")
    else:
        yield DoctorFinding("disk", "ok", found)


def _clock(server: ServerConnection) -> Iterator[DoctorFinding]:
    before_ms = wall_ms()
    theirs_ms = _server_time_ms(server)
    ours_ms = (before_ms + wall_ms()) // 2
    apart_ms = theirs_ms - ours_ms
    if abs(apart_ms) < CLOCK_SKEW_MS:
        yield DoctorFinding(
            "clock", "ok", f"the server's clock and this one are {format_duration(abs(apart_ms))} apart"
        )
        return
    which = "ahead of" if apart_ms > 0 else "behind"
    yield DoctorFinding(
        "clock",
        "warn",
        f"the server's clock is {format_duration(abs(apart_ms))} {which} this one, and --at goes by it",
        "set both by NTP",
    )


def _server_time_ms(server: ServerConnection) -> int:
    seconds, micros = server.store.connection.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


def _schema(server: ServerConnection) -> Iterator[DoctorFinding]:
    from agentq.coordinator.storage.keys import build_key

    namespace = server.settings.namespace
    found = server.store.connection.command("GET", build_key(server.store.keyspace.root, "schema"))
    if found is None and any(server.records.count().values()):
        told = f"the namespace {namespace} holds data without a marker, as after a restore of a part"
        do = f"start a worker of the version that wrote them, which writes the marker; this one writes {SCHEMA_MARKER}"
        yield DoctorFinding("schema", "warn", told, do)
        return
    if found is None:
        yield DoctorFinding(
            "schema", "ok", f"the namespace {namespace} is new; the first submit or worker writes {SCHEMA_MARKER}"
        )
        return
    server.store.guard()
    yield DoctorFinding("schema", "ok", f"the namespace {namespace} holds data of {found}")


def _workers(server: ServerConnection) -> Iterator[DoctorFinding]:
    workers = server.records.workers()
    now_ms = _server_time_ms(server)
    grace_ms = server.settings.reap_grace_ms
    silent = {worker.id: words for worker in workers if (words := worker.silence(now_ms, grace_ms))}
    everyone = {worker.id for worker in workers}
    if silent:
        named = ", ".join(f"{worker} {words}" for worker, words in sorted(silent.items())[:5])
        found = f"{len(silent)} of {len(everyone)} cannot be heard: {named}"
        yield DoctorFinding(
            "workers", "warn", found, "if they are dead, other workers or `agentq reap` requeue their runs"
        )
    elif not everyone:
        yield DoctorFinding("workers", "warn", "none is registered", "start one with `agentq worker`")
    else:
        slots = sum({worker.id: worker.identity.slots for worker in workers}.values())
        yield DoctorFinding("workers", "ok", f"{len(everyone)} registered, with {slots} slots")


def _waiting(server: ServerConnection) -> Iterator[DoctorFinding]:
    """Queues with runs that no worker will take."""
    served = {queue for worker in server.records.workers() for queue in worker.identity.queues}
    counts = server.records.count([State.PENDING])
    for queue, numbers in sorted(counts.items()):
        waiting = numbers.get(State.PENDING, 0)
        if waiting and queue not in served:
            found = f"{waiting} {'run waits' if waiting == 1 else 'runs wait'} in {queue}, which no worker serves"
            yield DoctorFinding("queues", "warn", found, f"start one with `agentq worker --queue {queue}`")


def _overdue(server: ServerConnection) -> Iterator[DoctorFinding]:
    """Check that due timers are processed."""
    now_ms, store = _server_time_ms(server), server.store
    late = 0
    for partition in store.partitions():
        command: Any = store.connection.command
        until = now_ms - 3 * server.settings.tick_ms
        late += int(command("ZCOUNT", store.key(partition, "timers"), "-inf", until))
    if late:
        yield DoctorFinding(
            "duties", "warn", f"{late} timers should have rung already", "start a worker; each does the duties"
        )
    else:
        yield DoctorFinding("duties", "ok", "nothing is overdue")


def _orphans(server: ServerConnection) -> Iterator[DoctorFinding]:
    """Runs held by workers that are not registered, or are not heard any more."""
    workers = server.records.workers()
    everyone = {worker.id for worker in workers}
    held = server.records.page(RunFilter(states=HELD_STATES), limit=LIST_PER_CALL).runs
    # A worker that registered meanwhile is not in the first list: read it again before reporting orphans.
    lost = [run for run in held if run.worker not in everyone]
    lost = [run for run in lost if run.worker not in {worker.id for worker in server.records.workers()}] if lost else []
    if lost:
        names = ", ".join(run.id for run in lost[:5])
        yield DoctorFinding(
            "orphans", "warn", f"{len(lost)} runs have a worker that is not registered: {names}", "start a worker"
        )
    elif silent := {worker.id for worker in workers if worker.runs and worker.silent_ms(_server_time_ms(server))}:
        count = sum(len(worker.runs) for worker in workers if worker.id in silent)
        runs = "held run has" if count == 1 else "held runs have"
        found = f"{count} {runs} a worker that cannot be heard: {', '.join(sorted(silent)[:5])}"
        yield DoctorFinding("orphans", "warn", found, "see workers above")
    else:
        yield DoctorFinding("orphans", "ok", "every held run has its worker")


def _format_size(number: int) -> str:
    value, unit = float(number), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}" if unit != "B" else f"{number} B"
