"""Tokens and scopes, over all routes: what they allow, and what they refuse."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import httpx
import pytest
from fastapi.routing import APIRoute, APIWebSocketRoute
from support.http_servers import COMMAND, Serving
from support.servers import Server, until

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.log_setup import mask_secrets
from agentq.coordinator.model.ids import id_created_ms, make_tick_run_id, new_run_id
from agentq.coordinator.security.tokens import Tokens, TokenScope, parse_token
from agentq.server.app import find_required_scope, list_routes
from agentq.server.auth.guess_limit import GUESSES_MAX

CALL = {"kind": "function", "function": "shop:tax", "argv": []}
PUBLIC = {"/health", "/ready"}
ROUTES = [(route, method) for route in list_routes() if isinstance(route, APIRoute) for method in route.methods or ()]


@pytest.fixture(scope="module")
def guarded(valkey: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server where all clients need a token."""
    serving = Serving(valkey, tmp_path_factory.mktemp("guarded"), "--require-tokens").start()
    yield serving
    serving.stop()
    serving.check()


def test_every_route_says_what_it_takes() -> None:
    silent = {route.path for route in list_routes() if find_required_scope(route) is None}

    assert silent == PUBLIC


def path_of(route: APIRoute | APIWebSocketRoute) -> str:
    return re.sub(r"\{[^}]*\}", "nothing", route.path)


@pytest.mark.full("takes 2 s")
def test_a_route_is_open_to_its_scope_and_shut_to_all_others(guarded: Serving) -> None:
    """401 without a token, 403 with one that lacks the scope; with the scope any other answer."""
    tokens = {scope: guarded.token(scope) for scope in TokenScope}
    with guarded.client() as client:
        for route, method in ROUTES:
            takes = find_required_scope(route)
            if takes is None:
                continue
            path = path_of(route)
            assert client.request(method, path).status_code == 401, path
            for scope, token in tokens.items():
                if (route.path, method) == ("/runs/{run_id}", "DELETE") and scope is TokenScope.ADMIN:
                    continue
                # Streams do not end: their status is enough.
                with client.stream(method, path, headers={"authorization": f"Bearer {token}"}) as answer:
                    good = scope in (takes.scope, TokenScope.ADMIN)
                    assert (answer.status_code not in (401, 403)) == good, (method, path, scope)
                    assert answer.status_code < 500, (method, path)


def test_who_may_not_ask_is_told_so_before_anything_of_the_body_is_read(guarded: Serving) -> None:
    for route, method in ROUTES:
        if method not in ("POST", "PUT", "PATCH"):
            continue
        head = f"{method} {path_of(route)} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n"
        with socket.create_connection(("127.0.0.1", guarded.port), timeout=10) as client:
            client.sendall(head.encode())
            assert client.recv(100).startswith(b"HTTP/1.1 401"), route.path


def test_a_token_is_kept_as_its_digest_and_told_once(guarded: Serving) -> None:
    text = guarded.token("read")
    shown = parse_token(text)
    assert shown is not None
    kept = guarded.store.connection.command("HGETALL", guarded.store.key(0, "token", shown.id))

    assert not [value for value in kept if text.split("_")[3][:64] in value]
    assert shown.digest in kept


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize(
    "change",
    [
        lambda token: token[:-1] + ("0" if token[-1] != "0" else "1"),
        lambda token: token[:40],
        lambda token: token.replace("client", "worker"),
        lambda token: f"aq_client_{'0' * 12}_{token[-72:]}",
        lambda token: token * 50,
        lambda token: token.upper(),
    ],
)
def test_what_is_not_a_token_is_refused(guarded: Serving, change: Callable[[str], str]) -> None:
    with guarded.client(change(guarded.token("admin"))) as client:
        answer = client.get("/runs")

    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.full("takes 2 s")
def test_a_revoked_token_is_refused_at_once_by_every_server(guarded: Serving, make_serving: Callable[..., Serving],
                                                             valkey: Server) -> None:  # fmt: skip
    other = make_serving(valkey, "--require-tokens", namespace=guarded.settings.namespace)
    token = guarded.token("read")
    with guarded.client(token) as one, other.client(token) as two:
        assert (one.get("/runs").status_code, two.get("/runs").status_code) == (200, 200)
        Tokens(guarded.store).revoke(token.split("_")[2])
        assert (one.get("/runs").status_code, two.get("/runs").status_code) == (401, 401)


def test_an_expired_token_is_refused(guarded: Serving) -> None:
    token = guarded.token("read", expires_ms=1)
    with guarded.client(token) as client:
        answer = client.get("/runs")

    assert answer.status_code == 401
    assert "expired" in answer.json()["detail"]


def test_a_token_makes_as_many_requests_as_it_may(guarded: Serving) -> None:
    with guarded.client(guarded.token("read", rate="3/1h")) as client:
        looked = client.post("/records/runs", json={"ids": [guarded.submit()]})
        answers = [looked, *(client.get("/runs") for _ in range(3))]

    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) > 60


def test_who_knows_only_the_id_of_a_token_uses_nothing_of_it_up(guarded: Serving) -> None:
    token = guarded.token("read", rate="2/1h")
    forged = f"aq_client_{token.split('_')[2]}_{'0' * 64}"
    with guarded.client(f"{forged}{crc32(forged.encode()):08x}") as thief, guarded.client(token) as owner:
        assert [thief.get("/runs").status_code for _ in range(3)] == [401, 401, 401]
        assert Tokens(guarded.store).get(token.split("_")[2]).used_at_ms is None
        assert [owner.get("/runs").status_code for _ in range(3)] == [200, 200, 429]


def test_an_address_that_shows_made_up_tokens_has_to_wait_and_good_ones_have_not(
    make_serving: Callable[..., Serving], valkey: Server
) -> None:
    serving = make_serving(valkey, "--require-tokens")
    good, new = serving.token("read"), serving.token("read")
    forged = [f"aq_client_{number:012x}_{'0' * 64}" for number in range(GUESSES_MAX + 200)]
    with serving.client(good) as owner, serving.client() as guesser:
        assert owner.get("/runs").status_code == 200
        answers = [
            guesser.get("/runs", headers={"authorization": f"Bearer {each}{crc32(each.encode()):08x}"})
            for each in forged
        ]
        assert owner.get("/runs").status_code == 200

    statuses = [each.status_code for each in answers]
    assert set(statuses[:GUESSES_MAX]) == {401}
    assert 429 in statuses
    assert int(answers[statuses.index(429)].headers["retry-after"]) >= 1
    with serving.client(new) as client:
        until(lambda: client.get("/runs").status_code == 200, "the address to be believed again")


@pytest.mark.full("takes 2 s")
def test_a_tokens_last_use_is_noted_once_a_minute(guarded: Serving) -> None:
    token = guarded.token("read")
    name = token.split("_")[2]
    with guarded.client(token) as client:
        assert Tokens(guarded.store).get(name).used_at_ms is None
        client.get("/runs")
        first = Tokens(guarded.store).get(name).used_at_ms
        client.get("/runs")

    assert first is not None
    assert Tokens(guarded.store).get(name).used_at_ms == first


def test_a_token_of_one_queue_touches_nothing_else(guarded: Serving) -> None:
    """Neither by lists, ids nor moves, nor records that are in no queue."""
    mine, theirs = guarded.submit(queue="mine"), guarded.submit(queue="theirs", dedupe_key="nightly")
    with guarded.client(guarded.token("read", "submit", queues=["mine"])) as client:
        assert [each["id"] for each in client.get("/runs").json()["runs"]] == [mine]
        assert [each["queue"] for each in client.get("/queues").json()["queues"]] == ["mine"]
        assert client.get(f"/runs/{mine}").status_code == 200
        assert client.post("/runs", json={**COMMAND, "queue": "mine"}).status_code == 201
        refused = [
            client.get("/runs", params={"queue": "theirs"}),
            client.post("/runs", json={**COMMAND, "queue": "theirs"}),
            client.get("/queues/theirs"),
            client.get("/schedules"),
            client.get("/sessions"),
            client.get("/workers"),
            *(client.get(f"/runs/{theirs}{what}") for what in ("", "/logs", "/why", "/result", "/attempts")),
            *(client.post(f"/runs/{theirs}/{verb}") for verb in ("cancel", "retry", "approve", "wake")),
            client.post(f"/runs/{theirs}/signal", json={"name": "x"}),
            *(
                client.post("/runs", json={**COMMAND, "queue": "mine", **more})
                for more in (
                    {"inputs": {"its": theirs}},
                    {"after": [theirs]},
                    {"parent": theirs},
                    {"kind": "agent", "agent": "claude", "argv": [], "prompt": "x", "session": "talk"},
                    {"plan": "release"},
                    {**CALL, "args": [{"$run": theirs}]},
                    {**CALL, "kwargs": {"of": [{"deep": {"$run": theirs}}]}},
                )
            ),
            client.post("/runs", json={"type": "resume_session", "session_id": "talk", "prompt": "x", "queue": "mine"}),
            client.post(
                "/runs", json={"type": "start_session", "parent_session_id": "talk", "prompt": "x", "queue": "mine"}
            ),
            client.post("/runs", json={"type": "start_session", "prompt": "x", "queue": "mine"}),
        ]
        assert client.post("/runs", json={**COMMAND, "queue": "mine", "after": [mine]}).status_code == 201

    assert {each.status_code for each in refused} == {403}
    assert guarded.records.get(theirs).state == "pending"


def test_a_token_of_one_queue_takes_no_dedupe_key_from_another(guarded: Serving) -> None:
    """Neither by being there first, nor by taking the place of what is there; within its queue the key is one."""
    later = {"delay_ms": 600_000, "if_live": "replace"}
    ours, deploy = {**COMMAND, "queue": "ours", **later}, guarded.submit(queue="theirs", dedupe_key="deploy", **later)
    with (
        guarded.client(guarded.token("submit", queues=["ours"])) as client,
        guarded.client(guarded.token("submit")) as other,
    ):
        first = client.post("/runs", json={**ours, "dedupe_key": "backup"}).json()
        assert client.post("/runs", json={**ours, "dedupe_key": "deploy"}).json()["created"]
        assert (
            client.post("/runs", json={**ours, "dedupe_key": "backup", "if_live": "return"}).json()["id"] == first["id"]
        )
        known = {**ours, "dedupe_key": "queue:ours:backup", "if_live": "return"}
        assert other.post("/runs", json=known).json()["id"] == first["id"]
        theirs = {**COMMAND, "queue": "theirs", "dedupe_key": "backup"}
        assert other.post("/runs", json=theirs).json()["created"]
        long = client.post("/runs", json={**ours, "dedupe_key": "k" * 512})

    assert guarded.records.get(deploy).state == "scheduled"
    assert (long.status_code, "512 is the most" in long.text) == (422, True)


def test_only_a_token_of_all_queues_chooses_the_id_of_a_run_and_only_a_new_one(guarded: Serving) -> None:
    """Otherwise it could take the id that a schedule in another queue is about to use."""
    tick = make_tick_run_id(0, wall_ms() + 3_600_000, "nightly")
    with guarded.client(guarded.token("submit", queues=["ours"])) as client:
        mine = client.post("/runs", json={**COMMAND, "queue": "ours"}).json()["id"]
        assert client.post("/runs", params={"id": new_run_id()}, json={**COMMAND, "queue": "ours"}).status_code == 403
        child = make_tick_run_id(0, id_created_ms(mine), "its child")
        of = {**COMMAND, "queue": "ours", "parent": mine}
        assert client.post("/runs", params={"id": child}, json=of).status_code == 201
        assert client.post("/runs", params={"id": tick}, json=of).status_code == 403
    with guarded.client(guarded.token("submit")) as client:
        refused = client.post("/runs", params={"id": tick}, json=COMMAND)
        assert (refused.status_code, "10 minutes" in refused.text) == (422, True)
        assert client.post("/runs", params={"id": new_run_id()}, json=COMMAND).status_code == 201


def test_a_runners_token_is_good_for_nothing_but_a_runners_work(guarded: Serving) -> None:
    token = guarded.token("work", kind="runner")
    shut = [(route, method) for route, method in ROUTES if (takes := find_required_scope(route)) and not takes.bound]
    with guarded.client(token) as client:
        for route, method in shut:
            assert client.request(method, path_of(route)).status_code == 403, route.path


@pytest.mark.full("takes 1 s")
def test_a_token_file_lets_in_and_is_checked(
    valkey: Server, folder: Path, make_serving: Callable[..., Serving]
) -> None:
    path = folder / "tokens"
    path.write_text("a-secret-that-somebody-mounted-there\n")
    serving = make_serving(valkey, "--require-tokens", "--token-file", str(path))

    with serving.client("a-secret-that-somebody-mounted-there") as good, serving.client("another" * 9) as bad:
        assert good.get("/tokens").status_code == 200
        assert bad.get("/tokens").status_code == 401


def serve(serving: Serving, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "agentq.cli.main", "serve", "--port", "0", *options]
    return subprocess.run(
        argv, env={**serving.settings.to_environment()}, capture_output=True, text=True, timeout=120, check=False
    )


def test_commands_that_do_not_serve_load_nothing_of_the_server() -> None:
    program = (
        "import sys, agentq.cli.main as main; main.load_command('submit'); main.load_command('worker')\n"
        "sys.exit(bool({'fastapi', 'uvicorn', 'starlette', 'prometheus_client'} & sys.modules.keys()))"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.full("takes 3 s")
def test_a_server_refuses_to_listen_to_others_while_nobody_needs_a_token(valkey: Server, tmp_path: Path) -> None:
    nobody = Serving(valkey, tmp_path)
    refused = serve(nobody, "--host", "0.0.0.0", "--plain-http")

    assert refused.returncode == 4
    assert "agentq token new" in refused.stderr


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tls-cert", "/nowhere"], "go together"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "no file /nowhere"),
        (["--token-file", "/nowhere"], "cannot be read"),
        (["--log-level", "loud"], "--log-level: it should be"),
        (["--insecure-no-tokens", "--require-tokens"], "contradict"),
        (["--host", "0.0.0.0"], "without TLS, tokens and prompts could be read on their way: give --tls-cert"),
        (["--host", "0.0.0.0", "--no-token"], "--no-token is for a server on loopback"),
        (["--host", "0.0.0.0", "--open-runners"], "--open-runners is for a server on loopback"),
    ],
)
def test_wrong_options_are_told_and_nothing_is_opened(
    valkey: Server, tmp_path: Path, options: list[str], said: str
) -> None:
    refused = serve(Serving(valkey, tmp_path), *options)

    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
    assert said in refused.stderr


def test_nothing_secret_is_written_down(guarded: Serving) -> None:
    token = guarded.token("submit")
    with guarded.client(token) as client:
        client.post("/runs", params={"key": "secret-in-a-query"}, json=COMMAND)
        client.get("/runs", headers={"authorization": "Basic c2VjcmV0"})
    said = guarded.said()

    assert token not in said
    assert "secret-in-a-query" not in said
    assert f'"token": "{token.split("_")[2]}"' in said
    assert "hunter2" not in mask_secrets("redis://u:hunter2@h prompt [type=x, input_value='hunter2', input_type=str]")


def test_the_log_tells_which_token_made_which_runs(guarded: Serving) -> None:
    token = guarded.token("submit")
    with guarded.client(token) as client:
        one = client.post("/runs", json=COMMAND).json()["id"]
        many = client.post("/runs", json={"runs": [COMMAND, COMMAND]}).json()["runs"]

    def made() -> list[object]:
        lines = [json.loads(line) for line in guarded.said().splitlines() if line.startswith("{")]
        return [each["made"] for each in lines if each.get("token") == token.split("_")[2]]

    until(lambda: len(made()) == 2, "the lines of both requests, which are written after the answers")
    assert made() == [f"/runs/{one}", [f"/runs/{each['id']}" for each in many]]


@pytest.mark.needs("openssl")
def test_tls_is_spoken_where_a_certificate_is_given(make_serving: Callable[..., Serving], valkey: Server,
                                                    folder: Path) -> None:  # fmt: skip
    made = f"openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -keyout {folder}/key -out {folder}/cert"
    subprocess.run(shlex.split(made), check=True, capture_output=True)
    serving = make_serving(valkey, "--tls-cert", str(folder / "cert"), "--tls-key", str(folder / "key"))

    with serving.client() as client:
        assert client.get("/ready").json()["ready"]
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{serving.port}/health")
