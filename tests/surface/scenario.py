"""Every verb that knows `--json`, said once or more on a real server, and what each of them printed.

What a verb tells of needs runs that have come to something: those are claimed, reported and ended here by hand, so that
nothing depends on who is quicker.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cli.conftest import Cli
from support.golden_files import outline
from support.repositories import Depot
from support.workspaces import Workshop
from support.world import World
from surface.parts import titled
from surface.shapes import Shapes

from agentq.coordinator.model.agent_events import (
    FileChangeEvent,
    ResultEvent,
    SpendingEvent,
    StartedEvent,
    TextEvent,
    ToolCallEvent,
)
from agentq.coordinator.model.spec import AgentOutcome, AgentSpending, Outcome
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.runs.wait import RunWait
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.coordinator.webhooks.delivery import DeliveryMessage, DeliveryResult, WebhookLease
from agentq.coordinator.workers.lease import WorkerLease

PLAN = """
name: shop
tasks:
- {id: a, command: make}
- {id: b, needs: a, command: make b, labels: {team: z}, retries: 2, retry: {delay: 1h}}
"""
FULL = (
    "submit --json --name nightly --queue night --priority 3 --timeout 10m --retries 2 --delay 1h --expires 1d "
    "--label team=z --demand gpu=a100 --limit repo:acme --env A=1 --cwd /srv -- make test"
)


class Scene:
    """One person at a terminal, and what they said and were told."""

    def __init__(self, cli: Cli, world: World, here: Path, url: str) -> None:
        self.cli = cli
        self.world = world
        self.here = here
        namespace = world.store.keyspace.namespace
        self.names = {str(here): "<here>", str(here.parent): "<folder>", url: "<url>", namespace: "<namespace>"}
        self.names |= {sys.executable: "<python>"}
        """What differs, and what stands for it."""
        self.told: list[tuple[str, int, list[Any]]] = []

    def say(self, words: str, *, code: int = 0, without: Sequence[str] = ()) -> list[Any]:
        """Say a verb; what it printed. Of fields that are `without`, only their names are kept."""
        answer = self.cli(*shlex.split(words))
        assert answer.code == code, f"{words}: {answer.code} {answer.err}"
        printed = [json.loads(line) for line in answer.lines]
        kept = [each | {name: "<text>" for name in without if name in each} for each in printed]
        self.told.append((words, code, kept))
        return printed

    def lines(self) -> Iterator[str]:
        """All of it, as shapes."""
        shapes = Shapes(self.names)
        for words, code, printed in self.told:
            yield from titled(f"agentq {shapes.named(words)}", [f"exit code {code}"] if code else [])
            for each in printed:
                yield from outline([shapes.of(each)])


class Hands:
    """The worker of a scene."""

    def __init__(self, scene: Scene, name: str = "w1", **identity: Any) -> None:
        self.queue = scene.world.queue
        self.store = scene.world.store
        identity = {"slots": 9, "queues": ("default", "night"), **identity}
        self.lease: WorkerLease = scene.world.worker(name, *identity.pop("queues"), **identity)

    def take(self) -> Claim:
        """Claim what is next, and start it."""
        (claim,) = self.lease.claim(1, 1)
        assert self.queue.start([claim]) == [None]
        return claim

    def write(self, claim: Claim, *chunks: LogChunk) -> None:
        self.queue.log(claim, 1, chunks)

    def finish(self, claim: Claim, **outcome: Any) -> None:
        assert self.queue.finish([(claim, Outcome(**{"exit_code": 0, **outcome}))]) == [None]

    def fail(self, claim: Claim) -> None:
        told = {"class": "exit", "exit_code": 3, "error": "exited with code 3", "tail": "no rule\n"}
        self.queue.fail(claim, Outcome.model_validate(told))


def runs(scene: Scene) -> None:
    """From a submit to an end, of every kind."""
    say = scene.say
    say("reap --json")
    say("why --json " + say(FULL)[0]["id"])
    hands = Hands(scene, labels={"gpu": "a100"})
    done = say("submit --json --label team=z -- make")[0]["id"]
    claim = hands.take()
    scene.world.queue.report(claim, 1, {"percent": 50, "text": "half of it"})
    hands.write(claim, LogChunk("out", "built\n"), LogChunk("err", "a warning\n"), LogChunk("note", "ended\n"))
    say(f"show --json {done}")
    hands.finish(claim, result={"n": 1}, tail="built\n")
    for words in (f"show {done}", f"logs {done}", f"why {done}", f"wait {done}", f"events --run {done}"):
        say(f"{words} --json")
    failed = say("submit --json --function shop:price '[1, \"tea\"]'")[0]["id"]
    hands.fail(hands.take())
    say(f"wait --json {failed}", code=1)
    say(f"why --json {failed}")
    say("dead ls --json")
    say(f"dead show --json {failed}")
    say(f"dead retry --json {failed}")
    hands.fail(hands.take())
    say("dead purge --json --all --dry-run")
    say("dead purge --json --all --yes")
    say(f"retry --json {done}")
    say("ls --json --state live")
    say(f"cancel --json {done} --reason enough")
    say("cancel --json --queue night --dry-run")
    waiting(scene, hands)


def waiting(scene: Scene, hands: Hands) -> None:
    """Runs that wait for a word."""
    say = scene.say
    for verb in ("approve --comment good", "deny --comment bad"):
        run = say("submit --json -- release")[0]["id"]
        scene.world.queue.park(hands.take(), "may I?", RunWait(approval=True, signals=("go",)))
        say(f"show --json {run}")
        say(f"why --json {run}")
        say(f"{verb} --json {run}")
        hands.finish(hands.take())
    run = say("submit --json -- deploy")[0]["id"]
    scene.world.queue.park(hands.take(), wait=RunWait(signals=("go",)))
    say(f"""signal --json {run} go --data '{{"version": "1.2"}}'""")


def agents(scene: Scene) -> None:
    """Agents, and conversations with them."""
    say = scene.say
    say("agents --json")
    say("agents show --json claude")
    say("agents check --json standin", without=("found",))
    say("session new --json chat --agent claude --model opus --max-cost 5 --cwd /srv")
    hands = Hands(scene, labels={"agent.claude": "ready"})
    turn = say("session send --json chat 'Why does it fail?' --permissions full")[0]["id"]
    say("session send --json chat 'Mend it.'")
    claim = hands.take()
    kept = AgentConversations(scene.world.store)
    kept.bind(claim, "agents-own", host="elsewhere", account="work", model="opus", movable=True)
    spent = AgentSpending(cost_usd=0.5, input_tokens=10, output_tokens=3, turns=1)
    kept.spend(claim, spent)
    did = (
        StartedEvent(session="agents-own"),
        ToolCallEvent(tool="Bash", about="make"),
        FileChangeEvent(path="a.py"),
        TextEvent(text="So."),
    )
    told = (*did, SpendingEvent(cost_usd=0.5, turns=1), ResultEvent(ok=True, text="So."))
    hands.write(claim, LogChunk("event", "".join(each.model_dump_json() + "\n" for each in told)))
    word = AgentOutcome(
        verdict="ok", session="agents-own", model="opus", account="work", spent=spent, denials=("Bash",)
    )
    hands.finish(claim, agent=word, result="So.")
    say(f"show --json {turn}")
    say(f"logs --json {turn}")
    say("session show --json chat")
    say("session log --json chat")
    say("session fork --json chat second")
    say("session ls --json")
    say("session close --json chat second")
    hinted = say("submit --json --agent claude --max-turns 3 --expect changes 'Mend the parser'")[0]["id"]
    say(f"hint --json {hinted} 'Look at line 3.'")


def plans(scene: Scene) -> None:
    """Plans as files, and carried out by a worker that is there."""
    say = scene.say
    (scene.here / "plan.yaml").write_text(PLAN)
    (scene.here / "wrong.yaml").write_text("tasks:\n- {id: a, comand: make}\n")
    say("plan validate --json plan.yaml")
    say("plan validate --json wrong.yaml", code=2)
    say("run --json --dry-run plan.yaml")
    plan = say("plan submit --json plan.yaml")[0]["id"]
    scene.names[plan] = "<plan>"
    say("plan ls --json")
    hands = Hands(scene, labels={"host": socket.gethostname()})
    hands.finish(hands.take())
    hands.fail(hands.take())
    say(f"plan show --json {plan}")
    say(f"why --json {plan}/b")
    say(f"plan cancel --json {plan} --reason enough")
    say(f"plan retry --json {plan} --all")
    hands.finish(hands.take())
    say(f"resume --json {plan} --workers 0")
    say(f"plan resume --json {plan} --workers 0")
    say("events --json")


def schedules(scene: Scene) -> None:
    """Schedules, and what became of them."""
    say = scene.say
    say("schedule add --json nightly --cron '30 2 * * *' --tz Europe/Berlin --overlap queue --catch-up 1h -- make test")
    say("schedule add --json poll --every 10m -- ./poll.sh")
    say("schedule run --json nightly")
    for words in ("ls", "show nightly", "pause nightly", "resume nightly", "rm poll"):
        verb, _, name = words.partition(" ")
        say(f"schedule {verb} --json {name}")


def administration(scene: Scene) -> None:
    """What an operator looks at and sets."""
    say, cli = scene.say, scene.cli
    hands = Hands(scene, labels={"gpu": "a100"})
    run = say("submit --json --limit repo:acme --fair-key ann -- make")[0]["id"]
    hands.take()
    for words in (
        "limit set repo:acme 1 --rate 10/1m",
        "limit shut repo:acme --for 1h",
        "queue pause night --why maintenance",
    ):
        assert cli(*words.split()).code == 0, words
    say("submit --json --limit repo:acme -- make")
    for words in ("limit ls", "limit show repo:acme", "queue ls", "worker ls", "worker show w1"):
        say(f"{words} --json")
    say("submit --json --queue night -- make")
    for words in ("queue move night late", "queue purge late --dry-run", "queue purge late --yes"):
        say(f"{words} --json")
    Hands(scene, "w2")
    say("worker drain --json w1")
    say("worker stop --json w2")
    token = say("token new --json ci --scope submit,read --queue default --expires 30d --rate 100/1s")[0]["id"]
    scene.names[token] = "<id>"
    say("token ls --json")
    say(f"token revoke --json {token}")
    say("webhook add --json https://example.com/agentq --name hook --event failed --queue default")
    telling = WebhookLease(scene.world.store, "hook", "deliverer")
    telling.acquire()
    telling.record(
        DeliveryMessage("msg_1", "run.failed", "{}", ""), DeliveryResult(False, 500, "it answered 500", 12), "1"
    )
    say("webhook ls --json")
    say("webhook deliveries --json hook")
    say("rq export --json --queue default")
    say(f"show --json {run}")


def machine(scene: Scene) -> None:
    """This machine, and the server: the words of their checks are of the machine, so that only their kinds are kept."""
    say = scene.say
    say("version --json")
    say("config --json")
    say("doctor --json", without=("found", "do", "verdict"))
    say("down --json")
    depot = Depot(scene.here.parent / "depot")
    depot.commit("begin", a__txt="a\n")
    shop = Workshop(Path(os.environ["AGENTQ_HOME"]))
    job = shop.begin(depot.path, "run_a")
    (job.path / "left").write_text("left\n")
    job.close(failed="exited with code 1")
    shop.begin(depot.path, "run_b")
    say("worktree ls --json --size")
    say("worktree prune --json --all")
    say("worktree prune --json --all --yes")


ACTS = {act.__name__: act for act in (runs, agents, plans, schedules, administration, machine)}
NOT_SAID = {"bench": "it measures for minutes"}
"""Verbs that know `--json` and are in no act, with the reason."""
