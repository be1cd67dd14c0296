"""The log of a run: written by the attempt that holds it and nobody else, and capped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.logs import FULL, read, say, texts
from support.lossy_proxy import Proxy
from support.servers import Server
from support.world import World

from agentq.coordinator.bounds import LOG_BYTES, LOG_CHUNK_CHARACTERS, LOG_CHUNKS_PER_CALL, LOG_ENTRIES
from agentq.coordinator.errors import Fenced, Invalid, NotFound, TryLater, WrongState
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.logs import LogChunk, Logs
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.scripts import SCRIPTS, ScriptSet
from agentq.coordinator.storage.store import NamespaceStore

# ---- writing


def test_both_streams_are_kept_apart_and_in_order(world: World) -> None:
    claim = world.held()

    world.queue.log(claim, 1, [LogChunk("out", "a\n"), LogChunk("err", "b\n")])
    world.queue.log(claim, 2, [LogChunk("out", "ä\n"), LogChunk("note", "that was all\n")])

    entries = read(world, claim.id)
    assert [(entry.stream, entry.text, entry.from_byte) for entry in entries] == [
        ("out", "a\n", 0),
        ("err", "b\n", 2),
        ("out", "ä\n", 4),
        ("note", "that was all\n", 7),
    ]
    assert {entry.attempt for entry in entries} == {1}
    assert entries[0].at_ms > 0


def test_logging_changes_no_state_and_tells_no_event(world: World) -> None:
    claim = world.held(started=True)
    before, run = world.events(), world.get(claim.id)

    say(world, claim, 1, "hello\n")

    assert (world.events(), world.get(claim.id)) == (before, run)


def test_a_call_that_is_sent_twice_is_not_doubled(world: World) -> None:
    claim = world.held()
    say(world, claim, 1, "one", "two")
    say(world, claim, 5, "three")

    with world.unchanged():
        say(world, claim, 5, "three")
        say(world, claim, 1, "one", "two")

    assert texts(world, claim.id) == ["one", "two", "three"]


def test_a_call_whose_reply_was_lost_is_not_doubled(world: World, valkey: Server) -> None:
    claim = world.held()
    with Proxy(valkey, ScriptSet().source(SCRIPTS["attempt/append_log"]).sha.encode()) as proxy:
        connection = Connection(proxy.url)
        store = NamespaceStore(connection, world.store.keyspace, clock=lambda: world.now_ms)
        say(world, claim, 1, "warms the script up\n")

        RunVerbs(store).log(claim, 2, [LogChunk("out", "once\n")])

        connection.close()
        assert proxy.lost == 1
    assert texts(world, claim.id) == ["warms the script up\n", "once\n"]


def test_a_superseded_attempt_is_told_so_and_appends_nothing(world: World) -> None:
    old = world.held("w1", started=True)
    say(world, old, 1, "from the old attempt\n")
    assert world.watch_ms(world.lost_after_ms()) == ["w1"]

    with world.unchanged(), pytest.raises(Fenced):
        say(world, old, 2, "while it waits for another\n")

    (new,) = world.worker("w2").claim(1)
    say(world, new, 1, "from the new attempt\n")
    for number in (1, 2, 99):
        with world.unchanged(), pytest.raises(Fenced):
            say(world, old, number, "from a zombie\n")

    entries = read(world, old.id)
    assert [(entry.attempt, entry.text) for entry in entries] == [
        (1, "from the old attempt\n"),
        (2, "from the new attempt\n"),
    ]


def test_an_ended_run_takes_no_more_output(world: World) -> None:
    """So whoever has seen the end and then read the log has read all of it."""
    claim = world.held(started=True)
    say(world, claim, 1, "done\n")
    world.queue.finish([(claim, Outcome())])

    with world.unchanged():
        say(world, claim, 1, "done\n")
        with pytest.raises(WrongState):
            say(world, claim, 2, "too late\n")


def test_output_of_a_run_that_is_not_there_is_refused(world: World) -> None:
    claim = world.held()
    world.queue.finish([(claim, Outcome())])
    world.pass_ms(8 * 86_400_000)
    world.tick()

    with world.unchanged(), pytest.raises(NotFound):
        say(world, claim, 1, "nobody listens\n")


def test_what_is_too_large_is_refused_at_the_door(world: World) -> None:
    claim = world.held()

    with world.unchanged():
        with pytest.raises(Invalid, match=f"not {LOG_CHUNK_CHARACTERS + 1}"):
            say(world, claim, 1, "x" * (LOG_CHUNK_CHARACTERS + 1))
        with pytest.raises(Invalid, match=f"not {LOG_CHUNKS_PER_CALL + 1}"):
            say(world, claim, 1, *["x"] * (LOG_CHUNKS_PER_CALL + 1))


def test_a_full_server_takes_no_output_but_lets_the_run_finish(durable: Server) -> None:
    world = World(Connection(durable.url))
    claim = world.held(started=True)
    say(world, claim, 1, "before\n")
    world.store.connection.command("CONFIG", "SET", "maxmemory", 1)

    with world.unchanged(), pytest.raises(TryLater):
        say(world, claim, 2, "no room\n")
    assert world.queue.finish([(claim, Outcome())]) == [None]

    assert texts(world, claim.id) == ["before\n"]
    world.check()


def test_a_log_goes_with_its_run(world: World) -> None:
    claim = world.held(keep_ms=60_000)
    say(world, claim, 1, "hello\n")
    world.queue.finish([(claim, Outcome())])
    world.tick()
    assert texts(world, claim.id) == ["hello\n"]

    world.pass_ms(60_001)
    world.tick()

    assert [snapshot.of("log") for snapshot in world.snapshots()] == [{}]


# ---- the cap


def test_the_log_keeps_the_newest_bytes_and_says_how_many_are_missing(world: World) -> None:
    claim = world.held()
    kept = LOG_BYTES // LOG_CHUNK_CHARACTERS
    world.queue.log(claim, 1, [LogChunk("err", "y" * 100), *[FULL] * (kept + 10)])

    note, *entries = read(world, claim.id)
    assert (note.stream, note.text.partition(" missing")[0]) == ("note", f"{100 + 10 * LOG_CHUNK_CHARACTERS} bytes are")
    assert [entry.text for entry in entries] == [FULL.text] * kept


def test_the_log_is_capped_in_entries_too(world: World) -> None:
    claim = world.held()
    lines = [f"{number}\n" for number in range(LOG_ENTRIES + 500)]
    for number, at in enumerate(range(0, len(lines), LOG_CHUNKS_PER_CALL), 1):
        say(world, claim, number, *lines[at : at + LOG_CHUNKS_PER_CALL])

    note, *kept = texts(world, claim.id)
    assert kept == lines[500:]
    assert note.startswith(f"{sum(map(len, lines[:500]))} bytes are missing here")


def test_tiny_entries_make_room_for_large_ones(world: World) -> None:
    """A thousand entries that go at once are more than one look at the oldest of them takes."""
    claim = world.held()
    say(world, claim, 1, *["x"] * LOG_CHUNKS_PER_CALL)
    world.queue.log(claim, 2, [FULL] * (LOG_BYTES // LOG_CHUNK_CHARACTERS))

    assert len(read(world, claim.id)) == 1 + LOG_BYTES // LOG_CHUNK_CHARACTERS


def test_a_reader_that_was_overtaken_by_the_cap_is_told(world: World) -> None:
    claim = world.held()
    say(world, claim, 1, "seen\n", "not seen\n")
    seen = read(world, claim.id)[0].id
    world.queue.log(claim, 2, [FULL] * LOG_CHUNKS_PER_CALL)

    note = read(world, claim.id, seen)[0]

    assert (note.id, note.stream) == (seen, "note")
    assert note.text.startswith("some output is missing here")


def test_a_follower_that_was_overtaken_by_the_cap_is_told_how_much_it_missed(world: World) -> None:
    claim = world.held()
    say(world, claim, 1, "seen\n")
    entries = Logs(world.store).follow(claim.id)
    assert next(entries).text == "seen\n"

    for number in (2, 3):
        world.queue.log(claim, number, [FULL] * LOG_CHUNKS_PER_CALL)
    world.queue.finish([(claim, Outcome())])

    missing = 2 * LOG_CHUNKS_PER_CALL * LOG_CHUNK_CHARACTERS - LOG_BYTES
    note, *rest = entries
    assert note.text.startswith(f"{missing} bytes are missing here")
    assert "".join(entry.text for entry in rest) == "x" * LOG_BYTES


def test_logs_live_in_their_runs_partition(make_world: Callable[..., World]) -> None:
    world = make_world(partitions=3)
    claims = [world.held(f"w{number}") for number in range(30)]
    assert {partition_of(claim.id) for claim in claims} == {0, 1, 2}
    for claim in claims:
        say(world, claim, 1, claim.id)

    assert [texts(world, claim.id) for claim in claims] == [[claim.id] for claim in claims]
