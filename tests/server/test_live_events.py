"""Events as they happen: server-sent events and WebSockets of real server processes."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from support.http_servers import MakeServing, Serving
from support.servers import Server, until
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from agentq.coordinator.bounds import EVENTS_KEPT
from agentq.coordinator.security.tokens import Tokens
from agentq.server.events.feed import KEPT_EVENTS_MAX

EventFields = dict[str, Any]


class Listener:
    """A client that reads a stream of events until it has had enough."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def events(self, count: int | None = None) -> list[EventFields]:
        """The next events, or all to the end of the stream: each a dict of its fields, `data` read."""
        found: list[EventFields] = []
        fields: EventFields = {}
        while len(found) != count:
            line = next(self._lines, None)
            if line is None:
                break
            name, _, value = line.partition(": ")
            if line and name in ("id", "event", "data"):
                fields[name] = json.loads(value) if name == "data" else value
            elif not line:
                if "data" in fields:
                    found.append(fields)
                fields = {}
        return found


@contextmanager
def listening(client: httpx.Client, path: str, last: str | None = None) -> Iterator[Listener]:
    headers = {} if last is None else {"last-event-id": last}
    with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        lines = answer.iter_lines()
        assert next(lines).startswith("retry: ")
        yield Listener(lines)


def runs_of(events: Sequence[EventFields]) -> list[str]:
    return [each["data"]["run"] for each in events]


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize("partitions", [1, 3])
def test_whoever_comes_back_goes_on_exactly_where_it_was(
    valkey: Server, make_serving: MakeServing, partitions: int
) -> None:
    serving = make_serving(valkey, partitions=partitions)
    with serving.client() as client:
        with listening(client, "/events?event=submitted") as listener:
            before = [serving.submit() for _ in range(20)]
            first = listener.events(7)
        between = [serving.submit() for _ in range(20)]
        with listening(client, "/events?event=submitted", first[-1]["id"]) as listener:
            after = [serving.submit() for _ in range(10)]
            rest = listener.events(43)
        everything = [*before, *between, *after]

        assert sorted(runs_of(first) + runs_of(rest)) == sorted(everything)
        if partitions == 1:
            assert runs_of(first) + runs_of(rest) == everything
        with listening(client, "/events?after=0-0") as listener:
            assert sorted(runs_of(listener.events(50))) == sorted(everything)


def test_a_filter_lets_pass_what_fits_all_of_its_parts(serving: Serving) -> None:
    wanted = serving.submit(queue="mail", plan="nightly")
    others = [serving.submit(queue="mail"), serving.submit(queue="post", plan="nightly")]
    for run in (*others, wanted):
        serving.queue.cancel(run)
    with serving.client() as client:
        for query in ("queue=mail&plan=nightly", f"run={wanted}", "plan=nightly,x&queue=mail&queue=y"):
            with listening(client, f"/events?after=0-0&state=cancelled&{query}") as listener:
                assert runs_of(listener.events(1)) == [wanted]
        for query, why in (
            ("event=complete", "Did you mean completed?"),
            ("stat=x", "no parameter 'stat'"),
            ("run=run_1", "is not the id of a run"),
            ("after=yesterday", "not a position in the events"),
            ("after=1-0,2-0", "2 parts for 1"),
        ):
            answer = client.get(f"/events?{query}")
            assert (answer.status_code, why in answer.json()["detail"]) == (422, True), answer.text


def test_a_token_of_one_queue_hears_of_no_other(valkey: Server, make_serving: MakeServing) -> None:
    serving = make_serving(valkey, "--require-tokens")
    runs = [serving.submit(queue=queue) for queue in ("mail", "post", "mail")]
    with serving.client(serving.token("read", queues=["mail"])) as client:
        with listening(client, "/events?after=0-0") as listener:
            assert runs_of(listener.events(2)) == [runs[0], runs[2]]
        with listening(client, "/events?after=0-0&queue=post") as listener:
            last = serving.submit(queue="mail")
            # Nothing of `post` came, and nothing of `mail` passes its own filter.
            with listening(client, f"/events?run={last}&after=0-0") as other:
                assert runs_of(other.events(1)) == [last]
        assert client.get(f"/runs/{runs[1]}/events").status_code == 403
    with serving.client(serving.token("submit")) as client:
        assert client.get("/events").status_code == 403


@pytest.mark.full("takes 6 s")
def test_a_token_that_is_revoked_hears_no_more(valkey: Server, make_serving: MakeServing) -> None:
    serving = make_serving(valkey, "--require-tokens")
    token = serving.token("read")
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.2):
            serving.submit()

    busy = threading.Thread(target=go_on)
    with serving.client(token) as client, listening(client, "/events") as listener:
        busy.start()
        assert listener.events(1)
        Tokens(serving.store).revoke(token.split("_")[2])
        *_, last = listener.events()
        over.set()
        busy.join()
        assert (last["event"], "is unknown" in last["data"]["detail"]) == ("denied", True)
        assert client.get("/events").status_code == 401


def test_the_events_of_a_run_end_with_it(serving: Serving) -> None:
    run = serving.submit()
    with serving.client() as client:
        with listening(client, f"/runs/{run}/events") as listener:
            assert [each["event"] for each in listener.events(1)] == ["submitted"]
            serving.queue.cancel(run)
            last, end = listener.events()
        assert (last["event"], end["event"], end["data"]) == ("cancelled", "end", {"state": "cancelled"})
        again = client.get(f"/runs/{run}/events", headers={"last-event-id": last["id"]})
        assert again.status_code == 204
        with listening(client, f"/runs/{run}/events") as listener:
            assert [each["event"] for each in listener.events()] == ["submitted", "cancelled", "end"]
        assert client.get("/runs/run_1m7rs809r00838cy2gfcqdm/events").status_code == 404


def test_events_that_are_gone_are_told_as_a_gap(valkey: Server, make_serving: MakeServing) -> None:
    serving = make_serving(valkey)
    first = serving.submit()
    with serving.client() as client:
        with listening(client, "/events?after=0-0") as listener:
            (seen,) = listener.events(1)
        for _ in range(5):
            serving.submit()
        command = serving.store.connection.command
        command("XTRIM", serving.store.key(0, "events"), "MAXLEN", 2)
        with listening(client, "/events", seen["id"]) as listener:
            gap, *rest = listener.events(3)

    assert runs_of([seen]) == [first]
    assert (gap["event"], gap["data"]) == ("gap", {"after": seen["id"]})
    assert [each["event"] for each in rest] == ["submitted"] * 2


@pytest.mark.full("takes 5 s")
def test_a_client_that_does_not_read_costs_nothing_and_the_others_go_on(
    valkey: Server, make_serving: MakeServing
) -> None:
    serving = make_serving(valkey, environment={"AGENTQ_SERVER_HEAD_TIMEOUT_MS": "1500"})
    flood = [(f"x{number:040}", "d" * 500) for number in range(250)]
    with serving.client() as client, listening(client, "/events") as listener:
        run = serving.submit()
        for _ in range(KEPT_EVENTS_MAX // len(flood) + 1):  # as many events as are kept for all who read
            tell(serving, run, flood)
        listener.events(KEPT_EVENTS_MAX + len(flood) + 1)
        deaf = socket.create_connection(("127.0.0.1", serving.port))
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: deaf.recv(1, socket.MSG_PEEK), "the deaf one to be answered")
        before = memory_of(serving)
        for _ in range(50):
            for _ in range(4):
                tell(serving, run, flood)
            assert len(listener.events(1_000)) == 1_000
        grown = memory_of(serving) - before
        # It is cut off, and can come back with the last id that it has read.
        until(lambda: '"path": "/events"' in serving.said(), "the deaf one to be cut off")
    deaf.close()

    assert grown < 20 << 20, f"{grown >> 20} MiB, where {50_000 * 600 >> 20} MiB were told"


def tell(serving: Serving, run: str, words: list[tuple[str, str]]) -> None:
    """Many events of a run, as if a lot had happened."""
    key = serving.store.key(0, "events")
    for worker, detail in words:
        fields: dict[str, str | int] = {
            "event": "progressed",
            "run": run,
            "state": "running",
            "attempt": 1,
            "worker": worker,
        }
        flat = [word for pair in {**fields, "detail": detail}.items() for word in pair]
        serving.store.connection.command("XADD", key, "MAXLEN", EVENTS_KEPT, "*", *flat)


def memory_of(serving: Serving) -> int:
    """The resident memory of the server, in bytes."""
    assert serving.process is not None
    with open(f"/proc/{serving.process.pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_websocket_tells_the_same(valkey: Server, make_serving: MakeServing) -> None:
    serving = make_serving(valkey, "--require-tokens")
    token = {"Authorization": f"Bearer {serving.token('read')}"}
    url = serving.url.replace("http", "ws") + "/events/ws"
    with pytest.raises(Exception, match="401"):
        connect(url)
    with connect(url + "?event=submitted&event=cancelled", additional_headers=token) as socket_:
        ready = json.loads(socket_.recv(timeout=10))
        run = serving.submit()
        told = json.loads(socket_.recv(timeout=10))
        assert (ready["event"], told["event"], told["data"]["run"]) == ("ready", "submitted", run)
    serving.queue.cancel(run)
    with connect(f"{url}?after={told['id']}", additional_headers=token) as socket_:
        assert [json.loads(socket_.recv(timeout=10))["event"] for _ in range(2)] == ["ready", "cancelled"]
        ended = threading.Thread(target=serving.signal, args=(signal.SIGTERM,))
        ended.start()
        with pytest.raises(ConnectionClosed, match=r"1001|1012"):
            socket_.recv(timeout=10)
        ended.join()


@pytest.mark.full("takes 2 s")
def test_what_happens_while_the_store_is_down_is_told_afterwards(durable: Server, make_serving: MakeServing) -> None:
    serving = make_serving(durable)
    with serving.client() as client, listening(client, "/events?event=submitted") as listener:
        runs = [serving.submit()]
        assert runs_of(listener.events(1)) == runs
        durable.signal(signal.SIGKILL)
        durable.start()
        later = [serving.submit() for _ in range(3)]
        assert runs_of(listener.events(3)) == later
