"""The connection against real sentinels, a real cluster and real TLS."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL
from typing import Any, cast

import pytest
from support.crew import Crew
from support.requirements import binary
from support.servers import Server, free_port, until, valkey_binary

from agentq.coordinator import errors
from agentq.coordinator.storage.connection import Connection, ScriptCall, ScriptSource

pytestmark = pytest.mark.full("starts clusters and sentinels")

TEXT = "local new = redis.call('SADD', KEYS[1], ARGV[1]) return {new, redis.call('SCARD', KEYS[1])}"
COUNT = ScriptSource("count", TEXT, hashlib.sha1(TEXT.encode()).hexdigest())
# Touches a key that it does not declare, as the verbs do: all keys of a namespace share one hash tag.
BESIDE_TEXT = "redis.call('SADD', KEYS[1] .. ':beside', ARGV[1]) return redis.call('SCARD', KEYS[1] .. ':beside')"
BESIDE = ScriptSource("beside", BESIDE_TEXT, hashlib.sha1(BESIDE_TEXT.encode()).hexdigest())


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="aq"))
    yield path
    shutil.rmtree(path)


# Sentinel


class Sentinels:
    """A primary, a replica, and three sentinels that watch them."""

    def __init__(self, folder: Path) -> None:
        self.servers = [Server(valkey_binary(), folder / str(n), port=free_port()) for n in range(2)]
        self.primary, self.replica = self.servers
        self.replica.options = ("--replicaof", "127.0.0.1", str(self.primary.port), "--repl-diskless-sync-delay", "0")
        self.folder = folder
        self.ports = [free_port() for _ in range(3)]
        self.processes: list[subprocess.Popen[bytes]] = []

    @property
    def url(self) -> str:
        return "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in self.ports) + "/jobs/0"

    def start(self) -> Sentinels:
        for server in self.servers:
            server.start()
        for port in self.ports:
            config = self.folder / f"{port}.conf"
            config.write_text(
                f"port {port}\ndir {self.folder}\nlogfile {port}.log\n"
                f"sentinel monitor jobs 127.0.0.1 {self.primary.port} 2\n"
                "sentinel down-after-milliseconds jobs 500\nsentinel failover-timeout jobs 2000\n"
            )
            self.processes.append(subprocess.Popen([valkey_binary(), str(config), "--sentinel"]))
        until(lambda: all(map(self.knows_the_rest, self.ports)), "the sentinels to know each other and the replica")
        return self

    def knows_the_rest(self, port: int) -> bool:
        try:
            answer = Connection(f"redis://127.0.0.1:{port}", attempts=1).command("SENTINEL", "MASTER", "jobs")
        except errors.Unreachable:
            return False
        state: dict[str, str] = dict(zip(answer[::2], answer[1::2], strict=True))
        return state["num-slaves"] == "1" and state["num-other-sentinels"] == "2"

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for server in self.servers:
            server.stop()


@pytest.fixture(scope="module")
def sentinels(folder: Path) -> Iterator[Sentinels]:
    sentinels = Sentinels(folder / "sentinels")
    yield sentinels.start()
    sentinels.stop()


def test_a_client_follows_the_sentinels_to_the_new_primary(sentinels: Sentinels) -> None:
    connection = Connection(sentinels.url, attempts=20)
    assert connection.script(COUNT, "effects", ["before"]) == [1, 1]
    connection.command("WAIT", 1, 5000)
    connection.command("XGROUP", "CREATE", "lane", "workers", 0, "MKSTREAM")
    block: Any = ("XREADGROUP", "GROUP", "workers", "w1", "COUNT", 1, "BLOCK", 30000, "STREAMS", "lane", ">")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(connection.block, *block, timeout_ms=30000)
        until(lambda: "blocked_clients:1" in connection.command("INFO", "clients"), "the thread to block")
        # One of the sentinels dies as well, which must not matter.
        sentinels.processes[0].kill()
        sentinels.primary.signal(SIGKILL)

        assert connection.script(COUNT, "effects", ["after"]) == [1, 2]
        assert isinstance(read.exception(10), errors.Unreachable)
    assert connection.command("ROLE")[0] == "master"
    entry = connection.command("XADD", "lane", "*", "id", 1)
    assert connection.block(*block, timeout_ms=30000) == [["lane", [[entry, ["id", "1"]]]]]
    assert f"tcp_port:{sentinels.replica.port}" in connection.command("INFO", "server")


def test_a_service_that_no_sentinel_knows_is_unreachable_and_named(sentinels: Sentinels) -> None:
    connection = Connection(sentinels.url.replace("/jobs", "/jbos"), attempts=1)

    with pytest.raises(errors.Unreachable, match="does not know 'jbos'"):
        connection.command("PING")


# Cluster


class Cluster:
    """Three primaries, each with a third of the slots."""

    def __init__(self, folder: Path) -> None:
        self.nodes = [self.node(folder / str(number)) for number in range(3)]

    def node(self, folder: Path) -> Server:
        self.bus = free_port()
        options = ("--cluster-enabled", "yes", "--cluster-port", str(self.bus), "--cluster-node-timeout", "1000")
        # With `everysec`, an acknowledged write may still be in memory when the process is killed.
        safe = ("--appendonly", "yes", "--appendfsync", "always")
        return Server(valkey_binary(), folder, *options, *safe, port=free_port())

    @property
    def url(self) -> str:
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def start(self) -> Cluster:
        first = self.nodes[0]
        for number, node in enumerate(self.nodes):
            at = Connection(node.start().url)
            at.command("CLUSTER", "ADDSLOTSRANGE", number * 5461, number * 5461 + (5460 if number < 2 else 5461))
            at.command("CLUSTER", "MEET", "127.0.0.1", first.port, first.options[3])
        until(lambda: all(map(self.is_whole, self.nodes)), "the cluster to be whole")
        return self

    def is_whole(self, node: Server) -> bool:
        known: str = Connection(node.url).command("CLUSTER", "INFO")
        return "cluster_state:ok" in known and "cluster_slots_assigned:16384" in known

    def holder(self, key: str) -> list[int]:
        """The nodes that have a key themselves."""
        local = [Connection(node.url).command("KEYS", key) for node in self.nodes]
        return [number for number, keys in enumerate(local) if keys]

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder / "cluster")
    yield cluster.start()
    cluster.stop()


def keys_of(test: str) -> list[str]:
    """Keys in eight slots that no other test uses."""
    return [f"agentq:{{{test}.{number}}}:x" for number in range(8)]


def test_scripts_run_where_their_keys_live_and_are_brought_to_each_node(cluster: Cluster) -> None:
    connection = Connection(cluster.url)
    keys = keys_of("scripts")

    assert [connection.script(COUNT, key, ["1"]) for key in keys] == [[1, 1]] * 8
    # The next ones need a script that no node knows, and keys that they do not declare.
    calls: list[ScriptCall] = [(BESIDE, key, ["1"]) for key in keys]
    assert list(connection.scripts(calls)) == [1] * 8
    homes = [cluster.holder(key) for key in keys]
    assert {number for home in homes for number in home} == {0, 1, 2}
    assert [cluster.holder(f"{key}:beside") for key in keys] == homes


def test_commands_and_blocking_reads_go_where_their_keys_live(cluster: Cluster) -> None:
    connection = Connection(cluster.url)
    for key in keys_of("commands"):
        connection.command("XGROUP", "CREATE", key, "workers", 0, "MKSTREAM")
        entry = connection.command("XADD", key, "*", "id", 1)
        block: Any = ("XREADGROUP", "GROUP", "workers", "w1", "BLOCK", 1000, "STREAMS", key, ">")

        assert connection.block(*block, timeout_ms=1000) == [[key, [[entry, ["id", "1"]]]]]
    assert connection.command("PING") == "PONG"


def test_a_node_of_a_cluster_is_not_taken_for_a_server_of_its_own(cluster: Cluster) -> None:
    connection = Connection(cluster.nodes[0].url)

    with pytest.raises(errors.Invalid, match=r"is a node of a cluster: write redis\+cluster://"):
        list(connection.scripts([(COUNT, key, ["1"]) for key in keys_of("single")]))


def test_a_slot_is_followed_while_it_moves_and_after(cluster: Cluster) -> None:
    key = keys_of("slot")[0]
    connection = Connection(cluster.url)
    assert connection.command("EXISTS", key) == 0
    slot = connection.command("CLUSTER", "KEYSLOT", key)
    source, target = cluster.nodes[slot // 5461], cluster.nodes[(slot // 5461 + 1) % 3]
    at_source, at_target = Connection(source.url), Connection(target.url)
    source_id, target_id = at_source.command("CLUSTER", "MYID"), at_target.command("CLUSTER", "MYID")
    at_target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    at_source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)

    # The source says ASK for what it does not have, and the target does not know the script yet.
    assert connection.script(COUNT, key, ["during"]) == [1, 1]
    at_target.command("CLUSTER", "SETSLOT", slot, "NODE", target_id)
    at_source.command("CLUSTER", "SETSLOT", slot, "NODE", target_id)

    assert connection.script(COUNT, key, ["after"]) == [1, 2]
    with pytest.raises(errors.AgentqError):
        # A block is never sent twice, not even after MOVED, but the next one goes to the right node.
        Connection(source.url).block("XREAD", "BLOCK", 1, "STREAMS", key, "$", timeout_ms=1)
    assert cluster.holder(key) == [cluster.nodes.index(target)]


def test_a_client_goes_on_by_itself_when_a_node_is_killed_and_started_again(cluster: Cluster) -> None:
    connection = Connection(cluster.url, attempts=20)
    keys = keys_of("killed")
    assert [connection.script(COUNT, key, ["before"]) for key in keys] == [[1, 1]] * 8

    def kill_and_start() -> None:
        # The node that the address names; the others know the cluster as well.
        cluster.nodes[0].signal(SIGKILL)
        cluster.nodes[0].start()

    nemesis = threading.Thread(target=kill_and_start)
    nemesis.start()
    rounds = 0
    while nemesis.is_alive() or rounds < 10:
        rounds += 1
        assert [connection.script(COUNT, key, [rounds]) for key in keys] == [[1, rounds + 1]] * 8
    nemesis.join()


# TLS


@pytest.fixture(scope="module")
def certificate(folder: Path) -> Path:
    path = folder / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=agentq"
    options = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key.pem"), "-out", str(path)]
    subprocess.run([*command.split(), *options], check=True, capture_output=True)
    return path


@pytest.fixture(scope="module")
def tls(folder: Path, certificate: Path) -> Iterator[str]:
    """The address of a server that speaks TLS only, and demands a client certificate."""
    port = free_port()
    files = ("--tls-cert-file", str(certificate), "--tls-key-file", str(folder / "key.pem"))
    more = ("--tls-ca-cert-file", str(certificate), "--tls-auth-clients", "yes", "--requirepass", "s3cret")
    server = Server(binary("redis"), folder / "tls", "--tls-port", str(port), *files, *more)
    server.start()
    yield f"rediss://:s3cret@127.0.0.1:{port}/2"
    server.stop()


def test_tls_works_with_certificates_on_both_sides(tls: str, certificate: Path) -> None:
    client = f"ssl_certfile={certificate}&ssl_keyfile={certificate.parent / 'key.pem'}&ssl_min_version=1.3"
    connection = Connection(f"{tls.replace('rediss', 'valkeys')}?ssl_ca_certs={certificate}&{client}")
    connection.command("XGROUP", "CREATE", "lane", "workers", 0, "MKSTREAM")
    block: Any = ("XREADGROUP", "GROUP", "workers", "w1", "COUNT", 1, "BLOCK", 20000, "STREAMS", "lane", ">")

    assert list(connection.scripts([(COUNT, "effects", [n]) for n in range(3)])) == [[1, 1], [1, 2], [1, 3]]
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(connection.block, *block, timeout_ms=20000)
        until(lambda: "blocked_clients:1" in connection.command("INFO", "clients"), "the thread to block")
        connection.unblock()
        assert read.result(10) is None
    assert " db=2 " in connection.command("CLIENT", "LIST")


def test_a_certificate_that_nobody_vouches_for_is_refused(tls: str) -> None:
    with pytest.raises(errors.Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        Connection(tls, attempts=1).command("PING")


def test_a_certificate_of_another_host_is_refused_unless_allowed(tls: str, certificate: Path) -> None:
    client = f"ssl_ca_certs={certificate}&ssl_certfile={certificate}&ssl_keyfile={certificate.parent / 'key.pem'}"
    url = f"{tls.replace('127.0.0.1', 'localhost')}?{client}"

    with pytest.raises(errors.Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        Connection(url, attempts=1).command("PING")
    assert Connection(f"{url}&ssl_check_hostname=false").command("PING") == "PONG"


def test_a_worker_serves_partitions_on_all_nodes_of_a_cluster(cluster: Cluster, folder: Path) -> None:
    crew = Crew(cast(Server, cluster), folder, partitions=6)
    worker = crew.worker(slots=2)
    crew.wait([crew.submit() for _ in range(12)])
    later = [crew.submit() for _ in range(6)]
    crew.wait(later)

    assert {crew.state(run) for run in later} == {"completed"}
    worker.terminate()
    assert worker.wait(timeout=20) == 0
    crew.check()
    crew.close()
