"""What an operator says: queues, limits, tokens, webhooks and workers, on Redis and through a coordinator alike."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import pytest
from cli.conftest import Cli, sentence
from support.world import World

from agentq.coordinator.events.event_filter import EventFilter
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.security.tokens import Tokens
from agentq.coordinator.webhooks.verbs import Webhooks

ADDRESS = "https://93.184.216.34/agentq"
"""One that no name server is asked about."""
NAME = "use up to 128 letters, digits and _ . @ + -, beginning with a letter or digit."
KEY = "use up to 128 letters, digits and _ . @ / : + -, beginning with a letter or digit."


def records(cli: Cli, *words: str) -> list[dict[str, Any]]:
    answer = cli(*words, "--json")
    assert answer.code == 0, answer.err
    return [json.loads(line) for line in answer.lines]


def test_a_queue_is_paused_shown_and_resumed(cli: Cli, real: World) -> None:
    real.held("w1")
    real.submit(queue="default")

    paused = cli("queue", "pause", "default", "--why", "maintenance")
    (record,) = records(cli, "queue", "ls")
    (row,) = cli("queue", "ls").lines

    assert (paused.out, paused.err) == ("default\tpaused\n", "agentq: 1 that was claimed before goes on.\n")
    assert (record["queue"], record["pending"], record["claimed"]) == ("default", 1, 1)
    assert (record["paused"]["queue"], record["paused"]["why"]) == ("default", "maintenance")
    assert row.endswith("\tpaused: maintenance")
    assert cli("queue", "resume", "default").out == "default\tresumed\n"
    assert real.queues.paused() == {}


def test_all_queues_are_paused_together(cli: Cli, real: World) -> None:
    real.submit(queue="builds")
    assert cli("queue", "pause", "--all").out == "*\tpaused\n"

    assert records(cli, "queue", "ls")[0]["paused"]["queue"] == "*"
    assert cli("queue", "resume", "--all").out == "*\tresumed\n"


def test_a_queue_is_drained_until_nothing_is_left(cli: Cli, real: World) -> None:
    held = real.held("w1", started=True)

    late = cli("queue", "drain", "default", "--wait", "--timeout", "1ms")
    ender = threading.Timer(0.1, lambda: real.queue.finish([(held, Outcome(exit_code=0))]))
    ender.start()
    done = cli("queue", "drain", "default", "--wait", "--timeout", "20s")
    ender.join()

    assert (late.code, late.err) == (124, "agentq: 1 run is left in default.\n")
    assert (done.code, done.out) == (0, "default\tdraining\n")
    assert cli("submit", "--queue", "default", "--", "true").code == 75


def test_a_queue_is_moved_weighed_and_purged(cli: Cli, real: World) -> None:
    runs = [real.submit(queue="builds") for _ in range(2)]
    late = real.submit(queue="builds", delay_ms=60_000)

    assert cli("queue", "pause", "bilds").err == "agentq: no queue is called bilds; did you mean builds?\n"
    assert cli("queue", "weigh", "builds", "team-a", "3").out == "builds\tteam-a\t3\n"
    assert records(cli, "queue", "move", "builds", "slow") == [{"queue": "builds", "moved": 3}]
    assert cli("queue", "purge", "slow", "--dry-run").out == "slow\t3 would be cancelled\n"
    assert cli("queue", "purge", "slow", "--state", "scheduled", "--yes").out == "slow\t1 cancelled\n"
    assert real.states([*runs, late]) == ["pending", "pending", "cancelled"]
    assert cli("queue", "purge", "slow", "--yes").out == "slow\t2 cancelled\n"


def test_a_limit_is_shown_with_who_holds_it(cli: Cli, real: World) -> None:
    assert cli("limit", "set", "repo:acme", "2", "--rate", "10/1m", "--burst", "20", "--when-full", "keep-latest").out
    held = [real.held(f"w{at}", limits={"repo:acme": 1}).id for at in range(2)]
    real.submit(limits={"repo:acme": 1})
    cli("limit", "shut", "repo:acme", "--until", "2030-01-01T00:00:00Z", "--why", "usage limit")

    (shown,) = records(cli, "limit", "show", "repo:acme")
    text = cli("limit", "show", "repo:acme").out

    assert sorted(shown.pop("holders")) == sorted(held)
    assert shown == records(cli, "limit", "ls")[0]
    assert shown == {
        "key": "repo:acme",
        "max": 2,
        "rate": {"units": 10, "per_ms": 60_000, "burst": 20},
        "when_full": "keep_latest",
        "shut_until": "2030-01-01T00:00:00.000Z",
        "shut_why": "usage limit",
        "held": 2,
        "waiting": 1,
    }
    assert all(run in text for run in held)
    assert "2 runs at once and 10 in 1 m, 20 at once" in text
    assert cli("limit", "open", "repo:acme").out == "repo:acme\topen\n"
    assert sentence(cli("limit", "open", "repo:acme")) == "The limit repo:acme is not shut."
    assert cli("limit", "rm", "repo:acme").code == 0
    assert real.limits.all() == []


def test_a_token_is_made_listed_and_revoked(cli: Cli, real: World) -> None:
    made = cli("token", "new", "ci/main", "--scope", "submit,read", "--queue", "builds", "--rate", "5/1s")
    (listed,) = records(cli, "token", "ls")

    assert made.out.startswith(f"aq_client_{listed['id']}_")
    assert f"token {listed['id']} can submit, read in builds" in made.err
    assert (listed["name"], listed["queues"]) == ("ci/main", ["builds"])
    assert listed["rate"] == {"units": 5, "per_ms": 1000, "burst": 5}
    assert cli("token", "revoke", "ci/main").out == "ci/main\trevoked\n"
    assert Tokens(real.store).all() == []


def test_a_webhook_is_added_paused_rotated_and_removed(cli: Cli, real: World) -> None:
    made = cli("webhook", "add", ADDRESS, "--name", "hook", "--event", "failed", "--queue", "builds")
    (listed,) = records(cli, "webhook", "ls")

    assert re.fullmatch(r"hook\twhsec_\S+\n", made.out)
    assert "It is told of event failed; queue builds." in made.err
    assert (listed["url"], listed["filter"]["queues"], listed["state"]) == (ADDRESS, ["builds"], "active")
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT.*Z", listed["created_at"])
    assert cli("webhook", "pause", "hook", "--why", "it moves").out == "hook\tpaused\n"
    assert (records(cli, "webhook", "ls")[0]["why"], cli("webhook", "test", "hook").code) == ("it moves", 5)
    assert cli("webhook", "resume", "hook").out == "hook\tactive\n"
    rotated = cli("webhook", "rotate", "hook", "--overlap", "1h").out
    assert re.fullmatch(r"hook\twhsec_\S+\n", rotated)
    assert rotated != made.out
    assert cli("webhook", "deliveries", "hook").out == ""
    assert cli("webhook", "rm", "hook").out == "hook\tremoved\n"
    assert Webhooks(real.store).all() == []


def test_a_worker_is_asked_to_leave_in_the_words_of_the_operator(
    cli: Cli, real: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "ann")
    lease = real.worker("w1")

    assert cli("worker", "stop", "w1").out == "w1\tdraining\n"

    assert [order.order for order in lease.heartbeat().orders] == ["hurry"]
    assert [event.detail for event in real.all_events() if event.event == "worker_draining"] == ["asked by ann"]


WRONG = {
    "no queue": (["queue", "pause"], "Name the queues, or give --all."),
    "a queue and all": (["queue", "pause", "a", "--all"], "Name queues or give --all, not both."),
    "what is no queue": (["queue", "pause", "a b"], f"'a b' is not the name of a queue: {NAME}"),
    "a path for a queue": (["queue", "resume", "../limits"], f"'../limits' is not the name of a queue: {NAME}"),
    "an empty queue": (["queue", "drain", ""], f"'' is not the name of a queue: {NAME}"),
    "to drain all": (["queue", "drain", "*"], f"'*' is not the name of a queue: {NAME}"),
    "what is not paused": (["queue", "resume", "a"], "The queue a is not paused; `agentq queue ls` shows what is."),
    "a wait of no wait": (["queue", "drain", "a", "--timeout", "1s"], "--timeout means nothing without --wait."),
    "to purge what runs": (
        ["queue", "purge", "a", "--state", "running"],
        "--state running: only runs that are pending, scheduled or blocked wait in a queue.",
    ),
    "to move to itself": (["queue", "move", "a", "a"], "Runs of a are in that queue already; name another."),
    "to move to no queue": (["queue", "move", "a", "b c"], f"'b c' is not the name of a queue: {NAME}"),
    "no weight": (["queue", "weigh", "a", "k", "0"], "A weight is a number from 0.01 to 1000, not 0.0."),
    "a weight that is none": (["queue", "weigh", "a", "k", "nan"], "A weight is a number from 0.01 to 1000, not nan."),
    "what is no limit": (["limit", "set", "a b", "1"], f"'a b' is not the name of a limit: {KEY}"),
    "less than nothing": (
        ["limit", "set", "--", "a", "-1"],
        "A limit is a whole number of runs from 0 to 1000000000, such as 3, not -1.",
    ),
    "to cancel for nothing": (
        ["limit", "set", "a", "0", "--when-full", "cancel-running"],
        "A limit that cancels what runs needs a number of runs, of 1 or more.",
    ),
    "an unknown limit": (
        ["limit", "show", "a/shut"],
        "There is no limit a/shut; `agentq limit ls` shows those that there are.",
    ),
    "an unknown limit to remove": (
        ["limit", "rm", "a"],
        "There is no limit a; `agentq limit ls` shows those that there are.",
    ),
    "shut for no time": (
        ["limit", "shut", "a", "--for", "0s"],
        "--for: 0s is not a positive duration; write it like 2h.",
    ),
    "a token without a name": (
        ["token", "new", "", "--scope", "read"],
        "The token is not valid: name: 1 character is the least.",
    ),
    "a token with a line": (
        ["token", "new", "a\nb", "--scope", "read"],
        "The token is not valid: name: use characters that can be printed.",
    ),
    "a runner that reads": (
        ["token", "new", "a", "--kind", "runner", "--scope", "read"],
        "A token of a runner has the scope work, and no other.",
    ),
    "a token of no queue": (
        ["token", "new", "a", "--scope", "read", "--queue", "a b"],
        f"The token is not valid: queues.0: {NAME}",
    ),
    "a token for no time": (
        ["token", "new", "a", "--scope", "read", "--expires", "0s"],
        "The token is not valid: expires_ms: it should be greater than 0.",
    ),
    "a rate that is none": (
        ["token", "new", "a", "--scope", "read", "--rate", "fast"],
        "'fast' is not a rate; write it like 100/1s or 5000/1h.",
    ),
    "an unknown token": (
        ["token", "revoke", "a/b ?#%2F"],
        "There is no token a/b ?#%2F; `agentq token ls` shows those that there are.",
    ),
    "no token": (["token", "revoke", ""], "There is no token ; `agentq token ls` shows those that there are."),
    "an unknown tree": (
        ["token", "revoke", "--with-what-it-made", "../x"],
        "There is no token ../x, and nothing that it has made.",
    ),
    "an unknown worker": (
        ["worker", "show", "w9"],
        "There is no worker 'w9'; `agentq worker ls --all` shows those that there are.",
    ),
    "what is no address": (
        ["webhook", "add", "nonsense"],
        "The address of a webhook looks like https://example.com/agentq.",
    ),
    "an address with a password": (
        ["webhook", "add", "https://user:pw@example.com/"],
        "The address of a webhook has no user or password in it; it is signed instead.",
    ),
    "what is no webhook": (["webhook", "pause", "a b"], f"'a b' is not the name of a webhook: {NAME}"),
    "an unknown webhook": (
        ["webhook", "test", "nobody"],
        "There is no webhook nobody; `agentq webhook ls` shows those that there are.",
    ),
    "a filter that is wrong": (
        ["webhook", "add", ADDRESS, "--queue", "a b"],
        f"The filter is wrong: queues.0: {NAME}",
    ),
    "a run that is not there": (
        ["webhook", "add", ADDRESS, "--run", "zzz"],
        "There is no run 'zzz'; `agentq ls` shows those that there are.",
    ),
    "an old secret for ages": (
        ["webhook", "rotate", "hook", "--overlap", "99d"],
        "A secret that was replaced signs for 30 d at the most, not 99 d.",
    ),
    "an unknown message": (
        ["webhook", "redeliver", "hook", "a/b"],
        "The log of the webhook hook has no message 'a/b'; it keeps the last 200.",
    ),
    "what is no schedule": (["schedule", "pause", "a/b"], f"'a/b' is not the name of a schedule: {NAME}"),
}


@pytest.mark.parametrize(("argv", "words"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_input_gets_the_same_sentence_and_changes_nothing(
    cli: Cli, real: World, argv: list[str], words: str
) -> None:
    Webhooks(real.store).add("hook", ADDRESS, EventFilter())

    with real.unchanged():
        answer = cli(*argv)

    assert sentence(answer) == words
    assert answer.code == 2


def test_a_token_of_some_queues_looks_after_these(
    cli: Cli, real: World, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue in ("builds", "others"):
        real.submit(queue=queue)
    _, token = Tokens(real.store).new("ci", ["admin"], queues=["builds"])
    if backend == "http":
        monkeypatch.setenv("AGENTQ_TOKEN", token)

        assert [each["queue"] for each in records(cli, "queue", "ls")] == ["builds"]
        refused = cli("queue", "pause", "others")
        assert sentence(refused) == "This token is for the queues builds, not for others."
        assert refused.code == 4
        assert sentence(cli("limit", "ls")) == "This token is only for the queues builds."
    assert cli("queue", "pause", "builds").out == "builds\tpaused\n"
    assert list(real.queues.paused()) == ["builds"]
