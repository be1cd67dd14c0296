"""Requests of hostile web pages, proxies and clients do no harm, and others are served."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx
import pytest
from pydantic import JsonValue
from support.dialect_runner import Parties
from support.http_servers import COMMAND, Serving
from support.servers import Server, until

from agentq.coordinator.errors import AgentqError, NotAllowed, TryLater, Unreachable
from agentq.server.http.middleware import JsonItemCounter
from agentq.server.http.problems import MEDIA_TYPE, error_response


def test_a_name_that_is_not_of_loopback_is_refused(serving: Serving) -> None:
    """A page that has its own name resolved to this machine would else read all that is here."""
    with serving.client() as client:
        refused = client.get("/runs", headers={"host": f"evil.example:{serving.port}"})
        good = [
            client.get("/runs", headers={"host": host})
            for host in ("localhost", f"127.0.0.1:{serving.port}", "[::1]:1")
        ]

    assert (refused.status_code, refused.headers["content-type"]) == (421, MEDIA_TYPE)
    assert [each.status_code for each in good] == [200, 200, 200]


@pytest.mark.full("takes 1 s")
def test_a_page_of_another_origin_is_refused_unless_it_may(serving: Serving, make_serving: Callable[..., Serving],
                                                           valkey: Server) -> None:  # fmt: skip
    friendly = make_serving(valkey, "--cors-origin", "https://ui.example")
    page = {"origin": "https://ui.example"}
    with serving.client() as client, friendly.client() as other:
        assert client.post("/runs", json=COMMAND, headers=page).status_code == 403
        assert "access-control-allow-origin" not in client.get("/health", headers=page).headers
        assert client.post("/runs", json=COMMAND, headers={"origin": serving.url}).status_code == 201
        assert other.get("/runs", headers=page).headers["access-control-allow-origin"] == "https://ui.example"
        assert other.get("/runs", headers={"origin": "https://evil.example"}).status_code == 403
        for odd in ("null", "http://[", "http://[::1", "://", "x" * 5000, "http://localhost@evil.example"):
            assert client.get("/runs", headers={"origin": odd}).status_code == 403, odd


@pytest.mark.parametrize("host", ["127.0.0.1:evil", "[::1]evil", "127.0.0.1:", "a@127.0.0.1", "[::1", "localhost:1:2"])
def test_a_host_that_only_begins_with_a_name_of_loopback_is_refused(serving: Serving, host: str) -> None:
    with serving.client() as client:
        assert client.get("/runs", headers={"host": host}).status_code == 421


@pytest.mark.parametrize(("name", "value", "status"), [("host", "localhost", 421), ("origin", "http://localhost", 403)])
def test_a_header_that_says_where_a_request_belongs_is_there_once(
    serving: Serving, name: str, value: str, status: int
) -> None:
    head = f"GET /health HTTP/1.1\r\nHost: localhost\r\n{name}: {value}\r\n{name}: {value}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", serving.port), timeout=40) as client:
        client.sendall(head.encode())
        assert client.recv(100).startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("path", ["/runs", "/runner/runs?runner_id=lnch_0123456789ab"])
def test_a_link_of_another_origin_leads_to_nothing_but_documents(serving: Serving, path: str) -> None:
    """A poll claims a run, and a browser follows a link with a GET."""
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    with serving.client() as client:
        assert client.get(path, headers=link).status_code == 403
        assert client.post("/runs", json=COMMAND, headers=link).status_code == 403
        assert client.head("/health", headers=link).status_code == 200


def test_what_a_page_of_another_origin_embeds_is_refused_and_a_link_is_followed(serving: Serving) -> None:
    """A browser tells no origin then: `<img src="http://127.0.0.1:8765/runner/runs?runner_id=…">`."""
    with serving.client() as client:
        embedded = client.get("/runs", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"})
        followed = client.get("/docs", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
        own = client.get("/runs", headers={"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"})
        sent = client.post("/runs", content=b'{"kind":"command","argv":["true"]}',
                           headers={"origin": "null", "content-type": "text/plain"})  # fmt: skip

    assert [each.status_code for each in (embedded, followed, own, sent)] == [403, 200, 200, 403]


@pytest.mark.full("takes 2 s")
def test_a_server_answers_to_the_address_that_it_listens_at(
    valkey: Server, make_serving: Callable[..., Serving]
) -> None:
    with make_serving(valkey, host="127.0.0.2").client() as client:
        assert client.get("/runs").status_code == 200


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-host", "via"])
def test_who_comes_through_a_proxy_on_this_machine_needs_a_token(serving: Serving, header: str) -> None:
    with serving.client() as client:
        assert client.get("/runs", headers={header: "203.0.113.7"}).status_code == 401


def test_an_answer_says_nothing_of_what_made_it(serving: Serving) -> None:
    with serving.client() as client:
        answer = client.get("/health", headers={"x-request-id": "mine-1"})
        other = client.get("/health", headers={"x-request-id": "not\tone"})

    assert "server" not in answer.headers
    assert (answer.headers["x-request-id"], answer.headers["x-content-type-options"]) == ("mine-1", "nosniff")
    assert answer.headers["content-security-policy"] == "frame-ancestors 'none'"
    assert other.headers["x-request-id"].startswith("req_")


def test_a_large_body_is_refused_before_it_is_read(serving: Serving) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), timeout=10) as client:
        client.sendall(b"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("path", ["/runs", "/plans", "/sessions"])
@pytest.mark.parametrize("inner", [b'{"a":1' + b',"b":1' * 200_001 + b"}", b"[[]" + b",[]" * 600_001 + b"]"])
def test_a_body_of_many_small_parts_is_refused_before_it_is_parsed(serving: Serving, path: str, inner: bytes) -> None:
    """While it was, all others waited, for seconds."""
    with serving.client() as client:
        refused = client.post(path, content=b'{"kwargs":' + inner + b"}")

    assert (refused.status_code, refused.headers["content-type"]) == (413, MEDIA_TYPE)
    assert (
        refused.json()["detail"]
        == "The body has more than 600000 items, a member of an object counting as three; send less at once."
    )


def test_commas_within_a_text_are_no_items(serving: Serving) -> None:
    agent = {"kind": "agent", "agent": "claude", "prompt": '\\",\\\\' * 100_000 + "," * 601_000}
    with serving.client() as client:
        taken = client.post("/runs", json=agent)
        assert taken.status_code == 201
        # A runner of another test would be given it.
        client.post(f"/runs/{taken.json()['id']}/cancel", json={}).raise_for_status()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_items_are_counted_alike_however_the_body_comes(size: int) -> None:
    value = {"a,b": [1, "x,\\", '\\",', "\\\\"], '"': {"c": ',,"', "d\\": [",", 2]}}
    body, items = json.dumps(value).encode(), JsonItemCounter()

    found = [items.add(body[at : at + size]) for at in range(0, len(body), size)]

    assert found[-1] == 6 + 2 * 4


@pytest.mark.full("takes 1 s")
def test_a_body_of_no_said_length_is_cut_off_where_it_is_too_large(make_serving: Callable[..., Serving],
                                                                   valkey: Server) -> None:  # fmt: skip
    small = make_serving(valkey, environment={"AGENTQ_SERVER_BODY_BYTES": "2048"})

    def pieces() -> Iterator[bytes]:
        for _ in range(10):
            yield b"x" * 1000

    with small.client() as client:
        answer = client.post("/runs", content=pieces())

    assert answer.status_code == 413
    assert answer.json()["detail"].startswith("The body is larger than 2048 bytes")


@pytest.mark.parametrize(("begin", "more"), [(b"1;", b"x"), (b"0\r\n", b"X: y\r\n"), (b"0\r\nX: ", b"y")])
def test_what_stands_beside_a_body_has_an_end(serving: Serving, begin: bytes, more: bytes) -> None:
    """Behind its last piece, or with one; it would else be kept, or looked at, without end."""
    with socket.create_connection(("127.0.0.1", serving.port), timeout=10) as client:
        client.sendall(
            b"POST /runs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n" + begin
        )
        with pytest.raises(ConnectionError):
            client.sendall(more * (16 << 20 >> (len(more) // 2)))


def ends_of(serving: Serving, *begun: bytes) -> list[bytes]:
    """How the connections end that begin so and go on with nothing."""
    clients = []
    for piece in begun:
        clients.append(socket.create_connection(("127.0.0.1", serving.port), timeout=60))
        with suppress(ConnectionError):  # it may have been cut off before
            clients[-1].sendall(piece)
    until(serving.answers, "others to be served")
    ends = []
    for client in clients:
        try:
            ends.append(client.recv(100)[:12])
        except ConnectionResetError:
            ends.append(b"")
        client.close()
    return ends


@pytest.mark.full("takes 2 s")
def test_clients_that_are_slow_with_their_head_are_cut_off_and_others_are_served(
    make_serving: Callable[..., Serving], valkey: Server
) -> None:
    """Who sends half a head, or nothing at all, does not keep its connection."""
    serving = make_serving(valkey, environment={"AGENTQ_SERVER_HEAD_TIMEOUT_MS": "500"})
    head = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    begun = (b"", b"GET /health HT", head + b"X-Slow: ", head + b"X-Long: " + b"x" * 200_000)

    assert ends_of(serving, *begun) == [b""] * 4


@pytest.mark.full("takes 2 s")
def test_a_client_that_is_slow_with_its_body_is_cut_off_and_others_are_served(
    make_serving: Callable[..., Serving], valkey: Server
) -> None:
    """A server of its own: with a short time for heads, too, a slow machine would not get as far as the body."""
    serving = make_serving(valkey, environment={"AGENTQ_SERVER_BODY_TIMEOUT_MS": "500"})
    begun = b"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"

    assert ends_of(serving, begun) == [b"HTTP/1.1 408"]


@pytest.mark.parametrize("notes", [{"dialect": "zzz"}, {"parameters": 1}, {"hook": "nonsense"}, {"hook": "../"}])
def test_notes_that_look_like_the_dialects_and_are_not_stop_no_runner(
    serving: Serving, parties: Parties, notes: JsonValue
) -> None:
    """A submitter may write down what it likes; runners of others are given the run all the same."""
    runner, client = parties.hand(), parties.client()
    body = {"kind": "agent", "agent": "claude", "prompt": "x", "notes": {"dialect": notes}}
    run = client.http.post("/runs", json=body).json()["id"]

    assert client.http.get(f"/runs/{run}").status_code == 200
    assert runner.take()["run_id"] == run
    runner.report(run, "completed")
    assert serving.records.get(run).state == "completed"


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999", "-1E+400", "1" + "0" * 400 + ".5"])
def test_what_cannot_be_told_again_in_json_does_not_come_in(parties: Parties, number: str) -> None:
    client = parties.client()
    session = client.start()["session_id"]
    told = {"event_type": "post_tool", "tool_output": 1234567}
    body = json.dumps(told).replace("1234567", number)

    refused = client.http.post(f"/sessions/{session}/events", content=body)

    assert (refused.status_code, "not JSON" in refused.json()["detail"]) == (422, True)
    assert client.http.post(f"/sessions/{session}/events", json={**told, "tool_output": "1e999"}).status_code == 201


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize(
    "place", ["99999999999999999999-0", "1-99999999999999999999", "\N{ARABIC-INDIC DIGIT ONE}-0", "1-0 "]
)
@pytest.mark.parametrize(
    "path",
    ["/events", "/runs/{run}/events", "/runs/{run}/logs", "/runs/{run}/logs?follow=true", "/sessions/{session}/events"],
)
def test_a_place_that_the_store_does_not_know_as_one_is_refused(parties: Parties, path: str, place: str) -> None:
    client = parties.client()
    made = client.start()
    named = path.format(run=made["run_id"], session=made["session_id"])

    with client.http.stream(
        "GET", named, params={**httpx.QueryParams(named.partition("?")[2]), "after": place}
    ) as answer:
        assert answer.status_code == 422


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unreachable("The server redis://10.1.2.3 cannot be reached; check its address."), 503),
        (TryLater("The server redis://10.1.2.3 is loading its data."), 503),
        (NotAllowed("The server redis://10.1.2.3 does not accept the user and password in its address."), 503),
        (AgentqError("The server redis://10.1.2.3 answered: WRONGTYPE."), 500),
    ],
)
def test_what_the_store_says_is_not_told_to_clients(error: AgentqError, status: int) -> None:
    answer = error_response(error, "req_1")

    assert answer.status_code == status
    assert b"10.1.2.3" not in answer.body
    assert ("retry-after" in answer.headers) is (status == 503)
