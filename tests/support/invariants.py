"""What must be true of a namespace after any history: checked after every test and throughout simulations."""

from __future__ import annotations

import itertools
from collections import Counter
from graphlib import CycleError, TopologicalSorter

from support.plan_invariants import check_merge_lines, check_plans
from support.snapshot import Snapshot as Snapshot
from support.snapshot import runs as runs
from support.snapshot import take_snapshot as take_snapshot

from agentq.coordinator.bounds import HISTORY_KEPT, LOG_BYTES, LOG_ENTRIES, PENDING_SIGNALS
from agentq.coordinator.model.lifecycle import HELD_STATES, TERMINAL_STATES, State


def check(snapshot: Snapshot, *, healthy: bool = True) -> None:
    """All invariants of a partition. `healthy=False` leaves out what only the janitor restores."""
    _check_index(snapshot)
    _check_lifetimes(snapshot)
    _check_holders(snapshot)
    if healthy:
        _check_homes(snapshot)
        _check_timers(snapshot)
        _check_dependencies(snapshot)
        _check_limits(snapshot)
        _check_fair_lanes(snapshot)
        _check_waits(snapshot)
    _check_turns(snapshot)
    _check_cycles(snapshot)
    _check_dedupe(snapshot)
    _check_ends(snapshot)
    _check_logs(snapshot)
    _check_schedules(snapshot)
    check_merge_lines(snapshot)
    check_plans(snapshot, healthy=healthy)


def _check_index(snapshot: Snapshot) -> None:
    indexed = Counter(run for members in snapshot.of("index").values() for run in members)
    for run, fields in runs(snapshot).items():
        queue = fields["lane"].split(":")[0]
        assert run in snapshot.of("index").get((queue, fields["state"]), {}), (
            f"{run} is {fields['state']}, not indexed so"
        )
        assert indexed[run] == 1, f"{run} is indexed {indexed[run]} times"
        assert queue in snapshot.one("queues"), f"the queue of {run} is not listed"
    assert set(indexed) == set(runs(snapshot)), "an index names a run that does not exist"
    of_all = {(state, run) for (state,), members in snapshot.of("states").items() for run in members}
    assert of_all == {(fields["state"], run) for run, fields in runs(snapshot).items()}, (
        "the indexes of all queues differ"
    )


def _check_homes(snapshot: Snapshot) -> None:
    """Each run that is pending or held has one live entry, in its own lane; nothing else is in anyone's hands."""
    live = {}
    for run, fields in runs(snapshot).items():
        state = State(fields["state"])
        if state is State.PENDING and not fields["entry"]:
            assert run in snapshot.of("fair_queue").get((fields["lane"],), {}), f"{run} is pending and waits nowhere"
        elif state is State.PENDING or state in HELD_STATES:
            live[fields["lane"], fields["entry"]] = run
            entry = snapshot.of("lane").get((fields["lane"],), {}).get(fields["entry"])
            assert entry == {"run": run}, f"{run} is {state} and has no entry in its lane"
        if state in HELD_STATES:
            owner = snapshot.pending[fields["lane"]].get(fields["entry"])
            assert owner == fields["worker"], f"{run} is held by {fields['worker']}, its entry by {owner}"
    for lane, delivered in snapshot.pending.items():
        for entry, consumer in delivered.items():
            assert (lane, entry) in live, f"{entry} in {lane} is pending for {consumer} and stands for nothing"


def _check_holders(snapshot: Snapshot) -> None:
    """Slots in use are a set, and it says the same as the runs."""
    by_runs = {
        (fields["worker"], run, fields["fence"])
        for run, fields in runs(snapshot).items()
        if State(fields["state"]) in HELD_STATES
    }
    by_workers = {
        (parts[0], run, fence.split(" ")[0])
        for parts, holds in snapshot.of("worker_runs").items()
        for run, fence in holds.items()
    }
    assert by_runs == by_workers, f"runs say {by_runs - by_workers} more, workers say {by_workers - by_runs} more"


def _check_timers(snapshot: Snapshot) -> None:
    timers = {run: int(float(at)) for run, at in snapshot.one("timers").items() if run.startswith("run_")}
    for run, fields in runs(snapshot).items():
        expected = _timer(fields)
        if expected is not None:
            assert timers.get(run) == expected, f"{run} ({fields['state']}) has timer {timers.get(run)}, not {expected}"
        elif State(fields["state"]) not in TERMINAL_STATES:
            assert run not in timers, f"{run} ({fields['state']}) has a timer for nothing"
    assert set(timers) <= set(runs(snapshot)), "a timer names a run that does not exist"


def _timer(fields: dict[str, str]) -> int | None:
    state = State(fields["state"])
    patience = int(fields["expires_at_ms"]) if fields.get("expires_at_ms") and not fields.get("attempt") else None
    if state in HELD_STATES:
        return int(fields["stop_at_ms"]) if fields.get("stop_at_ms") else None
    if state is State.SCHEDULED:
        due = int(fields["due_at_ms"])
        return min(due, patience) if patience else due
    if state is State.WAITING:
        return int(fields["due_at_ms"]) if fields.get("due_at_ms") else None
    return patience if state in (State.PENDING, State.BLOCKED) else None


def _check_dependencies(snapshot: Snapshot) -> None:
    all_runs = runs(snapshot)
    for (child,), parents in snapshot.of("dependencies").items():
        assert all_runs[child]["state"] == State.BLOCKED, f"{child} is {all_runs[child]['state']} and has needs"
        for parent in parents:
            assert child in snapshot.of("dependents").get((parent,), ()), (
                f"{parent} does not know its dependent {child}"
            )
            ended = State(all_runs[parent]["state"]) in TERMINAL_STATES
            assert not ended or parent in snapshot.one("dependents_to_notify"), (
                f"{parent} has ended and {child} was never told"
            )
    for run, fields in all_runs.items():
        if fields["state"] == State.BLOCKED:
            behind = fields.get("reason") == "turn" and next(iter(_line(snapshot, fields["turn_of"]))) != run
            waits = (
                snapshot.of("dependencies").get((run,)) or fields.get("dependencies_open") or _line_of(fields) or behind
            )
            assert waits, f"{run} is blocked and waits for nothing"


def _check_cycles(snapshot: Snapshot) -> None:
    """No run waits for itself: by dependencies, and as a turn for the one before it."""
    awaited = {run: set(parents) for (run,), parents in snapshot.of("dependencies").items()}
    for (session,) in snapshot.of("session_turns"):
        for before, run in itertools.pairwise(_line(snapshot, session)):
            awaited.setdefault(run, set()).add(before)
    try:
        TopologicalSorter(awaited).prepare()
    except CycleError as cycle:
        raise AssertionError(f"these wait for one another: {cycle.args[1]}") from cycle


def _line_of(fields: dict[str, str]) -> str:
    """The key that a blocked run waits for room under."""
    return fields["reason"].removeprefix("limit ") if fields.get("reason", "").startswith("limit ") else ""


def _check_limits(snapshot: Snapshot) -> None:
    """Whoever has room is held, or was let in and is about to be; whoever waits stands in one line."""
    timers = snapshot.one("timers")
    for run, fields in runs(snapshot).items():
        state, key = State(fields["state"]), _line_of(fields)
        needs = fields.get("limits", "").split()[::2]
        entitled = state in HELD_STATES or bool(fields.get("reserved"))
        assert state is State.PENDING or not fields.get("reserved"), f"{run} is {state} with room reserved"
        for need in needs:
            assert (run in snapshot.of("limit_holders").get((need,), {})) == entitled, (
                f"{run} is {state}: room under {need}?"
            )
        if state is State.BLOCKED and key:
            assert run in snapshot.of("limit_waiters").get((key,), {}), f"{run} waits for {key}, and stands in no line"
    for (key,), waiting in snapshot.of("limit_waiters").items():
        for run in waiting:
            fields = runs(snapshot)[run]
            assert (fields["state"], _line_of(fields)) == (State.BLOCKED, key), f"{run} stands in the line of {key}"
        limit = snapshot.of("limit").get((key,), {})
        held = len(snapshot.of("limit_holders").get((key,), {}))
        full = "max" in limit and held >= int(limit["max"])
        assert full or f"limit {key}" in timers, f"{len(waiting)} wait for {key} though {held} of {limit} are taken"
    for (key,), holding in snapshot.of("limit_holders").items():
        for run in holding:
            fields = runs(snapshot)[run]
            assert State(fields["state"]) in HELD_STATES or fields.get("reserved"), (
                f"{run} has room under {key} for nothing"
            )
    assert {key for (key,) in snapshot.of("limit")} == set(snapshot.one("limits")), "limits and their list differ"


def _check_fair_lanes(snapshot: Snapshot) -> None:
    """While runs stand in a line, the lane has an entry that nobody has read, or somebody is about to adopt one."""
    for (lane,), line in snapshot.of("fair_queue").items():
        for run in line:
            fields = runs(snapshot)[run]
            assert (fields["state"], fields["lane"], fields["entry"]) == (State.PENDING, lane, ""), f"{run} is in line"
        assert snapshot.of("lane").get((lane,)), f"{len(line)} stand in the line of {lane}, whose stream is empty"
        assert (lane,) in snapshot.of("fair_shares"), f"the line of {lane} has no time"


def _check_waits(snapshot: Snapshot) -> None:
    """What has come for a run goes with it; and nothing waits for what is there, or for what nobody can bring."""
    all_runs = runs(snapshot)
    for kind in ("pending_signals", "ended_children", "signal_ids", "children"):
        for (run,) in snapshot.of(kind):
            assert run in all_runs, f"{run} is gone and left its {kind}"
    ended = {run for run, fields in all_runs.items() if State(fields["state"]) in TERMINAL_STATES}
    for kind in ("pending_signals", "ended_children"):
        assert not ended & {run for (run,) in snapshot.of(kind)}, f"a run has ended and has {kind}"
    for (parent,), children in snapshot.of("children").items():
        assert parent not in ended or parent in snapshot.one("dependents_to_notify"), (
            f"{parent} has ended and has children"
        )
        for child in children:
            assert child in all_runs.keys() - ended, f"{child} is no live child of {parent}"
            assert all_runs[child]["parent"] == parent, f"{child} is a child of another than {parent}"
    for run, fields in all_runs.items():
        mail = snapshot.of("pending_signals").get((run,), {})
        assert len(mail) <= PENDING_SIGNALS, f"{run} has {len(mail)} signals"
        if fields["state"] == State.WAITING:
            found = {message["name"] for message in mail.values()} & set(fields["awaited_signals"].split())
            assert not found, f"{run} waits for {found}, which are in its mail"
            mode = fields["awaited_children"]
            assert not mode or snapshot.of("children").get((run,)), f"{run} waits for children, and has none"
            assert mode != "any" or not snapshot.of("ended_children").get((run,)), f"{run} waits for what has come home"


def _line(snapshot: Snapshot, session: str) -> list[str]:
    """The turns of a session that have not ended, the first first."""
    return list(snapshot.of("session_turns").get((session,), {}))


def _check_turns(snapshot: Snapshot) -> None:
    """The live turns of a session stand in its line, and only the first is let go; what it carries goes with it."""
    all_runs, sessions = runs(snapshot), {name: fields for (name,), fields in snapshot.of("session").items()}
    assert set(sessions) == set(snapshot.one("sessions")), "sessions and their list differ"
    for (name,) in snapshot.of("session_turns"):
        line = _line(snapshot, name)
        assert name in sessions, f"the session {name} is gone and left its line"
        for run in line:
            assert all_runs[run].get("turn_of") == name, f"{run} is no turn of {name}"
            assert State(all_runs[run]["state"]) not in TERMINAL_STATES, (
                f"{run} has ended and stands in the line of {name}"
            )
        going = [run for run in line if all_runs[run]["state"] != State.BLOCKED]
        assert going in ([], line[:1]), f"of the line {line} of {name}, {going} were let go"
    for run, fields in all_runs.items():
        if "turn_of" in fields and State(fields["state"]) not in TERMINAL_STATES:
            assert run in _line(snapshot, fields["turn_of"]), f"{run} is live and stands in no line"
            stays, ends = sessions[fields["turn_of"]].get("pinned_host"), fields["lane"].split(":", 2)[2].split(",")
            moving = State(fields["state"]) in (State.SCHEDULED, State.PENDING, State.WAITING)
            assert not moving or not stays or f"host={stays}" in ends, f"{run} is to go to {stays}: {fields['lane']}"
    for (name,) in snapshot.of("session_transcript"):
        assert "transcript_of" in sessions[name], f"nobody knows what the session {name} carries"
    for (run,) in snapshot.of("transcript"):
        assert "transcript_of" in all_runs[run], f"nobody knows what {run} carries"
    for name, fields in sessions.items():
        over = fields["state"] == "closed" and not _line(snapshot, name)
        assert over == (f"session {name}" in snapshot.one("timers")), f"the session {name} is {fields['state']}"


def _check_dedupe(snapshot: Snapshot) -> None:
    """A dedupe key names a live run, or has a TTL; a run that has begun has at most one run that follows it."""
    for (dedupe,), holder in snapshot.of("dedupe").items():
        run, _, taken_until = holder.partition(" ")
        if taken_until:
            assert snapshot.ttls[f"{snapshot.base}dedupe:{dedupe}"] > 0, f"{run} has the key {dedupe} for ever"
            continue
        fields = runs(snapshot)[run]
        assert fields["dedupe_key"] == dedupe
        assert State(fields["state"]) not in TERMINAL_STATES, f"{run} has ended and still has the key {dedupe}"
    for run, fields in runs(snapshot).items():
        leader = runs(snapshot).get(fields.get("follows", ""))
        if leader is None or State(leader["state"]) in TERMINAL_STATES or State(fields["state"]) is not State.BLOCKED:
            continue
        assert leader["follower"] == run, f"{run} and {leader['follower']} both follow {fields['follows']}"
        assert snapshot.of("dedupe")[fields["dedupe_key"],] == fields["follows"], (
            f"{fields['follows']} has lost its key"
        )


def _check_ends(snapshot: Snapshot) -> None:
    for run, fields in runs(snapshot).items():
        ended = State(fields["state"]) in TERMINAL_STATES
        assert ended == bool(fields.get("outcome")), f"{run} is {fields['state']} with outcome {fields.get('outcome')}"
        assert ended == bool(fields.get("finished_at_ms")), f"{run} is {fields['state']}: finished at?"


def _check_logs(snapshot: Snapshot) -> None:
    """A log belongs to a run, is capped, and tells how much is gone; within an attempt its numbers never go back."""
    for (run,), entries in snapshot.of("log").items():
        assert run in runs(snapshot), f"{run} is gone and left its log"
        assert 0 < len(entries) <= LOG_ENTRIES, f"the log of {run} has {len(entries)} entries"
        items = list(entries.values())
        for before, after in itertools.pairwise(items):
            assert int(after["from_byte"]) == int(before["from_byte"]) + len(before["text"].encode()), (
                f"{run} lost part of its log"
            )
            assert before["fence"] != after["fence"] or int(before["number"]) <= int(after["number"])
        end = int(items[-1]["from_byte"]) + len(items[-1]["text"].encode())
        assert end - int(items[0]["from_byte"]) <= LOG_BYTES, f"the log of {run} is too large"


def _check_schedules(snapshot: Snapshot) -> None:
    """Each schedule has one place in time, and each live run of one is known to it."""
    places = snapshot.one("schedules")
    for (name,), fields in snapshot.of("schedule").items():
        assert name in places, f"the schedule {name} has no place in time"
        at = float(places[name])
        assert (at == float("inf")) == ("paused_at_ms" in fields), f"the schedule {name} is due at {at}: {fields}"
        assert bool(fields["next_at_ms"]) != ("ended_at_ms" in fields), f"the schedule {name} ends badly: {fields}"
        assert int(fields["next_at_ms"] or at) > int(fields.get("last_at_ms", 0)), f"{name} goes back in time"
    assert set(places) == {name for (name,) in snapshot.of("schedule")}, "a place in time is of no schedule"
    for (name,), told in snapshot.of("schedule_history").items():
        assert name in places, f"the schedule {name} is gone and left its history"
        assert len(told) <= HISTORY_KEPT
    by_runs = {
        (fields["schedule"], run)
        for run, fields in runs(snapshot).items()
        if "schedule" in fields and State(fields["state"]) not in TERMINAL_STATES
    }
    by_schedules = {(name, run) for (name,), made in snapshot.of("schedule_runs").items() for run in made}
    assert by_runs == by_schedules, f"runs say {by_runs - by_schedules}, schedules say {by_schedules - by_runs}"


def _check_lifetimes(snapshot: Snapshot) -> None:
    """Nothing lives for ever unless keys.py says why; what has ended has a time to live."""
    for run, fields in runs(snapshot).items():
        if State(fields["state"]) in TERMINAL_STATES:
            assert run in snapshot.one("timers"), f"{run} has ended and nothing will ever forget it"
    for (worker,), fields in snapshot.of("worker").items():
        lasting = snapshot.ttls[f"{snapshot.base}worker:{worker}"] == -1
        gone = fields["state"] in ("gone", "lost") and worker not in snapshot.one("workers")
        assert lasting != gone, f"the worker {worker} is {fields['state']}, lasting: {lasting}"
    for kind in ("worker_lease", "worker_inbox", "worker_runs"):
        for (worker,) in snapshot.of(kind):
            assert worker in snapshot.one("workers"), f"the worker {worker} is gone and left its {kind}"
    passing = [f"worker:{worker}:lease" for (worker,) in snapshot.of("worker_lease")] + ["duty_owner"] * len(
        snapshot.of("duty_owner")
    )
    for name in passing:
        assert snapshot.ttls[snapshot.base + name] > 0, f"{name} has no time to live"
