"""The token of this machine: created and sent automatically, and required for other users."""

from __future__ import annotations

import os
import signal
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from support.dialect_runner import PROFILE
from support.http_servers import COMMAND, Serving
from support.servers import Server, free_port
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as connect_socket

from agentq.cli.main import main
from agentq.coordinator.errors import Invalid, NotAllowed
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.security import local_token
from agentq.sdk import connect
from agentq.worker.options import WorkerOptions
from agentq.worker.server_backends import RemoteWorkerBackend


@pytest.fixture(scope="module")
def asking(valkey: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server as it is without any option."""
    serving = Serving(valkey, tmp_path_factory.mktemp("q"), "--require-tokens").start()
    yield serving
    serving.stop()
    serving.check()


@pytest.fixture
def own_home(asking: Serving, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the user whose server it is."""
    for name in ("AGENTQ_TOKEN", "AGENTQ_TOKEN_FILE", "AGENTQ_AGENT_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENTQ_HOME", str(asking.folder))
    return asking.folder


def test_without_a_token_another_user_of_the_machine_sees_health_and_documents_alone(asking: Serving) -> None:
    with asking.client() as client:
        open_to_all = [client.get(path).status_code for path in ("/health", "/docs")]
        refused = [client.get("/runs"), client.get("/tokens"), client.post("/runs", json=COMMAND)]

    assert open_to_all == [200, 200]
    assert [each.status_code for each in refused] == [401, 401, 401]
    assert "agentq token show" in refused[0].json()["detail"]


def test_the_token_of_this_machine_is_for_its_user_alone_and_may_do_everything(asking: Serving) -> None:
    path = asking.folder / "token"
    with asking.client(path.read_text().strip()) as client:
        answers = [client.get("/tokens"), client.post("/runs", json=COMMAND)]

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.status_code for each in answers] == [200, 201]
    assert '"token": "local"' in asking.said()


def test_the_sdk_shows_the_token_of_this_machine_by_itself(
    asking: Serving, own_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert (own_home / "token").exists()
    with connect(asking.url) as client:
        assert client.backend.submit(RunSpec.checked(**COMMAND)).id
    monkeypatch.setenv("AGENTQ_HOME", str(tmp_path))
    with connect(asking.url) as stranger, pytest.raises(NotAllowed, match="needs a token"):
        stranger.backend.submit(RunSpec.checked(**COMMAND))


def test_the_commands_show_the_token_of_this_machine_by_themselves(
    asking: Serving, own_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENTQ_URL", asking.url)
    assert main(["submit", "--", "true"]) == 0
    assert main(["token", "show"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (own_home / "token").read_text().strip()
    assert main(["token", "show", "--header"]) == 0
    assert capsys.readouterr().out.startswith("Authorization: Bearer aq_client_")


def test_a_worker_shows_the_token_of_this_machine_to_a_server_on_loopback_alone(own_home: Path) -> None:
    def shown(url: str) -> str:
        return RemoteWorkerBackend(WorkerOptions(connect=url), {}, home=own_home)._address.token

    assert shown(f"http://127.0.0.1:{free_port()}") == (own_home / "token").read_text().strip()
    assert shown("https://agentq.example") == ""


@pytest.mark.needs("root")
def test_the_token_is_not_shown_where_another_user_listens(own_home: Path) -> None:
    os.seteuid(65534)
    try:
        other = socket.create_server(("127.0.0.1", 0))
    finally:
        os.seteuid(0)
    with other, socket.create_server(("127.0.0.1", 0)) as own:
        shown = [local_token.token_for_address(own_home, "127.0.0.1", each.getsockname()[1]) for each in (other, own)]

    assert shown == ["", local_token.read_local_token(own_home)]


def test_on_the_unix_socket_its_user_needs_no_token(asking: Serving) -> None:
    path = local_token.socket_path(asking.folder, asking.port)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as client:
        assert client.post("/runs", json=COMMAND).status_code == 201
        assert client.get("/runs", headers={"x-forwarded-for": "203.0.113.7"}).status_code == 401
        assert client.get("/runs", headers={"host": "evil.example"}).status_code == 421

    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.full("takes 2 s")
def test_the_unix_socket_is_gone_with_the_server_and_comes_again_with_the_next(valkey: Server, folder: Path) -> None:
    serving = Serving(valkey, folder, "--require-tokens").start()
    path = local_token.socket_path(folder, serving.port)
    try:
        token = (folder / "token").read_text()
        serving.signal(signal.SIGKILL)
        assert path.exists()
        serving.start()
        assert path.is_socket()
        assert (folder / "token").read_text() == token
        serving.signal(signal.SIGTERM)
        assert not path.exists()
    finally:
        serving.stop()


def test_open_runners_lets_runners_in_and_nobody_else(valkey: Server, folder: Path) -> None:
    serving = Serving(valkey, folder, "--open-runners").start()
    try:
        with serving.client() as client:
            runner = client.post("/runner/register", json=PROFILE)
            alive = client.post("/runner/heartbeat", json={"runner_id": runner.json()["runner_id"]})
            bound = serving.token("work", kind="runner")
            with serving.client(bound) as other:
                theirs = other.post("/runner/register", json=PROFILE | {"hostname": "other"}).json()["runner_id"]
            refused = [
                client.get("/runs"),
                client.post("/runs", json=COMMAND),
                client.post("/runs", json={"type": "start_session", "parameters": {"prompt": "x"}}),
                client.get("/runners"),
                client.post("/sessions", json={"name": "talk", "agent": "claude"}),
            ]
            heartbeat = client.post("/runner/heartbeat", json={"runner_id": theirs})
        with pytest.raises(InvalidStatus), connect_socket(f"ws://127.0.0.1:{serving.port}/worker"):
            pass
    finally:
        serving.stop()

    assert (runner.status_code, alive.status_code, heartbeat.status_code) == (200, 200, 403)
    assert [each.status_code for each in refused] == [401] * 5
    assert all("start the server with --no-token" in each.json()["detail"] for each in refused)
    assert "may be a runner" in serving.said()


def test_a_token_that_others_could_have_read_is_refused(tmp_path: Path) -> None:
    local_token.ensure_local_token(tmp_path)
    (tmp_path / "token").chmod(0o644)

    with pytest.raises(Invalid, match="only you can read"):
        local_token.read_local_token(tmp_path)


def test_of_servers_that_start_at_once_all_have_the_same_token(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with ThreadPoolExecutor(8) as threads:
        made = set(threads.map(lambda _: local_token.ensure_local_token(home), range(8)))

    assert len(made) == 1
    assert [path.name for path in home.iterdir()] == ["token"]
