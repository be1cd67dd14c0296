"""Every wrong input a user would try gets one sentence and the right code, and changes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import Cli, sentence
from support.lossy_proxy import Renaming
from support.servers import Server, free_port
from support.world import World

from agentq.coordinator.storage.store import SCHEMA_MARKER

UNKNOWN = "run_00000000000000000000000"

WRONG = {
    "no such command": (["sumbit", "--", "true"], "Did you mean 'submit'?"),
    "no such option": (["ls", "--stat", "failed"], "No such option: --stat"),
    "an option of another command": (["wait", "--queue", "a", UNKNOWN], "No such option: --queue"),
    "no command to run": (["submit"], "There is no command to run"),
    "a word for a number": (
        ["submit", "--priority", "high", "--", "true"],
        "'--priority': it should be a whole number.",
    ),
    "a negative priority": (["submit", "--priority", "-1", "--", "true"], "--priority: it should be greater than"),
    "too high a priority": (["submit", "--priority", "10", "--", "true"], "--priority: it should be less than"),
    "negative retries": (["submit", "--retries", "-1", "--", "true"], "--retries"),
    "no such backoff": (["submit", "--retries", "1", "--backoff", "slow", "--", "true"], "--backoff takes exponential"),
    "a wrong wait in a list": (["submit", "--backoff", "1s,2", "--", "true"], "--backoff: '2' is not a duration"),
    "a list and a delay": (["submit", "--backoff", "1s", "--retry-delay", "1s", "--", "true"], "contradict each other"),
    "jitter of a list": (["submit", "--backoff", "1s,2s", "--no-jitter", "--", "true"], "--no-jitter is for an expo"),
    "a class of nothing": (["submit", "--never-retry", "bad", "--", "true"], "'bad' is not a class of failure; there"),
    "a class that cannot fail": (["submit", "--retry-on", "ok=1", "--", "true"], "--retry-on: 'ok' is not a class of"),
    "a class for nothing": (["submit", "--retry-on", "exit", "--", "true"], "--retry-on exit means nothing without"),
    "a class without a number": (["submit", "--retry-on", "exit=x", "--", "true"], "--retry-on takes a class, or a"),
    "always and never": (
        ["submit", "--retry-on", "exit=1", "--never-retry", "exit", "--", "true"],
        "never to be tried",
    ),
    "a queue that is no name": (["submit", "--queue", "a b", "--", "true"], "--queue: 'a b' is not a name"),
    "an empty queue": (["submit", "--queue", "", "--", "true"], "--queue: '' is not a name"),
    "a label without =": (["submit", "--label", "fast", "--", "true"], "--label takes a name and a value"),
    "a demand without =": (["submit", "--demand", "gpu", "--", "true"], "--demand takes a name and a value"),
    "a demand twice": (["submit", "--demand", "a=1", "--demand", "a=2", "--", "true"], "--demand names a twice"),
    "a demand that is none": (
        ["submit", "--demand", "a>=x", "--", "true"],
        "--demand: '>=x' is nothing to demand: name",
    ),
    "less than": (["submit", "--demand", "a<2", "--", "true"], "--demand takes a name and a value"),
    "a demand of no name": (["submit", "--demand", "a b=c", "--", "true"], "--demand: 'a b' is not a name"),
    "a worker's own label": (["worker", "--label", "host=x"], "--label: every worker has the label 'host' by itself"),
    "a label that is no name": (["submit", "--label", "a b=c", "--", "true"], "--label: 'a b' is not a name"),
    "a variable without =": (["submit", "--env", "PATH", "--", "true"], "--env takes a name and a value"),
    "a variable that is not here": (["submit", "--env-from", "NOWHERE", "--", "true"], "no such variable here"),
    "a duration without unit": (["submit", "--delay", "5", "--", "true"], "--delay: '5' is not a duration"),
    "a duration in words": (["submit", "--timeout", "soon", "--", "true"], "--timeout: 'soon' is not a duration"),
    "no time at all": (["submit", "--timeout", "0s", "--", "true"], "--timeout: it should be greater than 0"),
    "a negative duration": (["submit", "--expires=-5m", "--", "true"], "--expires: '-5m' is not a duration"),
    "a duration of ages": (["submit", "--keep", "99999d", "--", "true"], "--keep: '99999d' is too long"),
    "a time in words": (["submit", "--at", "noon", "--", "true"], "'noon' is not a time"),
    "a time that does not exist": (["submit", "--at", "25:00", "--", "true"], "'25:00' is not a time of day"),
    "a time that has passed": (["submit", "--at", "2020-01-01", "--", "true"], "has passed already"),
    "a delay and a time": (["submit", "--delay", "5s", "--at", "14:30", "--", "true"], "contradict each other"),
    "what to do on nothing": (["submit", "--on-failed", "run", "--", "true"], "means nothing without --after"),
    "what to do without a key": (["submit", "--if-live", "reject", "--", "true"], "nothing without --dedupe-key"),
    "a while without a key": (["submit", "--dedupe-ttl", "1h", "--", "true"], "--dedupe-ttl means nothing without"),
    "an unknown mode": (["submit", "--dedupe-key", "k", "--if-live", "x", "--", "true"], "--if-live: it should be"),
    "put off by nothing": (["submit", "--dedupe-key", "k", "--if-live", "debounce", "--", "true"], "needs --delay"),
    "put off at most": (["submit", "--dedupe-key", "k", "--debounce-max", "1m", "--", "true"], "is for --if-live debo"),
    "a while for a follower": (
        ["submit", "--dedupe-key", "k", "--if-live", "follow", "--dedupe-ttl", "1h", "--", "x"],
        "--dedupe-ttl is for --if-live return or reject",
    ),
    "kept for no time": (["submit", "--keep", "5s", "--", "true"], "--keep: a run is kept for 60000 ms at least"),
    "an unknown way on": (["submit", "--after", UNKNOWN, "--on-failed", "cry", "--", "true"], "--on-failed: it should"),
    "a size in words": (["submit", "--memory", "lots", "--", "true"], "--memory: 'lots' is not a size"),
    "no niceness": (["submit", "--nice", "-5", "--", "true"], "--nice"),
    "a stdin that is not there": (["submit", "--stdin", "nothing", "--", "cat"], "--stdin cannot read nothing"),
    "after an unknown run": (["submit", "--after", UNKNOWN, "--", "true"], f"depends on {UNKNOWN}, which"),
    "after what is no run": (["submit", "--after", "Hello!", "--", "true"], "There is no run 'Hello!'"),
    "following in JSON": (["submit", "--follow", "--json", "--", "true"], "--follow and --json contradict"),
    "a name that is too long": (["submit", "--name", "x" * 200, "--", "true"], "--name"),
    "a broken character": (["submit", "--", "echo", "\udcff"], "not valid UTF-8"),
    "a path that is none": (
        ["submit", "--function", "shop.price", "[1]"],
        "'shop.price' is not the path of a function",
    ),
    "arguments that are no JSON": (["submit", "--function", "shop:price", "[1"], "as one JSON array, or one object"),
    "an argument alone": (["submit", "--function", "shop:price", "1"], "as one JSON array, or one object"),
    "a function and a command": (["submit", "--function", "shop:price", "--", "make", "-j"], "not 'make -j'"),
    "an argument that JSON has not": (["submit", "--function", "shop:price", "[NaN]"], "--function: NaN has no place"),
    "a function that reads": (["submit", "--stdin", "-", "--function", "a:b"], "--stdin is for a command"),
    "no command of a group": (["dead"], "`agentq dead` needs a command after it: ls, show, retry, purge."),
    "no file": (["submit", "--from-jsonl", "runs.jsonl"], "--from-jsonl cannot read runs.jsonl"),
    "a file and a command": (["submit", "--from-jsonl", "-", "--", "true"], "leave the command away"),
    "a file and an option": (["submit", "--from-jsonl", "-", "--queue", "a"], "leave --queue away"),
    "no part of the bench": (
        ["bench", "--only", "disk"],
        "server, transport or cold, not 'disk'",
    ),
    "an unknown run": (["show", UNKNOWN], f"There is no run {UNKNOWN}"),
    "an unknown beginning": (["show", "zzzz"], "There is no run 'zzzz'"),
    "what is no id": (["show", "a b"], "There is no run 'a b'"),
    "what is no id of a plan": (["show", "../../etc"], "There is no plan '..'"),
    "no id": (["dead", "show"], "Missing argument 'RUN'"),
    "an empty id": (["show", ""], "There is no run ''"),
    "logs of an unknown run": (["logs", UNKNOWN], f"There is no run {UNKNOWN}"),
    "follow an unknown run": (["logs", "-f", UNKNOWN], f"There is no run {UNKNOWN}"),
    "two ways to print": (["logs", "--full", "--json", UNKNOWN], "--full prints a file as it is"),
    "why of an unknown run": (["why", UNKNOWN], f"There is no run {UNKNOWN}"),
    "wait for an unknown run": (["wait", UNKNOWN], f"There is no run {UNKNOWN}"),
    "wait for how long?": (["wait", UNKNOWN, "--timeout", "x"], "'x' is not a duration"),
    "cancel an unknown run": (["cancel", UNKNOWN], f"There is no run {UNKNOWN}"),
    "retry an unknown run": (["retry", UNKNOWN], f"There is no run {UNKNOWN}"),
    "events of an unknown run": (["events", "--run", UNKNOWN], f"There is no run {UNKNOWN}"),
    "which of the dead?": (["dead", "retry"], "or give --all"),
    "purge what?": (["dead", "purge"], "or give --all"),
    "one and many": (["dead", "retry", UNKNOWN, "--queue", "a"], "not both"),
    "one and all": (["dead", "purge", UNKNOWN, "--all"], "not both"),
    "dead of an unknown class": (["dead", "ls", "--class", "sad"], "--class: 'sad' is not a class of failure"),
    "dead since when?": (["dead", "ls", "--since", "1"], "--since: '1' is not a duration"),
    "older than what?": (["dead", "purge", "--older", "old"], "--older: 'old' is not a duration"),
    "an unknown dead run": (["dead", "show", UNKNOWN], f"There is no run {UNKNOWN}"),
    "an unknown state": (["ls", "--state", "done"], "'done' is not a state; there are blocked"),
    "no runs at all": (["ls", "--limit", "0"], "--limit"),
    "since when?": (["ls", "--since", "yesterday"], "'yesterday' is not a duration"),
    "an unknown worker": (["worker", "drain", "w9"], "There is no worker 'w9'"),
    "an unknown worker to stop": (["worker", "stop", "w9"], "There is no worker 'w9'"),
    "no worker to stop": (["worker", "stop"], "Missing argument 'WORKER'"),
    "an unknown verb of workers": (["worker", "kill", "w9"], "No such command 'kill'"),
    "options for no worker": (["worker", "--slots", "2", "ls"], "--slots is for running a worker"),
    "no slots": (["worker", "--slots", "0"], "--slots: it should be greater than or equal to 1"),
    "a worker's label without =": (["worker", "--label", "gpu"], "--label takes a name and a value"),
    "a worker's queue that is no name": (["worker", "--queue", "a b"], "--queue: 'a b' is not a name"),
    "queues with commas": (["worker", "--queue", "a,b"], "--queue takes one name; say it again for another"),
    "a serializer for nothing": (["worker", "--rq-serializer", "json"], "--rq-serializer means nothing without --rq"),
    "an unknown serializer": (["worker", "--rq", "a", "--rq-serializer", "xml"], "RQ has no serializer 'xml'"),
    "an unknown script": (["debug", "script", "worker/clam"], "Did you mean worker/claim?"),
    "an unknown shell": (["completion", "cmd.exe"], "'cmd.exe' is not a shell"),
    "a namespace that is no name": (["--namespace", "a b", "ls"], "The namespace 'a b' is not valid"),
    "a wrong namespace after the command": (["ls", "--namespace", "a b"], "The namespace 'a b' is not valid"),
    "no address after a command of a group": (["queue", "ls", "--url", "x"], "The address of the server is not valid"),
    "a command for a plan": (["run", "make", "test"], "'make' for a plan file, and there is no such file; to run a"),
    "a command with options for a plan": (["run", "make", "-j4"], "type `agentq run -- make -j4`"),
    "a program for a plan": (["run", "make"], "type `agentq run -- make`"),
    "help of no command": (["help", "sumbit"], "Did you mean 'submit'?"),
    "an address that is none": (["--url", "localhost", "ls"], "The address of the server is not valid"),
}


@pytest.mark.parametrize(("argv", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_input_gets_a_sentence_and_changes_nothing(cli: Cli, real: World, argv: list[str], words: str) -> None:
    real.submit()

    with real.unchanged():
        answer = cli(*argv)

    assert words in sentence(answer)
    assert answer.code == 2


@pytest.mark.redis_only("only then the worker is surely on this machine")
def test_a_folder_that_is_not_there_is_refused(cli: Cli, real: World) -> None:
    with real.unchanged():
        answer = cli("submit", "--cwd", "/nowhere", "--", "true")

    assert "--cwd: there is no folder /nowhere" in sentence(answer)
    assert answer.code == 2


LINES = {
    "no JSON": ('{"argv": ["true"]}\n{"argv": ["true"', "Line 2 of stdin is not JSON"),
    "no object": ('{"argv": ["true"]}\n["true"]', "Line 2 of stdin is not a run"),
    "an unknown field": ('{"argv": ["true"]}\n\n{"argv": ["true"], "prio": 3}', "Line 3 of stdin is not a run: prio"),
    "a wrong value": ('{"argv": "true"}', "Line 1 of stdin is not a run: argv"),
    "nothing": ("\n", "There are no runs in stdin"),
}


@pytest.mark.parametrize(("text", "words"), LINES.values(), ids=LINES.keys())
def test_a_file_with_one_wrong_line_submits_nothing(cli: Cli, real: World, text: str, words: str) -> None:
    with real.unchanged():
        answer = cli("submit", "--from-jsonl", "-", stdin=text)

    assert words in sentence(answer)
    assert answer.code == 2


def test_a_refusal_of_the_present_state_is_code_5(cli: Cli, real: World) -> None:
    run = real.submit()

    with real.unchanged():
        answer = cli("retry", run)

    assert f"The run {run} is pending; this verb does not apply to that state." in sentence(answer)
    assert answer.code == 5


def test_a_live_dedupe_key_can_be_refused(cli: Cli, real: World) -> None:
    run = real.submit(dedupe_key="k")

    with real.unchanged():
        answer = cli("submit", "--dedupe-key", "k", "--if-live", "reject", "--", "true")

    assert f"{run} has its id or key" in sentence(answer)
    assert answer.code == 5


def test_a_beginning_that_fits_several_runs_names_them(cli: Cli, real: World) -> None:
    runs = [real.submit() for _ in range(3)]

    answer = cli("show", runs[0][:8])

    assert all(run in sentence(answer) for run in runs)
    assert answer.code == 2


@pytest.mark.full("takes 2 s")
def test_an_unreachable_server_is_code_3(cli: Cli) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    for argv in (["ls"], ["submit", "--", "true"], ["doctor"]):
        answer = cli("--url", url, *argv)
        assert "cannot be reached" in sentence(answer)
        assert answer.code == 3


def test_a_server_that_was_not_started_is_code_3(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AGENTQ_URL")
    for argv in (["ls"], ["doctor"], ["reap"], ["worker", "ls"]):
        answer = cli(*argv)
        assert sentence(answer).startswith("No server runs; start one with `agentq up`")
        assert answer.code == 3
    assert list(tmp_path.rglob("socket")) == []


def test_a_wrong_password_is_code_4(cli: Cli, valkey: Server) -> None:
    answer = cli("--url", f"{valkey.url}?username=nobody&password=wrong", "ls")

    assert "does not accept the user and password" in sentence(answer)
    assert answer.code == 4


def test_a_wrong_password_fails_the_doctor_with_code_4(cli: Cli, valkey: Server) -> None:
    answer = cli("--url", f"{valkey.url}?username=nobody&password=wrong", "doctor", "--json")

    (finding,) = (json.loads(line) for line in answer.lines)
    assert (finding["check"], finding["verdict"]) == ("login", "fail")
    assert "does not accept the user and password" in finding["found"]
    assert answer.code == 4


def user(real: World, *rights: str) -> str:
    """A user of the server with these rights, as words for its address."""
    real.store.connection.command("ACL", "SETUSER", "limited", "reset", "on", ">pw", *rights)
    return "?username=limited&password=pw"


def test_a_user_who_may_not_touch_our_keys_fails_the_doctor_with_code_4(cli: Cli, real: World, valkey: Server) -> None:
    answer = cli("--url", valkey.url + user(real, "~other:*", "+@all"), "doctor")

    assert "fail schema" in answer.out
    assert answer.code == 4


def test_a_user_who_may_not_ask_info_is_warned_of_what_is_unknown(cli: Cli, real: World, valkey: Server) -> None:
    answer = cli("--url", valkey.url + user(real, "~agentq:*", "~test-*", "+@all", "-info"), "doctor")

    (line,) = (line for line in answer.lines if "INFO" in line)
    assert line.startswith("warn information")
    assert "version, eviction, persistence and memory are unknown" in line
    assert "fail" not in answer.out
    assert answer.code == 0


@pytest.mark.redis_only("the coordinator meets that server")
def test_a_server_that_is_too_old_is_refused_by_every_command(cli: Cli, real: World, valkey: Server) -> None:
    info = real.store.connection.command("INFO", "server")
    version = info.partition("redis_version:")[2].split()[0]
    words = {f"redis_version:{version}".encode(): b"redis_version:6" + version[1:].encode()}
    with Renaming(valkey, words | {b"valkey_version:": b"another_number:"}) as old:
        for argv in (["ls"], ["submit", "--", "true"], ["worker", "ls"], ["reap"]):
            answer = cli("--url", old.url, *argv)
            assert sentence(answer) == f"The server is Redis 6{version[1:]}, which is too old; upgrade it to 7.0."
            assert answer.code == 5
        diagnosis = cli("--url", old.url, "doctor")
    assert diagnosis.code == 1
    assert diagnosis.out.count("too old") == 2
    assert real.dump() == {f"{real.store.keyspace.root} pending": {}}


@pytest.mark.redis_only("the coordinator refuses it when it starts")
def test_a_namespace_of_another_version_is_refused(cli: Cli, real: World) -> None:
    real.submit()
    real.store.connection.command("SET", f"{real.store.keyspace.root}schema", "agentq 9.0")
    try:
        for argv in (["ls"], ["submit", "--", "true"]):
            answer = cli(*argv)
            assert "holds data of 'agentq 9.0'" in sentence(answer)
            assert answer.code == 5
    finally:
        real.store.connection.command("SET", f"{real.store.keyspace.root}schema", SCHEMA_MARKER)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("speed = 3", "There is no setting 'speed', which stands in {path}"),
        ("url = ", "The settings in {path} cannot be read"),
        ("lease_ms = 'long'", "A setting in {path} is wrong: lease_ms"),
        ("lease_ms = 100", "lease_ms must be at least"),
        ("[runs]\nslots = 2", "There is no setting 'runs', which stands in {path}"),
        ("[worker]\nslot = 2", "There is no setting 'worker.slot', which stands in {path}"),
        ("[worker]\nslots = 0", "A setting in {path} is wrong: slots"),
        ("[worker]\nqueues = 'a b'", "A setting in {path} is wrong: queues"),
        ("worker = 2", "The settings in {path} cannot be read: [worker] is a table"),
    ],
)
def test_a_wrong_settings_file_is_named(cli: Cli, here: Path, text: str, words: str) -> None:
    path = here / "agentq.toml"
    path.write_text(text)

    answer = cli("--config", str(path), "ls")

    assert words.format(path=path) in sentence(answer)
    assert answer.code == 2


def test_a_full_server_says_try_later(cli: Cli, real: World, backend: str) -> None:
    """Nothing is taken in, and the code is 75."""
    real.submit()
    command = real.store.connection.command
    command("CONFIG", "SET", "maxmemory", "1")
    try:
        answer = cli("submit", "--", "true")
    finally:
        command("CONFIG", "SET", "maxmemory", "0")

    assert ("takes no new work" if backend == "redis" else "takes nothing at the moment") in sentence(answer)
    assert answer.code == 75
